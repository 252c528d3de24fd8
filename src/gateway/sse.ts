/** Server-sent events (HTML standard, section 9.2) to a client that may read slowly, or not at all. */
import type { FastifyReply } from 'fastify'

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

const written = ({ id, event, retry, data }: ServerEvent): string =>
  `${retry === undefined ? '' : `retry: ${retry}\n`}${event === undefined ? '' : `event: ${event}\n`}${id === undefined ? '' : `id: ${id}\n`}data: ${typeof data === 'string' ? data : JSON.stringify(data)}\n\n`

export interface SendOptions {
  /** How long a client may take nothing, ms. */
  readonly stall: number
  /** Aborted when the client disconnects. */
  readonly gone: AbortSignal
  /** The last event of a stream whose source failed; the status was sent long ago. */
  failed(error: unknown): ServerEvent
}

/**
 * Sends the events as they come. The next one is asked for when the socket has taken the last: memory stays bounded by what one source holds.
 * A client that takes nothing for `stall` ms is disconnected. The source must end when the client is gone, which fires `gone`.
 */
export const sendEvents = async (
  reply: FastifyReply,
  events: AsyncIterable<ServerEvent>,
  { stall, gone, failed }: SendOptions,
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
  }, HEARTBEAT)
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
  try {
    for await (const event of events) {
      if (raw.destroyed || gone.aborted) break
      if (!raw.write(written(event)) && !(await taken())) {
        raw.destroy()
        break
      }
    }
  } catch (error) {
    const last = failed(error)
    if (!raw.destroyed) raw.write(written(last))
  } finally {
    clearInterval(heartbeat)
    if (!raw.destroyed) raw.end()
  }
}
