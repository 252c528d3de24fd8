/**
 * A span for each answer of a gateway, `chat MODEL`, `text_completion MODEL` or `embeddings MODEL`, kind SERVER; those
 * of a worker's work on it lie below.
 */
import type { Attributes } from '@opentelemetry/api'
import type { Grammar } from '../../topics/chunks.ts'
import { openTracer, remoteParent } from '../observe/tracing.ts'
import type { Headers } from '../streams/log.ts'
import type { Piece } from './answer/pieces.ts'
import type { Drawing } from './openai/schema.ts'

/** What is asked for, as far as it concerns nobody's text. */
export interface AskedFor {
  readonly model: string
  /** What is generated; missing: nothing is. */
  readonly generates?: {
    readonly maxTokens: number
    readonly drawing: Drawing
    /** As the request has it. */
    readonly seed: number | undefined
    readonly grammar: Grammar | undefined
    readonly stream: boolean
  }
}

export interface Ended {
  /** What was generated; missing: nothing was. */
  readonly generated?: { readonly id: string; readonly finish: NonNullable<Piece['finish']> }
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number }
}

/** How an answer ends, in the words of OpenAI's protocol. */
const FINISHES = { stop: 'stop', calls: 'tool_calls', length: 'length', cancelled: 'cancelled' } as const

export interface Beginning extends AskedFor {
  readonly operation: string
  readonly provider: string
  readonly address?: string
  readonly port?: number
  /** Of the request. */
  readonly headers: Readonly<Record<string, string | readonly string[] | undefined>>
  /** When it came, ms since the epoch. */
  readonly since: number
}

export interface AnswerSpan {
  /** `traceparent`, for what is done for the answer elsewhere. */
  readonly headers: Headers
  end(outcome: { readonly error: string | null; readonly ended: Ended | null; readonly first: number | null }): void
}

export interface AnswerSpans {
  begin(asked: Beginning): AnswerSpan
  /** Sends what is left. */
  close(): Promise<void>
}

const generating = ({ maxTokens, drawing, seed, grammar, stream }: NonNullable<AskedFor['generates']>): Attributes => {
  const isJson = grammar?.type === 'json' || grammar?.type === 'jsonSchema'
  return {
    ...{ 'gen_ai.request.max_tokens': maxTokens, 'gen_ai.output.type': isJson ? 'json' : 'text' },
    ...{ 'gen_ai.request.temperature': drawing.temperature, 'gen_ai.request.top_p': drawing.topP },
    ...(drawing.topK > 0 && { 'gen_ai.request.top_k': drawing.topK }),
    ...(drawing.presencePenalty !== 0 && { 'gen_ai.request.presence_penalty': drawing.presencePenalty }),
    ...(drawing.frequencyPenalty !== 0 && { 'gen_ai.request.frequency_penalty': drawing.frequencyPenalty }),
    ...(seed !== undefined && { 'gen_ai.request.seed': seed }),
    ...(stream && { 'gen_ai.request.stream': true }),
  }
}

const asked = (given: Beginning): Attributes => {
  const { operation, provider, model, generates, address, port } = given
  return {
    ...{ 'gen_ai.operation.name': operation, 'gen_ai.provider.name': provider, 'gen_ai.request.model': model },
    ...(generates && generating(generates)),
    ...(address !== undefined && port !== undefined && { 'server.address': address, 'server.port': port }),
  }
}

/** The id of a response has the name of its session in it. */
const hasSession = (id: string): boolean => id.startsWith('resp_')

/** Throws INVALID where the modules that make spans are not installed, or `endpoint` is no URL. */
export const openAnswerSpans = async (endpoint: string | undefined): Promise<AnswerSpans> => {
  const { api, tracer, close } = await openTracer(endpoint)
  return {
    begin(given) {
      const headers = Object.entries(given.headers).flatMap(([name, value]) =>
        typeof value === 'string' ? [[name, Buffer.from(value)] as const] : [],
      )
      const remote = remoteParent({ headers }, api)
      const outer = remote === null ? api.ROOT_CONTEXT : api.trace.setSpanContext(api.ROOT_CONTEXT, remote)
      const options = { kind: api.SpanKind.SERVER, startTime: given.since, attributes: asked(given) }
      const span = tracer.startSpan(`${given.operation} ${given.model}`, options, outer)
      const { traceId, spanId, traceFlags, traceState } = span.spanContext()
      const parent = `00-${traceId}-${spanId}-${traceFlags.toString(16).padStart(2, '0')}`
      const state = traceState?.serialize() ?? ''
      return {
        headers: [
          ['traceparent', Buffer.from(parent)],
          ...(state === '' ? [] : [['tracestate', Buffer.from(state)] as const]),
        ],
        end({ error, ended, first }) {
          if (ended !== null) {
            const { generated, usage } = ended
            span.setAttributes({
              'gen_ai.response.model': given.model,
              'gen_ai.usage.input_tokens': usage.prompt_tokens,
              ...(generated && {
                'gen_ai.response.finish_reasons': [FINISHES[generated.finish]],
                'gen_ai.usage.output_tokens': usage.completion_tokens,
                ...(!hasSession(generated.id) && { 'gen_ai.response.id': generated.id }),
              }),
              ...(given.generates?.stream && first !== null && { 'gen_ai.response.time_to_first_chunk': first }),
            })
          }
          if (error !== null) {
            span.setAttribute('error.type', error)
            span.setStatus({ code: api.SpanStatusCode.ERROR })
          }
          span.end()
        },
      }
    },
    close,
  }
}
