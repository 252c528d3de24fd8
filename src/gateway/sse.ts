/**
 * Server-sent events (HTML standard, section 9.2) to a client that may read slowly, or not at all. What waits for a
 * client is one piece of its stream at most, an event or several that were put together, beside what its socket holds.
 */
import type { FastifyReply } from 'fastify'
import { Refusal } from './refusal.ts'

/** How often a silent stream says that it is alive, ms: proxies close what is silent. */
const HEARTBEAT = 15_000

export interface ServerEvent {
  readonly id?: string
  /** Default: `message`. */
  readonly event?: string
  /** After how long a client that is cut off comes again, ms. */
  readonly retry?: number
  readonly data: unknown
}

/** Events as bytes. */
export const bytesOf = (events: readonly ServerEvent[]): Uint8Array => Buffer.from(events.map(written).join(''))

/** From so many bytes on a piece waits for its turn. */
const LARGE = 4096
/** Bytes of large pieces that all clients together are sent in one turn of the event loop, or one piece. */
const TURN_BYTES = 1 << 19
let left = TURN_BYTES
let next: Promise<void> | null = null

/** A thousand clients that catch up at once leave room for what else there is to do. */
const turn = async (bytes: number): Promise<void> => {
  while (next !== null && left <= 0) await next
  left -= bytes
  next ??= new Promise((resolve) => {
    setImmediate(() => {
      left = TURN_BYTES
      next = null
      resolve()
    })
  })
}

const written = ({ id, event, retry, data }: ServerEvent): string =>
  `${retry === undefined ? '' : `retry: ${retry}\n`}${event === undefined ? '' : `event: ${event}\n`}${id === undefined ? '' : `id: ${id}\n`}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`

export interface SendOptions {
  /** How long a client may take nothing, ms. */
  readonly stall: number
  /** How often a comment line says that the stream lives, ms; default 15,000. */
  readonly heartbeat?: number
  /** Aborted when the client disconnects. */
  readonly gone: AbortSignal
  /**
   * The last event of a stream whose source failed, or whose client took nothing for too long; the status was sent long
   * ago.
   */
  failed(error: unknown): ServerEvent
}

const stalled = (stall: number): Refusal =>
  new Refusal(
    408,
    `Nothing of this stream was taken for ${stall / 1000} s, so it ends here. Open it again with the id of the last event (Last-Event-ID), where its events have ids: nothing is left out.`,
    { code: 'stalled' },
  )

/**
 * Sends the events as they come; bytes are events that were put together by `bytesOf`. The next piece is asked for when
 * the socket has taken the last. A client that takes nothing for `stall` ms is sent a last event that says so behind
 * what it has not taken, and after as long again is disconnected. The source must end when the client is gone, which
 * fires `gone`.
 */
export const sendEvents = async (
  reply: FastifyReply,
  events: AsyncIterable<ServerEvent | Uint8Array>,
  { stall, heartbeat: every = HEARTBEAT, gone, failed }: SendOptions,
): Promise<void> => {
  reply.hijack()
  const { raw } = reply
  for (const [name, value] of Object.entries(reply.getHeaders())) if (value !== undefined) raw.setHeader(name, value)
  raw.writeHead(200, {
    'content-type': 'text/event-stream; charset=utf-8',
    'cache-control': 'no-store',
    // Or nginx holds events back until its buffer is full.
    'x-accel-buffering': 'no',
  })
  raw.flushHeaders()
  const heartbeat = setInterval(() => {
    if (!raw.writableNeedDrain) raw.write(':\n\n')
  }, every)
  /** Resolves when the socket takes more; false when it did not for too long, or is closed. */
  const taken = (): Promise<boolean> =>
    new Promise((resolve) => {
      const end = (took: boolean) => (): void => {
        clearTimeout(late)
        raw.off('drain', drained).off('close', closed)
        resolve(took)
      }
      const [drained, closed] = [end(true), end(false)]
      const late = setTimeout(end(false), stall)
      raw.on('drain', drained).on('close', closed)
    })
  /** Resolves when the socket has taken the end; false when it did not for too long, or is closed. */
  const ended = (): Promise<boolean> =>
    new Promise((resolve) => {
      const late = setTimeout(() => resolve(false), stall)
      const end = (): void => {
        clearTimeout(late)
        resolve(raw.writableFinished)
      }
      raw.once('finish', end).once('close', end)
    })
  let stands = false
  try {
    for await (const event of events) {
      if (raw.destroyed || gone.aborted) break
      const piece = event instanceof Uint8Array ? event : written(event)
      if (piece.length >= LARGE) await turn(piece.length)
      if (raw.write(piece) || (await taken())) continue
      stands = !raw.destroyed
      break
    }
    if (stands) {
      // Behind the end nothing can be written any more, though the socket may still take what came before.
      clearInterval(heartbeat)
      raw.end(written(failed(stalled(stall))))
      if (!(await ended())) raw.destroy()
    }
  } catch (error) {
    const last = failed(error)
    if (!raw.destroyed) raw.write(written(last))
  } finally {
    clearInterval(heartbeat)
    if (!raw.destroyed) raw.end()
  }
}
