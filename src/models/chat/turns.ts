/**
 * A rendered conversation as ids. The template's own special tokens are ids; the same letters inside a message are
 * text, so that no message can end its turn or begin another's. A mark before each such place in a message says so; it
 * is a noncharacter of Unicode that stands nowhere else in the conversation, and no text that is encoded has it.
 */
import type { Turns } from '../tokenizer/types.ts'

/** Noncharacters (Unicode 15, section 23.7): for use inside a program, never in text that is exchanged. */
const NONCHARACTERS = Array.from({ length: 32 }, (_, at) => String.fromCharCode(0xfdd0 + at))

/** `count` noncharacters that stand in none of the texts. */
export const freeMarks = (count: number, texts: readonly string[]): readonly string[] =>
  NONCHARACTERS.filter((mark) => !texts.some((text) => text.includes(mark))).slice(0, count)

const escaped = (text: string): string => text.replace(/[\\^$.*+?()[\]{}|/]/g, '\\$&')

/** Any of the contents, the longest at each place; null: there are none. */
const anyOf = (contents: Iterable<string>): string | null => {
  const sorted = [...contents].sort((a, b) => b.length - a.length)
  return sorted.length === 0 ? null : sorted.map(escaped).join('|')
}

export interface TurnWriter {
  /** A message in which the letters of special tokens are only text. */
  guarded(content: string, mark: string): string
  /** The ids of a rendering, whose marks are left out. `goesOn`: text of the same context stands before it. */
  ids(rendered: string, mark: string, goesOn: boolean): Int32Array
}

export const turnWriter = ({ special, encode }: Turns): TurnWriter => {
  const any = anyOf(special.keys())
  // Places that overlap are all marked: the lookahead takes no characters.
  const places = any === null ? null : new RegExp(`(?=${any})`, 'gu')
  return {
    guarded(content, mark) {
      return places === null ? content : content.replace(places, mark)
    },
    ids(rendered, mark, goesOn) {
      const ids: number[] = []
      let after: 'nothing' | 'text' | 'token' = goesOn ? 'text' : 'nothing'
      const text = (piece: string): void => {
        const plain = piece.replaceAll(mark, '')
        if (plain === '') return
        for (const id of encode(plain, after)) ids.push(id)
        after = 'text'
      }
      let from = 0
      if (any !== null) {
        for (const { 0: content, index } of rendered.matchAll(new RegExp(`(?<!${mark})(?:${any})`, 'gu'))) {
          text(rendered.slice(from, index))
          ids.push(special.get(content)!)
          after = 'token'
          from = index + content.length
        }
      }
      text(rendered.slice(from))
      return Int32Array.from(ids)
    },
  }
}
