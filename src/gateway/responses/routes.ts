/**
 * /v1/responses, by the Open Responses specification. A gateway keeps nothing, so the id of a response says where in
 * the log it is: any gateway finds it again, and gives a stream of it from any event on. The events of a response and
 * their numbers follow from its records alone.
 */
import type { FastifyInstance, FastifyRequest } from 'fastify'
import { z } from 'zod'
import type { Tools } from '../../models/chat/form.ts'
import type { ChatForm, Message } from '../../models/chat/index.ts'
import { answer } from '../answer/answer.ts'
import { answersTo, sendCancel } from '../answer/ask.ts'
import { type Answering, type Job, OWN_SESSION, type Prompt, type Shape, usageOf } from '../answer/job.ts'
import { thinkingOf } from '../answer/thinking.ts'
import { checkMessages, messagesOf } from '../openai/messages.ts'
import { MAX_TOKENS, promptOfMessages } from '../openai/prompt.ts'
import {
  boundBy,
  COUNT_LACKING,
  countRequest,
  drawingOf,
  parsedBody,
  type ResponseRequest,
  responseRequest,
} from '../openai/schema.ts'
import { boundTools } from '../openai/tools.ts'
import { Refusal } from '../refusal.ts'
import { checkModel, failureBody, failureOf, goneSignal, SESSION_HEADER, sessionInHeader } from '../service.ts'
import { sessionEffects } from '../session-effects.ts'
import { type ServerEvent, sendEvents } from '../sse.ts'
import { askedIn, type Item, packed } from './asked.ts'
import { compactRoutes } from './compact.ts'
import { type Basis, basisOf, goingOn, withoutCompaction } from './compaction-log.ts'
import { locate } from './id.ts'
import { responseItemRoutes } from './items.ts'
import { locatedBy, responseLog, wantedIn } from './log.ts'
import { DONE, errorEvent, type ResponseShape, responseShape, wordsFor } from './shape.ts'
import { truncating } from './truncation.ts'

export const responseQuery = z.strictObject({
  stream: z.enum(['true', 'false']).default('false').describe('Whether its events are given, also while it is made.'),
  starting_after: z.coerce
    .number()
    .int()
    .min(0)
    .optional()
    .describe('With stream=true: the number of an event; those behind it are given.'),
})
const params = z.strictObject({ id: z.string() })
const idIn = (given: unknown): string => (given as z.output<typeof params>).id

/** Throws a Refusal (400) for members that go together, or do not. */
const checkTogether = (body: ResponseRequest): void => {
  if (body.include.length > 0 && body.top_logprobs === 0)
    throw new Refusal(400, 'Logprobs come with alternatives: say "top_logprobs", 1 to 20.', { param: 'top_logprobs' })
  if (body.background && !body.store)
    throw new Refusal(400, 'What is made in the background is asked for later: "background" needs "store": true.', {
      param: 'background',
    })
}

/**
 * Throws a Refusal (400) for what cannot stand beside a compaction, which is a conversation and a session of its own.
 */
const checkAlone = (body: ResponseRequest, request: FastifyRequest): void => {
  const wrong =
    body.previous_response_id !== undefined
      ? 'previous_response_id'
      : body.truncation === 'auto'
        ? 'truncation'
        : sessionInHeader(request) !== undefined
          ? SESSION_HEADER
          : null
  if (wrong !== null)
    throw new Refusal(
      400,
      `A compaction is read in a session of its own, as it is, so "${wrong}" is not supported with one.`,
      { param: wrong },
    )
}

const bindTools = (form: ChatForm, tools: Tools) => ({
  begin: (messages: readonly Message[]) => form.begin(messages, tools),
  goOn: (messages: readonly Message[], stopped: boolean) => form.goOn(messages, stopped, tools),
  alone: (messages: readonly Message[]) => form.alone(messages),
})

/** The last events of a stream that fails, also where it failed before there was a response. */
const failing = (refusal: Refusal, shape: Shape | undefined, over: boolean): readonly ServerEvent[] =>
  shape === undefined ? [errorEvent(refusal, 0), DONE] : (shape as ResponseShape).failing(refusal, over)

