/**
 * Patterns of pre-tokenizers, matched so that one can tell whether more text could change the answer, in time that
 * grows with the text and not with its square or worse.
 *
 * What is found is what a backtracking matcher finds: alternatives in their order, repetitions greedy. A matcher
 * decides by the characters it looks at and by nothing else. So if a match (or the failure to match) was found without
 * once looking beyond the end of the known text, no continuation changes it; `hitEnd` says whether it did look. That is
 * all a stream needs, and what the platform's RegExp does not tell.
 *
 * Nothing is captured and nothing referred back to, so whether the rest of a pattern matches from an instruction at a
 * place depends on these two alone. A JOIN that failed at a place is marked, and so is how far down a run failed;
 * neither is tried again, whatever leads to it, in this attempt or in a later one in the same text with the same end.
 * All attempts together execute no instruction twice at a place: they take at most instructions × places steps. An
 * attempt that looked beyond the end leaves no marks to one that has to tell whether it did. What is still to be tried
 * lies in arrays: no text exhausts the stack.
 */
import { parsePattern } from './pattern.ts'
import { AHEAD, CHAR, END, type Instruction, JOIN, MATCHED, programOf, RUN, SPLIT } from './program.ts'

export { UnsupportedPattern } from './pattern.ts'

export interface Pattern {
  /** How many instructions it is made of: an attempt costs at most as many steps for each character. */
  readonly size: number
  /**
   * The end of the match that begins at `at`, in text[0, end); −1: none does. `open`: the text may go on, and `hitEnd`
   * will be asked for; otherwise it says nothing.
   */
  match(text: string, at: number, end: number, open: boolean): number
  /** Whether the last call looked beyond `end`: then its answer may change with more text. */
  readonly hitEnd: boolean
}

/** A mark is a byte: twice the round that made it, and one more where it matched. A new round makes old marks stale. */
const MOST_ROUNDS = 127

/** Throws UnsupportedPattern for what is not understood, or is too large. */
export const compilePattern = (source: string): Pattern => {
  const { size, start, starts, joins, runs } = programOf(parsePattern(source), source)
  let text = ''
  let end = -1
  let hitEnd = false
  /** Marks are about places from `base` on, in the text that ends at `end`. */
  let base = 0
  let marks = new Uint8Array(0)
  let round = MOST_ROUNDS
  let marksHitEnd = false
  /**
   * Of each run: the stretch of its characters that was looked at last, and the lowest place from which going on
   * failed.
   */
  const runFrom = new Int32Array(runs)
  const runEnd = new Int32Array(runs)
  const runFailed = new Int32Array(runs)
  /**
   * Two stacks that never shrink. What is still to be tried, each with its place, how many marks led to it, and where a
   * run began:
   */
  const waiting: Instruction[] = []
  const places: number[] = []
  let top = 0
  /** The marks on the way to where the search stands. */
  const path: number[] = []
  let marked = 0

  const forget = (at: number): void => {
    base = at
    marksHitEnd = false
    runEnd.fill(-1)
    const size = joins * (end - base + 1)
    if (size > marks.length) {
      marks = new Uint8Array(Math.max(size, 2 * marks.length))
      round = 0
    } else if (round === MOST_ROUNDS) {
      marks.fill(0)
      round = 0
    }
    round += 1
  }

  const unitsAt = (at: number): number => (text.codePointAt(at)! > 0xffff ? 2 : 1)

  /** Where the stretch of a run's characters ends that begins at `at`; each is measured once. */
  const stretch = ({ number: run, test }: Instruction, at: number): number => {
    const known = at <= runEnd[run]!
    if (!known || at < runFrom[run]!) {
      const from = known ? runFrom[run]! : end
      let to = at
      while (to < from && test(text.codePointAt(to)!)) to += unitsAt(to)
      runFrom[run] = at
      if (!known || to < from) {
        runEnd[run] = to
        runFailed[run] = to + 1
      }
    }
    const to = runEnd[run]!
    if (to === end) hitEnd = true
    return to
  }

  /** Where the character before `at` begins, if it begins at `from` or later. */
  const before = (at: number, from: number): number =>
    at - 2 >= from && text.codePointAt(at - 2)! > 0xffff ? at - 2 : at - 1

  const wait = (instruction: Instruction, at: number, began: number): void => {
    waiting[top] = instruction
    places[3 * top] = at
    places[3 * top + 1] = marked
    places[3 * top + 2] = began
    top += 1
  }

  /**
   * From `first` at `from`: where the match ends, or −1. `lasting`: only whether there is one matters, and is marked
   * too.
   */
  const search = (first: Instruction, from: number, lasting: boolean): number => {
    const bottom = top
    const bottomMarked = marked
    let instruction: Instruction | null = first
    let at = from
    for (;;) {
      if (instruction === null) {
        if (top === bottom) {
          marked = bottomMarked
          return -1
        }
        top -= 1
        const choice = waiting[top]!
        at = places[3 * top]!
        marked = places[3 * top + 1]!
        if (choice.kind === SPLIT) instruction = choice.other
        else {
          const began = places[3 * top + 2]!
          runFailed[choice.number] = at
          at = before(at, began)
          if (at >= began) {
            wait(choice, at, began)
            instruction = choice.next
          }
        }
        continue
      }
      switch (instruction.kind) {
        case CHAR: {
          if (at === end) {
            hitEnd = true
            instruction = null
            break
          }
          const code: number = text.codePointAt(at)!
          if (instruction.test(code)) {
            at += code > 0xffff ? 2 : 1
            instruction = instruction.next
          } else instruction = null
          break
        }
        case SPLIT: {
          const next: Instruction = instruction.next!
          // A choice that fails at its first character is none.
          if (next.kind === CHAR && (at === end || !next.test(text.codePointAt(at)!))) {
            if (at === end) hitEnd = true
            instruction = instruction.other
            break
          }
          wait(instruction, at, at)
          instruction = next
          break
        }
        case RUN: {
          const began = at
          const to = stretch(instruction, at)
          const failed = runFailed[instruction.number]!
          at = failed > to ? to : before(failed, began)
          if (at >= began) {
            wait(instruction, at, began)
            instruction = instruction.next
          } else instruction = null
          break
        }
        case END: {
          if (at === end) {
            hitEnd = true
            instruction = instruction.next
          } else instruction = text.charCodeAt(at) === 10 ? instruction.next : null
          break
        }
        case AHEAD: {
          const found: boolean = search(instruction.other!, at, true) >= 0
          instruction = found === instruction.negative ? null : instruction.next
          break
        }
        case JOIN: {
          const place: number = (at - base) * joins + instruction.number
          const mark = marks[place]!
          if (mark === 2 * round) instruction = null
          else if (mark === 2 * round + 1) instruction = MATCHED
          else {
            marks[place] = 2 * round
            path[marked] = place
            marked += 1
            instruction = instruction.next
          }
          break
        }
        default:
          // The choices that are left are not needed: this way did not fail.
          for (; marked > bottomMarked; marked -= 1) marks[path[marked - 1]!] = lasting ? 2 * round + 1 : 0
          top = bottom
          return at
      }
    }
  }
  return {
    size,
    match(whole, at, to, open) {
      if (to !== end || at < base || (open && marksHitEnd) || whole !== text) {
        text = whole
        end = to
        forget(at)
      }
      hitEnd = false
      const unit = text.charCodeAt(at)
      const first = unit < 128 ? starts[unit]! : start
      const found = first === null ? -1 : search(first, at, false)
      if (hitEnd) marksHitEnd = true
      return found
    },
    get hitEnd() {
      return hitEnd
    },
  }
}
