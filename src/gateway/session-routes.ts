/**
 * Continuo's own API: sessions, events into them, and their outputs as server-sent events whose ids are positions of
 * the topic.
 */
import { randomUUID } from 'node:crypto'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { z } from 'zod'
import { CHUNK_SCHEMAS, type Chunk, generate, open } from '../../topics/chunks.ts'
import { sessionId } from '../../topics/common.ts'
import type { Generated } from '../../topics/tokens.ts'
import { MAX_CHUNK_BYTES } from '../client/chunks.ts'
import { recordAsJson } from '../client/records.ts'
import type { Tail } from '../client/tail.ts'
import { eventOf } from '../operators/pipeline/validate.ts'
import type { StoredRecord } from '../streams/log.ts'
import { generatedIn, send } from './answer/ask.ts'
import type { Answering } from './answer/job.ts'
import { ONCE_HEADER, onceIn, REPLAYED_HEADER } from './answer/once.ts'
import { Refusal } from './refusal.ts'
import { checkFed, checkSession, failureBody, goneSignal, type Service } from './service.ts'
import { sessionEffects } from './session-effects.ts'
import { bytesOf, type ServerEvent, sendEvents } from './sse.ts'

/** Events of one request. */
const MOST_EVENTS = 1000
/** JSON of one event: what a topic's record takes, with room for its key and headers. */
const MOST_EVENT_BYTES = MAX_CHUNK_BYTES * 1.4

/** After how long a reader of a stream that was cut off comes again, ms. */
const RETRY = 1000

const params = z.strictObject({ id: z.string() })
export const pageQuery = z.strictObject({
  limit: z.coerce.number().int().min(1).max(1000).default(100).describe('Sessions of a page.'),
  after: z.string().max(512).optional().describe('The id of a session: the page begins behind it.'),
  status: z.enum(['open', 'closed', 'stopped']).optional().describe('Sessions of this status alone.'),
})
const POSITION = /^(\d{1,9}):(-1|\d{1,15})$/
export const streamQuery = z.strictObject({
  starting_after: z
    .string()
    .optional()
    .describe('A position, PARTITION:OFFSET, as the ids of a stream have it: the records behind it are given.'),
  from: z
    .enum(['beginning', 'end'])
    .default('end')
    .describe('Without a position: begin with the first record that is still there, or with the next one.'),
})

/** `partition:offset` of a record; a stream that starts after it gives what comes behind. */
const positionText = (partition: number, offset: number): string => `${partition}:${offset}`

/** Adds what clients need not say, and checks what the schema of the topic and the model ask for. */
const checkedEvent = (given: unknown, at: number, { served }: Service, unique: string = randomUUID()): Chunk => {
  const param = `events[${at}]`
  const asks = typeof given === 'object' && given !== null && (given as { type?: unknown }).type === 'generate'
  const named = asks && !('requestId' in given) ? { ...given, requestId: unique } : given
  const event = eventOf(named)
  if (typeof event === 'string') throw new Refusal(400, event, { param })
  if (event.type === 'text' && served.tokenizer === null)
    throw new Refusal(400, 'This model has no tokenizer and reads token ids only. Send a "tokens" event.', { param })
  if (event.type === 'tokens') {
    const wrong = event.tokens.find((id) => id >= served.vocabSize)
    if (wrong !== undefined)
      throw new Refusal(400, `Token ids go from 0 to ${served.vocabSize - 1} for this model; ${wrong} is none.`, {
        param,
      })
  }
  const bytes = Buffer.byteLength(JSON.stringify(event))
  if (bytes > MOST_EVENT_BYTES)
    throw new Refusal(
      413,
      `The event has ${bytes} bytes, more than the ${MOST_EVENT_BYTES} that one record takes. Cut it into several: the model reads the same.`,
      { param },
    )
  return event
}

const eventsIn = (body: unknown, service: Service, unique?: string): Chunk[] => {
  const given = Array.isArray(body) ? body : [body]
  if (given.length === 0 || given.length > MOST_EVENTS)
    throw new Refusal(400, `A request brings 1 to ${MOST_EVENTS} events, this one ${given.length}.`)
  return given.map((event, at) => checkedEvent(event, at, service, unique && `${unique}-${at}`))
}

/** Events as the body of a request has them: the gateway makes the id of a `generate` that has none. */
const askedGenerate = generate.extend({ requestId: generate.shape.requestId.optional() })
export const eventRequest = z.union(Object.values({ ...CHUNK_SCHEMAS, generate: askedGenerate }))
/**
 * The schema of the body, as it is told to clients; each event is checked alone, so that a refusal names what is wrong
 * with it.
 */
