/**
 * A source as tokens, with the white space that tags take away: trim_blocks and lstrip_blocks are on, one line end at
 * the end goes.
 */
import { Fault } from './price.ts'
import { SPACE, strip } from './text.ts'

export interface Token {
  /** `data`, `name`, `string`, `integer`, `float`, `end`; else what is written, `{{` without its sign. */
  readonly type: string
  readonly value: string
  readonly line: number
}

/** A fault of a source. */
export const syntax = (what: string, line: number): Fault => new Fault(`line ${line}: ${what}`)

const TAG = /\{[{%#]/g
const RAW = new RegExp(`\\{%([-+]?)[${SPACE}]*raw[${SPACE}]*(-?)%\\}`, 'y')
const ENDRAW = new RegExp(`\\{%([-+]?)[${SPACE}]*endraw[${SPACE}]*([-+]?)%\\}`, 'y')
const BLANKS = new RegExp(`[${SPACE}]*`, 'y')
const FLOAT = /(?<!\.)(?:\d+_)*\d+(?:(?:\.(?:\d+_)*\d+)?e[+-]?(?:\d+_)*\d+|\.(?:\d+_)*\d+)/iy
const INTEGER = /0b(?:_?[01])+|0o(?:_?[0-7])+|0x(?:_?[\da-f])+|[1-9](?:_?\d)*|0(?:_?0)*/iy
const NAME = /\w+/y
const STRING = /'[^'\\]*(?:\\.[^'\\]*)*'|"[^"\\]*(?:\\.[^"\\]*)*"/sy
const OPERATOR = /\*\*|\/\/|[=!<>]=|[-+/*%~[\](){}<>=.:|,;]/y
const CLOSES: Readonly<Record<string, string>> = { '(': ')', '[': ']', '{': '}' }

const ESCAPE = /\\(?:(\n)|([\\'"abfnrtv])|([0-7]{1,3})|x([\da-fA-F]{2})|u([\da-fA-F]{4})|U([\da-fA-F]{8})|(.|$))/gsu
const LETTERS: Readonly<Record<string, string>> = {
  ...{ a: '\x07', b: '\b', f: '\f', n: '\n', r: '\r', t: '\t', v: '\v' },
}

/** What a string in quotes says. */
const unescaped = (inside: string, line: number): string =>
  inside.replace(ESCAPE, (_, end, letter, octal, x, u, long, other: string | undefined) => {
    if (end !== undefined) return ''
    if (letter !== undefined) return LETTERS[letter] ?? letter
    const digits = x ?? u ?? long
    if (octal !== undefined || digits !== undefined) {
      const code = octal === undefined ? Number.parseInt(digits, 16) : Number.parseInt(octal, 8)
      if (code > 0x10ffff || (code >= 0xd800 && code < 0xe000)) throw syntax(`${_} is no character`, line)
      return String.fromCodePoint(code)
    }
    if (other === undefined || /[xuUN]?/.exec(other)![0] !== '') throw syntax(`${_} in a string is not supported`, line)
    // Python reads the letters of other scripts as their numbers, behind a backslash too.
    const code = other.codePointAt(0)!
    if (code < 0x80) return _
    return `\\${code < 0x100 ? 'x' : code < 0x10000 ? 'u' : 'U'}${code.toString(16).padStart(code < 0x100 ? 2 : code < 0x10000 ? 4 : 8, '0')}`
  })

class Lexer {
  readonly tokens: Token[] = []
  readonly #source: string
  #at = 0
  #line = 1
  #counted = 0
  /** Whether a line begins at the text that comes next. */
  #fresh = true

  constructor(source: string) {
    this.#source = source.replace(/\r\n?/g, '\n').replace(/\n$/, '')
  }

  #lineAt(at: number): number {
    for (; this.#counted < at; this.#counted += 1) if (this.#source[this.#counted] === '\n') this.#line += 1
    return this.#line
  }

  #push(type: string, value: string, at: number): void {
    this.tokens.push({ type, value, line: this.#lineAt(at) })
  }

  #match(pattern: RegExp): RegExpExecArray | null {
    pattern.lastIndex = this.#at
    return pattern.exec(this.#source)
  }

  /** Goes to `at`, and over what the sign before a tag's end takes away. */
  #leave(at: number, sign: string | undefined, trims = true): void {
    this.#at = at
    if (sign === '-') this.#at += this.#match(BLANKS)![0].length
    else if (trims && sign !== '+' && this.#source[at] === '\n') this.#at += 1
    this.#fresh = this.#source[this.#at - 1] === '\n'
  }

  /** The text before a tag. */
  #data(end: number, sign: string, strips: boolean): void {
    let text = this.#source.slice(this.#at, end)
    if (sign === '-') text = strip(text, null, false, true)
    else if (sign !== '+' && strips) {
      const last = text.lastIndexOf('\n') + 1
      if ((last > 0 || this.#fresh) && strip(text.slice(last), null, true, false) === '') text = text.slice(0, last)
    }
    if (text !== '') this.#push('data', text, this.#at)
  }

  run(): readonly Token[] {
    const source = this.#source
    for (;;) {
      TAG.lastIndex = this.#at
      const found = TAG.exec(source)
      if (found === null) {
        if (this.#at < source.length) this.#push('data', source.slice(this.#at), this.#at)
        this.#push('end', '', source.length)
        return this.tokens
      }
      const at = found.index
      RAW.lastIndex = at
      const raw = RAW.exec(source)
      const sign = raw?.[1] ?? /[-+]?/.exec(source[at + 2] ?? '')![0]
      this.#data(at, sign, found[0] !== '{{')
      this.#at = at + (raw?.[0].length ?? 2 + sign.length)
      if (raw !== null) this.#raw(raw[2])
      else if (found[0] === '{#') this.#comment(at)
      else this.#tag(found[0], at)
    }
  }

  #raw(sign: string | undefined): void {
    this.#leave(this.#at, sign, false)
    for (let at = this.#source.indexOf('{%', this.#at); at >= 0; at = this.#source.indexOf('{%', at + 2)) {
      ENDRAW.lastIndex = at
      const end = ENDRAW.exec(this.#source)
      if (end === null) continue
      this.#data(at, end[1]!, true)
      this.#leave(at + end[0].length, end[2])
      return
    }
    throw syntax('raw has no end', this.#lineAt(this.#at))
  }

  #comment(begin: number): void {
    const end = this.#source.indexOf('#}', this.#at)
    if (end < 0) throw syntax('a comment has no end', this.#lineAt(begin))
    this.#leave(end + 2, end > this.#at ? this.#source[end - 1] : undefined)
  }

  #tag(open: string, begin: number): void {
    this.#push(open, open, begin)
    const source = this.#source
    const close = open === '{{' ? '}}' : '%}'
    const expected: string[] = []
    for (;;) {
      this.#at += this.#match(BLANKS)![0].length
      const at = this.#at
      if (at >= source.length) return
      const signed = source[at] === '-' || (open === '{%' && source[at] === '+')
      if (expected.length === 0 && source.startsWith(close, signed ? at + 1 : at)) {
        this.#push(close, close, at)
        this.#leave(at + (signed ? 3 : 2), signed ? source[at] : undefined, open === '{%')
        return
      }
      this.#token(expected)
    }
  }

  #token(expected: string[]): void {
    const at = this.#at
    const line = this.#lineAt(at)
    const is = (type: string, found: RegExpExecArray | null): boolean => {
      if (found === null) return false
      const [value] = found
      if (type === 'operator' && CLOSES[value] !== undefined) expected.push(CLOSES[value])
      else if (type === 'operator' && ')]}'.includes(value) && expected.pop() !== value)
        throw syntax(`${value} closes nothing that is open`, line)
      const own = type === 'string' ? unescaped(value.slice(1, -1), line) : value
      this.tokens.push({ type: type === 'operator' ? value : type, value: own, line })
      this.#at = at + value.length
      return true
    }
    if (is('float', this.#match(FLOAT)) || is('integer', this.#match(INTEGER)) || is('name', this.#match(NAME))) return
    if (is('string', this.#match(STRING)) || is('operator', this.#match(OPERATOR))) return
    throw syntax(`${JSON.stringify(String.fromCodePoint(this.#source.codePointAt(at)!))} is not understood`, line)
  }
}

/** Throws for what is no template. */
export const tokensOf = (source: string): readonly Token[] => new Lexer(source).run()
