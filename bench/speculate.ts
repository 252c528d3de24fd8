/**
 * What guesses of tokens gain, and what they cost where nothing can be guessed (docs/speculation.md).
 *
 *   node bench/speculate.ts [--cases edit,quoting,logs,code,prose,chance,demo] [--sessions 1,16] [--temperatures 0,0.8,1.5]
 *                           [--tokens 8] [--rounds 7] [--count 96] [--threads 2] [--format f16] [--draft-model DIR]
 *
 * Two engines in one process have the same weights: one guesses, one does not. In each round both go on with the same
 * sessions, one after the other, with another one first in the next round; what they wrote and the chains of the
 * sessions must be equal. The first round warms up. A ratio is that of tokens per second with guesses and without, the
 * median of the rounds with the least and the greatest; of processor time, too, in which neighbours on the machine
 * matter less.
 *
 *   edit, quoting, logs, code, prose, chance   a GPT-2 of 0.1B that writes the text (written.ts): a source file once more with other names,
 *                                              passages of what it read, a table of numbers, a source file, a story, and tokens at random. The
 *                                              temperature is 0.8, and matters only to what a draw costs
 *   demo                                       models/demo in the shape of RWKV-7 0.1B (wide-demo.ts), which writes what comes at each
 *                                              of the temperatures, behind a passage of docs/demo/harbour-log.txt
 *
 * --draft-model: a package whose guesses are taken beside those from the past. It reads bytes, so `demo` has its 256
 * tokens then.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { count, table } from '../src/cli/output.ts'
import type { OpenModelOptions } from '../src/engine/options.ts'
import { quantizePackage } from '../src/models/quantize/quantize.ts'
import { closePair, openPair, type Pair, type Piece, readPrompts, type Side, spread, writeOn } from './guessing.ts'
import { parseArgs } from './options.ts'
import { median, root } from './support.ts'
import { writeWideDemo } from './wide-demo.ts'
import { idsOf, TEXTS, writeWritten } from './written.ts'

const { values } = parseArgs({
  options: {
    cases: { type: 'string', default: [...Object.keys(TEXTS), 'demo'].join() },
    sessions: { type: 'string', default: '1,16' },
    temperatures: { type: 'string', default: '0,0.8,1.5' },
    tokens: { type: 'string', default: '8' },
    rounds: { type: 'string', default: '7' },
    count: { type: 'string', default: '96' },
    threads: { type: 'string', default: '2' },
    format: { type: 'string', default: 'f16' },
    'draft-model': { type: 'string' },
  },
})
const [rounds, written, threads] = [Number(values.rounds), Number(values.count), Number(values.threads)]
const draftModel = values['draft-model']

/** Of the side that guesses. */
const guessingOptions: Partial<OpenModelOptions> & { readonly draftModel?: string } =
  draftModel === undefined ? {} : { draftModel }
const rows: string[][] = []

const measure = async (
  name: string,
  { plain, guessing }: Pair,
  prompts: readonly Int32Array[],
  temperature: number,
): Promise<void> => {
  for (const side of [plain, guessing]) await readPrompts(side, prompts)
  const before = { ...guessing.model.stats }
  const pieces: [Piece, Piece][] = []
  for (let round = 0; round <= rounds; round += 1) {
    const sides = round % 2 === 0 ? [plain, guessing] : [guessing, plain]
    const both = new Map<Side, Piece>()
    for (const side of sides) both.set(side, await writeOn(side, written, temperature))
    const pair: [Piece, Piece] = [both.get(plain)!, both.get(guessing)!]
    for (let i = 0; i < prompts.length; i += 1)
      if (Buffer.compare(Buffer.from(pair[0].ids[i]!.buffer), Buffer.from(pair[1].ids[i]!.buffer)) !== 0)
        throw new Error(`${name}, session ${i}, round ${round}: other tokens with guesses than without.`)
    if (round > 0) pieces.push(pair)
  }
  for (const [i, context] of plain.contexts.entries())
    if (context.chain !== guessing.contexts[i]!.chain)
      throw new Error(`${name}, session ${i}: another chain with guesses than without.`)
  const after = guessing.model.stats
  const [drafted, kept] = [after.drafted - before.drafted, after.kept - before.kept]
  const tokens = written * prompts.length
  const steps = after.steps - before.steps
  const speed = (side: 0 | 1): string => count(median(pieces.map((pair) => tokens / pair[side].seconds)))
  rows.push([
    name,
    `${prompts.length}`,
    speed(0),
    speed(1),
    spread(pieces.map(([a, b]) => a.seconds / b.seconds)),
    spread(pieces.map(([a, b]) => a.cpu / b.cpu)),
    drafted === 0 ? '–' : `${((100 * kept) / drafted).toFixed(0)} %`,
    (drafted / ((rounds + 1) * tokens)).toFixed(2),
    ((tokens * (rounds + 1)) / steps / prompts.length).toFixed(2),
  ])
  console.error(rows.at(-1)!.join('  '))
}

const sessions = values.sessions.split(',').map(Number)
const dir = mkdtempSync(join(tmpdir(), 'continuo-speculate-'))
/** A package of the format that was asked for, from one of sixteen bits. */
const inFormat = async (from: string): Promise<string> => {
  if (values.format !== 'q8' && values.format !== 'i4') return from
  const out = `${from}-${values.format}`
  await quantizePackage({ dir: from, out, to: values.format as 'q8', group: 32 })
  return out
}
const inBoth = async (folder: string, run: (both: Pair) => Promise<void>): Promise<void> => {
  const both = await openPair(await inFormat(folder), threads, { tokens: Number(values.tokens) }, guessingOptions)
  await run(both)
  closePair(both)
  for (const path of [folder, `${folder}-${values.format}`]) rmSync(path, { recursive: true, force: true })
}

try {
  const names = values.cases.split(',')
  for (const name of names.filter((each) => each in TEXTS)) {
    const text = idsOf(name)
    const folder = join(dir, name)
    writeWritten(text, values.format === 'bf16' ? 'bf16' : 'f16', { dir: folder, gguf: join(dir, 'same.gguf') })
    await inBoth(folder, async (both) => {
      const room = text.ids.length - text.prompt - (rounds + 1) * written
      if (room < 0) throw new Error(`${name} has not so many tokens: take fewer --rounds, or a smaller --count.`)
      for (const n of sessions) {
        // Sessions stand at different places of the text.
        const prompts = Array.from({ length: n }, (_, i) =>
          text.ids.subarray(0, text.prompt + Math.floor((i * room) / n)),
        )
        await measure(name, both, prompts, 0.8)
      }
    })
  }
  if (names.includes('demo')) {
    const folder = join(dir, 'demo')
    await writeWideDemo(folder, draftModel === undefined ? undefined : 256)
    const log = readFileSync(join(root, 'docs/demo/harbour-log.txt'))
    await inBoth(folder, async (both) => {
      for (const temperature of values.temperatures.split(',').map(Number))
        for (const n of sessions) {
          const prompts = Array.from({ length: n }, (_, i) => Int32Array.from(log.subarray(i * 500, i * 500 + 500)))
          await measure(`demo at ${temperature}`, both, prompts, temperature)
        }
    })
  }
  console.log(
    `${values.format}, ${threads} threads, at most ${values.tokens} guesses, ${rounds} rounds of ${written} tokens a session\n`,
  )
  console.log(
    table(
      ['text', '>sessions', '>tokens/s', '>with', '>ratio', '>of CPU time', '>kept', '>drafted/token', '>tokens/step'],
      rows,
    ),
  )
} finally {
  rmSync(dir, { recursive: true, force: true })
}
