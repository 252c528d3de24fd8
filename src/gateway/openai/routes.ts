/** /v1/models, /v1/completions and /v1/chat/completions, as OpenAI's clients ask for them. */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { answer } from '../answer/answer.ts'
import type { Answering, Job, Shape, Usage } from '../answer/job.ts'
import { begunNow } from '../answer/once.ts'
import { callId, type Piece, type ScoredToken, tokenLogprob, wholeCalls } from '../answer/pieces.ts'
import { thinkingOf } from '../answer/thinking.ts'
import { Refusal } from '../refusal.ts'
import { checkModel } from '../service.ts'
import type { ServerEvent } from '../sse.ts'
import { answerChoices } from './choices.ts'
import { answerEchoed, type Echoed, type EchoedToken } from './echo.ts'
import { checkMessages } from './messages.ts'
import { MAX_TOKENS, promptOf, promptOfMessages } from './prompt.ts'
import {
  boundBy,
  type ChatRequest,
  type CompletionRequest,
  chatRequest,
  checkAlternatives,
  completionRequest,
  drawingOf,
  parsedBody,
} from './schema.ts'
import { boundTools } from './tools.ts'

const textOfAll = (pieces: readonly Piece[]): string => pieces.map(({ text }) => text).join('')
/** The protocol has no word of its own for an answer that was cancelled. */
const REASONS = { stop: 'stop', length: 'length', calls: 'tool_calls', cancelled: 'stop' } as const
const reasonOf = (finish: Piece['finish'] | undefined) => (finish == null ? null : REASONS[finish])
/**
 * A token may complete no character: a piece without text says something only where its tokens are listed, or at the
 * end.
 */
const isTold = ({ text, thought, calls, finish }: Piece, { logprobs }: Asked): boolean =>
  text !== '' || thought !== undefined || calls.length > 0 || finish !== null || logprobs !== undefined

const DONE: ServerEvent = { data: '[DONE]' }

interface Asked {
  readonly model: string
  /** How many alternatives; undefined: no logprobs at all. */
  readonly logprobs: number | undefined
  readonly includeUsage: boolean
  /** See `Asking`. */
  readonly nonce: string
  readonly created: number
}

/**
 * By their texts, the likeliest first; the token itself is among them. Where several ids have one text, the likeliest
 * counts.
 */
const likeliest = ({ text, logprob, top = [] }: ScoredToken | EchoedToken): Record<string, number> | null => {
  if (logprob === null) return null
  const all = new Map<string, number>()
  for (const other of [...top, { text, logprob }]) if (!all.has(other.text)) all.set(other.text, other.logprob)
  return Object.fromEntries(all)
}

/** `echoed`: the prompt, where it is given back. */
const completionShape = (asked: Asked, echoed: Echoed = { text: '', tokens: [] }): Shape => {
  const { model, logprobs, includeUsage, nonce, created } = asked
  const about = { id: `cmpl-${nonce}`, object: 'text_completion', created, model }
  /** Whole characters of the answer before a token (code points, as vLLM counts them). */
  let offset = 0
  const characters = new TextDecoder('utf-8', { ignoreBOM: true })
  const scored = (tokens: readonly (ScoredToken | EchoedToken)[]) => {
    if (logprobs === undefined) return null
    const offsets = tokens.map(({ bytes }) => {
      const at = offset
      offset += [...characters.decode(bytes, { stream: true })].length
      return at
    })
    return {
      tokens: tokens.map(({ text }) => text),
      token_logprobs: tokens.map(({ logprob }) => logprob),
      top_logprobs: logprobs === 0 ? null : tokens.map(likeliest),
      text_offset: offsets,
    }
  }
  const choice = (text: string, tokens: readonly (ScoredToken | EchoedToken)[], finish: Piece['finish']) => ({
    text,
    index: 0,
    logprobs: scored(tokens),
    finish_reason: reasonOf(finish),
  })
  return {
    id: about.id,
    opening: () =>
      echoed.text === '' && echoed.tokens.length === 0
        ? []
        : [{ data: { ...about, choices: [choice(echoed.text, echoed.tokens, null)] } }],
    piece: (piece) =>
      isTold(piece, asked) ? [{ data: { ...about, choices: [choice(piece.text, piece.tokens, piece.finish)] } }] : [],
    closing: (usage) => [...(includeUsage ? [{ data: { ...about, choices: [], usage } }] : []), DONE],
    progress: (prompt_progress) => [{ data: { ...about, choices: [], prompt_progress } }],
    whole: (pieces, usage: Usage) => ({
      ...about,
      choices: [
        choice(
          `${echoed.text}${textOfAll(pieces)}`,
          [...echoed.tokens, ...pieces.flatMap(({ tokens }) => tokens)],
          pieces.at(-1)?.finish ?? null,
        ),
      ],
      usage,
    }),
  }
}

