/**
 * The worker's HTTP face: /metrics (Prometheus), /healthz (the process answers), /readyz (every assigned partition
 * runs, and every partition of the topic has a worker), /board (what the console of a gateway draws; board.ts).
 */
import { createServer, type Server } from 'node:http'
import type { Socket } from 'node:net'
import { ContinuoError, messageOf } from '../errors.ts'
import type { Worker } from '../operators/worker/worker.ts'
import type { Board } from './board.ts'
import type { Metrics } from './metrics.ts'
import { readiness } from './readiness.ts'

/**
 * A scrape takes milliseconds. A client that takes longer is dropped, and of too many connections the oldest that is
 * not being answered makes way for the newest, so that neither slow nor many clients keep a scrape from its answer.
 * docs/operations.md names the numbers.
 */
export const LIMITS = {
  connections: 64,
  /** From the connection to the end of the request, ms; and how long a connection may be silent. */
  request: 5000,
  idle: 5000,
  /** How often the clocks of open requests are looked at, ms. */
  look: 1000,
} as const

/** Keeps the number of connections within the limit. */
const bound = (server: Server): void => {
  /** In the order of their coming; whether a request of theirs is being answered. */
  const sockets = new Map<Socket, boolean>()
  server.on('connection', (socket) => {
    sockets.set(socket, false)
    socket.once('close', () => sockets.delete(socket))
    if (sockets.size <= LIMITS.connections) return
    const idle = [...sockets].find(([, answering]) => !answering)?.[0]
    const victim = idle ?? sockets.keys().next().value
    victim?.destroy()
    if (victim !== undefined) sockets.delete(victim)
  })
  server.on('request', ({ socket }, response) => {
    if (sockets.has(socket)) sockets.set(socket, true)
    response.once('close', () => {
      if (sockets.has(socket)) sockets.set(socket, false)
    })
  })
}

export interface ObservationServer {
  readonly url: string
  close(): Promise<void>
}

const listen = (server: Server, port: number, host: string): Promise<void> =>
  new Promise((resolve, reject) => {
    server.once('error', (error: NodeJS.ErrnoException) => {
      const advice = error.code === 'EADDRINUSE' ? 'Choose another --metrics-port; 0 takes any free one.' : ''
      reject(
        new ContinuoError(
          'UNAVAILABLE',
          `Metrics cannot be served at ${host}:${port}: ${error.message}. ${advice}`.trim(),
        ),
      )
    })
    server.listen(port, host, resolve)
  })

/** A number of a query; 0 where it is none. */
const numberIn = (query: URLSearchParams, name: string): number => {
  const value = Number(query.get(name))
  return Number.isSafeInteger(value) && value > 0 ? value : 0
}

export const serveObservation = async (
  metrics: Metrics,
  board: Pick<Board, 'read'>,
  worker: () => Worker | null,
  port: number,
  host: string,
): Promise<ObservationServer> => {
  const answer = async (
    path: string,
    query: URLSearchParams,
  ): Promise<{ status: number; type: string; body: string }> => {
    switch (path) {
      case '/metrics':
        return { status: 200, type: metrics.registry.contentType, body: await metrics.registry.metrics() }
      case '/healthz':
        return { status: 200, type: 'application/json', body: '{"alive":true}\n' }
      case '/readyz': {
        const state = readiness(worker())
        return { status: state.ready ? 200 : 503, type: 'application/json', body: `${JSON.stringify(state)}\n` }
      }
      case '/board': {
        const after = { report: numberIn(query, 'report'), event: numberIn(query, 'event') }
        return { status: 200, type: 'application/json', body: `${JSON.stringify(board.read(after))}\n` }
      }
      default:
        return { status: 404, type: 'text/plain', body: 'There are /metrics, /healthz, /readyz and /board.\n' }
    }
  }
  const timing = {
    headersTimeout: LIMITS.request,
    requestTimeout: LIMITS.request,
    connectionsCheckingInterval: LIMITS.look,
  }
  const server = createServer(timing, (request, response) => {
    const [path = '/', query = ''] = (request.url ?? '/').split('?')
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.writeHead(405, { allow: 'GET, HEAD', connection: 'close' }).end()
      return
    }
    answer(path, new URLSearchParams(query))
      .catch((error: unknown) => ({ status: 500, type: 'text/plain', body: `${messageOf(error)}\n` }))
      .then(({ status, type, body }) => {
        // One request a connection: one that was kept open might make way for another just as its client sends the
        // next.
        response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store', connection: 'close' })
        response.end(request.method === 'HEAD' ? undefined : body)
      })
  })
  server.setTimeout(LIMITS.idle)
  bound(server)
  await listen(server, port, host)
  const address = server.address()
  const taken = typeof address === 'object' && address !== null ? address.port : port
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${taken}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
