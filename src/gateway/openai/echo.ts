/**
 * `echo`: the prompt before its continuation, with the log probability of each of its tokens, as evaluation harnesses
 * ask for it. The log probability is the surprisal that a session reports of tokens that it reads. Alternatives are
 * reported of generated tokens alone; where they are asked for, the prompt is generated token by token, each forced by
 * a bias, which changes neither its probability nor those beside it.
 */
import { randomUUID } from 'node:crypto'
import type { FastifyReply, FastifyRequest } from 'fastify'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { generateEvent, idEvents } from '../../client/chunks.ts'
import { answer } from '../answer/answer.ts'
import { generatedIn, send } from '../answer/ask.ts'
import { endingOf } from '../answer/ending.ts'
import { type Answering, checkedStops, type Job, OWN_SESSION, type Shape } from '../answer/job.ts'
import { refuseOnce } from '../answer/once.ts'
import { type Piece, type Scored, scoredBy } from '../answer/pieces.ts'
import { orRefused, readAlone, tooLong } from '../answer/read-alone.ts'
import { bodyOf, Refusal } from '../refusal.ts'
import { failureOf, SESSION_HEADER, type Service, sessionInHeader } from '../service.ts'
import { type ServerEvent, sendEvents } from '../sse.ts'
import { promptIds } from './prompt.ts'
import type { CompletionRequest } from './schema.ts'

/** Tokens of a prompt whose alternatives are asked for: each is an event and a step of its own. */
const MOST_FORCED = 4096
/** The most that a bias adds to a logit. */
const FORCE = 100

/** A token of a prompt: the first has no probability, as nothing stands before it. */
export interface EchoedToken extends Omit<Scored, 'logprob'> {
  readonly logprob: number | null
  readonly top?: readonly Scored[]
}
/** The prompt as it is given back; tokens only where logprobs are asked for. */
export interface Echoed {
  readonly text: string
  readonly tokens: readonly EchoedToken[]
}

interface Read {
  readonly logprob: number | null
  readonly top?: readonly { readonly id: number; readonly logprob: number }[]
}

/** Feeds the ids to a new session, and yields what is told of each, in their order. */
async function* reading(
  service: Service,
  session: string,
  key: string | null,
  ids: readonly number[],
  ends: AbortSignal,
): AsyncGenerator<Read> {
  const events: ChunkInput[] = [{ type: 'open', surprisal: true }, ...idEvents(ids)]
  for await (const { surprisal = [] } of readAlone(service, session, key, events, ends))
    for (const nats of surprisal) yield { logprob: nats === null ? null : -nats }
}

/** The same with `tops` alternatives of each. */
async function* forcing(
  { topics }: Service,
  session: string,
  key: string | null,
  ids: readonly number[],
  tops: number,
  ends: AbortSignal,
): AsyncGenerator<Read> {
  const id = randomUUID()
  const [first, ...rest] = ids
  const forced = rest.map(
    (token, at): ChunkInput =>
      generateEvent({
        ...{ type: 'generate', requestId: `${id}-${at}`, maxTokens: 1, temperature: 0, ignoreEnd: true },
        ...{ logitBias: { [token]: FORCE }, topLogprobs: tops },
      }),
  )
  const sent = await send(topics, session, key, () => [{ type: 'tokens', tokens: [first!] }, ...forced])
  async function* runs(until: AbortSignal): AsyncGenerator<Read> {
    yield { logprob: null }
    let at = 0
    for await (const record of topics.tokens.records(sent.partition, session, sent.tokensFrom, until)) {
      const run = generatedIn(record)
      if (run.requestId !== `${id}-${at}`) continue
      if (run.ids[0] !== rest[at])
        throw new Refusal(
          400,
          `The token ${rest[at]} of the prompt is so unlikely that its alternatives are not known. Ask for "logprobs": 0.`,
          { param: 'logprobs' },
        )
      at += 1
      yield { logprob: run.logprobs[0]!, top: run.topLogprobs?.[0] ?? [] }
    }
  }
  yield* orRefused(topics, session, sent, runs, ends)
}

