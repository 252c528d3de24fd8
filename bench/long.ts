/**
 * What a session's length costs: one session reads on and on, to N tokens or to the last position of its model.
 *
 *   node bench/long.ts --model DIR|FILE|SHAPE [--tokens 1000000] [--text FILE] [--threads 2]
 *
 * SHAPE is one of bench/long-packages.ts (mamba2-130m, rwkv7-0.1b, smollm2-135m, llama-small, qwen35-small), written with random weights to
 * a temporary folder. The session reads the text by the package's own tokenizer, again and again; a package without one reads
 * pseudo-random ids. A row is a tenth of the way:
 *
 *   read         tokens/s over the whole tenth, in calls of 512 tokens (fewer where a tenth is short)
 *   of a short   the median of eight calls over calls beside them of a session that stands near the beginning each time: what
 *                drifts in the machine drifts in both, so this is what length costs
 *   generate     tokens/s at the end of the tenth, the median of four requests
 *   resident     memory of the process, with both sessions and the weights
 *   state        memory that the session takes: tables that grow have room for up to twice the positions that are in use
 *   a position   what of the state has grown, over the positions so far
 *
 * Ends with 1 where the state of a model without a last position has grown.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
import { sequence } from '../src/cli/bench/exactness-cases.ts'
import { bytes, count, table } from '../src/cli/output.ts'
import type { Context, Model } from '../src/engine/types.ts'
import { openPackage } from '../src/models/open.ts'
import type { Tokenizer } from '../src/models/tokenizer/index.ts'
import { SHAPES } from './long-packages.ts'
import { median, root } from './support.ts'

const TENTHS = 10
const PAIRS = 8
const REQUESTS = 4

const { values } = parseArgs({
  options: {
    model: { type: 'string' },
    tokens: { type: 'string', default: '1000000' },
    text: { type: 'string', default: join(root, 'docs/demo/harbour-log.txt') },
    threads: { type: 'string', default: '2' },
  },
})
const asked = values.model
if (asked === undefined) throw new Error(`--model is missing: a package, or one of ${Object.keys(SHAPES).join(', ')}.`)

/** Ids of the text, again and again, or pseudo-random ones. `take` returns the next `length`. */
const source = (
  model: Model,
  tokenizer: Tokenizer | null,
): { readonly what: string; take(length: number): Int32Array } => {
  const text = tokenizer === null ? null : readFileSync(values.text, 'utf8')
  const pushed = text === null ? null : tokenizer!.push('', text)
  const ids =
    pushed === null
      ? sequence(0, 1 << 16, model.vocabSize)
      : Int32Array.from([...pushed.ids, ...tokenizer!.flush(pushed.held)])
  let at = 0
  return {
    what:
      text === null
        ? `${count(ids.length)} pseudo-random ids, again and again`
        : `${values.text}, ${count(ids.length)} tokens, again and again`,
    take: (length) => Int32Array.from({ length }, () => ids[at++ % ids.length]!),
  }
}

/** Tokens read by a session, and the seconds for them. */
const read = async (model: Model, context: Context, tokens: Int32Array): Promise<number> => {
  const started = performance.now()
  await model.process([{ context, tokens, nats: false }])
  return (performance.now() - started) / 1000
}

/** Tokens a second, with `tokens` a request. */
const none = new Int32Array(0)
const generate = async (model: Model, context: Context, tokens: number): Promise<number> => {
  const speeds: number[] = []
  for (let n = 0; n < REQUESTS; n += 1) {
    const started = performance.now()
    const asking = { temperature: 0.8, topK: 40, topP: 0.95, seed: 7n, count: tokens }
    const { generated } = await model.submit({ context, tokens: none, nats: false, generate: asking })
    speeds.push(generated.length / ((performance.now() - started) / 1000))
  }
  return median(speeds)
}

interface Tenth {
  readonly to: number
  /** Tokens a second. */
  readonly speed: number
  readonly ratio: number
  readonly generated: number
  readonly resident: number
  readonly state: number
}

interface Way {
  readonly model: Model
  readonly long: Context
  /** Stands near the beginning. */
  readonly control: () => Context
  readonly take: (length: number) => Int32Array
  /** Tokens of a call that reads, and of one that generates. */
  readonly piece: number
  readonly asked: number
}

