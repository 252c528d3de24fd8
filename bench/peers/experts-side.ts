/**
 * One side of experts.ts in a process of its own, so that its memory can be bounded: opens the model, reads a text
 * until memory holds what it can, then measures. Prints one line of JSON.
 */
import { readFileSync } from 'node:fs'
import type { ExpertOptions } from '../../src/engine/options.ts'
import type { ExpertStatistics } from '../../src/engine/types.ts'
import { openModel } from '../../src/models/open.ts'
import { observed } from './calm.ts'
import { idsOf } from './check.ts'
import { openLlama } from './llama.ts'
import { loadLlama } from './llama-binding.ts'

export interface Request {
  /** A GGUF file for llama.cpp, the folder of a package for Continuo. */
  readonly llama: string | null
  readonly continuo: string | null
  readonly experts?: ExpertOptions
  readonly threads: number
  readonly vocabulary: number
  readonly tokens: number
  readonly prefill: number
}

export interface Measured {
  /** Seconds until the model was open. */
  readonly open: number
  /** Tokens a second, and bytes that came from the disk for a token. */
  readonly decode: number
  readonly decodeRead: number
  readonly prefill: number
  readonly prefillRead: number
  /** Of Continuo's store while decoding: the share of hits, and of the time that computing waited for a record. */
  readonly hits: number | null
  readonly waited: number | null
  /** The share of the CPUs' time that other processes took while decoding. */
  readonly others: number
  /** Memory of the process at the end that is no file's, bytes. */
  readonly anonymous: number
}

/** The longest time for decoding, ms, and the least number of tokens all the same. */
const PATIENCE = 10_000
const LEAST = 16

interface Session {
  fresh(): Promise<void>
  /** Appends, and computes the logits behind the last. */
  append(ids: Int32Array): Promise<unknown>
  statistics(): ExpertStatistics | null
}

const field = (path: string, pattern: RegExp): number => Number(pattern.exec(readFileSync(path, 'utf8'))?.[1])
/** Bytes that the disk was read for this process: by calls past the page cache, and by page faults. */
const diskBytes = (): number => field('/proc/self/io', /^read_bytes: (\d+)/m)
const anonymousBytes = (): number => 1024 * field('/proc/self/status', /^RssAnon:\s+(\d+) kB/m)

const openSide = async ({ llama, continuo, experts, threads }: Request): Promise<Session> => {
  if (llama !== null) {
    const side = await openLlama(await loadLlama(), llama, { threads, sessions: 1, flashAttention: false })
    return { fresh: side.fresh, append: (ids) => side.append(Uint32Array.from(ids)), statistics: () => null }
  }
  const model = await openModel(continuo!, { threads, device: 'cpu', warn: () => {}, ...(experts && { experts }) })
  const context = model.createContext()
  return {
    async fresh() {
      context.reset()
    },
    async append(tokens) {
      await model.process([{ context, tokens, nats: false }])
      return model.logits(context)
    },
    statistics: () => model.experts?.statistics ?? null,
  }
}

const request = JSON.parse(process.argv[2]!) as Request
const { vocabulary, tokens, prefill } = request
const began = performance.now()
const side = await openSide(request)
const open = (performance.now() - began) / 1000
// All ids of the vocabulary in an order that does not repeat: no text has a part that makes the next one's routes.
const ids = idsOf(vocabulary, vocabulary)
const [text, written] = [ids.subarray(0, prefill), ids.subarray(vocabulary - tokens)]

interface Run<T> {
  readonly result: T
  readonly seconds: number
  readonly bytes: number
  readonly before: ExpertStatistics | null
  readonly after: ExpertStatistics | null
}
const timed = async <T>(work: () => Promise<T>): Promise<Run<T>> => {
  const [before, bytes, started] = [side.statistics(), diskBytes(), performance.now()]
  const result = await work()
  const seconds = (performance.now() - started) / 1000
  return { result, seconds, bytes: diskBytes() - bytes, before, after: side.statistics() }
}
const read = (): Promise<unknown> => side.append(text)
/** The tokens are given and not drawn, so both sides are routed alike. Returns how many there was time for. */
const write = async (): Promise<number> => {
  const end = performance.now() + PATIENCE
  let at = 0
  while (at < tokens && (at < LEAST || performance.now() < end)) {
    await side.append(written.subarray(at, at + 1))
    at += 1
  }
  return at
}
// Once unmeasured: what has room comes into memory.
await side.fresh()
await read()
await write()
await side.fresh()
const filled = await timed(read)
const { result: decoded, others } = await observed(() => timed(write))
const { before, after } = decoded
const measured: Measured = {
  open,
  prefill: prefill / filled.seconds,
  prefillRead: filled.bytes / prefill,
  decode: decoded.result / decoded.seconds,
  decodeRead: decoded.bytes / decoded.result,
  hits: before && after && (after.hits - before.hits) / (after.uses - before.uses),
  waited: before && after && (after.waitSeconds - before.waitSeconds) / decoded.seconds,
  others,
  anonymous: anonymousBytes(),
}
process.stdout.write(`${JSON.stringify(measured)}\n`)
process.exit(0)