const messageOf = (id: string, pieces: readonly Piece[]) => {
  const calls = wholeCalls(pieces).map(({ index, name, json }) => ({
    ...{ id: callId(id, index), type: 'function' },
    function: { name, arguments: json },
  }))
  const text = textOfAll(pieces)
  const thought = pieces.map((piece) => piece.thought ?? '').join('')
  const content = text === '' && calls.length > 0 ? null : text
  return {
    ...{ role: 'assistant', content, refusal: null },
    ...(thought !== '' && { reasoning_content: thought }),
    ...(calls.length > 0 && { tool_calls: calls }),
  }
}

const chatShape = (asked: Asked): Shape => {
  const { model, logprobs, includeUsage, nonce, created } = asked
  const about = { id: `chatcmpl-${nonce}`, created, model }
  const scored = (tokens: readonly ScoredToken[]) =>
    logprobs === undefined
      ? null
      : {
          content: tokens.map(({ top = [], ...token }) => ({
            ...tokenLogprob(token),
            top_logprobs: top.map(tokenLogprob),
          })),
          refusal: null,
        }
  const callDelta = ({ index, name, json }: Piece['calls'][number]) =>
    name === undefined
      ? { index, function: { arguments: json } }
      : { index, id: callId(about.id, index), type: 'function', function: { name, arguments: json } }
  const chunk = (delta: object, tokens: readonly ScoredToken[] | null, finish: Piece['finish']) => ({
    ...about,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, logprobs: tokens === null ? null : scored(tokens), finish_reason: reasonOf(finish) }],
  })
  return {
    id: about.id,
    opening: () => [{ data: chunk({ role: 'assistant', content: '' }, null, null) }],
    piece(piece) {
      const { text, thought, calls, tokens, finish } = piece
      if (!isTold(piece, asked)) return []
      const delta = {
        ...(thought !== undefined && { reasoning_content: thought }),
        ...((text !== '' || (finish === null && calls.length === 0 && thought === undefined)) && { content: text }),
        ...(calls.length > 0 && { tool_calls: calls.map(callDelta) }),
      }
      return [{ data: chunk(delta, tokens, finish) }]
    },
    closing: (usage) => [
      ...(includeUsage ? [{ data: { ...about, object: 'chat.completion.chunk', choices: [], usage } }] : []),
      DONE,
    ],
    progress: (prompt_progress) => [
      { data: { ...about, object: 'chat.completion.chunk', choices: [], prompt_progress } },
    ],
    whole: (pieces, usage) => ({
      ...about,
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          message: messageOf(about.id, pieces),
          logprobs: scored(pieces.flatMap(({ tokens }) => tokens)),
          finish_reason: reasonOf(pieces.at(-1)?.finish),
        },
      ],
      usage,
    }),
  }
}

