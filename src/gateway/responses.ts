/**
 * /v1/responses. A gateway keeps nothing, so the id of a response says where in the log it is: any gateway finds it again, and gives a stream of it from
 * any event on. The events of a response and their numbers follow from its records alone.
 */
import { randomBytes } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Generated } from '../../topics/tokens.ts'
import { textIn } from '../client/records.ts'
import type { StoredRecord } from '../streams/log.ts'
import { openAnswer, type Piece, type ScoredToken, tokenLogprob } from './answer.ts'
import { answersTo, generatedIn, sendCancel, type Wanted } from './ask.ts'
import { type Answering, type Asking, answer, type Job, type Shape, type Usage } from './openai-answer.ts'
import { checkMessages, messagesOf } from './openai-messages.ts'
import { idEvents, MAX_TOKENS } from './openai-prompt.ts'
import { boundBy, drawingOf, parsedBody, responseRequest } from './openai-schema.ts'
import { Refusal } from './refusal.ts'
import { failureBody, goneSignal } from './service.ts'
import { type ServerEvent, sendEvents } from './sse.ts'

const PREFIX = 'resp_'
/** Of the one item of a response: the rest is the response's. */
const ITEM = 'msg_'
/** Of a `generate` event's requestId. */
const MOST_ID = 256

const count = z.int().min(0)
const located = z.tuple([z.string().regex(/^[0-9a-f]{16}$/), count, count, count, count, count, z.string().min(1)])

interface Located {
  readonly id: string
  readonly nonce: string
  readonly partition: number
  readonly tokensFrom: number
  readonly deadLettersFrom: number
  /** Seconds since the epoch. */
  readonly created: number
  readonly inputTokens: number
  readonly session: string
}

const locate = ({ session, partition, tokensFrom, deadLettersFrom, promptTokens }: Asking): Located => {
  const nonce = randomBytes(8).toString('hex')
  const created = Math.floor(Date.now() / 1000)
  const inputTokens = promptTokens ?? 0
  const fields = [nonce, partition, tokensFrom, deadLettersFrom, created, inputTokens, session]
  const id = `${PREFIX}${Buffer.from(JSON.stringify(fields)).toString('base64url')}`
  if (id.length > MOST_ID)
    throw new Refusal(
      400,
      'The id of a response has the name of its session in it; this one is too long. Take at most 60 characters.',
      {
        param: 'x-session',
      },
    )
  return { id, nonce, partition, tokensFrom, deadLettersFrom, created, inputTokens, session }
}

/** What such an id says; null: it is no id of a response. */
const locatedIn = (id: string): Located | null => {
  if (!id.startsWith(PREFIX) || id.length > MOST_ID) return null
  let fields: unknown
  try {
    fields = JSON.parse(Buffer.from(id.slice(PREFIX.length), 'base64url').toString())
  } catch {
    return null
  }
  const parsed = located.safeParse(fields)
  if (!parsed.success) return null
  const [nonce, partition, tokensFrom, deadLettersFrom, created, inputTokens, session] = parsed.data
  return { id, nonce, partition, tokensFrom, deadLettersFrom, created, inputTokens, session }
}
/** Throws a Refusal (404). */
const locatedBy = (id: string, param: string): Located => {
  const at = locatedIn(id)
  if (at !== null) return at
  throw new Refusal(404, 'There is no response of this id.', { code: 'response_not_found', param })
}

type Status = 'in_progress' | 'completed' | 'incomplete' | 'cancelled' | 'failed'

/** What an answer says so far, and the tokens with alternatives. */
interface Said {
  readonly text: string
  readonly tokens: readonly ScoredToken[]
}

/** Of tokens whose alternatives the request asked for. */
const logprobsOf = (tokens: readonly ScoredToken[]) =>
  tokens.flatMap(({ top, ...token }) =>
    top === undefined ? [] : [{ ...tokenLogprob(token), top_logprobs: top.map(tokenLogprob) }],
  )

/** The members that clients read, and those that their types ask for. */
const responseOf = (
  at: Located,
  model: string,
  status: Status,
  said: Said | null,
  usage: Usage | null,
  error: { readonly code: string; readonly message: string } | null = null,
) => ({
  id: at.id,
  object: 'response',
  created_at: at.created,
  status,
  error,
  incomplete_details: status === 'incomplete' ? { reason: 'max_output_tokens' } : null,
  instructions: null,
  max_output_tokens: null,
  metadata: {},
  model,
  output: said === null ? [] : [itemOf(at, status, said)],
  parallel_tool_calls: false,
  previous_response_id: null,
  temperature: null,
  tool_choice: 'none',
  tools: [],
  top_p: null,
  truncation: 'disabled',
  usage:
    usage === null
      ? null
      : {
          input_tokens: usage.prompt_tokens,
          input_tokens_details: { cached_tokens: 0 },
          output_tokens: usage.completion_tokens,
          output_tokens_details: { reasoning_tokens: 0 },
          total_tokens: usage.total_tokens,
        },
})

const NOTHING: Said = { text: '', tokens: [] }
const partOf = ({ text, tokens }: Said) => ({
  type: 'output_text',
  text,
  annotations: [],
  logprobs: logprobsOf(tokens),
})
/** An item has fewer states than its response. */
const itemId = ({ id }: Located): string => `${ITEM}${id.slice(PREFIX.length)}`
const itemOf = (at: Located, status: Status, said: Said | null) => ({
  id: itemId(at),
  type: 'message',
  role: 'assistant',
  status: status === 'in_progress' || status === 'completed' ? status : 'incomplete',
  content: said === null ? [] : [partOf(said)],
})

