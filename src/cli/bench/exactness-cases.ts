/**
 * One arithmetic, on one set of kernels: the same sequences through every number of threads, cut of chunks and size of
 * batch. Runs in the process whose CONTINUO_ISA or device chose the kernels (exactness-child.ts).
 */
import { createHash } from 'node:crypto'
import type { Context } from '../../engine/context.ts'
import type { DeviceKind } from '../../engine/options.ts'
import type { Model } from '../../engine/types.ts'
import { openModel } from '../../models/open.ts'

export interface Matrix {
  readonly threads: readonly number[]
  /** Tokens a call. */
  readonly chunks: readonly number[]
  /** Sessions that share the calls. */
  readonly batches: readonly number[]
  /** Length of the first session's sequence; the others' are shorter, so that batches thin out. */
  readonly tokens: number
}

export interface Case {
  readonly dir: string
  readonly threads: number
  readonly chunk: number
  readonly batch: number
  /**
   * Of each session: its chain, and a hash over its surprisals, generated tokens, their logprobs and the last logits.
   */
  readonly prints: readonly string[]
}

const GENERATE = 12
const SHARES = [5, 9, 14, 20]

/** Token ids [length] that differ from session to session and are the same everywhere. */
export const sequence = (session: number, length: number, vocabSize: number): Int32Array => {
  let state = (session + 1) * 0x9e3779b9
  return Int32Array.from({ length }, () => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0
    return Math.floor((state / 2 ** 32) * vocabSize)
  })
}

interface Reader {
  readonly context: Context
  readonly ids: Int32Array
  readonly nats: boolean
  readonly hash: ReturnType<typeof createHash>
  at: number
}

const readerOf = (model: Model, session: number, tokens: number): Reader => ({
  context: model.createContext(),
  ids: sequence(
    session,
    session === 0 ? tokens : Math.ceil(tokens / SHARES[session % SHARES.length]!),
    model.vocabSize,
  ).subarray(0, Math.max(1, (model.positions ?? tokens + GENERATE) - GENERATE)),
  nats: session % 2 === 0,
  hash: createHash('sha256'),
  at: 0,
})

const bytesOf = ({ buffer, byteOffset, byteLength }: Float32Array | Int32Array): Uint8Array =>
  new Uint8Array(buffer, byteOffset, byteLength)

/**
 * A call for all readers that have tokens left. The first piece of a later session is shorter: its cuts fall elsewhere.
 */
const readOn = async (model: Model, readers: readonly Reader[], chunk: number): Promise<boolean> => {
  const work = readers.flatMap((reader, session) => {
    const { context, ids, nats, at } = reader
    if (at >= ids.length) return []
    const tokens = ids.subarray(at, at + (at === 0 ? chunk - (session % chunk) : chunk))
    reader.at += tokens.length
    return [{ reader, item: { context, tokens, nats } }]
  })
  if (work.length === 0) return false
  const results = await model.process(work.map(({ item }) => item))
  for (const [i, { reader }] of work.entries()) reader.hash.update(bytesOf(results[i]!.nats))
  return true
}

const printsOf = async (model: Model, chunk: number, batch: number, tokens: number): Promise<string[]> => {
  const readers = Array.from({ length: batch }, (_, session) => readerOf(model, session, tokens))
  while (await readOn(model, readers, chunk)) {
    // Each call reads on; the last one finds nothing left.
  }
  const results = await model.process(
    readers.map(({ context }, session) => ({
      context,
      tokens: new Int32Array(0),
      nats: false,
      generate: {
        ...{ temperature: 0.8, topK: 40, topP: 0.95, seed: BigInt(session), count: GENERATE },
        // Every other one with all that changes logits.
        ...(session % 2 === 1 && {
          minP: 0.01,
          penalties: { repetition: 1.2, presence: 0.3, frequency: 0.1, counts: new Map([[session, 2]]) },
          logitBias: new Map([[session + 1, -1.5]]),
        }),
      },
    })),
  )
  const prints: string[] = []
  for (const [session, { context, hash }] of readers.entries()) {
    const { generated, logprobs } = results[session]!
    hash
      .update(bytesOf(generated))
      .update(bytesOf(logprobs))
      .update(bytesOf(await model.logits(context)))
    prints.push(`${context.chain} ${hash.digest('hex')}`)
    context.close()
  }
  return prints
}

export async function* runCases(dirs: readonly string[], matrix: Matrix, device: DeviceKind): AsyncGenerator<Case> {
  for (const dir of dirs) {
    for (const threads of matrix.threads) {
      const model = await openModel(dir, { threads, device, keepPacked: false })
      try {
        for (const chunk of matrix.chunks)
          for (const batch of matrix.batches)
            yield { dir, threads, chunk, batch, prints: await printsOf(model, chunk, batch, matrix.tokens) }
      } finally {
        model.close()
      }
    }
  }
}
