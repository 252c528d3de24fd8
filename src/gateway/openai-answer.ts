/** One request of OpenAI's protocol from its events to the end of its answer, whatever its shape is on the wire. */
import { randomInt, randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { ChunkInput, Grammar } from '../../topics/chunks.ts'
import type { Claim } from '../../topics/state.ts'
import type { Generated } from '../../topics/tokens.ts'
import { within } from '../aborted.ts'
import { generateEvent } from '../client/chunks.ts'
import type { CallForm } from '../models/chat/calls.ts'
import type { Start } from '../models/chat/thoughts.ts'
import { type Answer, openAnswer, type Piece } from './answer.ts'
import {
  answersTo,
  type Begun,
  EventRefused,
  type Fed,
  generatedIn,
  type Sent,
  send,
  sendCancel,
  type Wanted,
  wantedOf,
} from './ask.ts'
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
import type { Drawing } from './openai-schema.ts'
import type { Prefixes } from './prefixes.ts'
import { bodyOf, Refusal } from './refusal.ts'
import {
  checkModel,
  failureOf,
  goneSignal,
  type OpenCounter,
  SESSION_HEADER,
  type Service,
  sessionInHeader,
} from './service.ts'
import { type ServerEvent, sendEvents } from './sse.ts'
import type { Turns } from './turns.ts'

/** Where the session of a request stands. */
export interface Standing {
  /** Its context is empty. */
  readonly fresh: boolean
  /** A text that belongs to the form of the conversation ended the last answer. */
  readonly stopped: boolean
}

export interface Usage {
  readonly prompt_tokens: number
  readonly completion_tokens: number
  readonly total_tokens: number
  /** Of the prompt, what was not read for this request, as it had been read before. */
  readonly prompt_tokens_details: { readonly cached_tokens: number }
  /** Of an answer that may have thoughts. */
  readonly completion_tokens_details?: { readonly reasoning_tokens: number }
}

/** What an answer to a prompt cost; `cached`: of the prompt, what had been read before. */
export const usageOf = (
  prompt: number,
  cached: number,
  { completionTokens, thoughtTokens }: Omit<Answer, 'push'>,
): Usage => ({
  prompt_tokens: prompt,
  completion_tokens: completionTokens,
  total_tokens: prompt + completionTokens,
  prompt_tokens_details: { cached_tokens: cached },
  ...(thoughtTokens !== null && { completion_tokens_details: { reasoning_tokens: thoughtTokens } }),
})

/** How far a prompt was read, as llama.cpp's server tells it. */
export interface Progress {
  /** Tokens of the prompt; null: the worker knows. */
  readonly total: number | null
  /** Of these, what had been read before. */
  readonly cache: number
  /** What was read by now, the latter among it. */
  readonly processed: number
  /** Since the request was put into the log. */
  readonly time_ms: number
}

/** What the shapes of the protocol differ in. */
export interface Shape {
  readonly id: string
  /** A stream before its first piece, each piece, and what comes behind the last. */
  opening(): readonly ServerEvent[]
  piece(piece: Piece): readonly ServerEvent[]
  closing(usage: Usage): readonly ServerEvent[]
  /** How far the prompt was read, before the opening. Missing: that cannot be told. */
  progress?(progress: Progress): readonly ServerEvent[]
  whole(pieces: readonly Piece[], usage: Usage): unknown
}

/** What is known of an answer when it is asked for. */
export interface Asking extends Begun {
  /** Of the answer's id: one that no other has. */
  readonly nonce: string
  /** Seconds since the epoch. */
  readonly created: number
  readonly session: string
  /** See `Prompt`. */
  readonly promptTokens: number | null
  /** Of these, what the session has from one that read it before. */
  readonly cachedTokens: number
  readonly start: Start
}

/** What is fed before an answer. */
export interface Prompt {
  readonly events: readonly ChunkInput[]
  /** How many they are; null: the worker knows. */
  readonly tokens: number | null
  /** Where the answer begins; default: it is text alone. */
  readonly start?: Start
  /** The ids of all of it, where it may be the beginning of a session. */
  ids?(): Promise<Int32Array>
}

export interface Job {
  readonly model: string
  readonly session: string | undefined
  /** The name of a session of its own; default: one that nobody has. */
  readonly name?: string | undefined
  /** What is fed before the answer. Throws a Refusal, or INVALID. */
  prompt(standing: Standing): Prompt
  /** Ends of an answer that belong to the form, not to the request. */
  readonly formStops: readonly string[]
  readonly stop: readonly string[]
  readonly maxTokens: number
  readonly drawing: Drawing
  readonly topLogprobs: number
  readonly seed: number | undefined
  /** What binds the answer. */
  readonly grammar: Grammar | undefined
  /** How calls are written in it; null: it has none. */
  readonly calls: CallForm | null
  readonly stream: boolean
  /** A stream tells how far the prompt was read, before its first token. Default: it does not. */
  readonly tellsProgress?: boolean
  /** The answer that must be the session's last one. */
  readonly after?: string
  /** A session of the request's own stays open after the answer, which can be had later: it goes on when its client goes away. */
  readonly keepsSession: boolean
  /** Stands beside the event that asks, for who asks for the answer later. */
  readonly beside?: Uint8Array
  /** The client is answered as soon as the request is in the log, and the answer is made without it. It is kept. */
  readonly background?: boolean
  shape(asking: Asking): Shape
  /** The last events of a stream that fails, of an answer that has a shape already. `over`: nothing more comes of the request. Default: `failed`. */
  failing?(refusal: Refusal, shape: Shape | undefined, over: boolean): readonly ServerEvent[]
  /** The last event of a stream that fails. Default: as OpenAI's clients read it. */
  failed?(refusal: Refusal): ServerEvent
}

/** Begins the name of a session that a request has for itself. */
export const OWN_SESSION = 'api-'
/** Records of the topic that are searched for the last answer of a session. */
const LOOK_BACK = 1024
/** What proxies write into their logs for a request whose client went away before it was answered. */
const CLIENT_GONE = 499
/** How long a stream waits for its first token before it sends its headers, ms: by then most of what is refused was. */
export const OPENING = 1000
/** Tokens of a record that a client waits for in a stream. */
const STREAM_RUN = 1
/** The most stop texts that an event takes. */
export const MOST_STOPS = 16

export interface Answering {
  readonly service: Service
  readonly counter: OpenCounter
  readonly turns: Turns
  readonly prefixes: Prefixes
}

/** The end of a session's last answer; null where that is too long ago to be found. */
export const lastAnswer = async (session: string, { topics }: Service) => {
  const { log, names } = topics
  const key = Buffer.from(session)
  const partition = await log.partitionOf(names.chunks, key)
  const { begin, end } = await log.bounds(names.tokens, partition)
  const from = Math.max(begin, end - LOOK_BACK)
  let text = ''
  let last: Generated | null = null
  for await (const batch of log.read(names.tokens, partition, from, { until: end, undecodable: true }))
    for (const record of batch.records) {
      if (record.key === null || !key.equals(record.key)) continue
      const run = generatedIn(record)
      text = run.requestId === last?.requestId ? (text + run.text).slice(-1024) : run.text
      last = run
    }
  return last === null ? null : { requestId: last.requestId, finish: last.finish, text }
}

/** What is known of a prompt that is in the log. */
interface Prompted {
  /** See `Prompt`. */
  readonly tokens: number | null
  /** Where the session stood before it. */
  readonly pulse: number
  readonly cached: number
  readonly start: Start
}

/** The session that was to be forked for a request is not there any more, or stands elsewhere. */
class PrefixGone extends Error {}

export const standingOf = async (
  session: string,
  named: boolean,
  { formStops, after }: Pick<Job, 'formStops' | 'after'>,
  { service, turns }: Answering,
) => {
  const view = named ? service.sessions.get(session) : undefined
  const closed = view?.status === 'closed'
  const begun = view === undefined ? named && turns.begun.get(session) === true : !closed && view.pulse > view.origin
  const looks = (begun && formStops.length > 0) || after !== undefined
  const last = looks ? await lastAnswer(session, service) : null
  if (after !== undefined && (!begun || last?.requestId !== after))
    throw new Refusal(409, 'That response is not the last one of its session any more, so nothing can follow it.', {
      code: 'previous_response_not_last',
      param: 'previous_response_id',
    })
  if (after !== undefined && last?.finish === null)
    throw new Refusal(409, 'That response is still made, so nothing can follow it yet. Ask again when it is over.', {
      code: 'previous_response_not_over',
      param: 'previous_response_id',
    })
  const stopped = begun && last?.finish === 'stop' && formStops.some((stop) => last.text.endsWith(stop))
  return { closed, pulse: view?.pulse ?? 0, standing: { fresh: !begun, stopped } }
}

/** The stop texts of a job. Throws a Refusal for another model, for too many tokens, and for too many of them. */
export const checkedStops = (job: Job, { served, limits }: Service): string[] => {
  checkModel(served, job.model)
  if (job.maxTokens > limits.tokens)
    throw new Refusal(
      400,
      `At most ${limits.tokens} tokens of one answer are given here, ${job.maxTokens} were asked for.`,
      {
        param: 'max_tokens',
      },
    )
  const stops = [...job.formStops, ...job.stop]
  if (stops.length > MOST_STOPS)
    throw new Refusal(400, `At most ${MOST_STOPS - job.formStops.length} stop texts can be given.`, { param: 'stop' })
  return stops
}

/** What is fed before an answer, where a session stands so. Throws a Refusal (400) where there is nothing to continue. */
export const eventsBefore = (fresh: boolean, closed: boolean, { events }: Pick<Prompt, 'events'>): ChunkInput[] => {
  if (fresh && events.length === 0)
    throw new Refusal(400, 'The prompt is empty, and so is the session: there is nothing to continue.', {
      param: 'prompt',
    })
  return [...(closed ? [{ type: 'open' } as const] : []), ...events]
}

/** The event that asks for the answer. */
export const requestOf = (job: Job, requestId: string, stop: readonly string[], seed: number): ChunkInput =>
  generateEvent({
    type: 'generate',
    requestId,
    maxTokens: job.maxTokens,
    ...job.drawing,
    topLogprobs: job.topLogprobs,
    stop: [...stop],
    seed,
    ...(job.grammar && { grammar: job.grammar }),
    ...(job.stream && { run: STREAM_RUN }),
  })

/** What ends an answer before its end, and why it did. `alone`: it goes on without its client. */
export const endingOf = (reply: FastifyReply, { limits, ended }: Service, alone = false) => {
  const gone = goneSignal(reply)
  const late = AbortSignal.timeout(limits.answer)
  const ends = AbortSignal.any([...(alone ? [] : [gone]), late, ended])
  const cut = (): Refusal =>
    late.aborted
      ? new Refusal(
          504,
          `There was no whole answer within ${limits.answer / 1000} seconds. Does a worker serve this log?`,
          { code: 'timeout' },
        )
      : gone.aborted
        ? new Refusal(CLIENT_GONE, 'The client went away.', { code: 'client_gone' })
        : new Refusal(503, 'The gateway is ending. Ask again.', { code: 'ending' })
  return { gone, ends, cut }
}

/** A request that is in the log. */
export interface Asked {
  readonly session: string
  readonly key: string | null
  readonly requestId: string
  readonly sent: Sent
  readonly wanted: Wanted
  /** Its session goes on after it. */
  readonly lasts: boolean
  /** Its last run was read, or it was refused. */
  over: boolean
}

/** Ends a request that nobody reads any more. Where its session goes on, this waits for the end: the next request asks what the last answer was. */
export const abandon = async ({ topics, sessions, limits, ended }: Service, asked: Asked): Promise<void> => {
  const { session, key, requestId, sent, wanted, lasts } = asked
  await sendCancel(topics, session, key, requestId)
  if (!lasts) return
  const until = AbortSignal.any([AbortSignal.timeout(limits.answer), ended])
  for await (const { finish, cause } of answersTo(topics, session, sent, wanted, until))
    if (finish !== null) await sessions.finished(session, cause.offset, until)
}

/** Takes what comes of an answer that no client waits for: the next request of its session waits until it is over, or this gateway's time for it. */
const drain = async (coming: AsyncGenerator<Piece>, ends: AbortSignal): Promise<void> => {
  try {
    while (!(await coming.next()).done);
  } catch (error) {
    // A refusal is in the log, and is told to who asks for the response.
    if (!(error instanceof Refusal) && !ends.aborted) throw error
  }
}

/**
 * Answers the request. Throws what stands in the way before the first token, or in a stream before `OPENING`; what comes later is in the
 * stream.
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
  genai.asked(reply, job)
  const { background = false } = job
  const { gone, ends, cut } = endingOf(reply, service, background && !job.stream)

  const once = onceIn(request)
  if (job.name !== undefined) refuseOnce(request, 'A conversation that was compacted')
  const named = sessionInHeader(request) ?? job.session
  // What a session of the request's own is fed follows from the request alone, and so does where it can begin.
  const own = named === undefined ? job.prompt({ fresh: true, stopped: false }) : null
  // A name that was given is for one session, in its own partition; and who answers in the background does not wait for what may have to be asked again.
  // What is done once is done by its own events alone: an attempt whose fork was refused could not be told from one that was taken.
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

  /** Puts the request into the log behind these events. With `isAgain` the first of them ends what an attempt may have left. */
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
          genai.ended(reply, { id: told.requestId, finish: piece.finish, usage: usage() })
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
    // What is refused soon is refused with a status; what takes long must not look dead to proxies and clients until it comes.
    await within(OPENING, begun)
    reply.headers(headers)
    /** How far the prompt was read, each time that more of it was, until the first piece is there. */
    async function* progress(): AsyncGenerator<ServerEvent> {
      const over = new AbortController()
      const answered = begun.then(
        () => null,
        () => null,
      )
      try {
        const known = await Promise.race([answered, askedOnce.promise])
        if (known === null) return
        const { shape, prompted } = known
        const { pulse, cached } = prompted
        const total = prompted.tokens ?? ids?.length ?? null
        const began = performance.now()
        for (let at: number | null = pulse; ; ) {
          at = await Promise.race([answered, sessions.moved(session, at, over.signal)])
          if (at === null) return
          const processed = Math.min(at - pulse, total ?? Number.POSITIVE_INFINITY)
          const time_ms = Math.round(performance.now() - began)
          yield* shape.progress?.({ total, cache: cached, processed, time_ms }) ?? []
          if (processed === total) return
        }
      } finally {
        over.abort()
      }
    }
    async function* told(): AsyncGenerator<ServerEvent> {
      if (job.tellsProgress) yield* progress()
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
