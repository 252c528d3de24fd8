/**
 * The long run of the fuzzers:
 *
 *   node test/fuzz/run.ts [--kind KIND]… [--count 3000] [--seed 1] [--seconds 20] [--megabytes 1500]
 *
 * All kinds where none is named. Prints how the cases ended and each finding; exits with 1 where there is one. Findings
 * are kept in test/fuzz/corpus: mend what they show, and commit them with the mend.
 */
import { parseArgs } from 'node:util'
import { kindNames } from './corpus.ts'
import { fuzz } from './runner.ts'

const { values } = parseArgs({
  options: {
    kind: { type: 'string', multiple: true },
    count: { type: 'string', default: '3000' },
    seed: { type: 'string', default: '1' },
    seconds: { type: 'string', default: '20' },
    megabytes: { type: 'string', default: '1500' },
  },
})
const whole = (name: 'count' | 'seed' | 'seconds' | 'megabytes'): number => {
  const value = Number(values[name])
  if (Number.isInteger(value) && value >= 0 && value < 2 ** 31) return value
  console.error(`--${name} is ${values[name]}, expected a whole number from 0 to 2³¹ − 1.`)
  process.exit(2)
}
const unknown = values.kind?.find((kind) => !kindNames().includes(kind))
if (unknown !== undefined) {
  console.error(`There is no kind "${unknown}"; there are ${kindNames().join(', ')}.`)
  process.exit(2)
}
const [count, seed, seconds, bytes] = [whole('count'), whole('seed'), whole('seconds'), whole('megabytes') * 1e6]
let failed = false
for (const kind of values.kind ?? kindNames()) {
  const began = performance.now()
  const { replayed, made, ends, findings, peakBytes } = await fuzz({ kind, count, seed, seconds, bytes })
  const told = [...ends].sort((a, b) => b[1] - a[1]).map(([end, times]) => `${times} ${end}`)
  console.log(
    `${kind}: ${replayed} of the corpus and ${made} made with seed ${seed} in ${((performance.now() - began) / 1000).toFixed(0)} s: ${told.join(', ')}; peak ${Math.round(peakBytes / 1e6)} MB; ${findings.length} findings`,
  )
  for (const { at, base, what, path } of findings) {
    failed = true
    console.log(
      `  ${at < 0 ? 'corpus' : `#${at}`} ${base}: ${what.replaceAll('\n', '\n    ')}${path === undefined ? '' : `\n    ${path}`}`,
    )
  }
}
process.exitCode = failed ? 1 : 0
