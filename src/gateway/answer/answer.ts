/** One request of OpenAI's protocol from its events to the end of its answer, whatever its shape is on the wire. */
import { randomInt, randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { ChunkInput } from '../../../topics/chunks.ts'
import type { Claim } from '../../../topics/state.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { within } from '../../aborted.ts'
import { bodyOf, Refusal } from '../refusal.ts'
import { failureOf, SESSION_HEADER, sessionInHeader } from '../service.ts'
import { type ServerEvent, sendEvents } from '../sse.ts'
import { answersTo, EventRefused, type Fed, type Sent, send, type Wanted, wantedOf } from './ask.ts'
import { type Asked, abandon, drain, endingOf } from './ending.ts'
import {
  type Answering,
  checkedStops,
  eventsBefore,
  type Job,
  OWN_SESSION,
  type Prompt,
  requestOf,
  type Shape,
  type Usage,
  usageOf,
} from './job.ts'
import {
  attempted,
  attemptIn,
  attemptOf,
  begunNow,
  claimAt,
  type Once,
  onceIn,
  REPLAYED_HEADER,
  refuseOnce,
} from './once.ts'
import { openAnswer, type Piece } from './pieces.ts'
import { type Prompted, promptProgress } from './progress.ts'
import { standingOf } from './standing.ts'

/** How long a stream waits for its first token before it sends its headers, ms: by then most of what is refused was. */
export const OPENING = 1000

/** The session that was to be forked for a request is not there any more, or stands elsewhere. */
class PrefixGone extends Error {}

/**
 * Answers the request. Throws what stands in the way before the first token, or in a stream before `OPENING`; what
 * comes later is in the stream.
 */
export const answer = async (
  request: FastifyRequest,
  reply: FastifyReply,
  job: Job,
  answering: Answering,
): Promise<FastifyReply> => {
  const { service, counter, turns, prefixes } = answering
  const { served, limits, metrics, genai, sessions, topics } = service
  const stops = checkedStops(job, service)
  counter.enter(reply, job.stream ? 'stream' : 'whole')
  genai.asked(reply, { model: job.model, generates: job })
  const { background = false } = job
  const { gone, ends, cut } = endingOf(reply, service, background && !job.stream)

  const once = onceIn(request)
  if (job.name !== undefined) refuseOnce(request, 'A conversation that was compacted')
  const named = sessionInHeader(request) ?? job.session
  // What a session of the request's own is fed follows from the request alone, and so does where it can begin.
  const own = named === undefined ? job.prompt({ fresh: true, stopped: false }) : null
  // A name that was given is for one session, in its own partition; and who answers in the background does not wait for
  // what may have to be asked again. What is done once is done by its own events alone: an attempt whose fork was
  // refused could not be told from one that was taken.
  const ids = (job.name === undefined && !background && once === null && (await own?.ids?.())) || null
  // What no context holds is refused whole.
  const fits = ids !== null && ids.length <= (served.positions ?? Number.POSITIVE_INFINITY)
  const reading = fits ? await prefixes.read(ids, job.keepsSession) : null
  const unnamed = once === null ? `${OWN_SESSION}${randomUUID()}` : `${OWN_SESSION}${once.key}`
  let session = named ?? job.name ?? reading?.session ?? unnamed
  const lasts = named !== undefined || job.keepsSession
  const seed = job.seed ?? randomInt(2 ** 47)
  const headers = { [SESSION_HEADER]: encodeURIComponent(session), 'x-seed': String(seed) }
  let leave = (): void => undefined
  let asked = null as Asked | null

  /** The shape of what was asked last. */
  let shaped: Shape | undefined
  /** Resolves when it was asked. */
  const askedOnce = Promise.withResolvers<{ readonly shape: Shape; readonly prompted: Prompted }>()

  /**
   * Puts the request into the log behind these events. With `isAgain` the first of them ends what an attempt may have
   * left.
   */
  const put = async (before: readonly Fed[], prompt: Prompt, pulse: number, cached: number, isAgain = false) => {
    if (ends.aborted) throw cut()
    const { start = 'plain' } = prompt
    let shape: Shape | undefined
    const now = begunNow()
    const sent = await send(
      { ...topics, headers: genai.headersOf(reply) },
      session,
      request.keyName,
      (place) => {
        const known = { promptTokens: prompt.tokens, start }
        shape = job.shape({ ...place, ...now, ...known, session, cachedTokens: cached })
        const request: ChunkInput[] = [
          requestOf(job, shape.id, stops, seed),
          ...(lasts || reading !== null ? [] : [{ type: 'close' } as const]),
        ]
        if (once === null) return [...before, ...request]
        // Without a fork all events are the session's own.
        const events = [...(before as readonly ChunkInput[]), ...request]
        return attempted(events, once, { ...place, ...now, ...known, ...{ body: once.body, pulse, seed } })
      },
      ({ type }) => (type === 'generate' ? job.beside : undefined),
    )
    const { offsets } = sent
    const wanted = wantedOf({ ...sent, offsets: isAgain ? offsets.slice(1) : offsets }, offsets[before.length]!)
    if (lasts) turns.begun.set(session, true)
    reading?.sent()
    return follow(shape!, sent, wanted, { tokens: prompt.tokens, pulse, cached, start })
  }

  /** What comes of a request that is in the log. */
  const follow = (shape: Shape, sent: Sent, wanted: Wanted, prompted: Prompted) => {
    const { pulse, cached, start } = prompted
    const { offsets } = sent
    const told: Asked = { session, key: request.keyName, requestId: shape.id, sent, wanted, lasts, over: false }
    asked = told
    shaped = shape
    askedOnce.resolve({ shape, prompted })
    reply.headers(headers)

    const collected = openAnswer(stops, served.tokenizer, job.calls, start)
    const answered: number[] = []
    let read = 0
    const usage = (): Usage => usageOf(read, cached, collected)
    async function* runs(): AsyncGenerator<Generated> {
      try {
        for await (const run of answersTo(topics, session, sent, wanted, ends)) {
          told.over = run.finish !== null
          yield run
        }
      } catch (error) {
        told.over = error instanceof Refusal
        // Nothing of it is an answer to this request: the session began behind a fork that was refused.
        if (error instanceof EventRefused && cached > 0 && error.offset === offsets[0]) throw new PrefixGone()
        throw error
      }
    }
    async function* pieces(): AsyncGenerator<Piece> {
      for await (const run of runs()) {
        // The worker cuts texts into tokens: what was read is what the clock moved.
        if (run.index === 0) {
          read = prompted.tokens ?? Math.max(0, run.fromPulse - pulse)
          if (reading !== null && run.fromPulse !== read) throw new PrefixGone()
          metrics.began(reply)
          metrics.prompted(reply, read, cached)
          genai.began(reply, run.ids.length)
        }
        answered.push(...run.ids)
        const piece = collected.push(run)
        // The next request of this session asks where it stands.
        if (piece.finish !== null && lasts) await sessions.finished(session, run.cause.offset, ends)
        if (piece.finish !== null) {
          reading?.answered(answered)
          genai.ended(reply, { generated: { id: told.requestId, finish: piece.finish }, usage: usage() })
        }
        yield piece
        if (piece.finish !== null) return
      }
      throw cut()
    }
    return { shape, collected, usage, coming: pieces() }
  }

  /** With the first piece of the answer, which nobody waits for in the background. */
  const withFirst = async (it: ReturnType<typeof follow>) => ({
    ...it,
    first: background ? null : await it.coming.next(),
  })

  /** The answer of the attempt that was taken in place of this request. */
  const again = async (claim: Claim, key: Once) => {
    const attempt = attemptIn(claim, key)
    const partition = await topics.log.partitionOf(topics.names.chunks, Buffer.from(session))
    const shape = job.shape({ ...attempt, partition, session, cachedTokens: 0 })
    headers['x-seed'] = String(attempt.seed)
    reply.header(REPLAYED_HEADER, 'true')
    const wanted: Wanted = {
      run: ({ requestId }) => requestId === shape.id,
      letter: (_, record) => attemptOf(record) === claim.attempt,
    }
    const prompted = { ...attempt, tokens: attempt.promptTokens, cached: 0 }
    return withFirst(follow(shape, { ...attempt, partition, offsets: [] }, wanted, prompted))
  }

  /** What is done once is looked for before it is asked for, and behind what asks for it again. */
  const asOnce = async (ask: () => ReturnType<typeof again>): ReturnType<typeof again> => {
    if (once === null) return ask()
    const known = sessions.claim(session, once.key)
    if (known !== undefined) return again(known, once)
    try {
      return await ask()
    } catch (error) {
      if (!(error instanceof EventRefused) || error.first === null) throw error
      const partition = await topics.log.partitionOf(topics.names.chunks, Buffer.from(session))
      return again(await claimAt(topics, { partition }, once.key, error.first), once)
    }
  }

  /** Asks in a session of the request's own. */
  const askAlone = async (prompt: Prompt) => {
    const events = eventsBefore(true, false, prompt)
    if (reading === null || ids === null) return withFirst(await put(events, prompt, 0, 0))
    const known = { ...prompt, tokens: ids.length }
    try {
      return await withFirst(await put(reading.events, known, 0, reading.cached))
    } catch (error) {
      if (!(error instanceof PrefixGone)) throw error
      const whole = reading.whole()
      session = whole.session
      headers[SESSION_HEADER] = encodeURIComponent(session)
      return withFirst(await put(whole.events, known, 0, 0, whole.isCleared))
    }
  }

  /** Asks in the session that the request names, once its earlier requests are answered. */
  const begin = async () => {
    if (own !== null) return asOnce(() => askAlone(own))
    leave = await turns.enter(session, ends).catch((error: unknown) => {
      throw ends.aborted ? cut() : error
    })
    return asOnce(async () => {
      const { closed, pulse, standing } = await standingOf(session, true, job, answering)
      const prompt = job.prompt(standing)
      return withFirst(await put(eventsBefore(standing.fresh, closed, prompt), prompt, pulse, 0))
    })
  }

  const begun = begin()
  let drained: Promise<void> | null = null
  try {
    if (!job.stream) {
      const { shape, collected, usage, coming, first } = await begun
      if (first === null) {
        drained = drain(coming, ends)
        return reply.send(shape.whole([], usage()))
      }
      const all: Piece[] = first.done ? [] : [first.value]
      for await (const piece of coming) all.push(piece)
      metrics.sent(reply, collected.completionTokens)
      return reply.send(shape.whole(all, usage()))
    }
    // What is refused soon is refused with a status; what takes long must not look dead to proxies and clients until it
    // comes.
    await within(OPENING, begun)
    reply.headers(headers)
    async function* told(): AsyncGenerator<ServerEvent> {
      if (job.tellsProgress) {
        const moved = (at: number, signal: AbortSignal) => sessions.moved(session, at, signal)
        yield* promptProgress(askedOnce.promise, begun, moved, ids?.length ?? null)
      }
      const { shape, usage, coming, first } = await begun
      try {
        yield* shape.opening()
        if (first !== null && !first.done) yield* shape.piece(first.value)
        metrics.sent(reply, first?.value?.tokens.length ?? 0)
        for await (const piece of coming) {
          yield* shape.piece(piece)
          metrics.sent(reply, piece.tokens.length)
        }
        yield* shape.closing(usage())
      } finally {
        // The client may have gone before the rest was asked for.
        await coming.return(undefined)
      }
    }
    async function* events(): AsyncGenerator<ServerEvent> {
      try {
        yield* told()
      } catch (error) {
        if (job.failing === undefined) throw error
        yield* job.failing(failureOf(service, error), shaped, asked?.over === true)
      }
    }
    const failed = (error: unknown): ServerEvent => {
      const refusal = failureOf(service, error)
      genai.failed(reply, refusal)
      return job.failed?.(refusal) ?? { data: bodyOf(refusal) }
    }
    await sendEvents(reply, events(), { stall: limits.stall, gone, failed })
    return reply
  } finally {
    reading?.over()
    if (drained !== null) service.inBackground(drained.finally(leave))
    else if (asked === null || asked.over || job.keepsSession || once !== null || !service.cancels) leave()
    else service.inBackground(abandon(service, asked).finally(leave))
  }
}
