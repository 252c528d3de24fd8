/** A call on a session of a SessionManager: one event through the operators of the stream. */
import type { Chunk } from '../../topics/chunks.ts'
import type { MemoryEvent, Observation } from '../../topics/observations.ts'
import type { Generated } from '../../topics/tokens.ts'
import type { Model } from '../engine/types.ts'
import type { WorkItem, WorkResult } from '../engine/work.ts'
import type { Tokenizer } from '../models/tokenizer/types.ts'
import { advance } from '../operators/advance/advance.ts'
import type { Inference } from '../operators/advance/session-state.ts'
import { tokenizeEvent } from '../operators/pipeline/tokenize.ts'
import { bounded, callOf, checkUsable, invalid, misuse, named, type SessionEntry, settledHead } from './entry.ts'
import { type OnProbe, observe, stopping } from './probe.ts'

/** What a call hears of its steps. */
export interface Observed {
  /** Surprisals of the tokens that were fed, in nats; NaN for the first of a context. */
  readonly nats?: (values: Float32Array) => void
  /** What the external memory did. */
  readonly events?: (events: readonly MemoryEvent[]) => void
  /** As a worker would write it. */
  readonly observation?: (value: Observation) => void
  /** Each run of generated tokens, in order. */
  readonly tokens?: (run: Generated) => void
  /** Asks what draws find. */
  readonly drawn?: (result: WorkResult) => void
  /** Ends the request before its next run, or the adaptation between two evaluations. */
  readonly signal?: AbortSignal | undefined
}

/** What computes the call, and who looks at the session meanwhile (`SessionManagerOptions`). */
export interface CallEngine {
  readonly model: Model
  readonly tokenizer: Tokenizer | null
  readonly submit: Inference['submit']
  readonly onProbe: OnProbe | undefined
  readonly probeEvery: number | undefined
}

/** Afterwards the session stands between two events, also when the call failed. */
export const runCall = async (
  entry: SessionEntry,
  event: Chunk,
  content: Uint8Array,
  observed: Observed,
  { model, tokenizer, submit, onProbe, probeEvery }: CallEngine,
): Promise<void> => {
  const { handle, context } = entry
  const { signal } = observed
  const { id } = handle
  if (entry.status === 'assessed' || entry.left === 0) {
    misuse(
      `The test of session "${id}" is over at pulse ${handle.pulse}. Assess it, then close it or resume a checkpoint.`,
    )
  }
  checkUsable(entry)
  const call = callOf(id, event, content, entry.calls)
  const before = handle.pulse
  const start = settledHead(entry, before, tokenizer)
  const out = tokenizeEvent(call, start, tokenizer, model)
  if (out.kind === 'rejected') return invalid(out.reason)
  entry.calls += 1
  entry.head = start
  const look = (): Promise<void> =>
    observe(onProbe!, model, id, { ...entry.head.conductor, globalStep: Number(context.pulse) }, context)
  const probed = probeEvery === undefined ? submit : stopping(submit, probeEvery, look)
  const engine = {
    model,
    tokenizer,
    endedBy: () => (signal?.aborted ? ('cancel' as const) : null),
    ...(signal && { adapting: () => ({ signal }) }),
    async submit(item: WorkItem) {
      const asks = observed.drawn !== undefined && item.generate !== undefined
      const result = await probed(asks ? { ...item, perspectives: true } : item)
      if (asks) observed.drawn(result)
      observed.nats?.(result.nats)
      observed.events?.(result.events ?? [])
      return result
    },
  }
  try {
    if (onProbe !== undefined && probeEvery === undefined) await look()
    for await (const { outputs, failure } of advance(entry, bounded(out, entry.left), false, engine)) {
      if (failure !== undefined) throw failure
      for (const output of outputs) {
        if (output.to === 'tokens') observed.tokens?.(output.value)
        if (output.to === 'observations') observed.observation?.(output.value)
        if (output.to === 'deadletters') invalid(output.reason)
      }
    }
  } catch (error) {
    throw named(error, id)
  } finally {
    entry.head = settledHead(entry, before, tokenizer)
    entry.left -= handle.pulse - before
  }
}
