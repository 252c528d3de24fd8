/**
 * What each part of an ngram memory gives (docs/ngram.md): logs read without it, by the reference in double precision
 * that the tests compare the engine with.
 *
 *   node bench/ablations.ts [--logs DIR] [--names Apache,…] [--lines 2000] [--only 1,2,…]
 *
 * The messages of each log are read as one session from an empty state, from the weights of models/watch. Bits as a
 * ratio to those of the whole memory, the mean over the logs, of all lines and of the second half. Some kB a second:
 * the reference is made to be read. --only: rows of the table by number.
 */
import { join } from 'node:path'
import { table } from '../src/cli/output.ts'
import { watchModel } from '../src/places.ts'
import { ngramReference, type Part } from '../test/models/ngram/reference.ts'
import { shippedLearned } from '../test/models/ngram/texts.ts'
import { parseArgs } from './options.ts'
import { logsIn, readLog } from './streams/logs.ts'
import { mean } from './streams/measures.ts'
import { root } from './support.ts'

const { values } = parseArgs({
  options: {
    logs: { type: 'string', default: join(root, '..', 'shared', 'data', 'logs') },
    names: { type: 'string' },
    lines: { type: 'string', default: '2000' },
    only: { type: 'string' },
  },
})
const SLOTS = 58_368

/** Numbers of contexts as docs/ngram.md counts them. */
const VARIANTS: readonly (readonly [name: string, without: readonly Part[], learned: boolean])[] = [
  ['nothing: the whole memory', [], true],
  ['what other texts taught before', [], false],
  ['2 to 4 bytes (0–2)', [0, 1, 2], true],
  ['words (3)', [3], true],
  ['lines (4–7)', [4, 5, 6, 7], true],
  ['fields (8, 11–13)', [8, 11, 12, 13], true],
  ['bytes left out (9, 10)', [9, 10], true],
  ['what followed (14, 15)', [14, 15], true],
  ['numbers (17–21)', [17, 18, 19, 20, 21], true],
  ['the match (16 and its vote)', [16, 'match'], true],
  ['learning of the votes’ weights', ['weights'], true],
  ['learning of the scales', ['scales'], true],
  ['dense logits', ['dense'], true],
  ['the correction', ['correction'], true],
]

const names = values.names?.split(',') ?? logsIn(values.logs)
const texts = names.map((name) =>
  readLog(values.logs, name)
    .lines.slice(0, Number(values.lines))
    .map(({ content }) => Buffer.from(`${content}\n`)),
)
const learned = shippedLearned(watchModel)

/** Bits of all lines, and of the second half. */
const bitsOf = (lines: readonly Uint8Array[], without: readonly Part[], isLearned: boolean): [number, number] => {
  const memory = ngramReference(SLOTS, isLearned ? learned : null, new Set(without))
  let logits: Float64Array | null = null
  let [all, last] = [0, 0]
  for (const [at, line] of lines.entries())
    for (const byte of line) {
      let bits = 8
      if (logits !== null) {
        const most = Math.max(...logits)
        const total = logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0)
        bits = (Math.log(total) + most - logits[byte]!) / Math.LN2
      }
      all += bits
      if (at >= lines.length / 2) last += bits
      logits = memory.step(byte)
    }
  return [all, last]
}

const chosen = values.only?.split(',').map(Number) ?? VARIANTS.map((_, at) => at)
const whole = texts.map((lines) => bitsOf(lines, [], true))
const rows = chosen.map((at) => {
  const [name, without, isLearned] = VARIANTS[at]!
  const found = without.length === 0 && isLearned ? whole : texts.map((lines) => bitsOf(lines, without, isLearned))
  const ratio = (part: 0 | 1): string => mean(found.map((bits, log) => bits[part] / whole[log]![part])).toFixed(3)
  return [ratio(0), ratio(1), name] as const
})
console.log(table(['all', 'second half', 'without'], rows))
