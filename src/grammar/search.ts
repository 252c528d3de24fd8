/**
 * Whether a text matches a regular expression somewhere, in time that is linear in the text: by the automaton of
 * grammars, not by the engine of JavaScript.
 */
import { isUtf8 } from 'node:buffer'
import { textOf } from '../text.ts'
import { Automaton, DEAD } from './automaton.ts'
import { ruleOf } from './expression.ts'
import { networkOf } from './network.ts'
import { regexOf } from './regex.ts'

/**
 * Work for a text: nothing is found in one that takes more. It counts the same whatever the automaton knows already.
 */
const MOST_WORK = 1 << 20
/** Numbers that an automaton keeps. */
const MOST_KEPT = 1 << 18

/**
 * Says of a text, of kilobytes at most, whether the regular expression is found in it; bytes that are no UTF-8 are
 * U+FFFD. Throws INVALID for a pattern that cannot be used; `what` names it.
 */
export const openSearch = (pattern: string, what: string): ((text: Uint8Array) => boolean) => {
  const network = networkOf(ruleOf(what, regexOf(pattern, what, false)))
  let automaton = new Automaton(network)
  return (text) => {
    let state = automaton.start
    let work = 0
    for (const byte of isUtf8(text) ? text : Buffer.from(textOf(text))) {
      if (automaton.kept > MOST_KEPT) {
        const places = automaton.placesOf(state)
        automaton = new Automaton(network)
        state = automaton.stateOf(places)
      }
      const before = state
      state = automaton.step(before, byte)
      work += automaton.workOf(before, byte)
      if (state === DEAD || work > MOST_WORK) return false
    }
    return automaton.ended(state)
  }
}
