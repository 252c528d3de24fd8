/**
 * /v1/responses. A gateway keeps nothing, so the id of a response says where in the log it is: any gateway finds it again, and gives a stream of it from
 * any event on. The events of a response and their numbers follow from its records alone.
 */
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Generated } from '../../topics/tokens.ts'
import { textIn } from '../client/records.ts'
import type { StoredRecord } from '../streams/log.ts'
import { openAnswer, type Piece } from './answer.ts'
import { answersTo, generatedIn, sendCancel, type Wanted } from './ask.ts'
import { type Answering, answer, type Job, usageOf } from './openai-answer.ts'
import { checkMessages, inputItem, messagesOf, type Said } from './openai-messages.ts'
import { MAX_TOKENS, promptOfMessages } from './openai-prompt.ts'
import {
  boundBy,
  COUNT_LACKING,
  countRequest,
  drawingOf,
  parsedBody,
  type ResponseRequest,
  responseRequest,
} from './openai-schema.ts'
import { boundTools } from './openai-tools.ts'
import { Refusal } from './refusal.ts'
import {
  CALL,
  type Located,
  locate,
  locatedIn,
  MESSAGE,
  PREFIX,
  responseOf,
  responseShape,
  THOUGHT,
  wholeOf,
} from './response-shape.ts'
import { checkModel, failureBody, goneSignal } from './service.ts'
import { type ServerEvent, sendEvents } from './sse.ts'
import { thinkingOf } from './thinking.ts'

/** Responses whose items a request refers to: each is read from the log. */
const MOST_REFERRED = 64

/** Throws a Refusal (404). */
const locatedBy = (id: string, param: string): Located => {
  const at = locatedIn(id)
  if (at !== null) return at
  throw new Refusal(404, 'There is no response of this id.', { code: 'response_not_found', param })
}

/** The request that a dead letter holds; undefined: it holds something else, a `cancel` that came too late for example. */
const requestIdIn = ({ value }: StoredRecord): unknown => {
  try {
    const event = JSON.parse(textIn(value)) as { readonly type?: unknown; readonly requestId?: unknown } | null
    return event?.type === 'generate' ? event.requestId : undefined
  } catch {
    return undefined
  }
}

const query = z.strictObject({
  stream: z.enum(['true', 'false']).default('false'),
  starting_after: z.coerce.number().int().min(0).optional(),
})

