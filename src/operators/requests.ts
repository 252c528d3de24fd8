/**
 * The requests of a partition that are read and not over, so that a `cancel` finds the one that it names before its own turn would come: it
 * goes past the queue of its session, as far as the worker reads ahead (streams/source.ts). A cancel and the end of its request commit
 * together. Until then neither is finished, and after a crash both are read again.
 */
import { type MonoTypeOperatorFunction, tap } from 'rxjs'
import type { Cancelled } from '../../topics/state.ts'
import { type Cancel, causeOf, type Rejected, type Valid } from './types.ts'

interface Waiting {
  readonly offset: number
  readonly requestId: string
  /** The event that cancels it. */
  by: Cancel | null
}

export interface Requests {
  /** An event was read; called in the order of the partition. */
  read(event: Valid | Rejected): void
  /** A `cancel` has arrived. False: no request of its session that it could end is before it. */
  cancel(event: Cancel): boolean
  /** Whether the request at this offset is to end. */
  isCancelled(offset: number): boolean
  /** The request ended because of its cancel, after `index` tokens. */
  ended(offset: number, index: number): Cancelled
  /** The request is over. Its cancel, where that came too late. */
  over(event: Valid): Cancel | null
}

export const createRequests = (): Requests => {
  /** By session, in the order of the partition. */
  const waiting = new Map<string, Waiting[]>()
  const byOffset = new Map<number, Waiting>()
  return {
    read({ session, ...item }) {
      if (item.kind === 'rejected' || item.event.type !== 'generate' || session === null) return
      const request = { offset: item.record.offset, requestId: item.event.requestId, by: null }
      byOffset.set(request.offset, request)
      const queue = waiting.get(session)
      if (queue === undefined) waiting.set(session, [request])
      else queue.push(request)
    },
    cancel(by) {
      const { requestId } = by.event
      const request = waiting.get(by.session)?.find((each) => each.requestId === requestId && each.by === null)
      if (request !== undefined) request.by = by
      return request !== undefined
    },
    isCancelled: (offset) => (byOffset.get(offset)?.by ?? null) !== null,
    ended(offset, index) {
      const request = byOffset.get(offset)!
      const { session, record, event } = request.by!
      request.by = null
      const { requestId } = request
      return {
        type: 'cancelled',
        version: 1,
        session,
        requestId,
        offset,
        index,
        cause: causeOf(record, event.id ?? null),
      }
    },
    over({ session, record }) {
      const queue = waiting.get(session)!
      const at = queue.findIndex(({ offset }) => offset === record.offset)
      const [request] = queue.splice(at, 1)
      if (queue.length === 0) waiting.delete(session)
      byOffset.delete(record.offset)
      return request!.by
    },
  }
}

/** Tells `requests` of each event before it joins the queue of its session. */
export const readAhead = (requests: Requests): MonoTypeOperatorFunction<Valid | Rejected> =>
  tap((event) => requests.read(event))
