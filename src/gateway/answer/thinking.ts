/** Whether a model thinks before its answer, as requests ask for it. */
import { z } from 'zod'
import type { Grammar } from '../../../topics/chunks.ts'
import type { ChatForm } from '../../models/chat/index.ts'
import { Refusal } from '../refusal.ts'

/** As members of a request: not OpenAI's, by the names that other servers of the protocol have. */
export const thinkingMembers = {
  enable_thinking: z.boolean().optional(),
  chat_template_kwargs: z.strictObject({ enable_thinking: z.boolean().nullish() }).optional(),
}
type Asked = z.output<z.ZodObject<typeof thinkingMembers>>

const refuse = (message: string): never => {
  throw new Refusal(400, message, { param: 'enable_thinking' })
}

export interface Thinking {
  /** What the form of the conversation is told; undefined: what it does by itself. */
  readonly thinking: boolean | undefined
  /** Thoughts may stand before the answer. */
  readonly reads: boolean
}

/** What binds an answer. */
export interface Bound {
  readonly grammar: Grammar | undefined
  /** The client wrote the grammar itself. */
  readonly own: boolean
}

/** Whether a model thinks, and may. Throws a Refusal (400) for what cannot be had. */
export const thinkingOf = (
  { enable_thinking: own, chat_template_kwargs: given }: Asked,
  { thinks }: Pick<ChatForm, 'thinks'>,
  bound: Bound,
): Thinking => {
  const named = given?.enable_thinking ?? undefined
  if (own !== undefined && named !== undefined && own !== named)
    return refuse(
      '"enable_thinking" and "chat_template_kwargs.enable_thinking" say different things. Give one of them.',
    )
  const asked = own ?? named
  if (asked === true && thinks === 'never')
    return refuse('This model is not known to think before it answers. Leave "enable_thinking" out.')
  if (thinks === 'never') return { thinking: undefined, reads: false }
  // A text may stand before calls, and thoughts before the text.
  const { grammar } = bound
  const whole = grammar !== undefined && !(grammar.type === 'calls' && grammar.text)
  if (!whole || (asked === true && bound.own))
    return { thinking: asked, reads: thinks === 'ever' || asked !== undefined }
  if (asked === true)
    return refuse('A bound answer has no thoughts before it. Leave "enable_thinking" out, or what binds the answer.')
  return { thinking: thinks === 'ever' ? false : undefined, reads: false }
}
