/**
 * /v1/responses over a WebSocket: a message `response.create` is a request, and the events of its stream are messages.
 * Each request passes through the route of HTTP as one of its own, with the headers of the connection, so its schema,
 * keys and bounds are the same. One response of a connection is made at a time; what is sent meanwhile waits, up to a
 * bound. No message ends more than its connection.
 */

import type { Socket } from 'node:net'
import websocket, { type WebSocket } from '@fastify/websocket'
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { within } from '../../aborted.ts'
import { asRefusal, type ErrorBody, errorOf, Refusal } from '../refusal.ts'
import type { Service } from '../service.ts'

/** Requests that wait on one connection. */
const MOST_WAITING = 16
/** How long a connection lasts, ms; the next request is refused then, and the client opens another one. */
const LIFE = 3_600_000
/** How often a connection is asked whether it lives, ms: one that does not answer until the next time is ended. */
const HEARTBEAT = 15_000
/** Bytes that wait for a client before the next event is asked for. */
const MOST_HELD = 1 << 16
/** Of the connection, by which a request is taken: who asks, for which session, and in whose words. */
const HEADERS = ['authorization', 'x-api-key', 'host', 'origin', 'x-session', 'openresponses-version'] as const
/** Of HTTP alone: the events come in any case, and go with their connection. */
const NOT_HERE = ['stream', 'stream_options', 'background'] as const

/** Codes of RFC 6455, section 7.4.1. */
const GOING_AWAY = 1001
const POLICY = 1008

/** What is sent where something fails: the status that HTTP would have, and a code in any case. */
const failure = (status: number, { type, code, message, param }: ErrorBody['error']): string =>
  JSON.stringify({ type: 'error', status, error: { type, code: code ?? type, message, param } })
const failureOf = (refusal: Refusal): string => failure(refusal.status, errorOf(refusal))

/** The body of a request in a message. Throws a Refusal (400), naming what is wrong. */
const bodyIn = (text: string): Readonly<Record<string, unknown>> => {
  let event: unknown
  try {
    event = JSON.parse(text)
  } catch {
    throw new Refusal(400, 'The message is no JSON, expected an object of the type "response.create".')
  }
  const given = (typeof event === 'object' && event !== null ? event : {}) as Readonly<Record<string, unknown>>
  const { type, ...body } = given
  if (type !== 'response.create')
    throw new Refusal(400, '"type" cannot be taken: expected "response.create".', { param: 'type' })
  for (const name of NOT_HERE)
    if (Object.hasOwn(body, name))
      throw new Refusal(400, `"${name}" is for requests over HTTP: expected a message without it.`, { param: name })
  return body
}

/** The data of server-sent events as they come; a stream of ours has each in one line. */
async function* dataOf(bytes: AsyncIterable<Uint8Array>): AsyncGenerator<string> {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  let text = ''
  for await (const piece of bytes) {
    const lines = `${text}${decoder.decode(piece, { stream: true })}`.split('\n')
    text = lines.pop()!
    for (const line of lines) if (line.startsWith('data: ')) yield line.slice('data: '.length)
  }
}

/** Of an error within a stream the status too, which HTTP had no place for any more. */
const STATUSES: Readonly<Record<string, number>> = { rate_limit_error: 429, server_error: 500 }
const withStatus = (data: string): string => {
  if (!data.startsWith('{"type":"error"')) return data
  const event = JSON.parse(data) as ErrorBody
  const { code, type } = event.error
  return JSON.stringify({ ...event, status: STATUSES[type] ?? 400, error: { ...event.error, code: code ?? type } })
}

