/**
 * The HTTP gateway: a client of the log. Requests become events of the input topic, answers are read from the output
 * topics, so a gateway keeps no state that another one could not read from the log, and any number of them may serve
 * one log.
 */
import { STATUS_CODES } from 'node:http'
import { isIP, type Socket } from 'node:net'
import rateLimit from '@fastify/rate-limit'
import { type FastifyInstance, type FastifyReply, type FastifyRequest, fastify } from 'fastify'
import type { z } from 'zod'
import type { TopicNames } from '../../topics/index.ts'
import { openTail } from '../client/tail.ts'
import { partitionsIn } from '../client/topics.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import { schemaFault } from '../issues.ts'
import type { EventLog } from '../streams/log.ts'
import { placing } from '../streams/partitioner.ts'
import { send } from './answer/ask.ts'
import { createPrefixes } from './answer/prefixes.ts'
import { openTurns } from './answer/turns.ts'
import { createUnfinished } from './answer/unfinished.ts'
import { messageRoutes } from './anthropic/routes.ts'
import type { BoardSource } from './console/boards.ts'
import { createFeed } from './console/feed.ts'
import { consoleRoutes } from './console/routes.ts'
import type { Verify } from './console/verify.ts'
import { createGenAi } from './genai.ts'
import type { AnswerSpans } from './genai-spans.ts'
import { type Ask, innerOf } from './inner.ts'
import { type Keyring, keysIn } from './keys.ts'
import { createGatewayMetrics, metricsRoute } from './metrics.ts'
import { embeddingRoutes } from './openai/embeddings.ts'
import { openaiRoutes } from './openai/routes.ts'
import { tokenRoutes } from './openai/tokens.ts'
import { openApiRoute } from './openapi/document.ts'
import { whyNoPort } from './port.ts'
import { asRefusal, bodyOf, Refusal } from './refusal.ts'
import { responseRoutes } from './responses/routes.ts'
import { responseSocket, takeUpgrades } from './responses/socket.ts'
import { type Limits, openCounter, type Served, type Service } from './service.ts'
import { sessionRoutes } from './session-routes.ts'
import { followSessions } from './sessions-view.ts'

export const LIMITS: Limits = {
  body: 2 << 20,
  rate: 600,
  open: 512,
  answer: 600_000,
  stall: 30_000,
  sessionBacklog: 1024,
  keyBacklog: 4096,
  tokens: 65_536,
  prefixes: { sessions: 256, bytes: 1 << 30 },
}
/** From the first byte of a request to its last, ms. */
const REQUEST_TIME = 60_000
/** How long the log may take to answer for /readyz, ms. */
const PING_TIME = 2000
/** Routes by which probes and Prometheus look at the gateway. */
const LOOKS: ReadonlySet<string> = new Set(['/healthz', '/readyz', '/metrics'])
const MOST_CONNECTIONS = 4096
/** While it ends: how often connections are looked for that are idle by now, ms. */
const IDLE_LOOK = 50

/** One line of the log; fields first, as pino has it. */
export interface GatewayLogger {
  info(fields: object, message: string): void
  warn(fields: object, message: string): void
  error(fields: object, message: string): void
}

export interface GatewayOptions {
  readonly log: EventLog
  readonly names: TopicNames
  readonly served: Served
  readonly host: string
  /** 0 takes a free one; null: nobody reaches it but by `ask`. */
  readonly port: number | null
  /** Without keys, everybody who reaches the address may ask. */
  readonly keys: Keyring | null
  /** PEM. */
  readonly tls: { readonly cert: Buffer; readonly key: Buffer } | null
  readonly limits: Limits
  /** A request goes on to its end when its client goes away. Default: it is cancelled. */
  readonly keepsAnswers?: boolean
  readonly logger: GatewayLogger
  /** Workers that the console asks for what only they know. */
  readonly boards: readonly BoardSource[]
  /** Recomputes the log with the model, for the console; null: there is no model for it. */
  readonly verify: Verify | null
  /** Spans of answers; undefined: none are made. Whoever opened them closes them. */
  readonly spans?: Pick<AnswerSpans, 'begin'> | undefined
  /** Of a worker in this process: why it is not ready; null: it is, or there is none. */
  readonly unready?: () => string | null
}

