/** /v1/messages and /v1/messages/count_tokens, as Anthropic's clients ask for them. */
import type { FastifyInstance } from 'fastify'
import type { ChatForm } from '../../models/chat/index.ts'
import { answer } from '../answer/answer.ts'
import { type Answering, type Job, MOST_STOPS } from '../answer/job.ts'
import { promptOfMessages } from '../openai/prompt.ts'
import { boundBy, drawingOf, drawingSchema, parsedBody } from '../openai/schema.ts'
import { boundTools } from '../openai/tools.ts'
import { Refusal } from '../refusal.ts'
import { checkModel } from '../service.ts'
import { conversationOf } from './messages.ts'
import { countRequest, MESSAGES_LACKING, type MessagesRequest, messagesRequest, NO_THREAD } from './schema.ts'
import { messageShape } from './shape.ts'
import { askedTools } from './tools.ts'

const TYPES: Readonly<Record<number, string>> = {
  401: 'authentication_error',
  403: 'permission_error',
  404: 'not_found_error',
  408: 'timeout_error',
  413: 'request_too_large',
  429: 'rate_limit_error',
  503: 'overloaded_error',
  504: 'timeout_error',
}

/**
 * What is refused, in the shape that Anthropic's clients read: the sentence names the parameter, for which there is no
 * other place.
 */
const errorBody = ({ status, message, param, code }: Refusal) => ({
  type: 'error',
  error: {
    type: TYPES[status] ?? (status < 500 ? 'invalid_request_error' : 'api_error'),
    message: param === null || param === '' || message.includes(param) ? message : `${param}: ${message}`,
    ...(code === NO_THREAD && { details: { error_code: code } }),
  },
})

/**
 * What binds the answer, and what the form of the conversation is told of the tools. Throws a Refusal (400) for what
 * cannot be kept.
 */
const boundOf = (body: Pick<MessagesRequest, 'tools' | 'tool_choice' | 'output_config'>, form: ChatForm) => {
  const format = body.output_config?.format
  const bound = boundBy(format == null ? {} : { format: { ...format, name: '' } }, 'output_config.format')
  const { tools, ...binding } = boundTools(askedTools(body), form.calls, bound)
  // The protocol has thoughts where a request asks for them, which none can here.
  return { ...binding, tools: { ...tools, thinking: form.thinks === 'ever' ? false : undefined } }
}

/** Serves the routes. */
export const messageRoutes = (app: FastifyInstance, answering: Answering): void => {
  const { served } = answering.service
  const config = { errorBody }

  app.post('/v1/messages', { config }, async (request, reply) => {
    const body = parsedBody(messagesRequest, request.body, MESSAGES_LACKING)
    const messages = conversationOf(body)
    const form = await served.form()
    const most = MOST_STOPS - form.stops.length
    if (body.stop_sequences.length > most)
      throw new Refusal(400, `At most ${most} stop sequences can be given, ${body.stop_sequences.length} were.`, {
        param: 'stop_sequences',
      })
    const { tools, ...binding } = boundOf(body, form)
    const { temperature, top_p, top_k } = body
    const job: Job = {
      model: body.model,
      session: undefined,
      prompt: promptOfMessages(form, messages, tools, false, served.tokenizer),
      formStops: form.stops,
      stop: body.stop_sequences,
      maxTokens: body.max_tokens,
      drawing: drawingOf(drawingSchema.parse({ temperature, top_p, top_k })),
      topLogprobs: 0,
      seed: undefined,
      ...binding,
      stream: body.stream,
      keepsSession: false,
      shape: (asking) => messageShape(asking, body),
      failed: (refusal) => ({ event: 'error', data: errorBody(refusal) }),
    }
    return answer(request, reply, job, answering)
  })

  app.post('/v1/messages/count_tokens', { config }, async (request) => {
    const body = parsedBody(countRequest, request.body, MESSAGES_LACKING)
    checkModel(served, body.model)
    const messages = conversationOf(body)
    const form = await served.form()
    return { input_tokens: form.begin(messages, boundOf(body, form).tools).length }
  })
}
