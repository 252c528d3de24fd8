/**
 * Metrics of a gateway. Their labels are patterns of routes, methods and statuses: no session, key or address is in
 * them.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Counter, collectDefaultMetrics, Gauge, Histogram, Registry } from 'prom-client'

const SECONDS = [0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60]

/** Methods that a label may have: a client can send any other word. */
const METHODS = new Set(['GET', 'POST', 'PUT', 'PATCH', 'DELETE', 'HEAD', 'OPTIONS'])

export interface GatewayMetrics {
  readonly registry: Registry
  /** An answer to `reply` has its first token. */
  began(reply: FastifyReply): void
  /** The prompt of `reply` has so many tokens, of which so many had been read before. */
  prompted(reply: FastifyReply, tokens: number, cached: number): void
  /** So many tokens were handed to the connection of `reply`. */
  sent(reply: FastifyReply, tokens: number): void
}

/** The pattern of the route, `/v1/sessions/:id`; `none` where the path leads nowhere. */
const routeOf = ({ routeOptions }: Pick<FastifyRequest, 'routeOptions'>): string => routeOptions.url ?? 'none'

export const createGatewayMetrics = ({
  open,
}: {
  readonly open: Readonly<Record<string, number>>
}): GatewayMetrics & {
  /** Counts the request, when its answer is over. */
  answered(request: FastifyRequest, reply: FastifyReply): void
} => {
  const registry = new Registry()
  const registers = [registry]
  collectDefaultMetrics({ register: registry })
  const requests = new Counter({
    name: 'continuo_gateway_requests_total',
    help: 'Requests answered, by route, method and status; streams when they are over',
    labelNames: ['route', 'method', 'status'],
    registers,
  })
  new Gauge({
    name: 'continuo_gateway_open',
    help: 'Answers under way, as streams and as a whole; --max-open bounds both together',
    labelNames: ['kind'],
    registers,
    collect() {
      for (const [kind, count] of Object.entries(open)) this.set({ kind }, count)
    },
  })
  const first = new Histogram({
    name: 'continuo_gateway_first_token_seconds',
    help: 'From the arrival of a request to the first token of its answer',
    labelNames: ['route'],
    buckets: SECONDS,
    registers,
  })
  const prompts = new Counter({
    name: 'continuo_gateway_prompt_tokens_total',
    help: 'Tokens of prompts: read for their request, or cached, which a session had read before',
    labelNames: ['route', 'kind'],
    registers,
  })
  const sent = new Counter({
    name: 'continuo_gateway_tokens_sent_total',
    help: 'Generated tokens handed to connections of clients; those of a stream that is read again count again',
    labelNames: ['route'],
    registers,
  })
  return {
    registry,
    answered(request, { statusCode }) {
      const method = METHODS.has(request.method) ? request.method : 'other'
      requests.inc({ route: routeOf(request), method, status: statusCode })
    },
    began: ({ request, elapsedTime }) => first.observe({ route: routeOf(request) }, elapsedTime / 1000),
    prompted({ request }, tokens, cached) {
      const route = routeOf(request)
      prompts.inc({ route, kind: 'read' }, tokens - cached)
      prompts.inc({ route, kind: 'cached' }, cached)
    },
    sent: ({ request }, tokens) => sent.inc({ route: routeOf(request) }, tokens),
  }
}

/**
 * GET /metrics, under the rule of every other route: where there are keys it takes one. A scrape is none of the
 * requests that are limited.
 */
export const metricsRoute = (app: FastifyInstance, { registry }: Pick<GatewayMetrics, 'registry'>): void => {
  app.get('/metrics', { config: { rateLimit: false } }, async (_request, reply) =>
    reply
      .header('content-type', registry.contentType)
      .header('cache-control', 'no-store')
      .send(await registry.metrics()),
  )
}