export interface Gateway {
  /** '' where it listens nowhere. */
  readonly url: string
  readonly ask: Ask
  /** Resolves when it knows where the sessions stood at its start. */
  readonly caughtUp: Promise<void>
  /** Ends streams at once and accepts nothing more; answers under way have `grace` ms to end. */
  close(grace: number): Promise<void>
}

const LOOPBACK = new Set(['localhost', '127.0.0.1', '[::1]'])
export const isLoopback = (host: string): boolean =>
  LOOPBACK.has(host) || host === '::1' || /^127(\.\d{1,3}){3}$/.test(host)

const hostnameOf = (authority: string): string => authority.replace(/:\d*$/, '').toLowerCase()

declare module 'fastify' {
  interface FastifyRequest {
    /** The name of the key that the client showed. */
    keyName: string | null
  }
}

/** Who may ask: the client shows a key, and a page of another site in somebody's browser may not ask in its place. */
const guard = (app: FastifyInstance, { keys, host }: GatewayOptions): void => {
  app.decorateRequest('keyName', null)
  const bound = isIP(host) === 6 ? `[${host}]` : host.toLowerCase()
  app.addHook('onRequest', async (request) => {
    const { origin, host: asked } = request.headers
    if (origin !== undefined && (!URL.canParse(origin) || new URL(origin).host !== asked))
      throw new Refusal(403, 'The gateway answers no page of another site (CORS is off).', { code: 'foreign_origin' })
    if (request.routeOptions.config.open === true) return
    if (keys === null) {
      // A name of another site that leads here (DNS rebinding) makes a page of that site one of ours.
      if (asked !== undefined && !LOOPBACK.has(hostnameOf(asked)) && hostnameOf(asked) !== bound)
        throw new Refusal(
          403,
          'Without keys the gateway answers to the name of its own address only. Serve with --keys FILE.',
          { code: 'foreign_host' },
        )
      return
    }
    const shown = keysIn(request.headers)
    const name = shown.map((key) => keys.nameOf(key)).find((known) => known !== null)
    if (name === undefined)
      throw new Refusal(
        401,
        shown.length === 0
          ? 'Show an API key: Authorization: Bearer KEY, or x-api-key: KEY.'
          : 'This API key is not known here.',
        { code: 'invalid_api_key' },
      )
    request.keyName = name
  })
}

declare module 'fastify' {
  interface FastifyContextConfig {
    /** Needs no key: it says nothing but whether the gateway runs. */
    open?: boolean
    /** How the clients of the route read what is refused. Default: as OpenAI's do. */
    errorBody?: (refusal: Refusal) => object
  }
}

/** JSON bodies by Fastify's own reader, and where one is no JSON, the place that is wrong. */
const readJson = (app: FastifyInstance): void => {
  const read = app.getDefaultJsonParser('error', 'error')
  app.removeContentTypeParser('application/json')
  app.addContentTypeParser('application/json', { parseAs: 'string' }, (request, body: string, done) =>
    read(request, body, (error, value) => {
      if (error === null) return done(null, value)
      try {
        JSON.parse(body)
        done(error)
      } catch (cause) {
        done(
          new Refusal(
            400,
            body === '' ? 'The body is empty, expected JSON.' : `The body is no JSON: ${messageOf(cause)}.`,
          ),
        )
      }
    }),
  )
}

