/**
 * What quantising costs in nats: `npx node bench/quantize.ts --calibrate TEXT [--text FILE]… [--model DIR]… [--bytes
 * 131072] [--groups 32,64]`. Every shipped model (or --model) is quantised in every format and rounding, and reads the
 * beginning of each text that it was neither trained on nor calibrated with (default: docs/demo/harbour-log.txt).
 * Printed are nats a token, and the mean divergence of the predictions from those of the package as it is, behind the
 * first 2,000 tokens of each text. A token of the shipped models is a byte.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { basename, join } from 'node:path'
import { messageOf } from '../src/errors.ts'
import { openPackage } from '../src/models/open.ts'
import { GROUPS, type GroupSize, quantizePackage } from '../src/models/quantize/quantize.ts'
import type { TargetName } from '../src/models/quantize/quantizers.ts'
import type { Rounding } from '../src/models/quantize/rounding.ts'
import { divergence, predictionsOf } from '../test/models/quantize/divergence.ts'
import { parseArgs } from './options.ts'
import { root } from './support.ts'

const { values } = parseArgs({
  options: {
    calibrate: { type: 'string' },
    text: { type: 'string', multiple: true, default: [join(root, 'docs/demo/harbour-log.txt')] },
    model: {
      type: 'string',
      multiple: true,
      default: ['demo', 'recall', 'perspective'].map((name) => join(root, 'models', name)),
    },
    bytes: { type: 'string', default: String(2 ** 17) },
    groups: { type: 'string', default: GROUPS.join() },
  },
})

interface Way {
  readonly to: TargetName
  readonly rounding: Rounding
}
const WAYS: readonly Way[] = [
  { to: 'q8', rounding: 'nearest' },
  { to: 'i4', rounding: 'nearest' },
  { to: 'i4', rounding: 'search' },
  { to: 'i4', rounding: 'importance' },
  { to: 'i4', rounding: 'compensated' },
  { to: 'ternary', rounding: 'nearest' },
]

const PLAIN = { keepPacked: false, withoutMemory: true, warn: () => {} } as const

/** Nats a token over the texts, each read from a first state in pieces that fit into one; and the predictions. */
const nats = async (
  dir: string,
  texts: readonly Uint8Array[],
): Promise<readonly [sum: number, predictions: number]> => {
  const { model, tokenizer } = await openPackage(dir, PLAIN)
  let [sum, predictions] = [0, 0]
  for (const text of texts) {
    const tokens = tokenizer === null ? Int32Array.from(text) : tokenizer.pushBytes('', text).ids
    const piece = model.positions ?? tokens.length
    for (let at = 0; at < tokens.length; at += piece) {
      const context = model.createContext()
      const [read] = await model.process([{ context, tokens: tokens.subarray(at, at + piece), nats: true }])
      for (const value of read!.nats.filter((each) => !Number.isNaN(each))) {
        sum += value
        predictions += 1
      }
      context.close()
    }
  }
  model.close()
  return [sum / predictions, predictions]
}

const DIVERGENCE_TOKENS = 2000

const predictions = async (dir: string, texts: readonly Uint8Array[]): Promise<readonly Float64Array[]> => {
  const { model, tokenizer } = await openPackage(dir, { ...PLAIN, threads: 1 })
  const out: Float64Array[] = []
  for (const text of texts) {
    const tokens = tokenizer === null ? Int32Array.from(text) : tokenizer.pushBytes('', text).ids
    const most = Math.min(DIVERGENCE_TOKENS, model.positions ?? DIVERGENCE_TOKENS)
    for (const each of await predictionsOf(model, tokens.subarray(0, most))) out.push(each)
  }
  model.close()
  return out
}

const run = async (file: string): Promise<void> => {
  const texts = values.text.map((path) => readFileSync(path).subarray(0, Number(values.bytes)))
  const folder = mkdtempSync(join(tmpdir(), 'continuo-quantize-'))
  try {
    for (const dir of values.model) {
      const [whole, count] = await nats(dir, texts)
      const original = await predictions(dir, texts)
      console.log(`\n${basename(dir)}, ${count.toLocaleString('en')} tokens\n`)
      console.log('| | group | bits a weight | relative RMS error | nats | divergence |')
      console.log('| --- | --- | --- | --- | --- | --- |')
      console.log(`| as it is | | 16 | | ${whole.toFixed(4)} | |`)
      for (const group of values.groups.split(',').map(Number) as GroupSize[]) {
        for (const { to, rounding } of WAYS) {
          const out = join(folder, `${basename(dir)}-${to}-${rounding}-${group}`)
          const needsText = rounding === 'importance' || rounding === 'compensated'
          const done = await quantizePackage({ dir, out, to, group, rounding, ...(needsText && { calibrate: file }) })
          const [found] = await nats(out, texts)
          const name = to === 'i4' ? `${to}, ${rounding}` : to
          console.log(
            `| ${name} | ${group} | ${done.bitsPerWeight.toFixed(2)} | ${done.relativeRmsError.toFixed(4)} | ${found.toFixed(4)} | ${divergence(original, await predictions(out, texts)).toFixed(5)} |`,
          )
          rmSync(out, { recursive: true })
        }
      }
    }
  } finally {
    rmSync(folder, { recursive: true, force: true })
  }
}

if (values.calibrate === undefined) {
  console.error('Name a text to calibrate with: --calibrate FILE. It must be none of the texts that are measured.')
  process.exitCode = 2
} else {
  await run(values.calibrate).catch((error: unknown) => {
    console.error(messageOf(error))
    process.exitCode = 1
  })
}
