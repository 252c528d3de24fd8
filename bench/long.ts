/**
 * What a session's length costs: one session reads on and on, to N tokens or to the last position of its model.
 *
 *   node bench/long.ts --model DIR|FILE|SHAPE [--tokens 1000000] [--text FILE] [--threads 2]
 *
 * SHAPE is one of bench/long-packages.ts (mamba2-130m, rwkv7-0.1b, smollm2-135m, llama-small, qwen35-small), written
 * with random weights to a temporary folder. The session reads the text by the package's own tokenizer, again and
 * again; a package without one reads pseudo-random ids. A row is a tenth of the way:
 *
 *   read/s       tokens read a second over the whole tenth, in calls of 512 tokens (fewer where a tenth is short)
 *   of a short   the speed of eight calls over that of calls beside them of a session that stands near the beginning each time, the
 *                median, by processor time: what drifts in the machine drifts in both, so this is what length costs
 *   generate/s   tokens generated a second at the end of the tenth, the median of four requests; of a short as above
 *   resident     memory of the process, with both sessions and the weights
 *   state        memory that the session takes: tables that grow have room for up to twice the positions that are in use
 *   a position   what of the state has grown, over the positions so far
 *
 * Ends with 1 where the state of a model without a last position has grown.
 */
import { mkdtempSync, readFileSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { sequence } from '../src/cli/bench/exactness-cases.ts'
import { bytes, count } from '../src/cli/output.ts'
import type { Context } from '../src/engine/context.ts'
import type { Model } from '../src/engine/types.ts'
import type { WorkItem } from '../src/engine/work.ts'
import { openPackage } from '../src/models/open.ts'
import type { Tokenizer } from '../src/models/tokenizer/index.ts'
import { SHAPES } from './long-packages.ts'
import { parseArgs } from './options.ts'
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

/** What a call took, in seconds: on the clock, and of all processors together. */
interface Took {
  readonly clock: number
  readonly cpu: number
}
const timed = async (model: Model, item: WorkItem): Promise<Took> => {
  const [started, used] = [performance.now(), process.cpuUsage()]
  await model.submit(item)
  const { user, system } = process.cpuUsage(used)
  return { clock: (performance.now() - started) / 1e3, cpu: (user + system) / 1e6 }
}

const read = (model: Model, context: Context, tokens: Int32Array): Promise<Took> =>
  timed(model, { context, tokens, nats: false })

const none = new Int32Array(0)
const generate = (model: Model, context: Context, count: number): Promise<Took> =>
  timed(model, {
    context,
    tokens: none,
    nats: false,
    generate: { temperature: 0.8, topK: 40, topP: 0.95, seed: 7n, count },
  })

interface Tenth {
  readonly to: number
  /** Tokens a second. */
  readonly speed: number
  readonly ratio: number
  readonly generated: number
  readonly generatedRatio: number
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
  readonly request: number
}

/** Goes from where the session stands to token `to`. */
const tenthOf = async ({ model, long, control, take, piece, request }: Way, to: number): Promise<Tenth> => {
  const pieces: number[] = []
  for (let left = to - REQUESTS * request - Number(long.pulse); left > 0; left -= piece)
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
    seconds += own.clock
    if (paired) ratios.push((before ?? (await read(model, control(), ids))).cpu / own.cpu)
  }
  const generated: { readonly speed: number; readonly ratio: number }[] = []
  for (let n = 0; n < REQUESTS; n += 1) {
    const own = await generate(model, long, request)
    const other = await generate(model, control(), request)
    generated.push({ speed: request / own.clock, ratio: other.cpu / own.cpu })
  }
  return {
    to,
    speed: tokens / seconds,
    ratio: median(ratios),
    generated: median(generated.map((each) => each.speed)),
    generatedRatio: median(generated.map((each) => each.ratio)),
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
  const way = { model, long, control, take, piece, request: Math.min(64, Math.floor(piece / 8)) }
  const line = (cells: readonly string[]): void =>
    void process.stdout.write(`${cells.map((cell) => cell.padStart(11)).join('')}\n`)
  line(['to token', 'read/s', 'of a short', 'generate/s', 'of a short', 'resident', 'state', 'a position'])
  const rows: Tenth[] = []
  for (let n = 1; n <= TENTHS; n += 1) {
    const row = await tenthOf(way, Math.round((end * n) / TENTHS))
    rows.push(row)
    line([
      count(row.to),
      count(row.speed),
      row.ratio.toFixed(3),
      count(row.generated),
      row.generatedRatio.toFixed(3),
      bytes(row.resident),
      bytes(row.state),
      bytes(Math.round((row.state - model.contextBytes) / row.to)),
    ])
  }
  const [first, last] = [rows[0]!, rows.at(-1)!]
  const over = (of: (row: Tenth) => number): string => (of(last) / of(first)).toFixed(3)
  process.stdout.write(
    `\nLast tenth over first: reading ${over(({ speed }) => speed)} (of a short session ${over(({ ratio }) => ratio)}), ` +
      `generating ${over(({ generated }) => generated)} (${over(({ generatedRatio }) => generatedRatio)}).\n`,
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
