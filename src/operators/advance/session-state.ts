/** A session in memory between two steps, what computes its steps, and how the engine's answers move it. */
import type { EndedBy } from '../../../topics/common.ts'
import type { Context, ContextHead } from '../../engine/context.ts'
import type { ModelInfo } from '../../engine/types.ts'
import type { AdaptRequest, WorkItem, WorkResult } from '../../engine/work.ts'
import type { Tokenizer } from '../../models/tokenizer/types.ts'
import * as conductor from '../../state/conductor.ts'
import { type Fingerprints, type Head, pulseMismatch } from '../../state/head.ts'
import { createHistory, type History } from '../../state/history.ts'
import type { StoredRecord } from '../../streams/log.ts'
import type { Tokenized } from '../types.ts'
import { cursorAt, spanFrom } from './spans.ts'

/** Computes items of work: the engine of a model, or a layer before it (the context store, a probe). */
export interface Inference {
  /** Input records before this offset leave no trace in histories (`history` of the partition's cursor); default 0. */
  readonly historyFrom?: number
  readonly model: Fingerprints & Pick<ModelInfo, 'vocabSize'> & Partial<Pick<ModelInfo, 'endTokens' | 'perspectives'>>
  readonly tokenizer: Tokenizer | null
  /** `share`: whom the work counts for (shares.ts); default: the session. */
  submit(item: WorkItem, share?: string): Promise<WorkResult>
  /**
   * What ends the request in the record at `offset` after `index` tokens, or its adaptation; null: it goes on. Asked
   * before each run. What is computed again must be told what was decided then (`cancelled` records); absent: nothing
   * ends before its own end.
   */
  readonly endedBy?: (offset: number, index: number) => EndedBy | null
  /**
   * Its signal fires when the adaptation in the record is to end. `advance` throws `AdaptingStopped` then, unless
   * `endedBy` says why. Absent: it goes on to its end.
   */
  readonly adapting?: (record: StoredRecord, id: string | null) => Pick<AdaptRequest, 'signal' | 'onBegin'>
  /** Runs another call that has the context to itself; absent where nobody closes contexts meanwhile. */
  readonly alone?: <T>(context: Context, call: () => Promise<T>) => Promise<T>
}

export const alone = <T>(
  { alone: run }: Pick<Inference, 'alone'>,
  context: Context,
  call: () => Promise<T>,
): Promise<T> => (run === undefined ? call() : run(context, call))

/** Of items that give nothing to read. */
export const NO_TOKENS = new Int32Array(0)

/** A session in memory: its head after the last step, its context, and what that was fed last. */
export interface SessionState {
  head: Head
  context: Context
  history: History
}

/** The head of a session that begins with this record: nothing read, the cursor at the record's first token. */
export const initialHead = (work: Tokenized, model: Fingerprints, chain: string): Head => ({
  type: 'head',
  version: 1,
  session: work.session,
  model: model.fingerprint,
  layout: model.layoutFingerprint,
  status: 'open',
  settings: { surprisal: false },
  cursor: { ...cursorAt(work), held: '', rng: 0, pulse: 0 },
  conductor: conductor.begin(),
  chain,
  born: work.record.offset,
  totals: { tokens: 0, predictions: 0, nats: 0, generated: 0 },
  span: spanFrom(0),
  generation: null,
  snapshot: null,
})

/** A session that begins with this record. */
export const initialSession = (work: Tokenized, model: Fingerprints, context: Context): SessionState => ({
  head: initialHead(work, model, context.chain),
  context,
  history: createHistory(),
})

/** The settings that an event gives its session. */
export const settingsOf = (event: Tokenized['event']): Head['settings'] => ({
  surprisal: event.type === 'open' && event.surprisal,
  ...(event.type === 'open' && event.novelty && { novelty: true as const, ...(event.join && { join: event.join }) }),
  ...(event.type === 'open' && event.memory && { memory: true as const }),
  ...(event.type === 'open' && event.perspectives && { perspectives: true as const }),
  ...(event.type === 'open' && event.embedding && { embedding: true as const }),
})

/** Takes over what the engine reports; stream and model must count the same pulses. */
export const moved = (head: Head, result: WorkResult, tokens: number): Head => {
  const next = conductor.advance(head.conductor, tokens)
  const pulse = Number(result.head.pulse)
  if (pulse !== next.globalStep) throw pulseMismatch(next.globalStep, pulse)
  const left = (head.archived ?? 0) + (result.events ?? []).filter(({ type }) => type === 'archive').length
  return {
    ...head,
    ...(left > 0 && { archived: left }),
    conductor: next,
    chain: result.head.chain,
    cursor: { ...head.cursor, token: head.cursor.token + tokens, rng: pulse, pulse },
  }
}

/** Notes what the context was fed, where the record is one of which histories know. `own`: as `History.fed` has it. */
export const remember = (
  { history }: SessionState,
  { record }: Tokenized,
  { historyFrom = 0 }: Inference,
  ids: ArrayLike<number>,
  own = 0,
): void => {
  if (own > 0 || record.offset >= historyFrom) history.fed(ids, own)
}

/** Clock and chain of a head, as an engine's context takes them. */
export const clockOf = ({ conductor, chain }: Head): ContextHead => ({
  pulse: BigInt(conductor.globalStep),
  origin: BigInt(conductor.origin),
  chain,
})

/** Puts the memory back to its first state, at the clock and chain of this head; a broken context is of use again. */
export const blank = (
  engine: Pick<Inference, 'alone'>,
  { context, history }: Pick<SessionState, 'context' | 'history'>,
  head: Head,
): Promise<void> => {
  history.clear()
  return alone(engine, context, () => context.load(null, clockOf(head)))
}
