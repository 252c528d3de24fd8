/**
 * Cancels under `verify`. At which token a cancel took effect follows from nothing in the input, so its `cancelled` record is obeyed; that it
 * belongs to a request and to a `cancel` of that request, and that the tokens end there, is checked.
 */
import { type Generated, generated } from '../../topics/tokens.ts'
import type { StoredRecord } from '../streams/log.ts'
import { textOf } from '../text.ts'
import type { Inference } from './advance.ts'
import { idleCancel } from './tokenize.ts'
import { type Cancel, isCancel, type Rejected, type Step, type Tokenized, type Valid } from './types.ts'
import { compareDeadLetter } from './verify-compare.ts'
import type { Scene } from './verify-scene.ts'
import type { StoredState } from './verify-stored.ts'

/**
 * Where a request ended by the tokens topic, else by its record: a record that is missing or says something else is a finding, and what follows
 * can be compared all the same.
 */
export const cancelledIn =
  ({ cancelled }: StoredState, told: ReadonlyMap<number, number>): NonNullable<Inference['isCancelled']> =>
  (offset, index) =>
    (told.get(offset) ?? cancelled.get(offset)?.what.index) === index

const endIn = ({ value }: StoredRecord): Generated | null => {
  const text = textOf(value ?? new Uint8Array(0))
  if (!text.includes('"finish":"cancelled"')) return null
  try {
    const parsed = generated.safeParse(JSON.parse(text))
    return parsed.success && parsed.data.finish === 'cancelled' ? parsed.data : null
  } catch {
    // What is no event at all is a finding of the comparison.
    return null
  }
}

/** Takes note of a record of the tokens topic, where it is the end of a request that was cancelled. */
export const noteCancelled = ({ told }: Scene, record: StoredRecord): void => {
  const end = endIn(record)
  if (end !== null) told.set(end.cause.offset, end.index)
}

/**
 * Ends of cancelled requests, as the tokens topic tells them, of which no `cancelled` record is kept: the request has left the input, or its session was
 * deleted since. The `cancel` may be there all the same, behind the `delete` too: it waits for no turn.
 */
export const readGoneCancels = async (
  records: AsyncIterable<StoredRecord>,
  deleted: ReadonlyMap<string, number>,
  begin: number,
): Promise<readonly Generated[]> => {
  const gone: Generated[] = []
  if (deleted.size === 0 && begin === 0) return gone
  for await (const record of records) {
    const end = endIn(record)
    if (end !== null && end.cause.offset < Math.max(begin, deleted.get(end.session) ?? 0)) gone.push(end)
  }
  return gone
}

/** A `cancel` took effect, or a dead letter says that it did not. */
export const verifyCancel = (scene: Scene, cancel: Cancel): void => {
  const { stored, deadLetters, goneCancels, options, found } = scene
  const { record, session, event } = cancel
  if (!stored.cancels.has(record.offset)) {
    const isGone = goneCancels.some((end) => end.session === session && end.requestId === event.requestId)
    if (!isGone || deadLetters.has(record.offset)) compareDeadLetter(scene, record, idleCancel(cancel))
  } else if (deadLetters.has(record.offset)) {
    const where = `${options.names.chunks}, offset ${record.offset}`
    found({ kind: 'deadletter', session, where, message: 'The cancel took effect, and a dead letter holds it too.' })
  }
}

/** What looks at the steps of an event: a request ends as cancelled where the state topic says so, and nowhere else. */
export const verifyRequest = (
  { stored, told, options, partition, found }: Scene,
  { record, session, event }: Tokenized,
): ((step: Step) => void) => {
  const decided = stored.cancelled.get(record.offset)
  if (event.type !== 'generate' || (decided === undefined && !told.has(record.offset))) return () => undefined
  const request = `request "${event.requestId}" at offset ${record.offset}`
  const index = told.get(record.offset)
  if (index !== undefined && index !== decided?.what.index) {
    const other =
      decided === undefined ? 'no record of the state topic does' : `its record says after ${decided.what.index}`
    const where = decided?.where ?? `${options.names.state}, partition ${partition}`
    const message = `The tokens topic says that ${request} was cancelled after ${index} tokens, and ${other}.`
    found({ kind: 'head', session, where, message })
  }
  return ({ done, outputs }) => {
    const isEnd = outputs.some((output) => output.to === 'tokens' && output.value.finish === 'cancelled')
    if (!done || isEnd || decided === undefined) return
    const message = `The record says that ${request} was cancelled after ${decided.what.index} tokens; recomputed, it does not end there.`
    found({ kind: 'head', session, where: decided.where, message })
  }
}

/** Records of cancels that no request or no `cancel` of the input explains. */
export const strayCancels = ({ stored, begin, isDone, found }: Scene) => {
  /** Of each the halves of its explanation that are not met yet. */
  const open = new Map([...stored.cancelled].filter(([offset]) => offset >= begin).map(([, at]) => [at, 2]))
  return {
    /** A record of the input. */
    met(record: StoredRecord, item: Valid | Rejected): void {
      if (item.kind === 'rejected' || !isDone(record.offset)) return
      const { session, event } = item
      const decided = stored.cancelled.get(record.offset)
      const halves = [
        ...(event.type === 'generate' && decided !== undefined ? [decided] : []),
        ...(isCancel(item) ? (stored.cancels.get(record.offset) ?? []) : []),
      ]
      for (const half of halves) {
        const { session: id, requestId, offset, cause } = half.what
        const isSame = session === id && (event as { requestId?: string }).requestId === requestId
        const left = open.get(half)
        if (isSame && offset < cause.offset && left !== undefined) open.set(half, left - 1)
      }
    },
    /** All of the input was met. */
    conclude(): void {
      for (const [{ what, where }, left] of open) {
        if (left === 0) continue
        const message = `The record says that the event at offset ${what.cause.offset} cancelled request "${what.requestId}" at offset ${what.offset}; the input has no such two events that are finished.`
        found({ kind: 'head', session: what.session, where, message })
      }
    },
  }
}
