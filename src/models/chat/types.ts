/** A conversation as text: what stands before each answer of the model. */

/** The longest source of a chat template, in UTF-16 units; published ones have up to 20,000. */
export const MOST_TEMPLATE = 1 << 16

export interface Message {
  readonly role: 'system' | 'user' | 'assistant'
  readonly content: string
  /** Who speaks, for templates that show it. */
  readonly name?: string
  /** What the model thought before an earlier answer, for templates that show it. */
  readonly reasoning_content?: string
}

/** The message with each of its texts replaced. */
export const withTexts = (message: Message, replaced: (text: string) => string): Message => {
  const { role, content, name, reasoning_content } = message
  return {
    ...{ role, content: replaced(content) },
    ...(name !== undefined && { name: replaced(name) }),
    ...(reasoning_content !== undefined && { reasoning_content: replaced(reasoning_content) }),
  }
}
/** All of them. */
export const textsOf = ({ content, name = '', reasoning_content = '' }: Message): readonly string[] => [
  content,
  name,
  reasoning_content,
]

/** How a conversation begins. */
export interface ChatOptions {
  /** The first message, with the role `system`; default: none. */
  readonly system?: string | undefined
  /** Whether a model that can think before it answers shall; default: what its template does by itself. */
  readonly thinking?: boolean | undefined
  /** The day that a template may ask for, as YYYY-MM-DD; without it such a template is refused. */
  readonly date?: string | undefined
}

/** The tokens of one turn. */
export interface Asked {
  /** What is fed before the answer: the rest of the turn before, and the message. */
  readonly ids: Int32Array
  /** The session holds what a rendering of the whole conversation has; false: earlier turns would be rendered otherwise by now. */
  readonly exact: boolean
}

/** One conversation; `ask` and `answered` take turns. */
export interface Chat {
  /** Texts that end an answer, beside the model's ends of text; they are fed, but are no part of the answer. */
  readonly stops: readonly string[]
  /** Throws INVALID where the message cannot be rendered; the conversation stands as before then. */
  ask(content: string): Asked
  /** The answer without the stop text that ended it, if one did. */
  answered(text: string, stop: string | null): void
}