const common = (body: CompletionRequest | ChatRequest) => ({
  model: body.model,
  session: undefined,
  stop: body.stop,
  drawing: drawingOf(body),
  seed: body.seed,
  stream: body.stream,
  tellsProgress: body.return_progress,
  keepsSession: false,
})

/** Throws a Refusal (400) where nothing tells how far a prompt was read. */
const checkProgress = ({ return_progress: asked, stream, n }: CompletionRequest | ChatRequest, echo = false): void => {
  const why = stream ? (n > 1 ? 'of one answer' : echo ? 'without "echo"' : null) : 'that is a stream'
  if (asked && why !== null)
    throw new Refusal(400, `How far a prompt was read is told in an answer ${why}. Leave "return_progress" out.`, {
      param: 'return_progress',
    })
}

export const openaiRoutes = (app: FastifyInstance, answering: Answering, created: number): void => {
  const { served, limits } = answering.service
  const asked = ({ stream_options: options }: CompletionRequest | ChatRequest) => ({
    model: served.id,
    includeUsage: options?.include_usage ?? false,
  })
  const several = (request: FastifyRequest, reply: FastifyReply, job: Job, count: number) =>
    count === 1 ? answer(request, reply, job, answering) : answerChoices(request, reply, job, count, answering)
  /** The length of a context by the names that vLLM and other servers give it. */
  const length = served.positions === null ? {} : { max_model_len: served.positions, context_length: served.positions }
  const card = { id: served.id, object: 'model', created, owned_by: 'continuo', ...length }
  app.get('/v1/models', async () => ({ object: 'list', data: [card] }))
  app.get('/v1/models/*', async (request) => {
    const { '*': id } = request.params as { readonly '*': string }
    checkModel(served, id)
    return card
  })

  app.post('/v1/completions', async (request, reply) => {
    const body = parsedBody(completionRequest, request.body)
    if (body.max_tokens === 0 && !body.echo)
      throw new Refusal(400, '"max_tokens" cannot be taken: expected at least 1, or "echo": true.', {
        param: 'max_tokens',
      })
    checkProgress(body, body.echo)
    const prompt = await promptOf(body, served)
    const job: Job = {
      ...common(body),
      grammar: boundBy(body, 'response_format'),
      calls: null,
      prompt: () => prompt,
      formStops: [],
      maxTokens: body.max_tokens ?? MAX_TOKENS.completion,
      topLogprobs: body.logprobs ?? 0,
      shape: ({ nonce, created }) => completionShape({ ...asked(body), nonce, created, logprobs: body.logprobs }),
    }
    if (!body.echo) return several(request, reply, job, body.n)
    const shapeOf = (echoed: Echoed) =>
      completionShape({ ...asked(body), ...begunNow(), logprobs: body.logprobs }, echoed)
    return answerEchoed(request, reply, body, job, shapeOf, answering)
  })

  app.post('/v1/chat/completions', async (request, reply) => {
    const body = parsedBody(chatRequest, request.body)
    checkAlternatives(body.top_logprobs, body.logprobs)
    checkProgress(body)
    checkMessages(body.messages, 'messages')
    const form = await served.form()
    const bound = boundBy({ ...body, format: body.response_format }, 'response_format')
    const { tools: told, ...binding } = boundTools(body, form.calls, bound)
    const { thinking, reads } = thinkingOf(body, form, { ...binding, own: body.grammar !== undefined })
    const tools = { ...told, thinking }
    const job: Job = {
      ...common(body),
      ...binding,
      prompt: promptOfMessages(form, body.messages, tools, reads, served.tokenizer),
      formStops: form.stops,
      maxTokens: body.max_completion_tokens ?? body.max_tokens ?? Math.min(MAX_TOKENS.chat, limits.tokens),
      topLogprobs: body.top_logprobs,
      shape: ({ nonce, created }) =>
        chatShape({ ...asked(body), nonce, created, logprobs: body.logprobs ? body.top_logprobs : undefined }),
    }
    return several(request, reply, job, body.n)
  })
}
