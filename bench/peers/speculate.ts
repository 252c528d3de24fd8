/**
 * Guesses from the past in Continuo, and llama.cpp with the lookup decoding of node-llama-cpp
 * (InputLookupTokenPredictor): on the same weights, each side with guesses and without.
 *
 *   node speculate.ts [--texts edit,quoting,code,prose] [--tokens 8] [--rounds 5] [--count 96] [--threads 2]
 *
 * A GPT-2 of 0.1B writes the text (../written.ts), and must write it on all sides. The sides take turns in every round.
 * The first round warms up. llama.cpp draws greedily, because its guesses are checked against greedy draws; Continuo
 * draws at 0.8.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { createRequire } from 'node:module'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { pathToFileURL } from 'node:url'
import { count, table } from '../../src/cli/output.ts'
import { closePair, openPair, readPrompts, type Side, spread, writeOn } from '../guessing.ts'
import { parseArgs } from '../options.ts'
import { median } from '../support.ts'
import { idsOf, POSITIONS, type WrittenText, writeWritten } from '../written.ts'
import { hasOneThread, runWithOneThread } from './pool.ts'

const { values } = parseArgs({
  options: {
    texts: { type: 'string', default: 'edit,quoting,code,prose' },
    tokens: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '5' },
    count: { type: 'string', default: '96' },
    threads: { type: 'string', default: '2' },
  },
})
if (!hasOneThread()) process.exit(runWithOneThread())
const [tokens, rounds, written, threads] = [values.tokens, values.rounds, values.count, values.threads].map(Number) as [
  number,
  number,
  number,
  number,
]

/** The part of node-llama-cpp that this bench calls. */
interface Predictor {
  updateInputTokens(ids: readonly number[]): void
}
interface Sequence {
  evaluate(
    ids: readonly number[],
    options: { readonly temperature: 0; readonly yieldEogToken: true },
  ): AsyncGenerator<number, void>
  readonly tokenPredictions: { readonly validated: number; readonly refuted: number }
}
interface Peer {
  getLlama(options: { readonly gpu: false; readonly build: 'never'; readonly logLevel: 'error' }): Promise<{
    loadModel(options: { readonly modelPath: string; readonly gpuLayers: 0 }): Promise<{
      createContext(options: {
        readonly contextSize: number
        readonly sequences: number
        readonly threads: number
      }): Promise<{ getSequence(options: { readonly tokenPredictor?: Predictor }): Sequence }>
      dispose(): Promise<void>
    }>
  }>
  InputLookupTokenPredictor: new (options: { readonly predictionLength: { readonly max: number } }) => Predictor
}

const load = async (): Promise<Peer> => {
  let path: string
  try {
    path = createRequire(import.meta.url).resolve('node-llama-cpp')
  } catch (cause) {
    throw new Error('node-llama-cpp is not installed. Run `npm ci` in bench/peers, on Linux x64 with glibc.', { cause })
  }
  return (await import(pathToFileURL(path).href)) as Peer
}

/** Goes on for so many tokens, and returns the seconds that they took. */
type Go = () => Promise<number>

const checked = (text: WrittenText, at: number, id: number, side: string): void => {
  if (text.ids[at] !== id) throw new Error(`${side} writes another token than the text's at position ${at}.`)
}

const peer = await load()
const llama = await peer.getLlama({ gpu: false, build: 'never', logLevel: 'error' })

const theirs = async (
  text: WrittenText,
  sequence: Sequence,
  predictor: Predictor | null,
  side: string,
): Promise<Go> => {
  const prompt = [...text.ids.subarray(0, text.prompt)]
  predictor?.updateInputTokens(prompt)
  const generator = sequence.evaluate(prompt, { temperature: 0, yieldEogToken: true })
  let at = text.prompt
  const next = async (): Promise<void> => {
    const { value } = await generator.next()
    checked(text, at, value as number, side)
    at += 1
  }
  await next()
  return async () => {
    const started = performance.now()
    for (let n = 0; n < written; n += 1) await next()
    return (performance.now() - started) / 1000
  }
}

const ours = async (text: WrittenText, side: Side, name: string): Promise<Go> => {
  await readPrompts(side, [text.ids.subarray(0, text.prompt)])
  let at = text.prompt
  return async () => {
    const { seconds, ids } = await writeOn(side, written, 0.8)
    for (const id of ids[0]!) checked(text, at++, id, name)
    return seconds
  }
}

const rows: string[][] = []
for (const name of values.texts.split(',')) {
  const text = idsOf(name)
  const dir = mkdtempSync(join(tmpdir(), 'continuo-speculate-'))
  try {
    const files = { dir: join(dir, 'package'), gguf: join(dir, 'model.gguf') }
    writeWritten(text, 'f16', files)
    const pair = await openPair(files.dir, threads, { tokens })
    const model = await llama.loadModel({ modelPath: files.gguf, gpuLayers: 0 })
    const context = await model.createContext({ contextSize: POSITIONS, sequences: 2, threads })
    const predictor = new peer.InputLookupTokenPredictor({ predictionLength: { max: tokens } })
    const guessing = context.getSequence({ tokenPredictor: predictor })
    const sides: readonly Go[] = [
      await ours(text, pair.plain, 'Continuo'),
      await ours(text, pair.guessing, 'Continuo with guesses'),
      await theirs(text, context.getSequence({}), null, 'llama.cpp'),
      await theirs(text, guessing, predictor, 'llama.cpp with guesses'),
    ]
    const took: number[][] = sides.map(() => [])
    for (let round = 0; round <= rounds; round += 1)
      for (let n = 0; n < sides.length; n += 1) {
        const side = (n + round) % sides.length
        const seconds = await sides[side]!()
        if (round > 0) took[side]!.push(seconds)
      }
    const speed = (side: number): string => count(median(took[side]!.map((seconds) => written / seconds)))
    const gain = (side: number): string =>
      spread(took[side]!.map((seconds, round) => seconds / took[side + 1]![round]!))
    const { drafted, kept } = pair.guessing.model.stats
    const { validated, refuted } = guessing.tokenPredictions
    const share = (part: number, of: number): string => (of === 0 ? '–' : `${((100 * part) / of).toFixed(0)} %`)
    rows.push([
      ...[name, speed(0), speed(1), gain(0), share(kept, drafted)],
      ...[speed(2), speed(3), gain(2), share(validated, validated + refuted)],
    ])
    console.error(rows.at(-1)!.join('  '))
    closePair(pair)
    await model.dispose()
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
}
const columns = ['>Continuo', '>with', '>ratio', '>kept', '>llama.cpp', '>with', '>ratio', '>kept']
console.log(
  `f16, ${threads} threads, at most ${tokens} guesses, ${rounds} rounds of ${written} tokens; tokens a second\n`,
)
console.log(table(['text', ...columns], rows))
process.exit(0)
