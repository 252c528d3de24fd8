/**
 * The sessions that a fork descends from. A child has a snapshot from its first record on, so its parents are not
 * needed while that can be read. Otherwise, and for `verify`, parents are computed again from their events, with their
 * own parents.
 */
import { ContinuoError } from '../../errors.ts'
import type { Head } from '../../state/head.ts'
import type { EventLog } from '../../streams/log.ts'
import { advance } from '../advance/advance.ts'
import { parentOf, sessionFor } from '../advance/fork.ts'
import type { SessionState } from '../advance/session-state.ts'
import { SessionLost } from '../advance/set-aside.ts'
import { tokenizeEvent } from '../pipeline/tokenize.ts'
import { type ValidateOptions, validateRecord } from '../pipeline/validate.ts'
import type { Valid } from '../types.ts'
import { obeying, type ReplayDeps, sessionEvents } from './replay.ts'

/** An `open` with `from` in the input, accepted or not. */
export interface ForkEvent {
  readonly child: string
  readonly parent: string
  readonly offset: number
}

/** A JSON string may be written with escapes. */
const ESCAPE = '\\u'

/** The events in [from, until) whose bytes have one of these marks, or escapes that may hide it. */
async function* markedEvents(
  log: EventLog,
  topic: string,
  partition: number,
  [from, until]: readonly [from: number, until: number],
  marks: readonly string[],
  validation: ValidateOptions,
  signal?: AbortSignal,
): AsyncGenerator<Valid> {
  if (validation.format !== 'json') return
  const options = { until, undecodable: true, ...(signal && { signal }) }
  for await (const batch of log.read(topic, partition, from, options)) {
    for (const record of batch.records) {
      const { value } = record
      if (value === null) continue
      const bytes = Buffer.from(value.buffer, value.byteOffset, value.length)
      if (![...marks, ESCAPE].some((mark) => bytes.includes(mark))) continue
      const valid = validateRecord(record, validation)
      if (valid.kind === 'valid') yield valid
    }
  }
}

/** All forks that the records of [from, until) ask for, in order. */
export const forkEvents = async (
  log: EventLog,
  topic: string,
  partition: number,
  range: readonly [from: number, until: number],
  validation: ValidateOptions,
  signal?: AbortSignal,
): Promise<readonly ForkEvent[]> => {
  const found: ForkEvent[] = []
  for await (const event of markedEvents(log, topic, partition, range, ['from'], validation, signal)) {
    const parent = parentOf(event)
    if (parent !== null && parent !== event.session)
      found.push({ child: event.session, parent, offset: event.record.offset })
  }
  return found
}

/** The `delete` events of [from, until), accepted or not: their sessions by their offsets. */
export const deleteEvents = async (
  log: EventLog,
  topic: string,
  partition: number,
  range: readonly [from: number, until: number],
  validation: ValidateOptions,
): Promise<ReadonlyMap<number, string>> => {
  const found = new Map<number, string>()
  for await (const { event, session, record } of markedEvents(log, topic, partition, range, ['delete'], validation))
    if (event.type === 'delete') found.set(record.offset, session)
  return found
}

/** The first offset below `until` whose record is not there; Infinity: all are. */
export const firstGap = async (
  log: EventLog,
  topic: string,
  partition: number,
  [from, until]: readonly [from: number, until: number],
): Promise<number> => {
  if (from > 0) return 0
  let next = 0
  for await (const batch of log.read(topic, partition, from, { until, undecodable: true }))
    for (const { offset } of batch.records) {
      if (offset > next) return next
      next = offset + 1
    }
  return next < until ? next : Number.POSITIVE_INFINITY
}

/**
 * The sessions whose states these need that are computed up to these offsets, themselves among them, each with the
 * offset up to which it is needed itself: their parents, the parents of those, and so on.
 */
export const withAncestors = (
  forks: readonly ForkEvent[],
  wanted: Iterable<readonly [session: string, until: number]>,
): ReadonlyMap<string, number> => {
  const needed = new Map(wanted)
  // From the last to the first: when a fork is looked at, all that could need its child is known.
  for (const { child, parent, offset } of forks.toReversed()) {
    if (offset >= (needed.get(child) ?? -1)) continue
    if (offset > (needed.get(parent) ?? -1)) needed.set(parent, offset)
  }
  return needed
}

/** Sessions that are computed again for the sake of one at most: each may hold a context. */
const MAX_ANCESTORS = 64

/**
 * The parent of a fork as it stood before the record at `offset`, computed from the first events that are left. Throws
 * `SessionLost` where these do not lead to the pulse and chain that the child's head names.
 */
export const parentBefore = async (
  deps: ReplayDeps,
  partition: number,
  from: NonNullable<Head['from']>,
  offset: number,
  signal?: AbortSignal,
): Promise<SessionState> => {
  const { log, names, model, validate, cancelled } = deps
  const engine = obeying(deps.engine, cancelled)
  const lost = (why: string): SessionLost =>
    new SessionLost(
      `Session "${from.session}", whose fork at pulse ${from.pulse} stands at offset ${offset} of ${names.chunks}, partition ${partition}, cannot be computed again: ${why}.`,
    )
  const checkWanted = (): void => {
    if (signal?.aborted !== true) return
    throw new ContinuoError('UNAVAILABLE', `The task stopped while session "${from.session}" was being computed again.`)
  }
  const { begin } = await log.bounds(names.chunks, partition)
  const forks = await forkEvents(log, names.chunks, partition, [begin, offset], validate, signal)
  checkWanted()
  const needed = withAncestors(forks, [[from.session, offset]])
  if (needed.size > MAX_ANCESTORS)
    throw lost(`${needed.size} sessions would have to be computed with it, and ${MAX_ANCESTORS} are the most`)
  const sessions = new Map<string, SessionState>()
  try {
    const events = sessionEvents(deps, partition, (id) => needed.has(id), begin, offset, signal)
    for await (const event of events) {
      const { session: id, record } = event
      const parent = parentOf(event)
      if (record.offset < needed.get(id)!) {
        const others = { newest: (other: string) => sessions.get(other)?.head }
        const work = tokenizeEvent(event, sessions.get(id)?.head, engine.tokenizer, model, others)
        const known = sessions.get(id)
        if (work.kind === 'tokenized' && work.event.type === 'delete') {
          known?.context.close()
          sessions.delete(id)
        } else if (work.kind === 'tokenized') {
          const { session, fresh } = await sessionFor(work, known, model, sessions.get(parent ?? ''))
          sessions.set(id, session)
          for await (const _ of advance(session, work, fresh, engine)) checkWanted()
        }
      }
      if (parent === null || needed.get(parent) !== record.offset) continue
      sessions.get(parent)?.context.close()
      sessions.delete(parent)
    }
    checkWanted()
    const found = sessions.get(from.session)
    if (found === undefined) throw lost('none of its events is left')
    const { conductor, chain, status } = found.head
    if (status !== 'open' || conductor.globalStep !== from.pulse || chain !== from.chain)
      throw lost(`its events lead to pulse ${conductor.globalStep} and chain ${chain}, expected chain ${from.chain}`)
    sessions.delete(from.session)
    return found
  } finally {
    for (const { context } of sessions.values()) context.close()
  }
}
