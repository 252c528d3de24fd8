/**
 * `Idempotency-Key`: a request that a client sends again, because it does not know whether it was done, is done once
 * and gets its first answer again. The gateway keeps no state for that: the key goes into the log with the events
 * (`once`, docs/formats.md), the worker takes one attempt of all that come, and the attempt's name says where in the
 * log its answer is. So the key holds at any gateway, and after a crash of any part.
 */
import { createHash, randomUUID } from 'node:crypto'
import type { FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { ChunkInput } from '../../../topics/chunks.ts'
import type { Claim } from '../../../topics/state.ts'
import { textIn } from '../../client/records.ts'
import { STARTS, type Start } from '../../models/chat/thoughts.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { Refusal } from '../refusal.ts'
import type { Begun, Topics } from './ask.ts'

export const ONCE_HEADER = 'idempotency-key'
/** Says of an answer that it is one that was given before. */
export const REPLAYED_HEADER = 'idempotency-replayed'
/** Characters of a key. */
const MOST_KEY = 255
/** JSON of the events of an attempt: one batch, so all of them are in the log or none is. */
const MOST_BYTES = 900_000

/** What is to be done once. */
export interface Once {
  /** In the log: a hash of the key, of whose it is and of the route. */
  readonly key: string
  /** A hash of the body: another request cannot have the answer. */
  readonly body: string
}

const hash = (...parts: readonly string[]): string =>
  createHash('sha256').update(JSON.stringify(parts)).digest('hex').slice(0, 32)

/** null: the request has no key. Throws a Refusal (400) for one that cannot be taken. */
export const onceIn = (request: FastifyRequest): Once | null => {
  const given = request.headers[ONCE_HEADER]
  if (given === undefined) return null
  const key = String(given)
  if (key.length < 1 || key.length > MOST_KEY)
    throw new Refusal(
      400,
      `The header ${ONCE_HEADER} takes 1 to ${MOST_KEY} characters, and this one has ${key.length}.`,
      {
        param: ONCE_HEADER,
      },
    )
  const path = new URL(request.url, 'http://gateway').pathname
  return { key: hash(request.keyName ?? '', path, key), body: hash(JSON.stringify(request.body ?? null)).slice(0, 16) }
}

/** Throws a Refusal (400) for a request with a key whose answer could not be given again. */
export const refuseOnce = (request: FastifyRequest, what: string): void => {
  if (request.headers[ONCE_HEADER] === undefined) return
  throw new Refusal(400, `${what} is not supported with the header ${ONCE_HEADER}. Leave the header out.`, {
    code: 'unsupported_parameter',
    param: ONCE_HEADER,
  })
}

const count = z.int().min(0)
const named = z.tuple([
  z.uuid(),
  z.string(),
  count,
  count,
  count,
  count,
  z.int().min(-1),
  count,
  count.max(STARTS.length - 1),
  count,
])

/** What the name of an attempt says. */
export interface Attempt {
  /** Of the ids of its answer. */
  readonly nonce: string
  readonly body: string
  /** Seconds since the epoch. */
  readonly created: number
  readonly chunksFrom: number
  readonly tokensFrom: number
  readonly deadLettersFrom: number
  /** Tokens of the prompt; null: the worker knows. */
  readonly promptTokens: number | null
  /** Where the session stood. */
  readonly pulse: number
  readonly start: Start
  readonly seed: number
}

export const begunNow = (): Pick<Attempt, 'nonce' | 'created'> => ({
  nonce: randomUUID(),
  created: Math.floor(Date.now() / 1000),
})

export const nameOf = (attempt: Attempt): string => {
  const { nonce, body, created, chunksFrom, tokensFrom, deadLettersFrom, promptTokens, pulse, start, seed } = attempt
  const place = [chunksFrom, tokensFrom, deadLettersFrom]
  return JSON.stringify([nonce, body, created, ...place, promptTokens ?? -1, pulse, STARTS.indexOf(start), seed])
}

/** Throws a Refusal (422) where the key was used for another request, or by another producer of the topic. */
export const attemptIn = ({ attempt: name }: Pick<Claim, 'attempt'>, once: Once): Attempt => {
  let json: unknown = null
  try {
    json = JSON.parse(name)
  } catch {
    // It is no name of ours.
  }
  const parsed = named.safeParse(json)
  const [nonce, body, created, chunksFrom, tokensFrom, deadLettersFrom, prompt, pulse, start, seed] = parsed.data ?? []
  if (body === undefined || body !== once.body)
    throw new Refusal(
      422,
      `The header ${ONCE_HEADER} has the key of another request: expected the body that was sent with it first. Take another key.`,
      { code: 'idempotency_key_reused', param: ONCE_HEADER },
    )
  return {
    ...{ nonce: nonce!, body, created: created!, chunksFrom: chunksFrom!, tokensFrom: tokensFrom! },
    ...{ deadLettersFrom: deadLettersFrom!, promptTokens: prompt! < 0 ? null : prompt!, pulse: pulse! },
    ...{ start: STARTS[start!]!, seed: seed! },
  }
}

/** The events as those of an attempt. Throws a Refusal (413) where they are more than is written at once. */
export const attempted = (events: readonly ChunkInput[], once: Once, attempt: Attempt): ChunkInput[] => {
  const marked = events.map((event) => ({ ...event, once: { key: once.key, attempt: nameOf(attempt) } }) as ChunkInput)
  const bytes = marked.reduce((sum, event) => sum + Buffer.byteLength(JSON.stringify(event)), 0)
  if (bytes > MOST_BYTES)
    throw new Refusal(
      413,
      `With the header ${ONCE_HEADER} the events of a request may have ${MOST_BYTES} bytes, and these have ${bytes}. Feed a long text to a session first, and ask there.`,
      { param: ONCE_HEADER },
    )
  return marked
}

/** The attempt that an event of the input topic, or its dead letter, belongs to; null: none. */
export const attemptOf = ({ value }: Pick<StoredRecord, 'value'>): string | null => {
  try {
    const event = JSON.parse(textIn(value)) as { readonly once?: { readonly attempt?: unknown } } | null
    return typeof event?.once?.attempt === 'string' ? event.once.attempt : null
  } catch {
    return null
  }
}

/** What the event at this offset has claimed. Rejects with a Refusal (410) where the log does not have it any more. */
export const claimAt = async (
  { log, names }: Pick<Topics, 'log' | 'names'>,
  { partition }: Pick<Begun, 'partition'>,
  key: string,
  offset: number,
): Promise<Claim> => {
  const gone = (): Refusal =>
    new Refusal(410, 'What was done by this key is so long ago that the log does not have it any more.', {
      code: 'idempotency_key_gone',
      param: ONCE_HEADER,
    })
  const { begin } = await log.bounds(names.chunks, partition)
  if (offset < begin) throw gone()
  for await (const { records } of log.read(names.chunks, partition, offset, { until: offset + 1, undecodable: true }))
    for (const record of records) {
      const attempt = attemptOf(record)
      if (record.offset === offset && attempt !== null) return { key, attempt, offset }
    }
  throw gone()
}
