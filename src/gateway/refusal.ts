/** The gateway's refusals: a status and a sentence, in the shape that OpenAI's clients read. */
import { ContinuoError, type codeOf, messageOf } from '../errors.ts'

export class Refusal extends Error {
  readonly status: number
  /** For programs: `model_not_found`, `invalid_api_key`, …; null where the sentence is all. */
  readonly code: string | null
  /** The parameter that is wrong. */
  readonly param: string | null
  constructor(status: number, message: string, about: { readonly code?: string; readonly param?: string } = {}) {
    super(message)
    this.name = 'Refusal'
    this.status = status
    this.code = about.code ?? null
    this.param = about.param ?? null
  }
}

export interface ErrorBody {
  readonly error: {
    readonly message: string
    readonly type: string
    readonly param: string | null
    readonly code: string | null
  }
}

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  429: 'rate_limit_error',
}

export const errorOf = ({ status, message, param, code }: Refusal): ErrorBody['error'] => ({
  ...{ message, type: TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'server_error') },
  ...{ param, code },
})
export const bodyOf = (refusal: Refusal): ErrorBody => ({ error: errorOf(refusal) })

/** Of the log and the parts below; a code that is not here is a fault of ours. */
const STATUSES: Readonly<Partial<Record<ReturnType<typeof codeOf>, number>>> = {
  INVALID: 400,
  POSITION: 410,
  UNAVAILABLE: 503,
  DENIED: 503,
  REFUSED: 503,
}

/** Errors of Fastify itself and of its plugins carry a status. */
const statusIn = (error: unknown): number | undefined => {
  const status = (error as { readonly statusCode?: unknown } | null)?.statusCode
  return typeof status === 'number' && status >= 400 && status < 500 ? status : undefined
}

/** Any thrown value. A fault of ours is told to the log, not to the client. */
export const asRefusal = (error: unknown): Refusal => {
  if (error instanceof Refusal) return error
  const status = error instanceof ContinuoError ? STATUSES[error.code] : statusIn(error)
  if (status !== undefined) return new Refusal(status, messageOf(error))
  return new Refusal(500, 'The gateway met a fault of its own; its log says more.', { code: 'internal_error' })
}
