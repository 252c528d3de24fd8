/**
 * GBNF, the notation of grammars that llama.cpp introduced: `name ::= alternatives`, with "texts", [classes], `.`,
 * (groups), `*`, `+`, `?`, `{m}`, `{m,}`, `{m,n}`, names of rules, and comments behind `#`. The answer is what the rule
 * `root` reads.
 */
import { charsOf, inverse } from './chars.ts'
import {
  ANY_CHAR,
  chars,
  EMPTY,
  type Expression,
  either,
  type Rule,
  repeat,
  ruleOf,
  sequence,
  use,
  word,
} from './expression.ts'
import { MOST_LEVELS, MOST_NODES, refuse } from './limits.ts'

const ESCAPES: Readonly<Record<string, string>> = {
  n: '\n',
  r: '\r',
  t: '\t',
  '"': '"',
  '\\': '\\',
  '[': '[',
  ']': ']',
  '-': '-',
  '^': '^',
}
const HEX: Readonly<Record<string, number>> = { x: 2, u: 4, U: 8 }
const NAME = /[A-Za-z0-9_-]+/y
const SPACE = /[ \t]*(?:#[^\n\r]*)?/y
const LINES = /(?:[ \t\r\n]|#[^\n\r]*)*/y
const COUNT = /\{[ \t]*(\d{1,9})[ \t]*(?:(,)[ \t]*(\d{1,9})?[ \t]*)?\}/y

/** The rule `root`. Throws INVALID with the line of what cannot be read. */
export const gbnfRule = (text: string): Rule => {
  let at = 0
  const rules = new Map<string, Rule>()
  const defined = new Set<string>()
  /** Where each rule was named first. */
  const named = new Map<string, number>()
  const fail = (what: string, where = at): never => {
    const line = text.slice(0, where).split('\n').length
    return refuse(`The grammar cannot be read: ${what}, in line ${line}.`)
  }
  const match = (pattern: RegExp): RegExpExecArray | null => {
    pattern.lastIndex = at
    const found = pattern.exec(text)
    if (found !== null) at += found[0].length
    return found
  }
  const shown = (): string => (at < text.length ? `"${String.fromCodePoint(text.codePointAt(at)!)}"` : 'the end')
  const ruleNamed = (name: string, where: number): Rule => {
    let rule = rules.get(name)
    if (rule === undefined) {
      rule = ruleOf(`rule "${name}"`)
      rules.set(name, rule)
      named.set(name, where)
    }
    return rule
  }
  const char = (): number => {
    if (at >= text.length) fail('it ends inside a text or a class')
    const code = text.codePointAt(at)!
    if (code >= 0xd800 && code <= 0xdfff) fail('half a surrogate pair stands in it')
    if (code === 0x0a) fail('a text or a class goes on over the end of a line; write \\n')
    at += code > 0xffff ? 2 : 1
    if (code !== 0x5c) return code
    const kind = text[at] ?? ''
    at += 1
    const digits = HEX[kind]
    if (digits === undefined) {
      const escaped = ESCAPES[kind]
      return escaped === undefined ? fail(`"\\${kind}" is no escape`, at - 1) : escaped.charCodeAt(0)
    }
    const hex = text.slice(at, at + digits)
    const value = /^[0-9a-fA-F]+$/.test(hex) && hex.length === digits ? Number.parseInt(hex, 16) : Number.NaN
    if (!(value <= 0x10ffff) || (value >= 0xd800 && value <= 0xdfff))
      fail(`"\\${kind}${hex}" is no character; expected ${digits} hexadecimal digits`)
    at += digits
    return value
  }
  const literal = (): Expression => {
    at += 1
    let all = ''
    while (text[at] !== '"') all += String.fromCodePoint(char())
    at += 1
    return all === '' ? EMPTY : word(all)
  }
  const classOf = (): Expression => {
    at += 1
    const negated = text[at] === '^'
    if (negated) at += 1
    const ranges: [number, number][] = []
    while (text[at] !== ']') {
      const first = char()
      let last = first
      if (text[at] === '-' && text[at + 1] !== ']') {
        at += 1
        last = char()
        if (last < first) fail('a range of a class ends before it begins')
      }
      ranges.push([first, last])
    }
    at += 1
    const set = charsOf(ranges)
    return chars(negated ? inverse(set) : set)
  }
  /** A part without its repetitions; null where none begins. */
  const atom = (depth: number): Expression | null => {
    switch (text[at]) {
      case '"':
        return literal()
      case '[':
        return classOf()
      case '.':
        at += 1
        return ANY_CHAR
      case '(': {
        if (depth === MOST_LEVELS) fail(`groups are nested deeper than ${MOST_LEVELS} levels`)
        at += 1
        match(LINES)
        const inside = alternatives(depth + 1)
        if (text[at] !== ')') fail(`expected ")", got ${shown()}`)
        at += 1
        return inside
      }
      default: {
        const where = at
        const name = match(NAME)
        if (name === null) return null
        const behind = at
        match(SPACE)
        // The next rule begins here.
        const begins = text.startsWith('::=', at)
        at = begins ? where : behind
        return begins ? null : use(ruleNamed(name[0], where))
      }
    }
  }
  const repeated = (part: Expression): Expression => {
    let all = part
    for (let times = 0; ; times += 1) {
      const behind = at
      match(SPACE)
      const sign = text[at]
      const [min, max] =
        sign === '*' ? [0, Number.POSITIVE_INFINITY] : sign === '+' ? [1, Number.POSITIVE_INFINITY] : [0, 1]
      if (sign === '*' || sign === '+' || sign === '?') {
        at += 1
        all = repeat(all, min, max)
      } else if (sign === '{') {
        const found = match(COUNT)
        if (found === null) return fail('expected a count as {2}, {2,} or {2,4}')
        const least = Number(found[1])
        const most =
          found[2] === undefined ? least : found[3] === undefined ? Number.POSITIVE_INFINITY : Number(found[3])
        if (most < least) fail('a count ends below its beginning')
        if (Math.max(least, most === Number.POSITIVE_INFINITY ? 0 : most) > MOST_NODES)
          fail(`a count is larger than ${MOST_NODES}`)
        all = repeat(all, least, most)
      } else {
        at = behind
        return all
      }
      if (times === MOST_LEVELS) fail(`more than ${MOST_LEVELS} repetitions stand behind one another`)
    }
  }
  const alternatives = (depth: number): Expression => {
    const all: Expression[] = []
    const space = depth > 0 ? LINES : SPACE
    for (;;) {
      const parts: Expression[] = []
      for (;;) {
        match(space)
        const part = atom(depth)
        if (part === null) break
        parts.push(repeated(part))
      }
      all.push(sequence(...parts))
      if (text[at] === '|') at += 1
      else {
        // An alternative may begin in the next line.
        const where = at
        match(LINES)
        if (text[at] !== '|') {
          if (depth === 0) at = where
          return either(...all)
        }
        at += 1
      }
      match(LINES)
    }
  }

  for (match(LINES); at < text.length; match(LINES)) {
    const where = at
    const name = match(NAME)
    if (name === null) return fail(`expected the name of a rule, got ${shown()}`)
    match(SPACE)
    if (!text.startsWith('::=', at)) fail(`expected "::=" behind "${name[0]}", got ${shown()}`)
    at += 3
    if (defined.has(name[0])) fail(`rule "${name[0]}" is there twice`, where)
    defined.add(name[0])
    match(LINES)
    ruleNamed(name[0], where).body = alternatives(0)
    match(SPACE)
    if (at < text.length && !/[\r\n]/.test(text[at]!)) fail(`expected the end of the line, got ${shown()}`)
  }
  const missing = [...rules.keys()].find((name) => !defined.has(name))
  if (missing !== undefined) fail(`there is no rule "${missing}"`, named.get(missing)!)
  return rules.get('root') ?? refuse('The grammar has no rule "root", with which an answer begins.')
}