/** Serves one connection until it is over. */
const serveSocket = (app: FastifyInstance, socket: WebSocket, request: FastifyRequest, service: Service): void => {
  const { limits, closing, ended, noteFailure } = service
  const over = new AbortController()
  const until = performance.now() + LIFE
  const waiting: string[] = []
  let busy = false
  let answered = true
  const heartbeat = setInterval(() => {
    if (!answered) return socket.terminate()
    answered = false
    socket.ping()
  }, HEARTBEAT)

  /** Resolves when the client has room for more. Rejects where it takes nothing for too long. */
  const tell = async (text: string): Promise<void> => {
    let taken = false
    const sent = new Promise<void>((resolve, reject) => {
      socket.send(text, (error) => (error == null ? resolve() : reject(error)))
    }).then(() => {
      taken = true
    })
    if (socket.bufferedAmount >= MOST_HELD) {
      await within(limits.stall, sent)
      if (!taken) throw new Refusal(408, 'The client took nothing for too long.', { code: 'stalled' })
    }
    sent.catch(() => undefined)
  }
  const answer = async (text: string): Promise<void> => {
    if (performance.now() > until) {
      await tell(
        failureOf(
          new Refusal(400, `A connection lasts ${LIFE / 60_000} minutes. Open another one.`, {
            code: 'websocket_connection_limit_reached',
          }),
        ),
      )
      return socket.close(POLICY)
    }
    const body = bodyIn(text)
    const named = HEADERS.flatMap((name) => {
      const value = request.headers[name]
      return value === undefined ? [] : [[name, String(value)] as const]
    })
    const response = await app.inject({
      ...{ method: 'POST', url: '/v1/responses', remoteAddress: request.ip, payloadAsStream: true },
      headers: { ...Object.fromEntries(named), 'content-type': 'application/json' },
      payload: JSON.stringify({ ...body, stream: true }),
    })
    // What is under way ends with its connection, as a request does.
    const { res } = response.raw
    if (over.signal.aborted) return void res.destroy()
    over.signal.addEventListener('abort', () => res.destroy(), { once: true })
    if (response.statusCode !== 200) {
      let told = ''
      for await (const piece of response.stream()) told += String(piece)
      return tell(failure(response.statusCode, (JSON.parse(told) as ErrorBody).error))
    }
    for await (const data of dataOf(response.stream())) if (data !== '[DONE]') await tell(withStatus(data))
  }
  const work = async (): Promise<void> => {
    busy = true
    try {
      for (let next = waiting.shift(); next !== undefined && !over.signal.aborted; next = waiting.shift())
        try {
          await answer(next)
        } catch (error) {
          if (over.signal.aborted) return
          const refusal = asRefusal(error)
          if (refusal.status >= 500) noteFailure(error)
          await tell(failureOf(refusal))
        }
    } catch {
      // The client is gone, or takes nothing.
      socket.terminate()
    } finally {
      busy = false
      if (closing.aborted) socket.close(GOING_AWAY)
    }
  }
  const leave = (): void => {
    if (!busy) socket.close(GOING_AWAY)
  }
  const end = (): void => socket.terminate()
  closing.addEventListener('abort', leave, { once: true })
  ended.addEventListener('abort', end, { once: true })
  socket.on('pong', () => {
    answered = true
  })
  socket.on('close', () => {
    clearInterval(heartbeat)
    closing.removeEventListener('abort', leave)
    ended.removeEventListener('abort', end)
    waiting.length = 0
    over.abort()
  })
  socket.on('message', (data, isBinary) => {
    const refuse = (refusal: Refusal): void => void tell(failureOf(refusal)).catch(() => socket.terminate())
    if (isBinary) return refuse(new Refusal(400, 'The message is bytes, expected JSON as text.'))
    if (waiting.length >= MOST_WAITING)
      return refuse(
        new Refusal(429, `${MOST_WAITING} requests wait on this connection already. Send it again when one is over.`, {
          code: 'too_many_requests',
        }),
      )
    waiting.push(String(data))
    if (!busy) void work()
  })
  if (closing.aborted) leave()
}

/**
 * Lets connections become WebSockets, whose messages have `message` bytes at most; one that does not within `time` ms
 * ends. `upgraded` has those that are no longer connections of HTTP.
 */
export const takeUpgrades = async (
  app: FastifyInstance,
  { message, time }: { readonly message: number; readonly time: number },
  upgraded: Set<Socket>,
): Promise<void> => {
  await app.register(websocket, {
    options: { maxPayload: message },
    // A connection that breaks, or sends what is none of the protocol, ends; so does it where its bytes are too many.
    errorHandler: (_error, socket) => socket.terminate(),
    // Connections end by themselves: when they are idle, or when what they wait for has had its time.
    preClose: (done) => done(),
  })
  app.server.on('upgrade', (_request, socket: Socket) => {
    upgraded.add(socket.once('close', () => upgraded.delete(socket)))
    socket.setTimeout(time, () => socket.destroy())
  })
}

/** The route, of an app that has the plugin. */
export const responseSocket = (app: FastifyInstance, service: Service): void => {
  app.route({
    method: 'GET',
    url: '/v1/responses',
    handler: async () => {
      throw new Refusal(426, 'Ask by POST, or open a WebSocket here. GET /v1/responses/ID gives a response.', {
        code: 'upgrade_required',
      })
    },
    wsHandler: (socket, request) => serveSocket(app, socket, request, service),
  })
}
