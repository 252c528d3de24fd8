/** /v1/models, /v1/completions and /v1/chat/completions, as OpenAI's clients ask for them. */
import { randomUUID } from 'node:crypto'
import type { FastifyInstance } from 'fastify'
import type { ChunkInput } from '../../topics/chunks.ts'
import { textEvents } from '../client/chunks.ts'
import { CHUNK_BYTES } from '../client/feed.ts'
import type { Piece, ScoredToken } from './answer.ts'
import { type Answering, answer, type Job, type Shape, type Usage } from './openai-answer.ts'
import {
  type ChatRequest,
  type CompletionRequest,
  chatRequest,
  checkLogprobs,
  completionRequest,
  parsedBody,
  sessionOfUser,
} from './openai-schema.ts'
import { Refusal } from './refusal.ts'
import type { Served } from './service.ts'

/** As OpenAI has them where a request says nothing; a conversation has no number there. */
const MAX_TOKENS = { completion: 16, chat: 1024 }
/** Ids of one event. */
const MOST_IDS = 65_536

const idEvents = (ids: ArrayLike<number>): ChunkInput[] => {
  const events: ChunkInput[] = []
  for (let at = 0; at < ids.length; at += MOST_IDS)
    events.push({
      type: 'tokens',
      tokens: Array.from({ length: Math.min(MOST_IDS, ids.length - at) }, (_, i) => ids[at + i]!),
    })
  return events
}

const events = async (text: string): Promise<ChunkInput[]> => {
  async function* source(): AsyncGenerator<Uint8Array> {
    yield Buffer.from(text)
  }
  const pieces: ChunkInput[] = []
  if (text !== '')
    for await (const piece of textEvents(source(), CHUNK_BYTES)) if (piece !== null) pieces.push(piece.event)
  return pieces
}

const textOfAll = (pieces: readonly Piece[]): string => pieces.map(({ text }) => text).join('')
const finishOf = (pieces: readonly Piece[]) => pieces.at(-1)?.finish ?? null
const seconds = (): number => Math.floor(Date.now() / 1000)

const completionShape = (model: string, logprobs: boolean): Shape => {
  const about = { id: `cmpl-${randomUUID()}`, object: 'text_completion', created: seconds(), model }
  let offset = 0
  const scored = (tokens: readonly ScoredToken[]) => {
    if (!logprobs) return null
    const offsets = tokens.map(({ text }) => {
      const at = offset
      offset += text.length
      return at
    })
    return {
      tokens: tokens.map(({ text }) => text),
      token_logprobs: tokens.map(({ logprob }) => logprob),
      top_logprobs: null,
      text_offset: offsets,
    }
  }
  const choice = (text: string, tokens: readonly ScoredToken[], finish: Piece['finish']) => ({
    text,
    index: 0,
    logprobs: scored(tokens),
    finish_reason: finish,
  })
  return {
    id: about.id,
    opening: () => null,
    chunk: ({ text, tokens, finish }) => ({ ...about, choices: [choice(text, tokens, finish)] }),
    usageChunk: (usage) => ({ ...about, choices: [], usage }),
    whole: (pieces, usage: Usage) => ({
      ...about,
      choices: [
        choice(
          textOfAll(pieces),
          pieces.flatMap(({ tokens }) => tokens),
          finishOf(pieces),
        ),
      ],
      usage,
    }),
  }
}

const chatShape = (model: string, logprobs: boolean): Shape => {
  const about = { id: `chatcmpl-${randomUUID()}`, created: seconds(), model }
  const scored = (tokens: readonly ScoredToken[]) =>
    logprobs
      ? {
          content: tokens.map(({ text, bytes, logprob }) => ({
            token: text,
            logprob,
            bytes: [...bytes],
            top_logprobs: [],
          })),
          refusal: null,
        }
      : null
  const chunk = (delta: object, tokens: readonly ScoredToken[] | null, finish: Piece['finish']) => ({
    ...about,
    object: 'chat.completion.chunk',
    choices: [{ index: 0, delta, logprobs: tokens === null ? null : scored(tokens), finish_reason: finish }],
  })
  return {
    id: about.id,
    opening: () => chunk({ role: 'assistant', content: '' }, null, null),
    chunk: ({ text, tokens, finish }) => chunk(text === '' && finish !== null ? {} : { content: text }, tokens, finish),
    usageChunk: (usage) => ({ ...about, object: 'chat.completion.chunk', choices: [], usage }),
    whole: (pieces, usage) => ({
      ...about,
      object: 'chat.completion',
      choices: [
        {
          index: 0,
          message: { role: 'assistant', content: textOfAll(pieces), refusal: null },
          logprobs: scored(pieces.flatMap(({ tokens }) => tokens)),
          finish_reason: finishOf(pieces),
        },
      ],
      usage,
    }),
  }
}

