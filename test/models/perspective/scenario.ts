/**
 * A fixed story of two sessions of a perspective model: read, draw, adapt, draw again. What it leaves is one text, the
 * same wherever and however it ran. Without vitest, so that a process of its own can tell it (scenario-child.ts).
 */
import { createHash } from 'node:crypto'
import type { EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import type { WorkItem, WorkResult } from '../../../src/engine/work.ts'

export interface Telling {
  /** Tokens a call. */
  readonly chunk: number
  /** Whether the sessions share their calls; else one ends before the other begins. */
  readonly together: boolean
}

const none = new Int32Array(0)

/** One session's calls, one after the other. */
const callsOf = (session: number, vocabulary: number, chunk: number): Omit<WorkItem, 'context'>[] => {
  const tokens = (count: number, by: number): Omit<WorkItem, 'context'>[] => {
    const ids = Int32Array.from({ length: count }, (_, i) => ((i + 3 * session) * 7919 + by * 31 + i * i) % vocabulary)
    return Array.from({ length: Math.ceil(count / chunk) }, (_, i) => ({
      tokens: ids.subarray(i * chunk, (i + 1) * chunk),
      nats: true,
    }))
  }
  const seed = BigInt(40 + session)
  const generate = (count: number, temperature: number): Omit<WorkItem, 'context'> => ({
    ...{ tokens: none, nats: false, perspectives: true },
    generate: { count, temperature, topK: 0, topP: 0.95, seed },
  })
  const adapt = (evaluations: number): Omit<WorkItem, 'context'> => ({
    ...{ tokens: none, nats: false },
    request: { type: 'adapt', evaluations, seed },
  })
  return [
    ...tokens(29, 1),
    generate(3, 0.8),
    adapt(22),
    generate(4, 1.2),
    ...tokens(7 + session, 2),
    adapt(15 + session),
    ...tokens(5, 3),
    generate(3, 0),
  ]
}

const exact = (_: string, value: unknown): unknown => {
  if (typeof value === 'bigint') return `${value}`
  // A number's every bit, and NaN as itself.
  if (ArrayBuffer.isView(value)) return Buffer.from(value.buffer, value.byteOffset, value.byteLength).toString('hex')
  return value
}

/**
 * Results but for heads, whose pulses and chains depend on how tokens were cut into calls; surprisals one after the
 * other.
 */
const noted = (results: readonly WorkResult[]): string =>
  JSON.stringify(
    {
      nats: results.flatMap(({ nats }) => Array.from(new Uint32Array(nats.slice().buffer))),
      rest: results.filter(({ nats }) => nats.length === 0).map(({ head: _, nats: __, ...rest }) => rest),
    },
    exact,
  )

const hashed = (text: string | Uint8Array): string => createHash('sha256').update(text).digest('hex')

/** Of each session: its chain, and hashes of all that it was told, of its state, of its last logits. */
export const tell = async (model: Model, { chunk, together }: Telling): Promise<string> => {
  const sessions = [0, 1].map((session) => ({
    context: model.createContext(),
    calls: callsOf(session, model.vocabSize, chunk),
    results: [] as WorkResult[],
  }))
  const call = async (contexts: readonly EngineContext[]): Promise<void> => {
    const asked = sessions.filter(({ context, calls }) => contexts.includes(context) && calls.length > 0)
    const results = await model.process(asked.map(({ context, calls }) => ({ context, ...calls.shift()! })))
    for (const [i, { results: own }] of asked.entries()) own.push(results[i]!)
  }
  const groups = together ? [sessions] : sessions.map((session) => [session])
  for (const group of groups) {
    while (group.some(({ calls }) => calls.length > 0)) await call(group.map(({ context }) => context))
  }
  const out: string[] = []
  for (const { context, results } of sessions) {
    const logits = await model.logits(context)
    out.push(
      [context.chain, hashed(noted(results)), hashed(context.serialize()), hashed(new Uint8Array(logits.buffer))].join(
        ' ',
      ),
    )
    context.close()
  }
  return out.join('\n')
}
