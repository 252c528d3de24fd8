/**
 * A route as the OpenAPI document tells it. Schemas are zod's; each has a name in the document (`NamedSchemas`), by
 * which operations refer to it.
 */
import { z } from 'zod'
import type { ErrorBody } from '../refusal.ts'

/** Headers of requests that change what a route does, by their names in the document. */
export type RequestHeader = 'Session' | 'IdempotencyKey' | 'LastEventId' | 'OpenResponsesVersion'
/** Headers of answers that carry something which the body does not have. */
export type AnswerHeader = 'Session' | 'Seed' | 'Replayed'

/** What is given with one status: JSON, the data of the events of a stream, or something else by its media type. */
export interface Answer {
  readonly description: string
  readonly json?: z.ZodType
  readonly events?: z.ZodType
  readonly media?: string
  readonly headers?: readonly AnswerHeader[]
}

export interface Operation {
  /** Unique in the document. */
  readonly id: string
  readonly method: 'get' | 'post' | 'delete'
  /** With parameters as `{id}`. */
  readonly path: string
  readonly tag: string
  /** One sentence. */
  readonly summary: string
  readonly description?: string
  readonly query?: z.ZodObject
  readonly headers?: readonly RequestHeader[]
  readonly body?: z.ZodType
  /** The body may be missing. */
  readonly bodyIsOptional?: true
  /** Top-level members of the body that are null count as missing. */
  readonly nullIsAbsent?: true
  readonly answers: Readonly<Record<number, Answer>>
  /** Statuses of errors besides those that follow from the rest (`errorsOf`). */
  readonly errors?: readonly number[]
  /** Default: OpenAI's. */
  readonly errorForm?: 'anthropic'
  /**
   * `open`: no key, and no bound on how often; `unlimited`: a key where there are keys. Default: a key, and the bound.
   */
  readonly access?: 'open' | 'unlimited'
}

export type NamedSchemas = Readonly<Record<string, z.ZodType>>

/** The part of the document that a file tells. */
export interface Section {
  readonly schemas: NamedSchemas
  readonly operations: readonly Operation[]
}

/** Statuses of routes that put events into the log and wait for what a worker makes of them. */
export const WAITING: readonly number[] = [404, 409, 413, 503, 504]
/** The same, of routes that take an Idempotency-Key. */
export const WAITING_ONCE: readonly number[] = [...WAITING, 410, 422]

/** All statuses of errors, in their order. */
export const errorsOf = ({ access, body, path, query, headers, errors = [] }: Operation): readonly number[] => {
  const checked = body !== undefined || path.includes('{') || query !== undefined || headers !== undefined
  const all = [
    ...[403, 500],
    ...(access === 'open' ? [] : [401]),
    ...(access === undefined ? [429] : []),
    ...(checked ? [400] : []),
    ...(body === undefined ? [] : [413, 415]),
    ...errors,
  ]
  return [...new Set(all)].sort((a, b) => a - b)
}

export const count = z.int().min(0)
/** Seconds since the epoch. */
export const seconds = count

/** Of an error, in the form of OpenAI's. */
export const errorMembers = z.strictObject({
  message: z.string().describe('What was expected, what arrived and what to do.'),
  type: z.enum([
    'invalid_request_error',
    'authentication_error',
    'permission_error',
    'rate_limit_error',
    'server_error',
  ]),
  param: z.string().nullable().describe('The parameter that is wrong.'),
  code: z.string().nullable().describe('For programs; null where the message is all.'),
})
/** An error of all routes but Anthropic's, and of streams that fail. */
export const errorBody = z.strictObject({ error: errorMembers }) satisfies z.ZodType<ErrorBody>