const common = (body: CompletionRequest | ChatRequest) => ({
  model: body.model,
  session: sessionOfUser(body.user),
  stop: body.stop,
  temperature: body.temperature,
  topK: body.top_k,
  topP: body.top_p,
  seed: body.seed,
  stream: body.stream,
  includeUsage: body.stream_options?.include_usage ?? false,
})

const checkIds = (ids: readonly number[], { vocabSize }: Served): void => {
  const wrong = ids.find((id) => id >= vocabSize)
  if (wrong !== undefined)
    throw new Refusal(400, `Token ids go from 0 to ${vocabSize - 1} for this model; ${wrong} is none.`, {
      param: 'prompt',
    })
}

/** The prompt as events. A text is cut into tokens by the worker, which counts them. */
const promptOf = async (
  { prompt }: CompletionRequest,
  served: Served,
): Promise<{ events: ChunkInput[]; tokens: number | null }> => {
  const one =
    typeof prompt === 'string'
      ? prompt
      : typeof prompt[0] === 'object' || typeof prompt[0] === 'string'
        ? prompt[0]
        : prompt
  if (typeof one !== 'string') {
    const ids = one as readonly number[]
    checkIds(ids, served)
    return { events: idEvents(ids), tokens: ids.length }
  }
  const { tokenizer } = served
  if (one === '') return { events: [], tokens: 0 }
  if (tokenizer === null)
    throw new Refusal(
      400,
      'This model has no tokenizer and reads token ids only. Send the prompt as an array of ids.',
      { param: 'prompt' },
    )
  if (!one.isWellFormed())
    throw new Refusal(400, 'The prompt has half a surrogate pair; it is to be text in Unicode.', { param: 'prompt' })
  return { events: await events(one), tokens: null }
}

const checkMessages = ({ messages }: ChatRequest): void => {
  const last = messages.at(-1)!
  if (last.role !== 'user')
    throw new Refusal(
      400,
      `The last message is the one that is answered: its role is "user", this one's "${last.role}".`,
      { param: 'messages' },
    )
  const odd = messages.findIndex(({ content }) => !content.isWellFormed())
  if (odd >= 0)
    throw new Refusal(400, 'The message has half a surrogate pair; it is to be text in Unicode.', {
      param: `messages.${odd}.content`,
    })
}

export const openaiRoutes = (app: FastifyInstance, answering: Answering, created: number): void => {
  const { served, limits } = answering.service
  const card = { id: served.id, object: 'model', created, owned_by: 'continuo' }
  app.get('/v1/models', async () => ({ object: 'list', data: [card] }))
  app.get('/v1/models/*', async (request) => {
    const { '*': id } = request.params as { readonly '*': string }
    if (id === served.id) return card
    throw new Refusal(404, `The model "${id.slice(0, 200)}" is not served here; "${served.id}" is.`, {
      code: 'model_not_found',
      param: 'model',
    })
  })

  app.post('/v1/completions', async (request, reply) => {
    const body = parsedBody(completionRequest, request.body)
    checkLogprobs(body.logprobs ?? 0, 'logprobs')
    const prompt = await promptOf(body, served)
    const job: Job = {
      ...common(body),
      prompt: () => prompt,
      formStops: [],
      maxTokens: body.max_tokens ?? MAX_TOKENS.completion,
      shape: completionShape(served.id, body.logprobs !== undefined),
    }
    return answer(request, reply, job, answering)
  })

  app.post('/v1/chat/completions', async (request, reply) => {
    const body = parsedBody(chatRequest, request.body)
    checkLogprobs(body.top_logprobs, 'top_logprobs')
    checkMessages(body)
    const form = await served.form()
    const job: Job = {
      ...common(body),
      prompt({ fresh, stopped }) {
        const ids = fresh ? form.begin(body.messages) : form.goOn(body.messages, stopped)
        return { events: idEvents(ids), tokens: ids.length }
      },
      formStops: form.stops,
      maxTokens: body.max_completion_tokens ?? body.max_tokens ?? Math.min(MAX_TOKENS.chat, limits.tokens),
      shape: chatShape(served.id, body.logprobs),
    }
    return answer(request, reply, job, answering)
  })
}
