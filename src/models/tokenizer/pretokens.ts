/**
 * Text to pre-tokens, as far as no continuation can change them.
 *
 * Stages split one after the other: each looks for its pattern from left to right in the pieces of the one before. A
 * piece is given out when every stage has found its two ends without looking beyond the known text (regex.ts): more
 * text cannot change it. The rest is held. Taking up the work at such a place is sound because no pattern looks behind:
 * in a stretch without a match every earlier place was tried and failed, for reasons that later text does not touch.
 *
 * A piece undecided after MOST_HELD units is what it would be if the text ended there. A stretch is therefore looked at
 * through windows of that length from its first undecided place; a decision that did not reach the window's end would
 * be the same in any later window.
 *
 * A pattern can be made to look at whole windows for the sake of single characters. How many full windows a text may
 * take is therefore bounded by its length, and a text that takes more is refused.
 */
import { ContinuoError } from '../../errors.ts'
import { MOST_HELD, WINDOWS, wholeAt } from './limits.ts'
import type { Pattern } from './regex.ts'

export interface Stage {
  readonly pattern: Pattern
  /** What lies between matches is a piece too; otherwise it is dropped. */
  readonly keepRest: boolean
}

type Give = (from: number, to: number) => void

/**
 * Gives out the decided pieces of text[from, to) and returns where the undecided begins. `open`: the text may go on.
 */
const scan = (
  stages: readonly Stage[],
  depth: number,
  text: string,
  from: number,
  to: number,
  open: boolean,
  give: Give,
): number => {
  const stage = stages[depth]
  if (stage === undefined) {
    if (open || from === to) return from
    give(from, to)
    return to
  }
  const { pattern, keepRest } = stage
  let rest = from
  let at = from
  while (at < to) {
    const end = pattern.match(text, at, to, open)
    if (open && pattern.hitEnd) return keepRest ? scan(stages, depth + 1, text, rest, at, true, give) : at
    if (end < 0) {
      at += text.codePointAt(at)! > 0xffff ? 2 : 1
      continue
    }
    if (keepRest) scan(stages, depth + 1, text, rest, at, false, give)
    scan(stages, depth + 1, text, at, end, false, give)
    at = end
    rest = end
  }
  return keepRest ? scan(stages, depth + 1, text, rest, to, open, give) : to
}

/**
 * Gives out the decided pieces and returns where the undecided begins; all of them where the text has `ended`. Throws
 * INVALID for a text that takes too many windows; pieces may have been given out then.
 */
export const split = (
  stages: readonly Stage[],
  text: string,
  ended: boolean,
  give: (piece: string) => void,
): number => {
  const giveOut: Give = (from, to) => give(text.slice(from, to))
  const most = WINDOWS.most + Math.floor(text.length / WINDOWS.units)
  let windows = 0
  let at = 0
  while (at < text.length) {
    const full = text.length - at >= MOST_HELD
    if (full) windows += 1
    if (windows > most)
      throw new ContinuoError(
        'INVALID',
        `The patterns of tokenizer.json look at ${MOST_HELD} characters again and again to split this text: more than ${most} times in ${text.length} characters. Send the text in smaller pieces, or use a tokenizer whose patterns do not look so far ahead.`,
      )
    const window = wholeAt(text, Math.min(text.length, at + MOST_HELD))
    const open = !(ended && window === text.length)
    const reached = scan(stages, 0, text, at, window, open, giveOut)
    if (reached > at) {
      at = reached
      continue
    }
    if (!full) return at
    // Undecided although the window is full: it is closed, and its first piece is the piece.
    const pieces: (readonly [from: number, to: number])[] = []
    scan(stages, 0, text, at, window, false, (from, to) => pieces.push([from, to]))
    const [first] = pieces
    if (first !== undefined) giveOut(...first)
    at = first?.[1] ?? window
  }
  return at
}

/** All pieces of a whole piece. */
export const splitWhole = (stages: readonly Stage[], text: string): string[] => {
  const pieces: string[] = []
  scan(stages, 0, text, 0, text.length, false, (from, to) => pieces.push(text.slice(from, to)))
  return pieces
}
