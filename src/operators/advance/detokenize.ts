/**
 * detokenize: generated tokens become text as it becomes certain, and end where a stop string ends.
 *
 * A stop string is looked for in the bytes of a request, across tokens; where several end in one token, the one that
 * ends first counts. It may end inside a token: that token was generated and fed, so its id stands; the text ends with
 * the stop string.
 */
import type { GenerationState } from '../../../topics/state.ts'
import { decodeUtf8 } from './utf8.ts'

/** State of the text that is carried from one run of a request to the next. */
export type TextState = Pick<GenerationState, 'unfinished' | 'tail'>

export const NO_TEXT: TextState = { unfinished: '', tail: '' }

export interface Detokenizer {
  /** Stop strings for the engine, and the bytes before this run, so that the request ends where the text does. */
  readonly sought: { readonly strings: readonly Uint8Array[]; readonly tail: Uint8Array }
  /** The bytes of the next token. Returns whether a stop string ended in them; nothing may follow then. */
  push(bytes: Uint8Array): boolean
  /** The text that became certain in this run, and the state for the next run. */
  end(): { readonly text: string; readonly state: TextState }
}

/**
 * How many of the new bytes belong to the text: up to the end of the stop string that ends first; −1: none ends here.
 */
const stopIn = (tail: Uint8Array, bytes: Uint8Array, stops: readonly Uint8Array[]): number => {
  const all = Buffer.concat([tail, bytes])
  let first = -1
  for (const stop of stops) {
    // One that ended before would have stopped the request there.
    const at = all.indexOf(stop, Math.max(0, tail.length - stop.length + 1))
    const end = at + stop.length - tail.length
    if (at >= 0 && (first < 0 || end < first)) first = end
  }
  return first
}

export const createDetokenizer = (state: TextState, stopStrings: readonly string[]): Detokenizer => {
  const stops = stopStrings.map((stop) => Buffer.from(stop, 'utf8'))
  const keep = Math.max(0, ...stops.map(({ length }) => length))
  const fresh: Uint8Array[] = []
  let tail: Uint8Array = Buffer.from(state.tail, 'base64')
  return {
    sought: { strings: stops, tail },
    push(bytes) {
      const stop = stopIn(tail, bytes, stops)
      const read = stop < 0 ? bytes : bytes.subarray(0, stop)
      fresh.push(read)
      const grown = Buffer.concat([tail, read])
      tail = grown.subarray(Math.max(0, grown.length - keep))
      return stop >= 0
    },
    end() {
      const { text, unfinished } = decodeUtf8(Buffer.from(state.unfinished, 'base64'), Buffer.concat(fresh))
      const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString('base64')
      return { text, state: { unfinished: base64(unfinished), tail: base64(tail) } }
    },
  }
}
