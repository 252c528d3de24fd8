/**
 * What is taken of the requests that Anthropic's clients send. As with OpenAI's, what the engine does not have is refused with a sentence, but where its
 * value asks for nothing, and nothing is ignored.
 */
import { z } from 'zod'
import { generate } from '../../topics/chunks.ts'
import type { Message } from '../models/chat/index.ts'
import { checkMessages, MOST_MESSAGES } from './openai-messages.ts'
import { drawingSchema, type Lack, lack } from './openai-schema.ts'
import { Refusal } from './refusal.ts'

const TOOLS = 'No tools are called here: the model gives text.'

/** Parameters of the protocol that cannot be had, and values of them that ask for nothing. */
export const MESSAGES_LACKING: Readonly<Record<string, Lack>> = {
  tools: lack(TOOLS, []),
  tool_choice: lack(TOOLS, { type: 'auto' }, { type: 'none' }),
  mcp_servers: lack(TOOLS, []),
  container: lack(TOOLS),
  thinking: lack('The effort of a model cannot be set.', { type: 'disabled' }),
  context_management: lack('A context is never cut.', {}),
  service_tier: lack('There is one tier.', 'auto', 'standard_only'),
  speed: lack('There is one speed.', 'standard'),
  inference_geo: lack('The model runs where the workers of this log do.'),
  diagnostics: lack('There is no cache of prompts to tell of; name a session by the header x-session.'),
}

/** Of the client's books: sessions are what keeps a context here. */
const cache_control = z.strictObject({ type: z.literal('ephemeral'), ttl: z.string().optional() }).nullish()

const shown = (value: unknown): string => (JSON.stringify(value) ?? 'nothing').slice(0, 64)
const block = z.strictObject({
  type: z.literal('text', {
    error: ({ input }) => `expected "text", received ${shown(input)}: the model reads text alone`,
  }),
  text: z.string(),
  cache_control,
  /** Notes of the maker of an earlier answer. */
  citations: z.array(z.unknown()).nullish(),
})
/** A text, or blocks of it that stand one behind the other. */
const content = z.union([z.string(), z.array(block).transform((blocks) => blocks.map(({ text }) => text).join(''))])

const role = z.enum(['user', 'assistant'], {
  error: ({ input }) =>
    `expected "user" or "assistant", received ${shown(input)}; what the system says is the parameter "system"`,
})
const format = z.strictObject({ type: z.literal('json_schema'), schema: z.unknown() })

const tokens = z.int().min(1)
const { temperature, top_p, top_k } = drawingSchema.shape

const asked = {
  model: z.string(),
  messages: z.array(z.strictObject({ role, content })).min(1).max(MOST_MESSAGES),
  system: content.optional(),
  stop_sequences: generate.shape.stop,
  ...{ temperature, top_p, top_k },
  stream: z.boolean().default(false),
  output_config: z
    .strictObject({
      format: format.nullish(),
      effort: z.null('expected null: the effort of a model cannot be set').optional(),
    })
    .optional(),
  metadata: z.strictObject({ user_id: z.string().nullish() }).optional(),
  cache_control,
}
export const messagesRequest = z.strictObject({ ...asked, max_tokens: tokens })
export type MessagesRequest = z.output<typeof messagesRequest>

/** The same request, of which nothing is answered. */
export const countRequest = z.strictObject({ ...asked, max_tokens: tokens.optional() })

/** A turn is what one role says, in however many messages. */
const turnsOf = (messages: readonly Message[]): readonly Message[] => {
  const turns: Message[] = []
  for (const { role, content } of messages) {
    const last = turns.at(-1)
    if (last?.role === role) turns[turns.length - 1] = { role, content: `${last.content}\n${content}` }
    else turns.push({ role, content })
  }
  return turns
}

/** The conversation of a request. Throws a Refusal (400) that names the place of half a surrogate pair. */
export const conversationOf = ({
  system,
  messages,
}: Pick<MessagesRequest, 'system' | 'messages'>): readonly Message[] => {
  if (system?.isWellFormed() === false)
    throw new Refusal(400, 'The system prompt has half a surrogate pair; it is to be text in Unicode.', {
      param: 'system',
    })
  checkMessages(messages, 'messages')
  return [...(system === undefined ? [] : [{ role: 'system' as const, content: system }]), ...turnsOf(messages)]
}