const OVER: Piece = { text: '', tokens: [], calls: [], finish: 'length' }

/** Answers a completion whose prompt is given back. `shapeOf`: with the prompt before it. Throws as `answer` does. */
export const answerEchoed = async (
  request: FastifyRequest,
  reply: FastifyReply,
  body: CompletionRequest,
  job: Job,
  shapeOf: (echoed: Echoed) => Shape,
  answering: Answering,
): Promise<FastifyReply> => {
  const { service, counter, turns } = answering
  const { served, limits, topics } = service
  if (body.n > 1) throw new Refusal(400, 'One answer is given behind a prompt: expected 1 with "echo".', { param: 'n' })
  if (sessionInHeader(request) !== undefined)
    throw new Refusal(400, 'A prompt that is given back is read in a session of its own. Leave the header out.', {
      param: SESSION_HEADER,
    })
  refuseOnce(request, '"echo"')
  checkedStops(job, service)
  const { ids, text } = await promptIds(body, served)
  if (ids.length === 0)
    throw new Refusal(400, 'The prompt is empty: there is nothing to give back.', { param: 'prompt' })
  const { positions } = served
  if (positions !== null && ids.length > positions) throw tooLong(ids.length, positions, 'prompt')
  const { logprobs } = body
  if (logprobs !== undefined && logprobs > 0 && ids.length > MOST_FORCED)
    throw new Refusal(
      400,
      `Alternatives are told of at most ${MOST_FORCED} tokens of a prompt, and this one has ${ids.length}. Ask for "logprobs": 0, or send less.`,
      { param: 'logprobs' },
    )
  counter.enter(reply, body.stream ? 'stream' : 'whole')
  const { gone, ends, cut } = endingOf(reply, service)
  const key = request.keyName
  const session = `${OWN_SESSION}${randomUUID()}`
  const scored = scoredBy(served.tokenizer)
  const tokens: EchoedToken[] = []
  const close = (): void =>
    service.inBackground(send(topics, session, key, () => [{ type: 'close' }]).then(() => undefined))
  if (logprobs !== undefined) {
    const source =
      logprobs === 0 ? reading(service, session, key, ids, ends) : forcing(service, session, key, ids, logprobs, ends)
    try {
      for await (const { logprob, top } of source) {
        const token = scored(ids[tokens.length]!, 0)
        const others = top === undefined ? {} : { top: top.map((other) => scored(other.id, other.logprob)) }
        tokens.push({ ...token, logprob, ...others })
        if (tokens.length === ids.length) break
      }
      if (tokens.length < ids.length) throw cut()
    } catch (error) {
      // Nobody goes on with a prompt that was not read to its end.
      close()
      throw error
    }
  }
  const echoed = { text, tokens }

  if (body.max_tokens === 0) {
    if (logprobs !== undefined) close()
    const shape = shapeOf(echoed)
    const counts = { prompt_tokens: ids.length, completion_tokens: 0, total_tokens: ids.length }
    const usage = { ...counts, prompt_tokens_details: { cached_tokens: 0 } }
    if (!body.stream) return reply.send(shape.whole([OVER], usage))
    async function* events(): AsyncGenerator<ServerEvent> {
      yield* [...shape.opening(), ...shape.piece(OVER), ...shape.closing(usage)]
    }
    const failed = (error: unknown): ServerEvent => ({ data: bodyOf(failureOf(service, error)) })
    await sendEvents(reply, events(), { stall: limits.stall, gone, failed })
    return reply
  }
  // What is known to have been read is not fed again.
  const isRead = logprobs !== undefined
  if (isRead) turns.begun.set(session, true)
  try {
    return await answer(
      request,
      reply,
      {
        ...job,
        ...(isRead ? { session } : { name: session }),
        prompt: () => ({ events: isRead ? [] : idEvents(ids), tokens: ids.length }),
        shape: () => shapeOf(echoed),
      },
      answering,
    )
  } finally {
    if (isRead) close()
  }
}