const asSentence = (error: unknown): Refusal => {
  if ((error as { readonly code?: unknown } | null)?.code === 'FST_ERR_CTP_INVALID_MEDIA_TYPE')
    return new Refusal(
      415,
      'The body has no content type that is read here. Send JSON with the header content-type: application/json.',
    )
  const refusal = asRefusal(error)
  // Of Fastify's own schema check, by zod.
  const issue = (
    error as { readonly validation?: readonly { readonly message?: string; readonly instancePath?: string }[] }
  ).validation?.[0]
  if (issue === undefined) return refusal
  const param = issue.instancePath ?? ''
  return new Refusal(
    400,
    `${param === '' ? 'The request' : `"${param}"`} cannot be taken: ${issue.message ?? 'it has the wrong form'}.`,
    { param },
  )
}

/** Answers, errors, and a line of the log for each: a route, never what stands in its place, and no header. */
const manners = (app: FastifyInstance, logger: GatewayLogger): void => {
  // Fastify's schemas are zod's, so that the contract of the topics is the contract of the routes.
  app.setValidatorCompiler<z.ZodType>(({ schema }) => (data) => {
    const parsed = schema.safeParse(data)
    if (parsed.success) return { value: parsed.data }
    const issue = schemaFault(parsed.error)
    const error = new Error(issue.message)
    return {
      error: Object.assign(error, {
        validation: [{ message: issue.message, instancePath: issue.path.join('.') }],
      }) as Error,
    }
  })
  readJson(app)
  app.setErrorHandler((error, request, reply: FastifyReply) => {
    const refusal = asSentence(error)
    if (refusal.status === 500)
      logger.error({ stack: error instanceof Error ? error.stack : undefined }, messageOf(error))
    if (refusal.status === 401) reply.header('www-authenticate', 'Bearer')
    if (refusal.status === 503 || (refusal.status === 429 && !reply.hasHeader('retry-after')))
      reply.header('retry-after', '1')
    const { errorBody = bodyOf } = request.routeOptions.config
    return reply.code(refusal.status).send(errorBody(refusal))
  })
  app.setNotFoundHandler((request, reply) =>
    reply.code(404).send(
      bodyOf(
        new Refusal(404, `There is no ${request.method} at this path. docs/serve.md lists what there is.`, {
          code: 'not_found',
        }),
      ),
    ),
  )
  app.addHook('onResponse', async (request, reply) => {
    const { method, routeOptions, keyName } = request
    // They come all day long, and say something only where the answer is no.
    if (reply.statusCode < 400 && LOOKS.has(routeOptions.url ?? '')) return
    const ms = Math.round(reply.elapsedTime * 10) / 10
    logger.info(
      {
        method,
        route: routeOptions.url ?? null,
        status: reply.statusCode,
        ms,
        ...(keyName !== null && { key: keyName }),
      },
      'answered',
    )
  })
}

const within = <T>(ms: number, work: Promise<T>): Promise<T> => {
  let timer: NodeJS.Timeout | undefined
  const late = new Promise<never>((_, reject) => {
    timer = setTimeout(
      () => reject(new ContinuoError('UNAVAILABLE', `The log did not answer within ${ms / 1000} seconds.`)),
      ms,
    )
  })
  return Promise.race([work, late]).finally(() => clearTimeout(timer))
}

const health = (app: FastifyInstance, service: Service, { log, unready }: GatewayOptions): void => {
  const config = { open: true, rateLimit: false as const }
  app.get('/healthz', { config }, async () => ({ alive: true }))
  app.get('/readyz', { config }, async (_request, reply) => {
    const { sessions } = service
    const reason = await within(PING_TIME, log.ping()).then(
      () => {
        const [failure] = sessions.failures
        if (failure !== undefined)
          return `The sessions of partition ${failure[0]} cannot be followed; the log of the gateway says why.`
        return sessions.isCaughtUp ? (unready?.() ?? null) : 'The gateway is still reading where the sessions stand.'
      },
      (error: unknown) => (codeOf(error) === 'REFUSED' ? messageOf(error) : 'The log does not answer.'),
    )
    return reply.code(reason === null ? 200 : 503).send({ ready: reason === null, ...(reason !== null && { reason }) })
  })
}

