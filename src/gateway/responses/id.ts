/** The id of a response: it says where in the log the response is, so a gateway needs to remember none. */
import { z } from 'zod'
import { STARTS, type Start } from '../../models/chat/thoughts.ts'
import type { Asking } from '../answer/job.ts'
import { Refusal } from '../refusal.ts'

export const PREFIX = 'resp_'
/**
 * Of the items of a response, its thoughts, its message and its calls: the rest is the response's, and the place of the
 * call.
 */
export const THOUGHT = 'rs_'
export const MESSAGE = 'msg_'
export const CALL = 'fc_'
/** Of an item of its input that came without an id: the rest is the response's, and the place of the item. */
export const INPUT = 'in_'
/** Of a `generate` event's requestId. */
const MOST_ID = 256

const count = z.int().min(0)
const located = z
  .tuple([z.string().regex(/^[0-9a-f]{16}$/), count, count, count, count, count, z.string().min(1)])
  .rest(count)
  .refine(([, , , , , , , kind = 0, , , ...more]) => kind < 2 * STARTS.length && more.length === 0)

/** Where a response is. */
export interface Located {
  readonly id: string
  readonly nonce: string
  readonly partition: number
  readonly tokensFrom: number
  readonly deadLettersFrom: number
  /** Its events in the input topic are at or behind this; null: it is older than what keeps the request beside them. */
  readonly chunksFrom: number | null
  /** Seconds since the epoch. */
  readonly created: number
  readonly inputTokens: number
  /** Of these, what the session has from one that read it before. */
  readonly cachedTokens: number
  readonly session: string
  /** The answer may have calls. */
  readonly calls: boolean
  /** Where it begins. */
  readonly start: Start
}

export const locate = (
  { session, partition, chunksFrom, tokensFrom, deadLettersFrom, promptTokens, cachedTokens, start, ...given }: Asking,
  calls: boolean,
): Located => {
  const { created } = given
  const nonce = given.nonce.replaceAll('-', '').slice(0, 16)
  const inputTokens = promptTokens ?? 0
  // One number says whether the answer may have calls, and where it begins.
  const kind = (calls ? 1 : 0) + 2 * STARTS.indexOf(start)
  const place = [nonce, partition, tokensFrom, deadLettersFrom, created, inputTokens, session, kind, chunksFrom]
  const fields = cachedTokens > 0 ? [...place, cachedTokens] : place
  const id = `${PREFIX}${Buffer.from(JSON.stringify(fields)).toString('base64url')}`
  if (id.length > MOST_ID)
    throw new Refusal(
      400,
      'The id of a response has the name of its session in it; this one is too long. Take at most 60 characters.',
      {
        param: 'x-session',
      },
    )
  const from = { nonce, partition, chunksFrom, tokensFrom, deadLettersFrom, created }
  return { id, ...from, inputTokens, cachedTokens, session, calls, start }
}

/** What such an id says; null: it is no id of a response. */
export const locatedIn = (id: string): Located | null => {
  if (!id.startsWith(PREFIX) || id.length > MOST_ID) return null
  let fields: unknown
  try {
    fields = JSON.parse(Buffer.from(id.slice(PREFIX.length), 'base64url').toString())
  } catch {
    return null
  }
  const parsed = located.safeParse(fields)
  if (!parsed.success) return null
  const [nonce, partition, tokensFrom, deadLettersFrom, created, inputTokens, session, kind = 0, from, cached = 0] =
    parsed.data
  const place = {
    nonce,
    partition,
    tokensFrom,
    deadLettersFrom,
    created,
    inputTokens,
    cachedTokens: cached,
    session,
    chunksFrom: from ?? null,
  }
  return { id, ...place, calls: kind % 2 === 1, start: STARTS[kind >> 1]! }
}

/** What the ids of its items have of the id of a response. */
export const bodyOf = ({ id }: Pick<Located, 'id'>): string => id.slice(PREFIX.length)
