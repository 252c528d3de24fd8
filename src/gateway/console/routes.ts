/**
 * Routes of the console: the page's files, its stream of data, and the few actions that it has besides those of the
 * sessions' routes.
 */
import { randomUUID } from 'node:crypto'
import type { FastifyInstance, FastifyReply } from 'fastify'
import { z } from 'zod'
import { DEAD_LETTER_HEADERS as H } from '../../../topics/deadletters.ts'
import { headersOf, textIn } from '../../client/records.ts'
import { type Replayed, replayDeadLetters } from '../../client/replay.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { parsedBody } from '../openai/schema.ts'
import { Refusal } from '../refusal.ts'
import { checkSession, failureBody, goneSignal, type OpenCounter, type Service } from '../service.ts'
import { type ServerEvent, sendEvents } from '../sse.ts'
import type { Feed } from './feed.ts'
import { consoleFiles } from './files.ts'
import { sessionEvents } from './text.ts'
import type { Hello, TimelineEvent, VerifyState } from './types.ts'
import { createVerifier, type Verify } from './verify.ts'

/** Dead letters that the page shows, and characters of each. */
const LETTERS = 50
const MOST_SHOWN = 400

const params = z.strictObject({ id: z.string() })
/** Where a dead letter is. */
export const letterPlace = z.strictObject({ partition: z.int().min(0), offset: z.int().min(0) })

const letterOf = ({ partition, offset, timestamp, key, value, headers }: StoredRecord) => {
  const about = headersOf({ headers } as StoredRecord)
  const text = textIn(value)
  return {
    partition,
    offset,
    at: timestamp,
    session: key === null ? null : textIn(key),
    reason: about[H.reason] ?? null,
    from: { partition: Number(about[H.partition]), offset: Number(about[H.offset]) },
    part: about[H.part] ?? null,
    text: text.length > MOST_SHOWN ? `${text.slice(0, MOST_SHOWN)}…` : text,
    bytes: value?.length ?? 0,
  }
}
export type Letter = ReturnType<typeof letterOf>

export interface ConsoleDeps {
  readonly service: Service
  readonly counter: OpenCounter
  readonly feed: Feed
  readonly partitions: number
  readonly boards: boolean
  /** null: the gateway has no model to verify with. */
  readonly verify: Verify | null
}

const verdictOf = ({ result, error }: VerifyState): Pick<TimelineEvent, 'tone' | 'text'> => {
  if (result === null) return { tone: 'bad', text: `Verify could not end: ${error}` }
  if (result.moved) return { tone: 'bad', text: 'The log was written to while it was verified; there is no result.' }
  const { ok, sessions, heads, tokens, findings } = result
  const compared = `${sessions} sessions, ${heads} heads, ${tokens} generated tokens`
  return ok
    ? { tone: 'good', text: `Verified ${compared}: everything agrees.` }
    : { tone: 'bad', text: `Verified ${compared}: ${findings} findings.` }
}

export const consoleRoutes = (app: FastifyInstance, deps: ConsoleDeps): void => {
  const { service, counter, feed, partitions, boards } = deps
  const { topics, sessions, served, limits, closing } = service
  const { log, names } = topics
  const instance = randomUUID()
  consoleFiles(app)

  const hello: Hello = {
    instance,
    log: log.url,
    input: names.chunks,
    partitions,
    model: {
      id: served.id,
      vocabSize: served.vocabSize,
      text: served.tokenizer !== null,
      ...served.about,
    },
    boards,
  }
  const verifier =
    deps.verify === null
      ? null
      : createVerifier(
          { log, names, partitions, closing, inBackground: service.inBackground },
          (partition) => feed.offsetOf(partition),
          deps.verify,
          (state) => feed.note({ kind: 'verified', partition: null, ...verdictOf(state) }),
        )
  const verifyState = (): VerifyState =>
    verifier?.state ?? { state: 'idle', at: null, progress: null, result: null, error: null }

  const stream = async (
    reply: FastifyReply,
    events: (ends: AbortSignal) => AsyncIterable<ServerEvent>,
  ): Promise<FastifyReply> => {
    counter.enter(reply, 'stream')
    const gone = goneSignal(reply)
    await sendEvents(reply, events(AbortSignal.any([gone, closing])), {
      stall: limits.stall,
      gone,
      failed: (error) => ({ event: 'failure', data: failureBody(service, error) }),
    })
    return reply
  }

  app.get('/v1/console/events', (_request, reply) =>
    stream(reply, async function* (ends) {
      yield { event: 'hello', data: hello }
      for await (const frame of feed.frames(sessions, verifyState, ends)) yield { event: 'frame', data: frame }
    }),
  )

  app.get('/v1/console/sessions/:id/events', { schema: { params } }, (request, reply) => {
    const id = checkSession((request.params as z.output<typeof params>).id, 'id')
    const about = { ...topics, reports: feed.reports, tokenizer: served.tokenizer }
    return stream(reply, async function* (ends) {
      for await (const event of sessionEvents(about, id, ends)) yield { event: event.type, data: event }
    })
  })

  app.get('/v1/console/deadletters', async () => {
    const found: Letter[] = []
    for (let partition = 0; partition < partitions; partition += 1) {
      const { begin, end } = await log.bounds(names.deadletters, partition)
      const from = Math.max(begin, end - LETTERS)
      // Of a letter in parts the first one stands for all.
      for await (const { records } of log.read(names.deadletters, partition, from, { until: end, undecodable: true }))
        found.push(...records.map(letterOf).filter(({ part }) => part === null || part.startsWith('1/')))
    }
    return { letters: found.sort((a, b) => b.at - a.at || b.offset - a.offset).slice(0, LETTERS) }
  })

  app.post('/v1/console/deadletters/replay', async (request, reply) => {
    const letter = parsedBody(letterPlace, request.body)
    if (letter.partition >= partitions)
      throw new Refusal(400, `There are partitions 0 to ${partitions - 1}.`, { param: 'partition' })
    let told: Replayed | undefined
    await replayDeadLetters(log, {
      ...{ names, partitions, partition: letter.partition, letter: letter.offset },
      onLetter(one) {
        told = one
      },
    })
    if (told === undefined)
      throw new Refusal(400, `There is no dead letter at ${letter.partition}:${letter.offset}.`, { param: 'offset' })
    if (told.outcome !== 'replayed') throw new Refusal(409, told.why)
    const placed = { partition: letter.partition, offset: told.offset }
    feed.note({
      kind: 'replayed',
      tone: 'quiet',
      partition: placed.partition,
      text: `The dead letter at ${letter.partition}:${letter.offset} went into the input again, at offset ${placed.offset}.`,
    })
    return reply.code(202).send(placed)
  })

  app.post('/v1/console/verify', async (_request, reply) => {
    if (verifier === null) throw new Refusal(409, 'This gateway has no model to verify with.')
    await verifier.begin()
    return reply.code(202).send(verifier.state)
  })
}
