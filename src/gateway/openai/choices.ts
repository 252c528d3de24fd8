/**
 * `n`: several answers to one prompt, which is read once. The first is made by the session that read it, the others by
 * forks of it, each with a seed of its own. In the log the forks stand between the prompt and the first answer's
 * request, so each has the prompt and nothing else.
 */
import { randomInt, randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { within } from '../../aborted.ts'
import { OPENING } from '../answer/answer.ts'
import { answersTo, merged, type Sent, send, wantedOf } from '../answer/ask.ts'
import { type Asked, abandon, endingOf } from '../answer/ending.ts'
import {
  type Answering,
  checkedStops,
  eventsBefore,
  type Job,
  OWN_SESSION,
  requestOf,
  type Shape,
  type Usage,
  usageOf,
} from '../answer/job.ts'
import { begunNow, refuseOnce } from '../answer/once.ts'
import { openAnswer, type Piece } from '../answer/pieces.ts'
import { standingOf } from '../answer/standing.ts'
import { bodyOf, Refusal } from '../refusal.ts'
import { failureOf, SESSION_HEADER, sessionInHeader } from '../service.ts'
import { sessionEffects } from '../session-effects.ts'
import { type ServerEvent, sendEvents } from '../sse.ts'

/** Who looks at a response while it is made, with some for each choice. */
const MOST_LISTENERS = 32
/** Seeds are numbers that JSON carries exactly. */
const SEEDS = Number.MAX_SAFE_INTEGER

/** One of the answers. */
interface Choice {
  readonly asked: Asked
  readonly shape: Shape
  readonly collected: ReturnType<typeof openAnswer>
}
interface Told {
  readonly index: number
  readonly piece: Piece
}

/** What the shape of one answer gives, as one of several under the head of the first. */
const asChoice = (data: unknown, index: number, head: object): unknown =>
  typeof data === 'object' && data !== null && 'choices' in data
    ? { ...data, ...head, choices: (data.choices as readonly object[]).map((choice) => ({ ...choice, index })) }
    : data

const sumOf = (read: number, choices: readonly Choice[]): Usage => {
  const all = choices.map(({ collected }) => usageOf(0, 0, collected))
  const completion_tokens = all.reduce((sum, usage) => sum + usage.completion_tokens, 0)
  const thoughts = all.flatMap(({ completion_tokens_details: details }) => details?.reasoning_tokens ?? [])
  return {
    ...{ prompt_tokens: read, completion_tokens, total_tokens: read + completion_tokens },
    prompt_tokens_details: { cached_tokens: 0 },
    ...(thoughts.length > 0 && {
      completion_tokens_details: { reasoning_tokens: thoughts.reduce((sum, tokens) => sum + tokens, 0) },
    }),
  }
}

/** Answers the request `count` times, 2 or more. Throws as `answer` does. */
export const answerChoices = async (
  request: FastifyRequest,
  reply: FastifyReply,
  job: Job,
  count: number,
  answering: Answering,
): Promise<FastifyReply> => {
  const { service, counter, turns } = answering
  const { served, limits, metrics, sessions, topics } = service
  refuseOnce(request, 'Several answers to one prompt')
  const stops = checkedStops(job, service)
  reply.raw.setMaxListeners(MOST_LISTENERS)
  for (let index = 0; index < count; index += 1) counter.enter(reply, job.stream ? 'stream' : 'whole')
  const { gone, ends, cut } = endingOf(reply, service)
  const named = sessionInHeader(request) ?? job.session
  const session = named ?? `${OWN_SESSION}${randomUUID()}`
  const lasts = named !== undefined
  const seed = job.seed ?? randomInt(2 ** 47)
  const headers = { [SESSION_HEADER]: encodeURIComponent(session), 'x-seed': String(seed) }
  const { nameBeside } = sessionEffects(answering)
  const choices: Choice[] = []
  let leave = (): void => undefined

  /** Puts the prompt, the forks and the requests into the log. */
  const put = async () => {
    if (lasts)
      leave = await turns.enter(session, ends).catch((error: unknown) => {
        throw ends.aborted ? cut() : error
      })
    const { closed, pulse, standing } = await standingOf(session, lasts, job, answering)
    const prompt = job.prompt(standing)
    const { tokens, start = 'plain' } = prompt
    const before = eventsBefore(standing.fresh, closed, prompt)
    if (ends.aborted) throw cut()
    const key = request.keyName
    const read: Sent | null = before.length === 0 ? null : await send(topics, session, key, () => before)
    /** Asks for one answer: `first` come before its request. */
    const ask = async (index: number, of: string, first: readonly ChunkInput[]): Promise<Choice> => {
      let shape: Shape | undefined
      const sent = await send(topics, of, key, (place) => {
        shape = job.shape({ ...place, ...begunNow(), session: of, promptTokens: tokens, cachedTokens: 0, start })
        return [
          ...first,
          requestOf(job, shape.id, stops, (seed + index) % SEEDS),
          ...(index === 0 && lasts ? [] : [{ type: 'close' } as const]),
        ]
      })
      const wanted = wantedOf(sent, sent.offsets[first.length]!)
      const letter: typeof wanted.letter = (offset, record) =>
        wanted.letter(offset, record) || (index === 0 && read?.offsets.includes(offset) === true)
      const place = index === 0 && read !== null ? { ...sent, deadLettersFrom: read.deadLettersFrom } : sent
      const asked = {
        ...{ session: of, key, requestId: shape!.id, sent: place, wanted: { ...wanted, letter } },
        ...{ lasts: index === 0 && lasts, over: false },
      }
      return { asked, shape: shape!, collected: openAnswer(stops, served.tokenizer, job.calls, start) }
    }
    const forks: Choice[] = []
    for (let index = 1; index < count; index += 1) {
      const fork = await ask(index, await nameBeside(session, 'api'), [{ type: 'open', from: { session } }])
      forks.push(fork)
      choices.push(fork)
    }
    choices.unshift(await ask(0, session, []))
    if (lasts) turns.begun.set(session, true)
    reply.headers(headers)
    return { tokens, pulse }
  }

  const created = Math.floor(Date.now() / 1000)
  let read = 0
  /** The pieces of all answers as they come. */
  async function* pieces({ tokens, pulse }: Awaited<ReturnType<typeof put>>): AsyncGenerator<Told> {
    const over = new AbortController()
    const until = AbortSignal.any([ends, over.signal])
    async function* of({ asked, collected }: Choice, index: number): AsyncGenerator<Told> {
      try {
        for await (const run of answersTo(topics, asked.session, asked.sent, asked.wanted, until)) {
          asked.over = run.finish !== null
          if (run.index === 0) {
            if (read === 0) metrics.began(reply)
            read = tokens ?? Math.max(0, run.fromPulse - pulse)
          }
          const piece = collected.push(run)
          if (piece.finish !== null && asked.lasts) await sessions.finished(session, run.cause.offset, ends)
          yield { index, piece }
        }
      } catch (error) {
        asked.over = error instanceof Refusal
        throw error
      }
    }
    yield* merged(choices.map(of), () => over.abort())
    if (choices.some(({ asked }) => !asked.over)) throw cut()
  }
  const begun = put().then(async (it) => {
    const coming = pieces(it)
    return { coming, first: await coming.next() }
  })
  try {
    if (!job.stream) {
      const { coming, first } = await begun
      const all: Piece[][] = choices.map(() => [])
      for (let next = first; !next.done; next = await coming.next()) all[next.value.index]!.push(next.value.piece)
      const usage = sumOf(read, choices)
      const told = choices.map(({ shape }, index) => shape.whole(all[index]!, usage))
      const top = { id: choices[0]!.shape.id, created }
      const each = told.map((one, index) => asChoice(one, index, top) as { readonly choices: readonly object[] })
      metrics.sent(reply, usage.completion_tokens)
      return reply.send({ ...each[0], choices: each.flatMap((one) => one.choices) })
    }
    await within(OPENING, begun)
    reply.headers(headers)
    async function* events(): AsyncGenerator<ServerEvent> {
      const { coming, first } = await begun
      const { shape: lead } = choices[0]!
      const one = (index: number, given: readonly ServerEvent[]): readonly ServerEvent[] =>
        given.map(({ data, ...event }) => ({ ...event, data: asChoice(data, index, { id: lead.id, created }) }))
      try {
        for (const [index, { shape }] of choices.entries()) yield* one(index, shape.opening())
        for (let next = first; !next.done; next = await coming.next()) {
          const { index, piece } = next.value
          yield* one(index, choices[index]!.shape.piece(piece))
          metrics.sent(reply, piece.tokens.length)
        }
        yield* lead.closing(sumOf(read, choices))
      } finally {
        await coming.return(undefined)
      }
    }
    const failed = (error: unknown): ServerEvent => ({ data: bodyOf(failureOf(service, error)) })
    await sendEvents(reply, events(), { stall: limits.stall, gone, failed })
    return reply
  } finally {
    const left = choices.filter(({ asked }) => !asked.over)
    if (left.length === 0 || !service.cancels) leave()
    else
      service.inBackground(
        Promise.all(left.map(({ asked }) => abandon(service, asked)))
          .then(() => undefined)
          .finally(leave),
      )
  }
}
