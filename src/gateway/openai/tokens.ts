/**
 * /v1/tokenize and /v1/detokenize, as vLLM has them: texts and conversations as the ids that a session is fed, and ids
 * as text.
 */
import { setImmediate as turn } from 'node:timers/promises'
import type { FastifyInstance } from 'fastify'
import { z } from 'zod'
import type { Tokenizer } from '../../models/tokenizer/index.ts'
import { Refusal } from '../refusal.ts'
import { checkModel, type Served, type Service } from '../service.ts'
import { checkMessages, MOST_MESSAGES, message } from './messages.ts'
import { checkIds, idsOf, PIECE } from './prompt.ts'
import { type Lack, lack, parsedBody, tokenIds } from './schema.ts'

const LACKING: Readonly<Record<string, Lack>> = {
  return_token_strs: lack('/v1/detokenize gives the text of ids.', false),
  add_special_tokens: lack(
    'The ids of a prompt are those that a session reads, which may begin with one that no text has.',
    true,
  ),
}
const CHAT_LACKING: Readonly<Record<string, Lack>> = {
  ...LACKING,
  add_special_tokens: lack('A conversation has the special tokens that its form puts.', false),
  chat_template: lack("A conversation is written by the package's own template."),
  chat_template_kwargs: lack("A conversation is written by the package's own template.", {}),
  tools: lack('The form of a conversation is told of no tools here.', []),
}

const model = z.string().optional()
export const tokenizeRequest = z.strictObject({ model, prompt: z.string() })
export const tokenizeChatRequest = z.strictObject({
  model,
  messages: z.array(message).min(1).max(MOST_MESSAGES),
  add_generation_prompt: z.boolean().default(true),
})
export const detokenizeRequest = z.strictObject({ model, tokens: tokenIds })

/**
 * The text of ids. Rejects with a Refusal (400) for one of more than `most` bytes: a token may have a thousand, and a
 * request a million ids.
 */
const textOf = async (ids: readonly number[], tokenizer: Tokenizer, most: number): Promise<string> => {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  let text = ''
  let length = 0
  for (let at = 0; at < ids.length; at += PIECE) {
    const bytes = Buffer.concat(ids.slice(at, at + PIECE).map((id) => tokenizer.bytesOf(id)))
    length += bytes.length
    if (length > most)
      throw new Refusal(
        400,
        `The text of these ids has more than ${most} bytes, as many as a request may have. Send fewer ids at a time.`,
        { param: 'tokens' },
      )
    text += decoder.decode(bytes, { stream: true })
    await turn()
  }
  return text + decoder.decode()
}

/** Throws a Refusal (400) for a model without a tokenizer. */
const tokenizerOf = ({ tokenizer }: Served): Tokenizer => {
  if (tokenizer !== null) return tokenizer
  throw new Refusal(
    400,
    'This model has no tokenizer and reads token ids only, so no text belongs to its ids. Send ids as the prompt of /v1/completions.',
  )
}

/** `null` means absent. */
const hasMessages = (body: unknown): boolean =>
  (body as { readonly messages?: unknown } | null | undefined)?.messages != null

export const tokenRoutes = (app: FastifyInstance, { served, limits }: Pick<Service, 'served' | 'limits'>): void => {
  const idsOfBody = async (body: unknown): Promise<ArrayLike<number>> => {
    if (hasMessages(body)) {
      const {
        model: asked,
        messages,
        add_generation_prompt: opens,
      } = parsedBody(tokenizeChatRequest, body, CHAT_LACKING)
      checkModel(served, asked ?? served.id)
      tokenizerOf(served)
      checkMessages(messages, 'messages')
      const form = await served.form()
      return opens ? form.begin(messages) : form.alone(messages)
    }
    const { model: asked, prompt } = parsedBody(tokenizeRequest, body, LACKING)
    checkModel(served, asked ?? served.id)
    const tokenizer = tokenizerOf(served)
    if (!prompt.isWellFormed())
      throw new Refusal(400, 'The prompt has half a surrogate pair; it is to be text in Unicode.', { param: 'prompt' })
    return idsOf(prompt, tokenizer)
  }

  app.post('/v1/tokenize', async (request) => {
    const ids = await idsOfBody(request.body)
    return { count: ids.length, max_model_len: served.positions, tokens: Array.from(ids) }
  })

  app.post('/v1/detokenize', async (request) => {
    const { model: asked, tokens } = parsedBody(detokenizeRequest, request.body, {})
    checkModel(served, asked ?? served.id)
    const tokenizer = tokenizerOf(served)
    checkIds(tokens, served, 'tokens')
    return { prompt: await textOf(tokens, tokenizer, limits.body) }
  })
}