export const responseRoutes = (app: FastifyInstance, answering: Answering): void => {
  const { service, counter } = answering
  const { served, limits, metrics, topics } = service

  /** The messages of a request. Rejects with a Refusal for an item that the log does not have, and for what nothing answers. */
  const askedBy = async ({ instructions, input }: Pick<ResponseRequest, 'instructions' | 'input'>) => {
    const messages = [
      ...(instructions === undefined ? [] : [{ role: 'system' as const, content: instructions }]),
      ...(await messagesOf(input, saidIn())),
    ]
    checkMessages(messages, 'input')
    return messages
  }

  app.post('/v1/responses/input_tokens', async (request) => {
    const body = parsedBody(countRequest, request.body, COUNT_LACKING)
    checkModel(served, body.model ?? served.id)
    const messages = await askedBy(body)
    const form = await served.form()
    const { tools: told, grammar } = boundTools(body, form.calls, undefined)
    const { thinking } = thinkingOf(body, form, { grammar: grammar ?? boundBy(body.text, 'text'), own: false })
    const tools = { ...told, thinking }
    return { object: 'response.input_tokens', input_tokens: form.begin(messages, tools).length }
  })

  app.post('/v1/responses', async (request, reply) => {
    const body = parsedBody(responseRequest, request.body)
    if (body.include.length > 0 && body.top_logprobs === 0)
      throw new Refusal(400, 'Logprobs come with alternatives: say "top_logprobs", 1 to 20.', { param: 'top_logprobs' })
    const before = body.previous_response_id
    const previous = before === undefined ? undefined : locatedBy(before, 'previous_response_id')
    const messages = await askedBy(body)
    const form = await served.form()
    const bound = boundBy({ ...body.text, grammar: body.grammar }, 'text')
    const { tools: told, ...binding } = boundTools(body, form.calls, bound)
    const { thinking, reads } = thinkingOf(body, form, { ...binding, own: body.grammar !== undefined })
    const tools = { ...told, thinking }
    const job: Job = {
      model: body.model,
      session: previous?.session,
      ...(before !== undefined && { after: before }),
      prompt: promptOfMessages(form, messages, tools, reads, served.tokenizer),
      formStops: form.stops,
      stop: [],
      maxTokens: body.max_output_tokens ?? Math.min(MAX_TOKENS.chat, limits.tokens),
      drawing: drawingOf(body),
      topLogprobs: body.top_logprobs,
      ...binding,
      seed: undefined,
      stream: body.stream,
      keepsSession: body.store,
      shape: (asking) => responseShape(locate(asking, binding.calls !== null), served.id),
    }
    return answer(request, reply, job, answering)
  })

  /** Takes the runs of a response. */
  const collecting = async ({ calls, start }: Located) => {
    const form = await served.form()
    return openAnswer(form.stops, served.tokenizer, calls ? form.calls : null, start)
  }

  /** The response as far as it is in the log. */
  const soFar = async (at: Located): Promise<ReturnType<typeof responseOf>> => {
    const { log, names } = topics
    const collected = await collecting(at)
    const key = Buffer.from(at.session)
    const records = async function* (topic: string, from: number): AsyncGenerator<StoredRecord> {
      const { end } = await log.bounds(topic, at.partition)
      if (from >= end) return
      for await (const batch of log.read(topic, at.partition, from, { until: end, undecodable: true }))
        for (const record of batch.records) if (record.key !== null && key.equals(record.key)) yield record
    }
    const pieces: Piece[] = []
    for await (const record of records(names.tokens, at.tokensFrom)) {
      const run: Generated = generatedIn(record)
      if (run.requestId !== at.id) continue
      pieces.push(collected.push(run))
      if (run.finish !== null) break
    }
    if (pieces.length === 0)
      for await (const record of records(names.deadletters, at.deadLettersFrom))
        if (requestIdIn(record) === at.id)
          return responseOf(at, served.id, 'failed', null, null, {
            code: 'server_error',
            message: 'The worker refused the request; the dead letters of its session say why.',
          })
    return wholeOf(at, served.id, pieces, usageOf(at.inputTokens, at.cachedTokens, collected))
  }

  const params = z.strictObject({ id: z.string() })
  /** Items of responses by their ids, as they would be sent back; a response is read once for all of them. */
  const saidIn = () => {
    const read = new Map<string, ReturnType<typeof soFar> | null>()
    return async (id: string, param: string): Promise<Said> => {
      const end = id.startsWith(CALL) ? id.lastIndexOf('_') : id.length
      const prefix = [MESSAGE, CALL, THOUGHT].find((each) => id.startsWith(each))
      const at = prefix === undefined ? null : locatedIn(`${PREFIX}${id.slice(prefix.length, end)}`)
      if (at !== null && !read.has(at.id)) {
        if (read.size === MOST_REFERRED)
          throw new Refusal(
            400,
            `The items of at most ${MOST_REFERRED} responses can be named. Send the others themselves.`,
            {
              param,
            },
          )
        read.set(at.id, (await isHere(at)) ? soFar(at) : null)
      }
      const found = at === null ? null : await read.get(at.id)
      const item = found?.status === 'in_progress' ? undefined : found?.output.find((each) => each.id === id)
      const parsed = inputItem.safeParse(item)
      if (parsed.success && parsed.data.type !== 'item_reference') return parsed.data
      throw new Refusal(404, `The log has no whole item "${id.slice(0, 64)}". Send the item itself.`, {
        code: 'item_not_found',
        param,
      })
    }
  }
  const isHere = async ({ partition, session }: Located): Promise<boolean> =>
    partition === (await topics.log.partitionOf(topics.names.chunks, Buffer.from(session)))
  /** Throws a Refusal (404). */
  const locatedHere = async (given: unknown): Promise<Located> => {
    const at = locatedBy((given as z.output<typeof params>).id, 'id')
    if (await isHere(at)) return at
    throw new Refusal(404, 'There is no response of this id.', { code: 'response_not_found', param: 'id' })
  }
  const wantedOf = (at: Located): Wanted => ({
    run: ({ requestId }) => requestId === at.id,
    letter: (_, record) => requestIdIn(record) === at.id,
  })

  /** Answers when the response is over; one that was over before is given as it is. */
  app.post('/v1/responses/:id/cancel', { schema: { params } }, async (request, reply) => {
    const at = await locatedHere(request.params)
    const before = await soFar(at)
    if (before.status !== 'in_progress') return before
    counter.enter(reply, 'whole')
    const ends = AbortSignal.any([goneSignal(reply), service.ended, AbortSignal.timeout(limits.answer)])
    await sendCancel(topics, at.session, request.keyName, at.id)
    for await (const { finish } of answersTo(topics, at.session, at, wantedOf(at), ends)) if (finish !== null) break
    return soFar(at)
  })

  app.get('/v1/responses/:id', { schema: { params, querystring: query } }, async (request, reply) => {
    const { stream, starting_after: after } = request.query as z.output<typeof query>
    const at = await locatedHere(request.params)
    if (stream === 'false') {
      if (after !== undefined)
        throw new Refusal(400, '"starting_after" goes with stream=true.', { param: 'starting_after' })
      return soFar(at)
    }
    counter.enter(reply, 'stream')
    const gone = goneSignal(reply)
    const ends = AbortSignal.any([gone, service.closing, AbortSignal.timeout(limits.answer)])
    const collected = await collecting(at)
    const isNew = ({ data }: ServerEvent): boolean =>
      (data as { readonly sequence_number: number }).sequence_number > (after ?? -1)
    async function* all(): AsyncGenerator<ServerEvent> {
      const shape = responseShape(at, served.id)
      yield* shape.opening()
      for await (const run of answersTo(topics, at.session, at, wantedOf(at), ends)) {
        const piece = shape.piece(collected.push(run))
        yield* piece
        if (piece.some(isNew)) metrics.sent(reply, run.ids.length)
        if (run.finish !== null) yield* shape.closing(usageOf(at.inputTokens, at.cachedTokens, collected))
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
}