/** The status of what is no request at all, or does not come to its end. */
const STATUS_LINES: Readonly<Record<string, readonly [number, string]>> = {
  ERR_HTTP_REQUEST_TIMEOUT: [408, 'The request did not come to its end in time.'],
  HPE_HEADER_OVERFLOW: [431, 'The headers of the request are too large.'],
}

const refuseBytes = (error: Error & { readonly code?: string }, socket: Socket): void => {
  if (error.code === 'ECONNRESET' || socket.destroyed) return
  const [status, message] = STATUS_LINES[error.code ?? ''] ?? [400, 'This is no request of HTTP/1.1.']
  const body = JSON.stringify(bodyOf(new Refusal(status, message)))
  if (socket.writable)
    socket.write(
      `HTTP/1.1 ${status} ${STATUS_CODES[status]}\r\ncontent-type: application/json\r\ncontent-length: ${Buffer.byteLength(body)}\r\nconnection: close\r\n\r\n${body}`,
    )
  socket.destroySoon()
}

const create = ({ tls, limits }: GatewayOptions): FastifyInstance => {
  const options = {
    logger: false,
    bodyLimit: limits.body,
    requestTimeout: REQUEST_TIME,
    // A session id in a path: 512 characters, four bytes each, in percent-encoding.
    routerOptions: { maxParamLength: 8192, ignoreTrailingSlash: true, ignoreDuplicateSlashes: true },
    // A HEAD of a stream would have no end.
    exposeHeadRoutes: false,
    forceCloseConnections: 'idle',
    clientErrorHandler: refuseBytes,
    frameworkErrors: (error: Error, { raw: { headers, socket } }: FastifyRequest, reply: FastifyReply) => {
      const refusal = asRefusal(error)
      // Of an upgrade nobody else ends the connection here.
      if (headers.upgrade !== undefined) reply.raw.once('finish', () => socket.end())
      reply.code(refusal.status).send(bodyOf(refusal))
    },
  } as const
  return tls === null
    ? fastify(options)
    : (fastify({ ...options, https: { ...tls, minVersion: 'TLSv1.2' } }) as unknown as FastifyInstance)
}