export const eventsRequest = z.union([eventRequest, z.array(eventRequest).min(1).max(MOST_EVENTS)])

/** The schema of a fork's body, as it is told to clients. */
export const forkRequest = open.omit({ type: true, from: true }).extend({ session: sessionId.optional() })
/** A fork: the name of the child, which may be missing, and what an `open` event takes. */
const forkBody = z.looseObject({ session: z.string().optional() }).default({})

/** Topics of output that can be followed, by the last part of the path. */
const FOLLOWED = {
  tokens: (record: StoredRecord): unknown => generatedIn(record),
  observations: (record: StoredRecord): unknown => recordAsJson('observations', record).value,
  deadletters: (record: StoredRecord): unknown => recordAsJson('deadletters', record),
} as const
type Followed = keyof typeof FOLLOWED

/** Records as the events of a stream; those behind one that cannot be shown are left out. */
interface Shown {
  readonly bytes: Uint8Array
  /** Generated tokens in them. */
  readonly tokens: number
  readonly failure: { readonly error: unknown } | null
}

/** Readers that catch up are given the same records, and the same bytes. */
const known = new WeakMap<readonly StoredRecord[], Shown>()

const show = (kind: Followed, records: readonly StoredRecord[]): Shown => {
  const events: ServerEvent[] = []
  let tokens = 0
  let failure: Shown['failure'] = null
  for (const record of records) {
    try {
      const data = FOLLOWED[kind](record)
      events.push({ id: positionText(record.partition, record.offset), data })
      if (kind === 'tokens') tokens += (data as Generated).ids.length
    } catch (error) {
      failure = { error }
      break
    }
  }
  return { bytes: bytesOf(events), tokens, failure }
}

const shown = (kind: Followed, records: readonly StoredRecord[]): Shown => {
  const before = known.get(records)
  if (before !== undefined) return before
  const made = show(kind, records)
  known.set(records, made)
  return made
}

