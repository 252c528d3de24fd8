/**
 * Whether a model with an ngram memory behind it goes round in circles: the share of 8-grams of bytes that were
 * generated before, among 2,000 tokens behind a text, for the model alone, with a memory that learns from what it
 * reads, and with one that learns from its own draws as well.
 *
 *   node bench/draws.ts [--model models/demo] [--text docs/demo/harbour-log.txt] [--tokens 2000] [--temperature 0.8] [--seeds 5]
 */
import { mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { openPackage } from '../src/models/open.ts'
import { idsOf } from '../src/watch/costs.ts'
import { parseArgs } from './options.ts'

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: 'models/demo' },
    text: { type: 'string', default: 'docs/demo/harbour-log.txt' },
    tokens: { type: 'string', default: '2000' },
    temperature: { type: 'string', default: '0.8' },
    seeds: { type: 'string', default: '5' },
  },
})
const LENGTH = 8
const text = readFileSync(values.text)

/** The share of a text's 8-grams that stood in it before. */
const repeated = (ids: Int32Array): number => {
  const seen = new Set<string>()
  let again = 0
  const count = ids.length - LENGTH + 1
  for (let at = 0; at < count; at += 1) {
    const gram = ids.subarray(at, at + LENGTH).join()
    if (seen.has(gram)) again += 1
    seen.add(gram)
  }
  return again / count
}

const scratch = mkdtempSync(join(tmpdir(), 'continuo-draws-'))
/** The model with a memory.json beside its files. */
const withMemory = (learn: string): string => {
  const dir = mkdtempSync(join(scratch, 'model-'))
  for (const file of readdirSync(values.model)) symlinkSync(resolve(values.model, file), join(dir, file))
  writeFileSync(join(dir, 'memory.json'), JSON.stringify({ kind: 'ngram', learn }))
  return dir
}

try {
  for (const [name, dir] of [
    ['alone', values.model],
    ['memory, learns from what is read', withMemory('read')],
    ['memory, learns from draws as well', withMemory('all')],
  ] as const) {
    const { model, tokenizer } = await openPackage(dir, { threads: 2 })
    const tokens = Int32Array.from(idsOf(tokenizer!, text))
    const shares: number[] = []
    for (let seed = 1; seed <= Number(values.seeds); seed += 1) {
      const context = model.createContext()
      await model.process([{ context, tokens, nats: false }])
      const sampling = { temperature: Number(values.temperature), topK: 0, topP: 1, seed: BigInt(seed) }
      const generate = { ...sampling, count: Number(values.tokens) }
      const [result] = await model.process([{ context, tokens: new Int32Array(0), nats: false, generate }])
      shares.push(repeated(result!.generated))
      context.close()
    }
    const mean = shares.reduce((sum, share) => sum + share, 0) / shares.length
    console.log(`${name.padEnd(34)} ${mean.toFixed(3)}   ${shares.map((share) => share.toFixed(2)).join(' ')}`)
    model.close()
  }
} finally {
  rmSync(scratch, { recursive: true, force: true })
}