/** Goes from where the session stands to token `to`. */
const tenthOf = async ({ model, long, control, take, piece, asked }: Way, to: number): Promise<Tenth> => {
  const pieces: number[] = []
  for (let left = to - REQUESTS * asked - Number(long.pulse); left > 0; left -= piece)
    pieces.push(Math.min(piece, left))
  const every = Math.max(1, Math.floor(pieces.length / PAIRS))
  let tokens = 0
  let seconds = 0
  const ratios: number[] = []
  for (const [n, length] of pieces.entries()) {
    const ids = take(length)
    const paired = length === piece && n % every === 0
    // The two take turns at going first, in case going first costs something.
    const before = paired && ratios.length % 2 === 0 ? await read(model, control(), ids) : null
    const own = await read(model, long, ids)
    tokens += length
    seconds += own
    if (paired) ratios.push((before ?? (await read(model, control(), ids))) / own)
  }
  return {
    to,
    speed: tokens / seconds,
    ratio: median(ratios),
    generated: await generate(model, long, asked),
    resident: process.memoryUsage.rss(),
    state: long.bytes,
  }
}

const folder = mkdtempSync(join(tmpdir(), 'continuo-long-'))
try {
  const shape = SHAPES[asked]
  if (shape !== undefined) await shape(folder)
  const { model, tokenizer } = await openPackage(shape === undefined ? asked : folder, {
    threads: Number(values.threads),
    device: 'cpu',
    keepPacked: false,
  })
  const end = Math.min(Number(values.tokens), model.positions ?? Number.POSITIVE_INFINITY)
  const { what, take } = source(model, tokenizer)
  const ends = model.positions === null ? 'no last position' : `${count(model.positions)} positions`
  process.stdout.write(
    `${asked}: ${model.modelType}, ${count(model.parameters)} parameters, ${ends}; ${count(end)} tokens, ${values.threads} threads\nreads ${what}\n\n`,
  )
  const tenth = Math.floor(end / TENTHS)
  const piece = Math.min(512, Math.floor(tenth / (PAIRS + 2)))
  if (!(piece >= 16)) throw new Error(`--tokens is ${values.tokens}: a tenth of ${end} tokens is too short to measure.`)
  const start = Math.min(1000, Math.floor(tenth / 2))
  const long = model.createContext()
  const short = model.createContext()
  await read(model, long, take(start))
  const { pulse, origin, chain } = long
  const state = long.serialize()
  const control = (): Context => {
    short.restore(state, { pulse, origin, chain })
    return short
  }
  // The first calls pay for what the engine takes once.
  for (let warm = 0; warm < 4; warm += 1) await read(model, control(), take(piece))
  const way = { model, long, control, take, piece, asked: Math.min(64, Math.floor(piece / 8)) }
  const rows: Tenth[] = []
  for (let n = 1; n <= TENTHS; n += 1) {
    rows.push(await tenthOf(way, Math.round((end * n) / TENTHS)))
    process.stderr.write(`${count(Number(long.pulse))} tokens\n`)
  }
  process.stdout.write(
    `${table(
      ['>to token', '>read/s', '>of a short', '>generate/s', '>resident', '>state', '>a position'],
      rows.map(({ to, speed, ratio, generated, resident, state: held }) => [
        count(to),
        count(speed),
        ratio.toFixed(3),
        count(generated),
        bytes(resident),
        bytes(held),
        bytes(Math.round((held - model.contextBytes) / to)),
      ]),
    )}\n\n`,
  )
  const [first, last] = [rows[0]!, rows.at(-1)!]
  const over = (of: (row: Tenth) => number): string => (of(last) / of(first)).toFixed(3)
  process.stdout.write(
    `Last tenth over first: reading ${over(({ speed }) => speed)}, of a short session ${over(({ ratio }) => ratio)}, ` +
      `generating ${over(({ generated }) => generated)}.\n`,
  )
  const [shortest, longest] = [state.length, long.serialize().length]
  process.stdout.write(
    `A snapshot after ${count(start)} tokens has ${bytes(shortest)}, after ${count(end)} ${bytes(longest)}: ` +
      `${bytes(Math.round((longest - shortest) / (end - start)))} a position.\n`,
  )
  if (model.positions === null && rows.some(({ state: held }) => held !== first.state)) {
    process.stdout.write('The state of a model without a last position has grown.\n')
    process.exitCode = 1
  }
  long.close()
  short.close()
  model.close()
} finally {
  rmSync(folder, { recursive: true, force: true })
}
