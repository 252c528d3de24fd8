/** An answer as clients see it: text without the stop text that ended it, tokens with their logarithms, and why it ended. */
import type { Generated } from '../../topics/tokens.ts'
import type { Tokenizer } from '../models/tokenizer/index.ts'

export interface Scored {
  readonly bytes: Uint8Array
  /** As text; `bytes:\xNN…` where the bytes are no text of their own. */
  readonly text: string
  readonly logprob: number
}

export interface ScoredToken extends Scored {
  /** The likeliest tokens in its place; missing where the request did not ask. */
  readonly top?: readonly Scored[]
}

export interface Piece {
  /** Text that is certain by now. */
  readonly text: string
  readonly tokens: readonly ScoredToken[]
  readonly finish: 'stop' | 'length' | 'cancelled' | null
}

const strict = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })

const shown = (bytes: Uint8Array): string => {
  try {
    return strict.decode(bytes)
  } catch {
    return `bytes:${[...bytes].map((byte) => `\\x${byte.toString(16).padStart(2, '0')}`).join('')}`
  }
}

/** `length` tells a client that the answer is not whole. */
const FINISHES = {
  length: 'length',
  context: 'length',
  blocked: 'length',
  stop: 'stop',
  eos: 'stop',
  grammar: 'stop',
  stopped: 'stop',
  cancelled: 'cancelled',
} as const

/** As chats and responses have it. */
export const tokenLogprob = ({ text, bytes, logprob }: Scored) => ({ token: text, logprob, bytes: [...bytes] })

export interface Answer {
  /** Takes the runs of one request in their order. */
  push(run: Generated): Piece
  readonly completionTokens: number
}

/** The topic's text has the stop text at its end; what may yet become one is held back until that is known. */
export const openAnswer = (stops: readonly string[], tokenizer: Pick<Tokenizer, 'bytesOf'> | null): Answer => {
  let held = ''
  let completionTokens = 0
  const longest = [...stops].sort((a, b) => b.length - a.length)
  const scored = (id: number, logprob: number): Scored => {
    const bytes = tokenizer?.bytesOf(id) ?? new Uint8Array(0)
    return { bytes, text: shown(bytes), logprob }
  }
  const certain = (): string => {
    let keep = 0
    for (const stop of stops)
      for (let length = Math.min(stop.length, held.length); length > keep; length -= 1)
        if (held.endsWith(stop.slice(0, length))) keep = length
    const text = held.slice(0, held.length - keep)
    held = held.slice(held.length - keep)
    return text
  }
  return {
    push({ ids, logprobs, topLogprobs, text, finish }) {
      completionTokens += ids.length
      held += text
      const tokens = ids.map((id, at) => {
        const top = topLogprobs?.[at]?.map((other) => scored(other.id, other.logprob))
        return { ...scored(id, logprobs[at]!), ...(top && { top }) }
      })
      if (finish === null) return { text: certain(), tokens, finish: null }
      const ended = finish === 'stop' ? longest.find((stop) => held.endsWith(stop)) : undefined
      return { text: ended === undefined ? held : held.slice(0, -ended.length), tokens, finish: FINISHES[finish] }
    },
    get completionTokens() {
      return completionTokens
    },
  }
}