const ended = (finish: Piece['finish']): Status =>
  finish === null
    ? 'in_progress'
    : ({ length: 'incomplete', stop: 'completed', cancelled: 'cancelled' } as const)[finish]

const wholeOf = (at: Located, model: string, pieces: readonly Piece[], usage: Usage) => {
  const said = { text: pieces.map(({ text }) => text).join(''), tokens: pieces.flatMap(({ tokens }) => tokens) }
  return responseOf(at, model, ended(pieces.at(-1)?.finish ?? null), said, usage)
}

const responseShape = (at: Located, model: string): Shape => {
  let number = 0
  let text = ''
  const tokens: ScoredToken[] = []
  /** How many of them a delta listed. */
  let listed = 0
  let finish: Piece['finish'] = null
  const event = (type: string, more: object): ServerEvent => {
    const data = { type, sequence_number: number, ...more }
    number += 1
    return { event: type, data }
  }
  const place = { item_id: itemId(at), output_index: 0, content_index: 0 }
  return {
    id: at.id,
    opening: () => [
      event('response.created', { response: responseOf(at, model, 'in_progress', null, null) }),
      event('response.in_progress', { response: responseOf(at, model, 'in_progress', null, null) }),
      event('response.output_item.added', { output_index: 0, item: itemOf(at, 'in_progress', null) }),
      event('response.content_part.added', { ...place, part: partOf(NOTHING) }),
    ],
    piece(piece) {
      text += piece.text
      tokens.push(...piece.tokens.filter(({ top }) => top !== undefined))
      finish = piece.finish
      if (piece.text === '') return []
      const logprobs = logprobsOf(tokens.slice(listed))
      listed = tokens.length
      return [event('response.output_text.delta', { ...place, delta: piece.text, logprobs })]
    },
    closing(usage) {
      const status = ended(finish)
      const said = { text, tokens }
      const item = itemOf(at, status, said)
      return [
        event('response.output_text.done', { ...place, text, logprobs: logprobsOf(tokens) }),
        event('response.content_part.done', { ...place, part: partOf(said) }),
        event('response.output_item.done', { output_index: 0, item }),
        // Clients know no event of a response that was cancelled; its status says so.
        event(`response.${status === 'cancelled' ? 'incomplete' : status}`, {
          response: responseOf(at, model, status, said, usage),
        }),
      ]
    },
    whole: (pieces, usage) => wholeOf(at, model, pieces, usage),
  }
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

  app.post('/v1/responses', async (request, reply) => {
    const body = parsedBody(responseRequest, request.body)
    if (body.include.length > 0 && body.top_logprobs === 0)
      throw new Refusal(400, 'Logprobs come with alternatives: say "top_logprobs", 1 to 20.', { param: 'top_logprobs' })
    const before = body.previous_response_id
    const previous = before === undefined ? undefined : locatedBy(before, 'previous_response_id')
    const { instructions, input } = body
    const messages = [
      ...(instructions === undefined ? [] : [{ role: 'system' as const, content: instructions }]),
      ...(await messagesOf(input, said)),
    ]
    checkMessages(messages, 'input')
    const form = await served.form()
    const job: Job = {
      model: body.model,
      session: previous?.session,
      ...(before !== undefined && { after: before }),
      prompt({ fresh, stopped }) {
        const ids = fresh ? form.begin(messages) : form.goOn(messages, stopped)
        return { events: idEvents(ids), tokens: ids.length }
      },
      formStops: form.stops,
      stop: [],
      maxTokens: body.max_output_tokens ?? Math.min(MAX_TOKENS.chat, limits.tokens),
      drawing: drawingOf(body),
      topLogprobs: body.top_logprobs,
      grammar: boundBy({ ...body.text, grammar: body.grammar }, 'text'),
      seed: undefined,
      stream: body.stream,
      keepsSession: body.store,
      shape: (asking) => responseShape(locate(asking), served.id),
    }
    return answer(request, reply, job, answering)
  })

  const usageOf = ({ inputTokens }: Located, completionTokens: number): Usage => ({
    prompt_tokens: inputTokens,
    completion_tokens: completionTokens,
    total_tokens: inputTokens + completionTokens,
  })

  /** The response as far as it is in the log. */
  const soFar = async (at: Located): Promise<ReturnType<typeof responseOf>> => {
    const { log, names } = topics
    const collected = openAnswer((await served.form()).stops, served.tokenizer)
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
    return wholeOf(at, served.id, pieces, usageOf(at, collected.completionTokens))
  }

  const params = z.strictObject({ id: z.string() })
  /** The text of an item of a response. */
  const said = async (id: string, param: string): Promise<string> => {
    const at = id.startsWith(ITEM) ? locatedIn(`${PREFIX}${id.slice(ITEM.length)}`) : null
    const found = at === null || !(await isHere(at)) ? null : await soFar(at)
    const text = found?.output[0]?.content[0]?.text
    if (text !== undefined && found?.status !== 'in_progress') return text
    throw new Refusal(404, `The log has no item "${id.slice(0, 64)}". Send the message itself.`, {
      code: 'item_not_found',
      param,
    })
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
    const { stops } = await served.form()
    const isNew = ({ data }: ServerEvent): boolean =>
      (data as { readonly sequence_number: number }).sequence_number > (after ?? -1)
    async function* all(): AsyncGenerator<ServerEvent> {
      const shape = responseShape(at, served.id)
      const collected = openAnswer(stops, served.tokenizer)
      yield* shape.opening()
      for await (const run of answersTo(topics, at.session, at, wantedOf(at), ends)) {
        const piece = shape.piece(collected.push(run))
        yield* piece
        if (piece.some(isNew)) metrics.sent(reply, run.ids.length)
        if (run.finish !== null) yield* shape.closing(usageOf(at, collected.completionTokens))
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
