/**
 * Regular expressions of ECMAScript with the flag u, read by @eslint-community/regexpp, as far as they are regular: no
 * look-around, no back references, and ^ and $ at the ends of the whole alone. Properties (\p) are refused: what they
 * hold depends on the Unicode version of the platform.
 */
import { type AST, RegExpParser } from '@eslint-community/regexpp'
import { messageOf } from '../errors.ts'
import { among, type Chars, charsOf, DIGITS, inverse, union } from './chars.ts'
import { ANY_CHAR, chars, type Expression, either, repeat, sequence } from './expression.ts'
import { MOST_LEVELS, MOST_PATTERN, refuse } from './limits.ts'

const WORD = union(
  DIGITS,
  charsOf([
    [0x41, 0x5a],
    [0x61, 0x7a],
  ]),
  among('_'),
)
/** ECMA-262, WhiteSpace and LineTerminator. */
const SPACE = union(among('\t\n\v\f\r \u00a0\u1680\u2028\u2029\u202f\u205f\u3000\ufeff'), charsOf([[0x2000, 0x200a]]))
const NO_DOT = among('\n\r\u2028\u2029')
const SETS = { digit: DIGITS, space: SPACE, word: WORD } as const

const nested = (pattern: string): number => {
  let depth = 0
  let deepest = 0
  for (const char of pattern) {
    if (char === '(') depth += 1
    if (char === ')') depth -= 1
    deepest = Math.max(deepest, depth)
  }
  return deepest
}

/**
 * The expression; `whole`: the text is matched from its beginning to its end, not searched. Throws INVALID; `what`
 * names the pattern.
 */
export const regexOf = (pattern: string, what: string, whole: boolean): Expression => {
  const refused = (why: string): never => refuse(`${what} cannot be used: ${why}.`)
  if (pattern.length > MOST_PATTERN)
    refused(`it has ${pattern.length} characters, expected at most ${MOST_PATTERN} of a regular expression`)
  if (nested(pattern) > MOST_LEVELS) refused(`its groups are nested deeper than ${MOST_LEVELS} levels`)
  let parsed: AST.Pattern
  try {
    parsed = new RegExpParser({ ecmaVersion: 2025 }).parsePattern(pattern, 0, pattern.length, { unicode: true })
  } catch (error) {
    return refused(`it is no regular expression of ECMAScript (${messageOf(error)})`)
  }

  const setOf = (element: AST.ClassRangesCharacterClassElement | AST.CharacterSet): Chars => {
    switch (element.type) {
      case 'Character':
        return charsOf([[element.value, element.value]])
      case 'CharacterClassRange':
        return charsOf([[element.min.value, element.max.value]])
      default: {
        if (element.kind === 'any') return inverse(NO_DOT)
        if (element.kind === 'property')
          return refused(`${element.raw} depends on a version of Unicode. Name the characters in a class instead`)
        const set = SETS[element.kind]
        return element.negate ? inverse(set) : set
      }
    }
  }
  const elementOf = (element: AST.Element): Expression => {
    switch (element.type) {
      case 'Character':
      case 'CharacterSet':
        return chars(setOf(element))
      case 'CharacterClass': {
        const set = union(...element.elements.map((each) => setOf(each as AST.ClassRangesCharacterClassElement)))
        return chars(element.negate ? inverse(set) : set)
      }
      case 'Group':
        if (element.modifiers !== null) return refused('it changes flags inside a group')
        return either(...element.alternatives.map(partOf))
      case 'CapturingGroup':
        return either(...element.alternatives.map(partOf))
      case 'Quantifier':
        return repeat(elementOf(element.element), element.min, element.max)
      case 'Backreference':
        return refused('it refers back to a group, which no grammar can follow')
      default:
        return refused(
          element.type === 'Assertion' && (element.kind === 'start' || element.kind === 'end')
            ? `"${element.raw}" stands elsewhere than at an end of the whole expression`
            : 'it looks around itself, which no grammar can follow',
        )
    }
  }
  const partOf = ({ elements }: AST.Alternative): Expression => sequence(...elements.map(elementOf))
  const anything = repeat(ANY_CHAR, 0)
  const alternative = ({ elements }: AST.Alternative): Expression => {
    const is = (element: AST.Element | undefined, kind: string): boolean =>
      element?.type === 'Assertion' && element.kind === kind
    const begins = is(elements[0], 'start')
    const ends = elements.length > (begins ? 1 : 0) && is(elements.at(-1), 'end')
    const inside = elements.slice(begins ? 1 : 0, ends ? -1 : undefined).map(elementOf)
    return sequence(...(begins || whole ? [] : [anything]), ...inside, ...(ends || whole ? [] : [anything]))
  }
  return either(...parsed.alternatives.map(alternative))
}
