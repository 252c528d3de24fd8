/**
 * Requests under `verify` that did not come to their own ends. At which token a cancel took effect, and whether an
 * adaptation was ended, follows from nothing in the input, so the `cancelled` record is obeyed; that it belongs to a
 * request and to what could end it, and that outputs end there, is checked.
 */
import type { EndedBy } from '../../../topics/common.ts'
import { adapted } from '../../../topics/observations.ts'
import type { Cancelled } from '../../../topics/state.ts'
import { generated } from '../../../topics/tokens.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { textOf } from '../../text.ts'
import type { Inference } from '../advance/session-state.ts'
import { idleCancel } from '../pipeline/tokenize.ts'
import type { Cancel, Rejected, Step, Tokenized, Valid } from '../types.ts'
import type { Audit, Ended } from './audit.ts'
import { compareDeadLetter } from './compare.ts'
import type { StoredState } from './stored.ts'

/**
 * Where a request ended by the outputs, else by its record: a record that is missing or says something else is a
 * finding, and what follows can be compared all the same.
 */
export const endedIn =
  ({ cancelled }: StoredState, told: ReadonlyMap<number, Ended>): NonNullable<Inference['endedBy']> =>
  (offset, index) => {
    const { what } = cancelled.get(offset) ?? {}
    const ended = told.get(offset) ?? (what && { index: what.index, endedBy: what.endedBy ?? 'cancel' })
    return ended?.index === index ? ended.endedBy : null
  }

/** Topics that tell of ends. */
export const TELL_ENDS = ['tokens', 'observations'] as const
export const isTelling = (topic: string): boolean => TELL_ENDS.some((each) => each === topic)

const endIn = ({ value }: StoredRecord): Ended | null => {
  const text = textOf(value ?? new Uint8Array(0))
  if (!text.includes('"finish":"cancelled"') && !text.includes('"endedBy":')) return null
  let json: unknown
  try {
    json = JSON.parse(text)
  } catch {
    // What is no event at all is a finding of the comparison.
    return null
  }
  const tokens = generated.safeParse(json)
  if (tokens.success) return tokens.data.finish === 'cancelled' ? { ...tokens.data, endedBy: 'cancel' } : null
  const { data } = adapted.safeParse(json)
  return data?.endedBy === undefined ? null : { ...data, index: 0, endedBy: data.endedBy }
}

/** Takes note of an output, where it is the end of a request that did not come to its own. */
export const noteEnded = ({ told }: Audit, record: StoredRecord): void => {
  const end = endIn(record)
  if (end !== null) told.set(end.cause.offset, end)
}

/**
 * Ends of cancelled requests, as the outputs tell them, of which no `cancelled` record is kept: the request has left
 * the input, or its session was deleted since. The `cancel` may be there all the same, behind the `delete` too: it
 * waits for no turn.
 */
export const readGoneCancels = async (
  records: AsyncIterable<StoredRecord>,
  deleted: ReadonlyMap<string, number>,
  begin: number,
): Promise<readonly Ended[]> => {
  const gone: Ended[] = []
  if (deleted.size === 0 && begin === 0) return gone
  for await (const record of records) {
    const end = endIn(record)
    if (end?.endedBy !== 'cancel') continue
    if (end.cause.offset < Math.max(begin, deleted.get(end.session) ?? 0)) gone.push(end)
  }
  return gone
}

/** A `cancel` took effect, or a dead letter says that it did not. */
export const verifyCancel = (audit: Audit, cancel: Cancel): void => {
  const { stored, deadLetters, goneCancels, options, found } = audit
  const { record, session, event } = cancel
  if (!stored.cancels.has(record.offset)) {
    const isGone = goneCancels.some((end) => end.session === session && end.requestId === event.requestId)
    if (!isGone || deadLetters.has(record.offset)) compareDeadLetter(audit, record, idleCancel(cancel))
  } else if (deadLetters.has(record.offset)) {
    const where = `${options.names.chunks}, offset ${record.offset}`
    found({ kind: 'deadletter', session, where, message: 'The cancel took effect, and a dead letter holds it too.' })
  }
}

/**
 * What looks at the steps of an event: a request ends before its own end where the state topic says so, and nowhere
 * else.
 */