export const sessionRoutes = (app: FastifyInstance, answering: Answering): void => {
  const { service, counter } = answering
  const { topics, sessions, limits, metrics, closing } = service
  const { log, names } = topics
  const tails: Readonly<Record<Followed, Tail>> = {
    tokens: topics.tokens,
    observations: topics.observations,
    deadletters: topics.deadLetters,
  }
  const unfollowed = (): readonly string[] =>
    [...sessions.failures].map(([partition, reason]) => `Partition ${partition}: ${reason}`)

  app.get('/v1/sessions', { schema: { querystring: pageQuery } }, async (request) => {
    const { limit, after, status } = request.query as z.output<typeof pageQuery>
    const page = sessions.page(after, limit, status)
    return { total: sessions.size, ...page, failures: unfollowed() }
  })

  app.get('/v1/sessions/:id', { schema: { params } }, async (request) => {
    const id = checkSession((request.params as z.output<typeof params>).id, 'id')
    const found = sessions.get(id)
    if (found !== undefined) return found
    if (!sessions.isCaughtUp)
      throw new Refusal(503, 'The gateway is still reading where the sessions stand. Try again.')
    throw new Refusal(404, `There is no session "${id}" yet; one begins with its first event.`, {
      code: 'session_not_found',
    })
  })

  const { effectOf, deleteSession, nameBeside, sendOnce } = sessionEffects(answering)

  app.post('/v1/sessions/:id/chunks', { schema: { params } }, async (request, reply) => {
    const id = checkFed((request.params as z.output<typeof params>).id, 'id')
    const once = onceIn(request)
    const events = eventsIn(request.body, service, once?.key)
    const ends = events.find(({ type }) => type === 'cancel' || type === 'delete')
    if (once !== null && ends !== undefined)
      throw new Refusal(
        400,
        `A "${ends.type}" event is done once in any case: send it without the header ${ONCE_HEADER}.`,
        {
          param: ONCE_HEADER,
        },
      )
    const { sent, isFirst } =
      once === null
        ? { sent: await send(topics, id, request.keyName, () => events), isFirst: true }
        : await sendOnce(id, request.keyName, events, once, goneSignal(reply))
    if (!isFirst) reply.header(REPLAYED_HEADER, 'true')
    const asked = events.flatMap((event) => (event.type === 'generate' ? [event.requestId] : []))
    const after = positionText(sent.partition, sent.tokensFrom - 1)
    return reply.code(202).send({
      session: id,
      partition: sent.partition,
      offsets: sent.offsets,
      ...(asked.length > 0 && { requestIds: asked }),
      /** Where a stream of tokens starts that misses nothing of what these events cause. */
      starting_after: after,
      tokens: `/v1/sessions/${encodeURIComponent(id)}/tokens?starting_after=${after}`,
    })
  })

  app.delete('/v1/sessions/:id', { schema: { params } }, async (request, reply) => {
    const id = checkSession((request.params as z.output<typeof params>).id, 'id')
    counter.enter(reply, 'whole')
    await deleteSession(id, request.keyName, goneSignal(reply))
    return { session: id, deleted: true }
  })

  app.post('/v1/sessions/:id/fork', { schema: { params } }, async (request, reply) => {
    const parent = checkSession((request.params as z.output<typeof params>).id, 'id')
    const body = forkBody.safeParse(request.body ?? undefined)
    if (!body.success)
      throw new Refusal(
        400,
        'The body is a JSON object: "session" names the fork, and the rest is as in an "open" event.',
      )
    const { session: given, ...settings } = body.data
    const ours = ['type', 'from'].find((name) => name in settings)
    if (ours !== undefined)
      throw new Refusal(400, `"${ours}" follows from the path: the fork is one of session "${parent}". Leave it out.`, {
        param: ours,
      })
    const once = onceIn(request)
    const id = given === undefined ? await nameBeside(parent, 'fork', once?.key) : checkFed(given, 'session')
    const event = checkedEvent({ ...settings, type: 'open', from: { session: parent } }, 0, service)
    counter.enter(reply, 'whole')
    const gone = goneSignal(reply)
    if (once === null) await effectOf(id, request.keyName, event, 'opened', gone)
    else {
      const { isFirst, refusal } = await sendOnce(id, request.keyName, [event], once, gone)
      if (refusal !== null) throw refusal
      if (!isFirst) reply.header(REPLAYED_HEADER, 'true')
    }
    return reply.code(201).send(sessions.get(id))
  })

  /** The position that a stream starts with, checked against what the topic has. Throws a Refusal (400, 410). */
  const startOf = async (
    topic: string,
    partition: number,
    { starting_after, from }: z.output<typeof streamQuery>,
    last: string | undefined,
  ): Promise<number> => {
    const { begin, end } = await log.bounds(topic, partition)
    const given = last ?? starting_after
    if (given === undefined) return from === 'beginning' ? begin : end
    const param = last === undefined ? 'starting_after' : 'last-event-id'
    const [, ofPartition, offset] = POSITION.exec(given) ?? []
    if (ofPartition === undefined)
      throw new Refusal(400, 'A position is PARTITION:OFFSET, as the ids of a stream have it.', { param })
    if (Number(ofPartition) !== partition)
      throw new Refusal(
        400,
        `This session is in partition ${partition}; the position is one of partition ${ofPartition}.`,
        { param },
      )
    const next = Number(offset) + 1
    if (next > end)
      throw new Refusal(
        400,
        `The position ${given} lies beyond the end of the topic, ${end}: it is one of another log.`,
        { param },
      )
    if (next < begin)
      throw new Refusal(
        410,
        `What came after ${given} was trimmed: the topic begins at ${begin}. Start with ?from=beginning.`,
        { param },
      )
    return next
  }

  const stream = (kind: Followed) =>
    async function* events(
      reply: FastifyReply,
      id: string,
      partition: number,
      start: number,
      ends: AbortSignal,
    ): AsyncGenerator<ServerEvent | Uint8Array> {
      // Sent before any record: a client that is cut off before the first one reconnects with this id, and misses
      // nothing.
      const data = { partition, offset: start - 1 }
      yield { event: 'position', id: positionText(partition, start - 1), retry: RETRY, data }
      for await (const batch of tails[kind].batches(partition, id, start, ends)) {
        const { bytes, tokens, failure } = shown(kind, batch)
        if (bytes.length > 0) yield bytes
        if (kind === 'tokens') metrics.sent(reply, tokens)
        if (failure !== null) throw failure.error
      }
    }

  const follow = (kind: Followed): void => {
    app.get(
      `/v1/sessions/:id/${kind}`,
      { schema: { params, querystring: streamQuery } },
      async (request, reply: FastifyReply) => {
        const id = checkSession((request.params as z.output<typeof params>).id, 'id')
        const last = request.headers['last-event-id']
        const partition = await log.partitionOf(names.chunks, Buffer.from(id))
        const query = request.query as z.output<typeof streamQuery>
        const start = await startOf(names[kind], partition, query, last === undefined ? undefined : String(last))
        counter.enter(reply, 'stream')
        const gone = goneSignal(reply)
        const ends = AbortSignal.any([gone, closing])
        await sendEvents(reply, stream(kind)(reply, id, partition, start, ends), {
          stall: limits.stall,
          gone,
          failed: (error) => ({ event: 'failure', data: failureBody(service, error) }),
        })
        return reply
      },
    )
  }
  for (const kind of Object.keys(FOLLOWED) as Followed[]) follow(kind)
}
