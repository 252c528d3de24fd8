/** What JSON is made of (RFC 8259), and the values of the types of JSON Schema. */
import { ANY, among, charsOf, DIGITS, isMember, without } from './chars.ts'
import {
  chars,
  type Expression,
  either,
  maybe,
  oneOf,
  repeat,
  ruleOf,
  sequence,
  use,
  word,
  words,
} from './expression.ts'

/**
 * White space between the parts of a value: nothing, a space, or the end of a line with an indent. JSON would allow
 * more, and models that may write more can go on with it for ever.
 */
export const SPACE: Expression = use(
  ruleOf('white space', maybe(either(word(' '), sequence(word('\n'), repeat(oneOf(' \t'), 0, 32))))),
)

const HEX = oneOf('0123456789abcdefABCDEF')
/** Digits before and behind a point: a double keeps so many. */
const MOST_DIGITS = 15
export const digit: Expression = chars(DIGITS)
const nonzero = oneOf('123456789')

const QUOTED = among('"\\')
const CONTROLS = charsOf([[0, 0x1f]])
const PLAIN = without(without(ANY, QUOTED), CONTROLS)
const SHORT: Readonly<Record<string, string>> = {
  '"': '"',
  '\\': '\\',
  '\b': 'b',
  '\f': 'f',
  '\n': 'n',
  '\r': 'r',
  '\t': 't',
}

/** An escape in hexadecimal: any character of 16 bits, or the two halves of another one. */
const unicode = either(
  sequence(oneOf('0123456789abcefABCEF'), HEX, HEX, HEX),
  sequence(oneOf('dD'), oneOf('01234567'), HEX, HEX),
  sequence(oneOf('dD'), oneOf('89abAB'), HEX, HEX, word('\\u'), oneOf('dD'), oneOf('cdefCDEF'), HEX, HEX),
)
/** A character inside a string, in any form. */
export const stringChar: Expression = use(
  ruleOf(
    'a character of a string',
    either(chars(PLAIN), sequence(word('\\'), either(oneOf('"\\/bfnrt'), sequence(word('u'), unicode)))),
  ),
)
const QUOTE = word('"')
export const stringOf = (inside: Expression): Expression => sequence(QUOTE, inside, QUOTE)
export const anyString: Expression = use(ruleOf('a string', stringOf(repeat(stringChar, 0))))

/** An expression over characters as it stands inside a string, each character in the shortest form. */
export const escaped = (expression: Expression): Expression => {
  switch (expression.kind) {
    case 'chars': {
      const { set } = expression
      const others: string[] = []
      for (let code = 0; code < 0x80; code += 1) {
        if (isMember(PLAIN, code) || !isMember(set, code)) continue
        const char = String.fromCharCode(code)
        others.push(SHORT[char] === undefined ? `\\u${code.toString(16).padStart(4, '0')}` : `\\${SHORT[char]}`)
      }
      const plain = chars(without(without(set, QUOTED), CONTROLS))
      return others.length === 0 ? plain : either(words(others), plain)
    }
    case 'words':
      return words(expression.words.map((text) => JSON.stringify(text).slice(1, -1)))
    case 'sequence':
    case 'either':
      return { ...expression, parts: expression.parts.map(escaped) }
    case 'repeat':
      return { ...expression, part: escaped(expression.part) }
    case 'rule':
      return expression
  }
}

/** Digits of a whole number without leading zeros. */
const whole = either(word('0'), sequence(nonzero, repeat(digit, 0, MOST_DIGITS - 1)))
const sign = maybe(word('-'))
export const anyInteger: Expression = use(ruleOf('an integer', sequence(sign, whole)))
export const anyNumber: Expression = use(
  ruleOf(
    'a number',
    sequence(
      sign,
      whole,
      maybe(sequence(word('.'), repeat(digit, 1, MOST_DIGITS))),
      maybe(sequence(oneOf('eE'), maybe(oneOf('+-')), repeat(digit, 1, 2))),
    ),
  ),
)

export const COMMA = sequence(SPACE, word(','), SPACE)
export const COLON = sequence(SPACE, word(':'), SPACE)

const value = ruleOf('a value')
export const anyValue: Expression = use(value)
const member = use(ruleOf('a member', sequence(anyString, COLON, anyValue)))
/** `open` elements `close`, or none. */
const listed = (open: string, element: Expression, close: string): Expression =>
  sequence(word(open), SPACE, maybe(sequence(element, repeat(sequence(COMMA, element), 0), SPACE)), word(close))
export const anyObject: Expression = use(ruleOf('an object', listed('{', member, '}')))
export const anyArray: Expression = use(ruleOf('an array', listed('[', anyValue, ']')))
value.body = either(anyObject, anyArray, anyString, anyNumber, words(['true', 'false', 'null']))
