/**
 * What answers cost, by the names of OpenTelemetry's conventions for generative AI
 * (open-telemetry/semantic-conventions-genai, status Development): histograms in /metrics, with the buckets that they
 * advise, and a span for each answer where spans are sent. No session, key or text is in them.
 */
import type { FastifyReply, FastifyRequest } from 'fastify'
import { Histogram, type Registry } from 'prom-client'
import type { Headers } from '../streams/log.ts'
import type { AnswerSpan, AnswerSpans, AskedFor, Ended } from './genai-spans.ts'
import type { Refusal } from './refusal.ts'

/** Of requests that a model works for, the operation by its well-known name. */
const OPERATIONS: Readonly<Record<string, string>> = {
  '/v1/completions': 'text_completion',
  '/v1/chat/completions': 'chat',
  '/v1/responses': 'chat',
  '/v1/messages': 'chat',
  '/v1/embeddings': 'embeddings',
}
/** No well-known name is meant for us. */
const PROVIDER = 'continuo'

const DURATION = [0.01, 0.02, 0.04, 0.08, 0.16, 0.32, 0.64, 1.28, 2.56, 5.12, 10.24, 20.48, 40.96, 81.92]
const FIRST_TOKEN = [0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75, 1, 2.5, 5, 7.5, 10]
const PER_TOKEN = [0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75, 1, 2.5]
const TOKENS = [1, 4, 16, 64, 256, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216, 67_108_864]

const NONE: Headers = []

/** Told of the answers of a gateway in this order; each by the reply that it is given in. */
export interface GenAi {
  /** The request is well formed. */
  asked(reply: FastifyReply, job: AskedFor): void
  /** So many tokens came first. */
  began(reply: FastifyReply, tokens: number): void
  ended(reply: FastifyReply, ended: Ended): void
  /** A stream ends with this; what has a status needs no word. */
  failed(reply: FastifyReply, refusal: Refusal): void
  /** Headers for the events of the request, by which a worker's spans find the span of the answer. */
  headersOf(reply: FastifyReply): Headers
  /** Counts the request, when its answer is over. */
  over(request: FastifyRequest, reply: FastifyReply): void
}

/** Where the gateway listens; the port is known later than this. */
export interface Listening {
  readonly host: string
  /** null: nobody can reach it. */
  readonly port: () => number | null
}

interface State {
  readonly model: string
  readonly span: AnswerSpan | undefined
  /** Times since the request came, s. */
  first: number | null
  firstTokens: number
  last: number | null
  ended: Ended | null
  failure: string | null
  counted: boolean
}

const operationOf = ({ method, routeOptions }: Pick<FastifyRequest, 'method' | 'routeOptions'>): string | undefined =>
  method === 'POST' ? OPERATIONS[routeOptions.url ?? ''] : undefined

/** A class of errors of few members: the status, or what befell a stream that had a good one. */
const errorOf = (status: number, state: State | undefined): string | null => {
  if (state?.failure != null) return state.failure
  if (status >= 400) return String(status)
  return state !== undefined && state.ended === null ? 'client_gone' : null
}

const COMMON = ['gen_ai_operation_name', 'gen_ai_provider_name', 'gen_ai_request_model', 'gen_ai_response_model']
const LABELS = [...COMMON, 'server_address', 'server_port']

export const createGenAi = (
  registry: Registry,
  { host, port }: Listening,
  spans: Pick<AnswerSpans, 'begin'> | undefined,
): GenAi => {
  const registers = [registry]
  const histogram = (name: string, help: string, buckets: number[], ...more: string[]) =>
    new Histogram({ name, help, buckets, labelNames: [...LABELS, ...more], registers })
  const duration = histogram(
    'gen_ai_server_request_duration_seconds',
    'Time from the arrival of a request for a model to the end of its answer',
    DURATION,
    'error_type',
  )
  const firstToken = histogram(
    'gen_ai_server_time_to_first_token_seconds',
    'Time from the arrival of a request to the first token, of answers that came to their end',
    FIRST_TOKEN,
  )
  const perToken = histogram(
    'gen_ai_server_time_per_output_token_seconds',
    'Time per token behind the first, of answers that came to their end',
    PER_TOKEN,
  )
  const usage = histogram(
    'gen_ai_client_token_usage',
    'Tokens read and generated for a request, as its usage says',
    TOKENS,
    'gen_ai_token_type',
  )
  const states = new WeakMap<FastifyReply, State>()
  const secondsOf = ({ elapsedTime }: FastifyReply): number => elapsedTime / 1000
  const placeOf = () => {
    const taken = port()
    return taken === null ? {} : { address: host, port: taken }
  }
  const over: GenAi['over'] = (request, reply) => {
    const operation = operationOf(request)
    if (operation === undefined) return
    const state = states.get(reply)
    if (state?.counted === true) return
    if (state !== undefined) state.counted = true
    const error = errorOf(reply.statusCode, state)
    const { address, port: taken } = placeOf()
    const labels = {
      ...{ gen_ai_operation_name: operation, gen_ai_provider_name: PROVIDER },
      ...(state !== undefined && { gen_ai_request_model: state.model }),
      ...(state?.ended && { gen_ai_response_model: state.model }),
      ...(address !== undefined && { server_address: address, server_port: taken }),
    }
    duration.observe({ ...labels, ...(error !== null && { error_type: error }) }, secondsOf(reply))
    if (state === undefined) return
    const { ended, first, firstTokens, last, span } = state
    span?.end({ error, ended, first })
    if (ended === null) return
    usage.observe({ ...labels, gen_ai_token_type: 'input' }, ended.usage.prompt_tokens)
    if (ended.generated === undefined) return
    usage.observe({ ...labels, gen_ai_token_type: 'output' }, ended.usage.completion_tokens)
    if (error !== null || first === null || last === null) return
    firstToken.observe(labels, first)
    // An answer that is given whole comes in runs of several tokens: those of the first run came together.
    const later = ended.usage.completion_tokens - firstTokens
    if (later > 0) perToken.observe(labels, (last - first) / later)
  }
  return {
    asked(reply, job) {
      const operation = operationOf(reply.request)
      if (operation === undefined) return
      const span = spans?.begin({
        ...{ operation, provider: PROVIDER, ...placeOf(), ...job },
        headers: reply.request.headers,
        since: Date.now() - reply.elapsedTime,
      })
      const times = { first: null, firstTokens: 0, last: null }
      states.set(reply, { model: job.model, span, ...times, ended: null, failure: null, counted: false })
      // Where its client goes away, nothing else says that it is over.
      reply.raw.once('close', () => over(reply.request, reply))
    },
    began(reply, tokens) {
      const state = states.get(reply)
      if (state === undefined) return
      state.first = secondsOf(reply)
      state.firstTokens = tokens
    },
    ended(reply, ended) {
      const state = states.get(reply)
      if (state === undefined) return
      state.ended = ended
      state.last = secondsOf(reply)
    },
    failed(reply, { status }) {
      const state = states.get(reply)
      if (state !== undefined) state.failure = String(status)
    },
    headersOf: (reply) => states.get(reply)?.span?.headers ?? NONE,
    over,
  }
}
