/**
 * The requests of a partition that were read and are not over. So a `cancel` finds the request that it names before its
 * own turn would come: the cancel goes past the queue of its session, as far as the worker has read
 * (streams/source.ts). A cancel and the end of its request commit together. Until then neither is finished, and after a
 * crash both are read again.
 *
 * An adaptation may compute for hours between two commits. So a `delete` of its session ends it too, where nothing that
 * stands between the two could show what it learnt, and so does the worker when its time is over.
 *
 * A million requests may wait in the log (by-session.ts). So of each there is its place and a hash of its id, and of a
 * cancel its place and its id.
 */
import { type MonoTypeOperatorFunction, tap } from 'rxjs'
import type { EndedBy } from '../../../topics/common.ts'
import type { Cancelled } from '../../../topics/state.ts'
import { sha256 } from '../../hash.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { type Cancel, causeOf, type Rejected, type Valid } from '../types.ts'
import { createLine, type Line } from './line.ts'

/** The event that ends a request. */
interface By {
  readonly offset: number
  readonly id: string | null
  readonly endedBy: EndedBy
}

interface Waiting {
  readonly offsets: Line<number>
  /** Of their ids; of an `adapt` negative, and NaN where it has none. */
  readonly hashes: Line<number>
  /** The last record that shows what the session learnt before it: any but an `adapt` or `cancel`, and each fork. */
  shows: number
}

export interface Requests {
  /** An event was read; called in the order of the partition. */
  read(event: Valid | Rejected): void
  /** A `cancel` has arrived. False: no request of its session that it could end is before it. */
  cancel(event: Cancel): boolean
  /** What is to end the request at this offset; null: nothing. */
  endedBy(offset: number): EndedBy | null
  /**
   * The `adapt` in this record has its turn: the signal fires when it is to end, some time after it began to compute at
   * the latest. Until `over`.
   */
  adapting(record: StoredRecord, id: string | null): { readonly signal: AbortSignal; readonly onBegin: () => void }
  /** The request in this record ended so, after `index` tokens. */
  ended(record: StoredRecord, last: Pick<Cancelled, 'session' | 'requestId' | 'index'>): Cancelled
  /** The event is over; where it was a request, so is that. Where its `cancel` is, if that came too late. */
  over(event: Valid | Rejected): number | null
  /** Cancels that wait for the ends of their requests. */
  readonly cancels: number
}

/** 48 bits, which a number holds: two ids of a session have the same one by no accident. Above zero. */
const hashOf = (requestId: string): number => Number.parseInt(sha256(Buffer.from(requestId)).slice(0, 12), 16) + 1

/** `adaptTime`: an adaptation may compute for so long, ms. */
export const createRequests = ({ adaptTime }: { readonly adaptTime: number }): Requests => {
  /** By session, in the order of the partition. */
  const waiting = new Map<string, Waiting>()
  /** By the offset of the request. */
  const cancels = new Map<number, By>()
  /** Of adaptations that have their turn, by their offsets. */
  const running = new Map<number, { readonly controller: AbortController; timer?: NodeJS.Timeout }>()

  const end = (offset: number, by: By): void => {
    cancels.set(offset, by)
    running.get(offset)?.controller.abort()
  }
  const shown = (session: string, offset: number): void => {
    const queue = waiting.get(session)
    if (queue !== undefined) queue.shows = offset
  }
  /** Ends the adaptations at the end of the queue: nothing but this `delete` comes behind them. */
  const forget = ({ offsets, hashes, shows }: Waiting, { record, event }: Valid): void => {
    for (let at = offsets.length - 1; at >= 0; at -= 1) {
      const offset = offsets.at(at)!
      if (offset < shows || hashes.at(at)! > 0) return
      if (!cancels.has(offset)) end(offset, { offset: record.offset, id: event.id ?? null, endedBy: 'delete' })
    }
  }

  return {
    read({ session, ...item }) {
      if (item.kind === 'rejected' || session === null) return
      const { event, record } = item
      if (event.type === 'cancel') return
      if (event.type === 'open' && event.from !== undefined) shown(event.from.session, record.offset)
      let queue = waiting.get(session)
      if (event.type === 'delete' && queue !== undefined) forget(queue, { ...item, session })
      if (event.type !== 'adapt') shown(session, record.offset)
      if (event.type !== 'generate' && event.type !== 'adapt') return
      if (queue === undefined) {
        queue = { offsets: createLine(), hashes: createLine(), shows: -1 }
        waiting.set(session, queue)
      }
      const hash = event.requestId === undefined ? Number.NaN : hashOf(event.requestId)
      queue.offsets.push(record.offset)
      queue.hashes.push(event.type === 'adapt' ? -hash : hash)
    },
    cancel({ session, record, event }) {
      const queue = waiting.get(session)
      if (queue === undefined) return false
      const hash = hashOf(event.requestId)
      for (let at = 0; at < queue.hashes.length; at += 1) {
        const offset = queue.offsets.at(at)!
        if (Math.abs(queue.hashes.at(at)!) !== hash || cancels.has(offset)) continue
        end(offset, { offset: record.offset, id: event.id ?? null, endedBy: 'cancel' })
        return true
      }
      return false
    },
    endedBy: (offset) => cancels.get(offset)?.endedBy ?? null,
    adapting({ offset }, id) {
      const controller = new AbortController()
      const expire = (): void => {
        if (!cancels.has(offset)) end(offset, { offset, id, endedBy: 'time' })
      }
      const mine: { readonly controller: AbortController; timer?: NodeJS.Timeout } = { controller }
      running.set(offset, mine)
      return {
        signal: controller.signal,
        onBegin() {
          // Nobody waits for it at the end of the process.
          mine.timer = setTimeout(expire, adaptTime).unref()
        },
      }
    },
    ended(record, { session, requestId, index }) {
      const { offset: at, id, endedBy } = cancels.get(record.offset)!
      cancels.delete(record.offset)
      return {
        ...{ type: 'cancelled', version: 1, session, offset: record.offset, index },
        ...(requestId !== undefined && { requestId }),
        ...(endedBy !== 'cancel' && { endedBy }),
        cause: causeOf({ ...record, offset: at }, id),
      }
    },
    over({ session, record }) {
      clearTimeout(running.get(record.offset)?.timer)
      running.delete(record.offset)
      const queue = session === null ? undefined : waiting.get(session)
      if (queue?.offsets.at(0) !== record.offset) return null
      queue.offsets.shift()
      queue.hashes.shift()
      if (queue.offsets.length === 0) waiting.delete(session!)
      const late = cancels.get(record.offset)
      cancels.delete(record.offset)
      return late?.endedBy === 'cancel' ? late.offset : null
    },
    get cancels() {
      return cancels.size
    },
  }
}

/** Tells `requests` of each event before it joins the queue of its session. */
export const readAhead = (requests: Requests): MonoTypeOperatorFunction<Valid | Rejected> =>
  tap((event) => requests.read(event))