export const responseRoutes = (app: FastifyInstance, answering: Answering): void => {
  const { service, counter } = answering
  const { served, limits, metrics, topics } = service
  const { nameBeside } = sessionEffects(answering)
  const { collecting, asked: askedOf, soFar, locatedHere, saidIn } = responseLog(service)

  /**
   * The messages of a request, the items that it names, and the compaction that it goes on from. Rejects with a Refusal
   * for one that the log does not have, and for what nothing answers.
   */
  const askedBy = async ({ instructions, input }: Pick<ResponseRequest, 'instructions' | 'input'>) => {
    const found = new Map<string, Item>()
    const { compaction, items } = withoutCompaction(input)
    const system = instructions === undefined ? [] : [{ role: 'system' as const, content: instructions }]
    const said = await messagesOf(items, saidIn(found))
    checkMessages([...system, ...said], 'input')
    const basis = compaction === null ? null : await basisOf(compaction, topics, 'input.0')
    return { messages: [...system, ...said], system, said, found, basis }
  }

  app.post('/v1/responses/input_tokens', async (request) => {
    const body = parsedBody(countRequest, request.body, COUNT_LACKING)
    checkModel(served, body.model ?? served.id)
    const { messages, basis } = await askedBy(body)
    if (basis !== null)
      throw new Refusal(400, 'The messages of the request are counted, not what a compaction stands for.', {
        param: 'input.0',
      })
    const form = await served.form()
    const { tools: told, grammar } = boundTools(body, form.calls, undefined)
    const { thinking } = thinkingOf(body, form, { grammar: grammar ?? boundBy(body.text, 'text'), own: false })
    const tools = { ...told, thinking }
    return { object: 'response.input_tokens', input_tokens: form.begin(messages, tools).length }
  })

  app.post('/v1/responses', async (request, reply) => {
    const body = parsedBody(responseRequest, request.body)
    checkTogether(body)
    const before = body.previous_response_id
    const previous = before === undefined ? undefined : locatedBy(before, 'previous_response_id')
    const { messages, system, said, found, basis } = await askedBy(body)
    if (basis !== null) checkAlone(body, request)
    const form = await served.form()
    const bound = boundBy({ ...body.text, grammar: body.grammar }, 'text')
    const { tools: told, ...binding } = boundTools(body, form.calls, bound)
    const { thinking, reads } = thinkingOf(body, form, { ...binding, own: body.grammar !== undefined })
    const tools = { ...told, thinking }
    const asked = askedIn(request.body, found)
    const maxTokens = body.max_output_tokens ?? Math.min(MAX_TOKENS.chat, limits.tokens)
    const promptOf = (kept: readonly Message[]) => promptOfMessages(form, kept, tools, reads, served.tokenizer)
    const fed = (ids: Int32Array): Prompt => {
      const plain = { ...form, begin: () => ids }
      return promptOfMessages(plain, messages, tools, reads, served.tokenizer)({ fresh: true, stopped: false })
    }
    const compacted = (kept: Basis) => (): Prompt => goingOn(bindTools(form, tools), kept, system, said, fed)
    const job: Job = {
      model: body.model,
      session: previous?.session,
      name: basis === null ? undefined : await nameBeside(basis.session, OWN_SESSION.slice(0, -1)),
      ...(before !== undefined && { after: before }),
      prompt:
        basis !== null
          ? compacted(basis)
          : body.truncation === 'disabled'
            ? promptOf(messages)
            : truncating(form, messages, tools, { positions: served.positions, most: maxTokens }, promptOf),
      formStops: form.stops,
      stop: [],
      maxTokens,
      drawing: drawingOf(body),
      topLogprobs: body.top_logprobs,
      ...binding,
      seed: body.seed,
      stream: body.stream,
      keepsSession: body.store,
      background: body.background,
      beside: await packed(asked),
      shape: (asking) =>
        responseShape(locate(asking, binding.calls !== null), served.id, asked.about, wordsFor(request)),
      failing,
    }
    return answer(request, reply, job, answering)
  })

  /** Answers when the response is over; one that was over before is given as it is. */
  app.post('/v1/responses/:id/cancel', { schema: { params } }, async (request, reply) => {
    const at = await locatedHere(idIn(request.params))
    const asked = await askedOf(at)
    const before = await soFar(at, asked)
    if (before.status !== 'in_progress' && before.status !== 'queued') return before
    counter.enter(reply, 'whole')
    const ends = AbortSignal.any([goneSignal(reply), service.ended, AbortSignal.timeout(limits.answer)])
    await sendCancel(topics, at.session, request.keyName, at.id)
    for await (const { finish } of answersTo(topics, at.session, at, wantedIn(at, asked), ends))
      if (finish !== null) break
    return soFar(at, asked)
  })

  app.get('/v1/responses/:id', { schema: { params, querystring: responseQuery } }, async (request, reply) => {
    const { stream, starting_after: after } = request.query as z.output<typeof responseQuery>
    const at = await locatedHere(idIn(request.params))
    const asked = await askedOf(at)
    if (stream === 'false') {
      if (after !== undefined)
        throw new Refusal(400, '"starting_after" goes with stream=true.', { param: 'starting_after' })
      return soFar(at, asked)
    }
    counter.enter(reply, 'stream')
    const gone = goneSignal(reply)
    const ends = AbortSignal.any([gone, service.closing, AbortSignal.timeout(limits.answer)])
    const collected = await collecting(at)
    const isNew = ({ data }: ServerEvent): boolean =>
      typeof data === 'string' || (data as { readonly sequence_number: number }).sequence_number > (after ?? -1)
    async function* all(): AsyncGenerator<ServerEvent> {
      const shape = responseShape(at, served.id, asked.about, wordsFor(request))
      yield* shape.opening()
      try {
        for await (const run of answersTo(topics, at.session, at, wantedIn(at, asked), ends)) {
          const piece = shape.piece(collected.push(run))
          yield* piece
          if (piece.some(isNew)) metrics.sent(reply, run.ids.length)
          if (run.finish !== null) yield* shape.closing(usageOf(at.inputTokens, at.cachedTokens, collected))
        }
      } catch (error) {
        yield* shape.failing(failureOf(service, error), error instanceof Refusal)
      }
    }
    async function* events(): AsyncGenerator<ServerEvent> {
      for await (const event of all()) if (isNew(event)) yield event
    }
    await sendEvents(reply, events(), {
      stall: limits.stall,
      gone,
      failed: (error) => ({ data: failureBody(service, error) }),
    })
    return reply
  })

  responseItemRoutes(app, answering)
  compactRoutes(app, answering)
}
