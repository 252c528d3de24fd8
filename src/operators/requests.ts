/**
 * The requests of a partition that are read and not over, so that a `cancel` finds the one that it names before its own turn would come: it
 * goes past the queue of its session, as far as the worker has read (streams/source.ts). A cancel and the end of its request commit
 * together. Until then neither is finished, and after a crash both are read again.
 *
 * A million requests may wait in the log (by-session.ts). So of each there is its place and a hash of its id, and of a cancel its place and its id.
 */
import { type MonoTypeOperatorFunction, tap } from 'rxjs'
import type { Cancelled } from '../../topics/state.ts'
import type { Generated } from '../../topics/tokens.ts'
import { sha256 } from '../hash.ts'
import type { StoredRecord } from '../streams/log.ts'
import { createLine, type Line } from './line.ts'
import { type Cancel, causeOf, type Rejected, type Valid } from './types.ts'

/** The `cancel` event that ends a request. */
interface By {
  readonly offset: number
  readonly id: string | null
}

interface Waiting {
  readonly offsets: Line<number>
  readonly hashes: Line<number>
}

export interface Requests {
  /** An event was read; called in the order of the partition. */
  read(event: Valid | Rejected): void
  /** A `cancel` has arrived. False: no request of its session that it could end is before it. */
  cancel(event: Cancel): boolean
  /** Whether the request at this offset is to end. */
  isCancelled(offset: number): boolean
  /** The request in this record ended with these tokens because of its cancel. */
  ended(record: StoredRecord, last: Pick<Generated, 'session' | 'requestId' | 'index'>): Cancelled
  /** The event is over; where it was a request, so is that. Where its cancel is, if that came too late. */
  over(event: Valid | Rejected): number | null
  /** Cancels that wait for the ends of their requests. */
  readonly cancels: number
}

/** 48 bits, which a number holds: two ids of a session have the same one by no accident. */
const hashOf = (requestId: string): number => Number.parseInt(sha256(Buffer.from(requestId)).slice(0, 12), 16)

export const createRequests = (): Requests => {
  /** By session, in the order of the partition. */
  const waiting = new Map<string, Waiting>()
  /** By the offset of the request. */
  const cancels = new Map<number, By>()
  return {
    read({ session, ...item }) {
      if (item.kind === 'rejected' || item.event.type !== 'generate' || session === null) return
      let queue = waiting.get(session)
      if (queue === undefined) {
        queue = { offsets: createLine(), hashes: createLine() }
        waiting.set(session, queue)
      }
      queue.offsets.push(item.record.offset)
      queue.hashes.push(hashOf(item.event.requestId))
    },
    cancel({ session, record, event }) {
      const queue = waiting.get(session)
      if (queue === undefined) return false
      const hash = hashOf(event.requestId)
      for (let at = 0; at < queue.hashes.length; at += 1) {
        const offset = queue.offsets.at(at)!
        if (queue.hashes.at(at) !== hash || cancels.has(offset)) continue
        cancels.set(offset, { offset: record.offset, id: event.id ?? null })
        return true
      }
      return false
    },
    isCancelled: (offset) => cancels.has(offset),
    ended(record, { session, requestId, index }) {
      const by = cancels.get(record.offset)!
      cancels.delete(record.offset)
      const cause = causeOf({ ...record, offset: by.offset }, by.id)
      return { type: 'cancelled', version: 1, session, requestId, offset: record.offset, index, cause }
    },
    over({ session, record }) {
      const queue = session === null ? undefined : waiting.get(session)
      if (queue?.offsets.at(0) !== record.offset) return null
      queue.offsets.shift()
      queue.hashes.shift()
      if (queue.offsets.length === 0) waiting.delete(session!)
      const late = cancels.get(record.offset)
      cancels.delete(record.offset)
      return late?.offset ?? null
    },
    get cancels() {
      return cancels.size
    },
  }
}

/** Tells `requests` of each event before it joins the queue of its session. */
export const readAhead = (requests: Requests): MonoTypeOperatorFunction<Valid | Rejected> =>
  tap((event) => requests.read(event))