export const verifyRequest = (
  { stored, told, options, partition, found }: Audit,
  { record, session, event }: Tokenized,
): ((step: Step) => void) => {
  const decided = stored.cancelled.get(record.offset)
  const end = told.get(record.offset)
  if ((event.type !== 'generate' && event.type !== 'adapt') || (decided === undefined && end === undefined))
    return () => undefined
  const isAdapt = event.type === 'adapt'
  const placed = `${isAdapt ? 'the adaptation' : `request "${event.requestId}"`} at offset ${record.offset}`
  const endOf = ({
    index,
    endedBy = 'cancel',
  }: {
    readonly index: number
    readonly endedBy?: EndedBy | undefined
  }): string => (isAdapt ? `was ended (${endedBy})` : `was cancelled after ${index} tokens`)
  if (end !== undefined) {
    const { index, endedBy = 'cancel' } = decided?.what ?? {}
    if (index !== end.index || endedBy !== end.endedBy) {
      const other =
        decided === undefined
          ? 'no record of the state topic does'
          : `its record says ${isAdapt ? endedBy : `after ${index}`}`
      const where = decided?.where ?? `${options.names.state}, partition ${partition}`
      const topic = isAdapt ? 'observations topic' : 'tokens topic'
      const message = `The ${topic} says that ${placed} ${endOf(end)}, and ${other}.`
      found({ kind: 'head', session, where, message })
    }
  }
  return (step) => {
    if (!step.done || isEnd(step) || decided === undefined) return
    const message = `The record says that ${placed} ${endOf(decided.what)}; recomputed, it does not end there.`
    found({ kind: 'head', session, where: decided.where, message })
  }
}

const isEnd = ({ outputs }: Step): boolean =>
  outputs.some(
    (output) =>
      (output.to === 'tokens' && output.value.finish === 'cancelled') ||
      (output.to === 'observations' && output.value.type === 'adapted' && output.value.endedBy !== undefined),
  )

/** Records of ends that no request, or nothing of the input that could end it, explains. */
export const strayCancels = ({ stored, begin, isDone, found }: Audit) => {
  /** Of each the halves of its explanation that are not met yet. */
  const open = new Map([...stored.cancelled].filter(([offset]) => offset >= begin).map(([, at]) => [at, 2]))
  /** By what ended the requests. */
  const causes = Map.groupBy(open.keys(), ({ what }) => what.cause.offset)
  const isCause = ({ endedBy, requestId, offset }: Cancelled, { event, record }: Valid): boolean => {
    if (endedBy === 'time') return record.offset === offset && event.type === 'adapt'
    if (record.offset <= offset) return false
    if (endedBy === 'delete') return event.type === 'delete'
    return isDone(record.offset) && event.type === 'cancel' && event.requestId === requestId
  }
  const isRequest = ({ requestId, endedBy }: Cancelled, { event, record }: Valid): boolean =>
    isDone(record.offset) &&
    ((event.type === 'generate' && endedBy === undefined) || event.type === 'adapt') &&
    event.requestId === requestId
  return {
    /** A record of the input. */
    met(record: StoredRecord, item: Valid | Rejected): void {
      if (item.kind === 'rejected') return
      const request = stored.cancelled.get(record.offset)
      const met = [
        ...(request !== undefined && isRequest(request.what, item) ? [request] : []),
        ...(causes.get(record.offset) ?? []).filter(({ what }) => isCause(what, item)),
      ]
      for (const at of met) {
        const left = open.get(at)
        if (left !== undefined && at.what.session === item.session) open.set(at, left - 1)
      }
    },
    /** All of the input was met. */
    conclude(): void {
      for (const [{ what, where }, left] of open) {
        if (left === 0) continue
        const { cause, requestId, offset, session, endedBy } = what
        const request = requestId === undefined ? 'the adaptation' : `request "${requestId}"`
        const did = endedBy === undefined ? 'cancelled' : `ended (${endedBy})`
        const message = `The record says that the event at offset ${cause.offset} ${did} ${request} at offset ${offset}; the input has no such two events that are finished.`
        found({ kind: 'head', session, where, message })
      }
    },
  }
}
