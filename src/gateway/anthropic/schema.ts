/**
 * Schemas of the requests that Anthropic's clients send. As with OpenAI's, a parameter that the engine does not have is
 * refused with a sentence, unless its value has no effect; nothing is ignored.
 */
import { z } from 'zod'
import { generate } from '../../../topics/chunks.ts'
import { drawingSchema, type Lack, lack } from '../openai/schema.ts'
import { cache_control, texts } from './forms.ts'
import { messages } from './messages.ts'
import { messageTools } from './tools.ts'

/**
 * The protocol's word for a conversation that the server shall keep: clients that read it send the whole one instead.
 */
export const NO_THREAD = 'thread_unsupported_request'

/** Parameters of the protocol that cannot be had, and values of them that ask for nothing. */
export const MESSAGES_LACKING: Readonly<Record<string, Lack>> = {
  mcp_servers: lack('No server of tools is asked here. The client calls: declare its tools as "tools".', []),
  container: lack('Nothing is run here. The client calls: declare its tools as "tools".'),
  thinking: lack('The effort of a model cannot be set.', { type: 'disabled' }),
  context_management: lack('A context is never cut.', {}),
  thread: {
    ...lack('Send the whole conversation with each request, or name a session by the header x-session.'),
    code: NO_THREAD,
  },
  service_tier: lack('There is one tier.', 'auto', 'standard_only'),
  speed: lack('There is one speed.', 'standard'),
  inference_geo: lack('The model runs where the workers of this log do.'),
  diagnostics: lack('There is no cache of prompts to tell of; name a session by the header x-session.'),
}

const format = z.strictObject({ type: z.literal('json_schema'), schema: z.unknown() })

const tokens = z.int().min(1)
const { temperature, top_p, top_k } = drawingSchema.shape

const asked = {
  model: z.string(),
  messages,
  system: texts.optional(),
  stop_sequences: generate.shape.stop,
  ...{ temperature, top_p, top_k },
  stream: z.boolean().default(false),
  output_config: z
    .strictObject({
      format: format.nullish(),
      effort: z.null('expected null: the effort of a model cannot be set').optional(),
    })
    .optional(),
  ...messageTools,
  metadata: z.strictObject({ user_id: z.string().nullish() }).optional(),
  cache_control,
}
export const messagesRequest = z.strictObject({ ...asked, max_tokens: tokens })
export type MessagesRequest = z.output<typeof messagesRequest>

/** The same request, of which nothing is answered. */
export const countRequest = z.strictObject({ ...asked, max_tokens: tokens.optional() })
