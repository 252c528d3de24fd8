/**
 * An answer as clients see it: text without the stop text that ended it, tokens with their logarithms, and why it
 * ended.
 */
import type { Generated } from '../../../topics/tokens.ts'
import { type CallForm, type CallPiece, readCalls } from '../../models/chat/calls.ts'
import { readThoughts, type Start } from '../../models/chat/thoughts.ts'
import type { Tokenizer } from '../../models/tokenizer/index.ts'

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
  /** What was thought before the text; missing where nothing was. */
  readonly thought?: string
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

/** Counts the tokens of thoughts by their bytes, for a run may have some of thoughts and some of text. */
const countThoughts = (start: Start, tokenizer: Pick<Tokenizer, 'bytesOf'> | null) => {
  const thoughts = readThoughts(start)
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  let tokens = 0
  /** Those of which it is not known yet. */
  let open = 0
  return {
    push(ids: readonly number[]): void {
      for (const id of ids) {
        const before = thoughts.thinks()
        thoughts.push(decoder.decode(tokenizer?.bytesOf(id), { stream: true }))
        if (before === true) tokens += 1
        else if (before === null) {
          open += 1
          if (thoughts.thinks() === true) tokens += open
        }
      }
    },
    get tokens() {
      return tokens
    },
  }
}

/** A token with its bytes and text. */
export const scoredBy =
  (tokenizer: Pick<Tokenizer, 'bytesOf'> | null) =>
  (id: number, logprob: number): Scored => {
    const bytes = tokenizer?.bytesOf(id) ?? new Uint8Array(0)
    return { bytes, text: shown(bytes), logprob }
  }

export interface Answer {
  /** Takes the runs of one request in their order. */
  push(run: Generated): Piece
  readonly completionTokens: number
  /** How many of them are thoughts, with the tags around them; null: the answer can have none. */
  readonly thoughtTokens: number | null
}

/**
 * The topic's text has the stop text at its end; what may yet become one is held back until that is known. `form`: the
 * answer may have calls in this form. `start`: where it begins.
 */
export const openAnswer = (
  stops: readonly string[],
  tokenizer: Pick<Tokenizer, 'bytesOf'> | null,
  form: CallForm | null = null,
  start: Start = 'plain',
): Answer => {
  const reader = form === null ? null : readCalls(form)
  const thoughts = start === 'plain' ? null : readThoughts(start)
  const counted = start === 'plain' ? null : countThoughts(start, tokenizer)
  let called = false
  let held = ''
  let completionTokens = 0
  const longest = [...stops].sort((a, b) => b.length - a.length)
  const scored = scoredBy(tokenizer)
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
  /** Thoughts and text of what stands before calls. `over`: nothing of it follows. */
  const told = (said: string, over: boolean): { readonly text: string; readonly thought?: string } => {
    if (thoughts === null) return { text: said }
    const pushed = thoughts.push(said)
    const rest = over ? thoughts.end() : { thought: '', text: '' }
    const thought = `${pushed.thought}${rest.thought}`
    return { text: `${pushed.text}${rest.text}`, ...(thought !== '' && { thought }) }
  }
  return {
    push({ ids, logprobs, topLogprobs, text, finish }) {
      completionTokens += ids.length
      counted?.push(ids)
      held += text
      const tokens = ids.map((id, at) => {
        const top = topLogprobs?.[at]?.map((other) => scored(other.id, other.logprob))
        return { ...scored(id, logprobs[at]!), ...(top && { top }) }
      })
      if (finish === null) {
        const piece = read(certain())
        return { ...told(piece.text, piece.calls.length > 0), calls: piece.calls, tokens, finish: null }
      }
      const ended = finish === 'stop' ? longest.find((stop) => held.endsWith(stop)) : undefined
      const last = read(ended === undefined ? held : held.slice(0, -ended.length))
      const why = FINISHES[finish]
      const rest = { ...told(`${last.text}${reader?.end() ?? ''}`, true), calls: last.calls }
      const ending = {
        finish: why === 'stop' && called && reader?.isInside === false ? 'calls' : why,
        ...(ended !== undefined && { stop: ended }),
      } as const
      return { ...rest, tokens, ...ending }
    },
    get completionTokens() {
      return completionTokens
    },
    get thoughtTokens() {
      return counted?.tokens ?? null
    },
  }
}

/** The id of a call, for ever: that of its answer, and its place there. */
export const callId = (answer: string, index: number): string => `call_${answer.replace(/^[a-z]+[-_]/, '')}_${index}`

export interface WholeCall {
  readonly index: number
  readonly name: string
  json: string
}

/** Adds a piece of a call to the calls of its answer. */
export const addCall = (whole: WholeCall[], { index, name, json }: Piece['calls'][number]): void => {
  if (name !== undefined) whole.push({ index, name, json })
  else whole[index]!.json += json
}

/** The calls of an answer. */
export const wholeCalls = (pieces: readonly Pick<Piece, 'calls'>[]): readonly WholeCall[] => {
  const whole: WholeCall[] = []
  for (const call of pieces.flatMap(({ calls }) => calls)) addCall(whole, call)
  return whole
}
