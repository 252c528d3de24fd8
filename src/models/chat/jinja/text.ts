/** Texts as Python has them: rows of code points, with its own idea of white space, lines and case. */
import { Fault, type Price } from './price.ts'

/** White space, as the inside of a character class. */
export const SPACE = '\\t-\\r\\u001c- \\u0085\\u00a0\\u1680\\u2000-\\u200a\\u2028\\u2029\\u202f\\u205f\\u3000'
/** Ends of lines. */
export const LINE = '\\r\\n|[\\n-\\r\\u001c-\\u001e\\u0085\\u2028\\u2029]'

const SURROGATE = /[\ud800-\udfff]/
const PAIR = /[\ud800-\udbff][\udc00-\udfff]/g
const BLANK = new RegExp(`[${SPACE}]`)

/** In code points. */
export const lengthOf = (text: string): number => {
  if (!SURROGATE.test(text)) return text.length
  let pairs = 0
  for (const _ of text.matchAll(PAIR)) pairs += 1
  return text.length - pairs
}

/** The code points: the text itself where each is one unit. */
export const charactersOf = (text: string, price: Price): string | readonly string[] => {
  price.text(text.length)
  if (!SURROGATE.test(text)) return text
  price.pay(text.length / 4)
  return Array.from(text)
}

/** By code points, as Python orders texts: surrogates come behind all other units. */
export const comparePoints = (a: string, b: string): number => {
  const length = Math.min(a.length, b.length)
  let at = 0
  while (at < length && a[at] === b[at]) at += 1
  if (at === length) return a.length - b.length
  const [x, y] = [a.charCodeAt(at), b.charCodeAt(at)]
  const high = (unit: number): number => Number(unit >= 0xd800 && unit <= 0xdfff)
  return high(x) - high(y) || x - y
}

/** Without the characters at its ends that are in `set`, white space where there is none. */
export const strip = (text: string, set: string | null, left: boolean, right: boolean): string => {
  if (set !== null && (SURROGATE.test(set) || SURROGATE.test(text))) {
    const [characters, members] = [Array.from(text), new Set(set)]
    let [from, to] = [0, characters.length]
    if (left) while (from < to && members.has(characters[from]!)) from += 1
    if (right) while (to > from && members.has(characters[to - 1]!)) to -= 1
    return characters.slice(from, to).join('')
  }
  const members = set === null ? null : new Set(set)
  const goes = (at: number): boolean => (members === null ? BLANK.test(text[at]!) : members.has(text[at]!))
  let [from, to] = [0, text.length]
  if (left) while (from < to && goes(from)) from += 1
  if (right) while (to > from && goes(to - 1)) to -= 1
  return text.slice(from, to)
}

/** Characters whose form at the beginning of a word is known to Unicode's tables only. */
const TITLED = /[\u0149\u01c4-\u01cc\u01f1-\u01f3\u1f80-\u1fff]/u

const titled = (character: string): string => {
  if (TITLED.test(character)) throw new Fault(`it makes ${character} a capital, which is not supported`)
  if (/[\u10d0-\u10ff]/.test(character)) return character
  const [first = '', ...rest] = character.toUpperCase()
  return first + rest.join('').toLowerCase()
}

/** A capital at the beginning, and small letters. */
export const capitalize = (text: string): string => {
  const [first] = text
  return first === undefined ? '' : titled(first) + text.toLowerCase().slice(first.toLowerCase().length)
}

/** A capital at the beginning of each run of letters. */
export const title = (text: string): string => {
  if (/[\u03a3\u03c3\u0130]/.test(text)) throw new Fault('it makes titles of words with Σ or İ, which is not supported')
  return text.replace(/\p{Cased}+/gu, (run) => {
    const first = String.fromCodePoint(run.codePointAt(0)!)
    return titled(first) + run.slice(first.length).toLowerCase()
  })
}

/** Characters that are digits and not decimals, as ² is (Numeric_Type=Digit of Unicode). */
const DIGITS =
  '\\u00b2\\u00b3\\u00b9\\u1369-\\u1371\\u19da\\u2070\\u2074-\\u2079\\u2080-\\u2089\\u2460-\\u2468\\u2474-\\u247c\\u2488-\\u2490\\u24ea\\u24f5-\\u24fd\\u24ff\\u2776-\\u277e\\u2780-\\u2788\\u278a-\\u2792\\u{10a40}-\\u{10a43}\\u{10e60}-\\u{10e68}\\u{11052}-\\u{1105a}\\u{1f100}-\\u{1f10a}'
const whole = (characters: string): RegExp => new RegExp(`^[${characters}]+$`, 'u')
/** Written so that a linter does not take it for a mistake. */
const ASCII = '[\\u0000-\\u007f]'
const CLASSES: Readonly<Record<string, RegExp>> = {
  isalpha: whole('\\p{L}'),
  isalnum: whole('\\p{L}\\p{N}'),
  isdecimal: whole('\\p{Nd}'),
  isdigit: whole(`\\p{Nd}${DIGITS}`),
  isspace: whole(SPACE),
  isascii: new RegExp(`^${ASCII}*$`),
  isnumeric: whole('\\p{N}'),
}

const LETTERS = {
  isupper: [/\p{Uppercase}/u, /[\p{Lowercase}\p{Lt}]/u],
  islower: [/\p{Lowercase}/u, /[\p{Uppercase}\p{Lt}]/u],
} as const

/** The tests of texts that are methods; null: it is none. */
export const isClass = (name: string, text: string): boolean | null => {
  if (name === 'isupper' || name === 'islower') return !LETTERS[name][1].test(text) && LETTERS[name][0].test(text)
  if (name === 'isnumeric' && /\p{Lo}/u.test(text))
    throw new Fault('it asks isnumeric of letters, which is not supported')
  return Object.hasOwn(CLASSES, name) ? CLASSES[name]!.test(text) : null
}
