/**
 * The worker's HTTP face: /metrics (Prometheus), /healthz (the process answers), /readyz (every assigned partition runs).
 */
import { createServer, type Server } from 'node:http'
import { ContinuoError, messageOf } from '../errors.ts'
import type { Worker } from '../operators/worker.ts'
import type { Metrics } from './metrics.ts'

export interface Readiness {
  readonly ready: boolean
  readonly reason?: string
  readonly partitions: readonly { readonly partition: number; readonly state: string; readonly reason?: string }[]
}

export const readiness = (worker: Worker | null): Readiness => {
  if (worker === null) return { ready: false, reason: 'The worker has not joined its group yet.', partitions: [] }
  const partitions = worker.assigned.map((partition) => {
    if (worker.refused.has(partition)) {
      return { partition, state: 'refused', reason: messageOf(worker.refused.get(partition)) }
    }
    const state = worker.tasks.get(partition)?.state ?? 'waiting'
    const trouble = state === 'running' ? undefined : worker.troubles.get(partition)
    return { partition, state, ...(trouble !== undefined && { reason: messageOf(trouble) }) }
  })
  const behind = partitions.filter(({ state }) => state !== 'running')
  if (behind.length === 0) return { ready: true, partitions }
  const reason = behind
    .map(
      ({ partition, state, reason: why }) =>
        `Partition ${partition} is ${state}${why === undefined ? '.' : `: ${why}`}`,
    )
    .join(' ')
  return { ready: false, reason, partitions }
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

export const serveObservation = async (
  metrics: Metrics,
  worker: () => Worker | null,
  port: number,
  host: string,
): Promise<ObservationServer> => {
  const answer = async (path: string): Promise<{ status: number; type: string; body: string }> => {
    switch (path) {
      case '/metrics':
        return { status: 200, type: metrics.registry.contentType, body: await metrics.registry.metrics() }
      case '/healthz':
        return { status: 200, type: 'application/json', body: '{"alive":true}\n' }
      case '/readyz': {
        const state = readiness(worker())
        return { status: state.ready ? 200 : 503, type: 'application/json', body: `${JSON.stringify(state)}\n` }
      }
      default:
        return { status: 404, type: 'text/plain', body: 'There are /metrics, /healthz and /readyz.\n' }
    }
  }
  const server = createServer((request, response) => {
    const path = (request.url ?? '/').split('?')[0]!
    if (request.method !== 'GET' && request.method !== 'HEAD') {
      response.writeHead(405, { allow: 'GET, HEAD' }).end()
      return
    }
    answer(path)
      .catch((error: unknown) => ({ status: 500, type: 'text/plain', body: `${messageOf(error)}\n` }))
      .then(({ status, type, body }) => {
        response.writeHead(status, { 'content-type': type, 'cache-control': 'no-store' })
        response.end(request.method === 'HEAD' ? undefined : body)
      })
  })
  await listen(server, port, host)
  const address = server.address()
  const bound = typeof address === 'object' && address !== null ? address.port : port
  return {
    url: `http://${host.includes(':') ? `[${host}]` : host}:${bound}`,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve())
        server.closeAllConnections()
      }),
  }
}
