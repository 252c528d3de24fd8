/** One turn of a conversation on a session of a SessionManager: the message is fed, and the answer generated. */
import type { Chat } from '../models/chat/index.ts'
import type { SessionManager } from './manager.ts'
import type { GenerateOptions, Generation, SessionHandle } from './types.ts'

/** One turn of a conversation. */
export interface Turn {
  /** The answer, without the text that ended it where that belongs to the form of the conversation. */
  readonly text: string
  /** The answer as it was generated: ids, logarithms, why it ended. */
  readonly generation: Generation
  /** Tokens that were fed before the answer. */
  readonly fed: number
  /** See `Asked.exact`. */
  readonly exact: boolean
}

/** Gives out text as far as no stop text begins in it. */
const untilStop = (stops: readonly string[], give: (text: string) => void) => {
  let held = ''
  return {
    push(text: string): void {
      held += text
      let keep = 0
      for (const stop of stops)
        for (let length = Math.min(stop.length, held.length); length > keep; length -= 1)
          if (held.endsWith(stop.slice(0, length))) keep = length
      if (held.length > keep) give(held.slice(0, held.length - keep))
      held = held.slice(held.length - keep)
    },
    /** What is held is the stop text itself, or none after all. */
    end(stopped: boolean): void {
      if (!stopped && held !== '') give(held)
    },
  }
}

/**
 * Feeds what stands before the answer to `content`, and generates the answer. `onText` gets the answer's text as it
 * comes. Rejects as `process` and `generate` do; the conversation cannot go on then.
 */
export const chatTurn = async (
  manager: SessionManager,
  session: SessionHandle,
  chat: Chat,
  content: string,
  options: Omit<GenerateOptions, 'onTokens'> & { readonly onText?: (text: string) => void },
): Promise<Turn> => {
  const { onText = () => {}, stop = [], ...rest } = options
  const { ids, exact } = chat.ask(content)
  await manager.process(session, ids)
  const shown = untilStop(chat.stops, onText)
  const generation = await manager.generate(session, {
    ...rest,
    stop: [...chat.stops, ...stop],
    onTokens: ({ text }) => shown.push(text),
  })
  const ended = generation.finish === 'stop' ? chat.stops.find((text) => generation.text.endsWith(text)) : undefined
  shown.end(ended !== undefined)
  const text = ended === undefined ? generation.text : generation.text.slice(0, -ended.length)
  chat.answered(text, ended ?? null)
  return { text, generation, fed: ids.length, exact }
}