/** Throws INVALID for a log without topics, UNAVAILABLE where the address cannot be had. */
export const serveGateway = async (options: GatewayOptions): Promise<Gateway> => {
  const { log, names, served, host, port, limits, logger } = options
  const { partitions } = await partitionsIn(log, names)
  const closing = new AbortController()
  const ended = new AbortController()
  const background = new Set<Promise<void>>()
  const noteFailure = (error: unknown): void =>
    logger.error({ stack: error instanceof Error ? error.stack : undefined }, messageOf(error))
  const feed = createFeed({ log, names, partitions, boards: options.boards })
  const unfinished = createUnfinished(
    { session: limits.sessionBacklog, key: limits.keyBacklog },
    () => sessions.failures.size > 0,
  )
  const turns = openTurns()
  const prefixes = createPrefixes(limits.prefixes, {
    partitionOf: (session) => service.topics.log.partitionOf(names.chunks, Buffer.from(session)),
    remove: (session) =>
      service.inBackground(send(service.topics, session, null, () => [{ type: 'delete' }]).then(() => undefined)),
    isCaughtUp: () => sessions.isCaughtUp,
  })
  const sessions = followSessions(log, names, partitions, (message) => logger.warn({}, message), {
    ...feed.watcher,
    head(view, head, record) {
      prefixes.stands(view)
      feed.watcher.head(view, head, record)
    },
    gone(session) {
      turns.begun.delete(session)
      prefixes.deleted(session)
      feed.watcher.gone(session)
    },
    cursor(cursor, partition, record) {
      if (cursor.topic === names.chunks) unfinished.committed(partition, cursor)
      feed.watcher.cursor(cursor, partition, record)
    },
  })
  sessions.caughtUp.then(prefixes.caughtUp, noteFailure)
  const counter = openCounter(limits.open)
  const metrics = createGatewayMetrics(counter)
  let taken = port
  const genai = createGenAi(metrics.registry, { host, port: () => taken }, options.spans)
  const service: Service = {
    topics: {
      log: placing(log, names.chunks, () => sessions.partitioner),
      names,
      unfinished,
      tokens: openTail(log, names.tokens),
      deadLetters: openTail(log, names.deadletters),
      observations: openTail(log, names.observations),
    },
    sessions,
    served,
    limits,
    cancels: options.keepsAnswers !== true,
    inBackground(work) {
      const noted = work.catch(noteFailure).finally(() => background.delete(noted))
      background.add(noted)
    },
    noteFailure,
    metrics,
    genai,
    closing: closing.signal,
    ended: ended.signal,
  }
  const app = create(options)
  const ask = innerOf(app)
  /** Connections that are no longer ones of HTTP. */
  const upgraded = new Set<Socket>()
  const end = async (): Promise<void> => {
    closing.abort()
    ended.abort()
    await app.close()
    await Promise.all(background)
    const { tokens, deadLetters, observations } = service.topics
    await Promise.all([
      tokens.close(),
      deadLetters.close(),
      observations.close(),
      service.sessions.close(),
      feed.close(),
    ])
  }
  try {
    app.server.maxConnections = MOST_CONNECTIONS
    app.removeContentTypeParser('text/plain')
    manners(app, logger)
    app.addHook('onResponse', async (request, reply) => {
      metrics.answered(request, reply)
      genai.over(request, reply)
    })
    // Before the guard: what it refuses of an upgrade is closed by the plugin, which must know of it.
    await takeUpgrades(app, { message: limits.body, time: REQUEST_TIME }, upgraded)
    guard(app, options)
    if (limits.rate > 0)
      await app.register(rateLimit, {
        max: limits.rate,
        timeWindow: 60_000,
        keyGenerator: ({ keyName, ip }) => (keyName === null ? `address ${ip}` : `key ${keyName}`),
        errorResponseBuilder: (_request, { max, ttl }) =>
          new Refusal(
            429,
            `This key or address has had its ${max} requests a minute. Try again in ${Math.ceil(ttl / 1000)} seconds.`,
            { code: 'rate_limit_exceeded' },
          ),
      })
    health(app, service, options)
    metricsRoute(app, metrics)
    openApiRoute(app)
    const answering = { service, counter, turns, prefixes }
    sessionRoutes(app, answering)
    openaiRoutes(app, answering, Math.floor(Date.now() / 1000))
    responseRoutes(app, answering)
    responseSocket(app, service)
    messageRoutes(app, answering)
    tokenRoutes(app, service)
    embeddingRoutes(app, answering)
    const { boards, verify } = options
    consoleRoutes(app, { service, counter, feed, partitions, boards: boards.length > 0, verify })
    await (port === null ? app.ready() : app.listen({ host, port }))
  } catch (error) {
    await end()
    throw (port === null ? null : whyNoPort(error, host, port)) ?? error
  }
  const address = app.server.address()
  if (typeof address === 'object' && address !== null) taken = address.port
  return {
    ask,
    caughtUp: sessions.caughtUp,
    url:
      port === null
        ? ''
        : `${options.tls === null ? 'http' : 'https'}://${isIP(host) === 6 ? `[${host}]` : host}:${taken}`,
    async close(grace) {
      closing.abort()
      const over = setTimeout(() => ended.abort(), grace)
      // A client that does not read its answer does not hold up the end.
      const force = setTimeout(() => {
        app.server.closeAllConnections()
        for (const socket of upgraded) socket.destroy()
      }, grace + 1000)
      // A connection whose last answer ended after this is idle, and would be kept for the next request.
      const idle = setInterval(() => app.server.closeIdleConnections(), IDLE_LOOK)
      await app.close()
      clearInterval(idle)
      clearTimeout(over)
      clearTimeout(force)
      await end()
    },
  }
}
