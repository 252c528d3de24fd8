/** A session of a SessionManager, its calls as events of the stream's operators, and its head between two calls. */
import type { z } from 'zod'
import type { Chunk } from '../../topics/chunks.ts'
import { ContinuoError } from '../errors.ts'
import { sha256 } from '../hash.ts'
import { schemaFault } from '../issues.ts'
import type { Tokenizer } from '../models/tokenizer/types.ts'
import type { SessionState } from '../operators/advance/session-state.ts'
import { spanFrom } from '../operators/advance/spans.ts'
import type { Tokenized, Valid } from '../operators/types.ts'
import type { Head } from '../state/head.ts'
import { SpillLost } from '../state/spill.ts'
import type { SessionHandle, SessionOptions } from './types.ts'

export interface SessionEntry extends SessionState {
  readonly handle: SessionHandle
  readonly seed: number
  /** Tokens that a test may still feed. */
  left: number
  status: SessionHandle['status']
  /** Calls so far: the place of each in the session's cursor. */
  calls: number
  /** Settles when the last call made so far has had its turn. */
  turn: Promise<unknown>
}

/** The "topic" of a session whose input comes by calls; the offset counts them. */
export const CALLS = 'calls'
export const utf8 = new TextEncoder()

export const misuse = (message: string): never => {
  throw new ContinuoError('MISUSE', message)
}
export const invalid = (message: string): never => {
  throw new ContinuoError('INVALID', message)
}
export const parsed = <T>(schema: z.ZodType<T>, value: unknown, what: string): T => {
  const result = schema.safeParse(value)
  if (result.success) return result.data
  const { path, message } = schemaFault(result.error)
  return invalid(`${what}${path.length > 0 ? `, field "${path.join('.')}"` : ''}: ${message}.`)
}

export const checkWhole = (value: number | undefined, name: string, least: number): void => {
  if (value === undefined || (Number.isSafeInteger(value) && value >= least)) return
  invalid(`${name} is ${value}, expected a whole number from ${least} on.`)
}

/** `calls` distinguishes the cursor of a session that has its input from nowhere else. */
export const callOf = (id: string, event: Chunk, content: Uint8Array, offset: number): Valid => ({
  kind: 'valid',
  record: { topic: CALLS, partition: 0, offset, timestamp: 0, key: utf8.encode(id), value: content, headers: [] },
  session: id,
  event,
  hash: sha256(content),
})

/**
 * A session whose memory stopped being finite has none any more: there is nothing to read into, to look at or to save.
 */
export const checkUsable = ({ head }: SessionEntry): void => {
  if (head.status !== 'stopped') return
  throw new ContinuoError(
    'REFUSED',
    `The memory of session "${head.session}" stopped being finite at a call before this one. Close the session, then begin it anew or resume a checkpoint.`,
  )
}

/** The head between two events, also after one that failed. `before`: the pulse at which that event began. */
export const settledHead = ({ head, context }: SessionEntry, before: number, tokenizer: Tokenizer | null): Head => {
  const { complete, held } = head.cursor
  // Clock and chain are the context's: what it fed before a failure stays fed, though the sums do not know of it.
  const pulse = Number(context.pulse)
  const { totals } = head
  return {
    ...head,
    generation: null,
    conductor: { ...head.conductor, globalStep: pulse },
    chain: context.chain,
    span: spanFrom(pulse),
    // What was fed before a call failed counts as read; its surprisal is not known.
    totals: { ...totals, tokens: pulse - totals.generated },
    cursor: {
      ...head.cursor,
      complete: true,
      // What was held is fed first: behind an event that ended early it must not be fed again.
      held: complete || pulse === before ? held : (tokenizer?.begun ?? ''),
      rng: pulse,
      pulse,
    },
  }
}

/** The event, cut to the tokens that a test may still feed. */
export const bounded = (work: Tokenized, left: number): Tokenized => {
  const ids = work.ids.subarray(0, Math.min(work.ids.length, left))
  if (work.event.type !== 'generate') return { ...work, ids }
  return { ...work, ids, event: { ...work.event, maxTokens: Math.min(work.event.maxTokens, left - ids.length) } }
}

export const named = (error: unknown, session: string): unknown =>
  error instanceof ContinuoError && error.code === 'REFUSED' && !(error instanceof SpillLost)
    ? new ContinuoError('REFUSED', `Session "${session}": ${error.message}`, { cause: error })
    : error

/** A session that begins here, or goes on from a head. Throws INVALID for options that cannot be. */
export const openEntry = (
  head: Head,
  context: SessionState['context'],
  history: SessionState['history'],
  { phase, tokens, seed = 0 }: SessionOptions,
): SessionEntry => {
  checkWhole(tokens, 'tokens', 1)
  checkWhole(seed, 'seed', 0)
  if (tokens !== undefined && head.conductor.phase !== 'test')
    invalid(`tokens bounds a test; session "${head.session}" has phase "${head.conductor.phase}".`)
  if (phase !== undefined && phase !== 'stream' && phase !== 'test')
    invalid(`phase is "${String(phase)}", expected "stream" or "test".`)
  const handle: SessionHandle = {
    id: head.session,
    get status() {
      return entry.status
    },
    get head() {
      return entry.head
    },
    get pulse() {
      return entry.head.conductor.globalStep
    },
    get chain() {
      return entry.head.chain
    },
    get bytes() {
      return entry.context.bytes
    },
  }
  const left = tokens ?? Number.POSITIVE_INFINITY
  const entry: SessionEntry = {
    ...{ head, context, history, handle, seed, left },
    ...{ status: 'open', calls: 0, turn: Promise.resolve() },
  }
  return entry
}
