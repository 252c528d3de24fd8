/** An answer as clients see it: text without the stop text that ended it, tokens with their logarithms, and why it ended. */
import type { Generated } from '../../topics/tokens.ts'
import { type CallForm, type CallPiece, readCalls } from '../models/chat/calls.ts'
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
  /** Pieces of calls, where the answer may have some. */
  readonly calls: CallPiece['calls']
  /** `calls`: it ended with a call. */
  readonly finish: 'stop' | 'calls' | 'length' | 'cancelled' | null
  /** The stop text that ended the answer; missing where none did. */
  readonly stop?: string
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

/**
 * The topic's text has the stop text at its end; what may yet become one is held back until that is known. `form`: the answer may have calls in
 * this form.
 */
export const openAnswer = (
  stops: readonly string[],
  tokenizer: Pick<Tokenizer, 'bytesOf'> | null,
  form: CallForm | null = null,
): Answer => {
  const reader = form === null ? null : readCalls(form)
  let called = false
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
  const read = (text: string): CallPiece => {
    const piece = reader?.push(text) ?? { text, calls: [] }
    called ||= piece.calls.length > 0
    return piece
  }
  return {
    push({ ids, logprobs, topLogprobs, text, finish }) {
      completionTokens += ids.length
      held += text
      const tokens = ids.map((id, at) => {
        const top = topLogprobs?.[at]?.map((other) => scored(other.id, other.logprob))
        return { ...scored(id, logprobs[at]!), ...(top && { top }) }
      })
      if (finish === null) return { ...read(certain()), tokens, finish: null }
      const ended = finish === 'stop' ? longest.find((stop) => held.endsWith(stop)) : undefined
      const last = read(ended === undefined ? held : held.slice(0, -ended.length))
      const why = FINISHES[finish]
      const rest = { calls: last.calls, text: `${last.text}${reader?.end() ?? ''}` }
      const ending = {
        finish: why === 'stop' && called && reader?.isInside === false ? 'calls' : why,
        ...(ended !== undefined && { stop: ended }),
      } as const
      return { ...rest, tokens, ...ending }
    },
    get completionTokens() {
      return completionTokens
    },
  }
}

/** The id of a call, for ever: that of its answer, and its place there. */
export const callId = (answer: string, index: number): string => `call_${answer.replace(/^[a-z]+[-_]/, '')}_${index}`

/** The calls of an answer. */
export const wholeCalls = (pieces: readonly Pick<Piece, 'calls'>[]) => {
  const whole: { readonly index: number; readonly name: string; json: string }[] = []
  for (const { index, name, json } of pieces.flatMap(({ calls }) => calls)) {
    if (name !== undefined) whole.push({ index, name, json })
    else whole[index]!.json += json
  }
  return whole
}
