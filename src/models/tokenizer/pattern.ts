/**
 * The syntax of pre-tokenizers' patterns: the part of Oniguruma's that tokenizer.json files use, with the classes of
 * @huggingface/tokenizers (\s is White_Space, \d is Nd). `$` is the end of the text or the place before a line feed. What is not understood is
 * refused: lookbehind, other anchors, backreferences, lazy quantifiers, possessive ones of more than one character,
 * nested classes.
 */
import { MOST_CLASSES, MOST_GROUPS, MOST_PATTERN } from './limits.ts'

export class UnsupportedPattern extends Error {}

export type Test = (codePoint: number) => boolean

export type Node =
  | { readonly kind: 'char'; readonly test: Test }
  | { readonly kind: 'sequence'; readonly nodes: readonly Node[] }
  | { readonly kind: 'either'; readonly nodes: readonly Node[] }
  | { readonly kind: 'repeat'; readonly node: Node; readonly min: number; readonly max: number }
  | { readonly kind: 'ahead'; readonly node: Node; readonly negative: boolean }
  /** The end of a line: what `$` asks for. */
  | { readonly kind: 'end' }

/** Membership in a character class, asked of the platform once for each character. */
const classTest = (source: string): Test => {
  const pattern = new RegExp(`^${source}$`, 'u')
  const known = new Uint8Array(0x10000) // 0: not asked yet, 1: no, 2: yes
  return (codePoint) => {
    if (codePoint > 0xffff) return pattern.test(String.fromCodePoint(codePoint))
    let answer = known[codePoint]
    if (answer === 0) {
      answer = pattern.test(String.fromCharCode(codePoint)) ? 2 : 1
      known[codePoint] = answer
    }
    return answer === 2
  }
}

const escaped = (char: string): string => `\\u{${char.codePointAt(0)!.toString(16)}}`

/** Without regard to case, by the simple case folding of Unicode: ſ (U+017F) is an s, K (U+212A) a k. */
const literalTest = (char: string, fold: boolean): Test => {
  const code = char.codePointAt(0)!
  const [lower, upper] = [char.toLowerCase(), char.toUpperCase()]
  if (!fold || lower === upper) return (codePoint) => codePoint === code
  const pattern = new RegExp(`^${escaped(char)}$`, 'iu')
  // Nearly all that is asked about is ASCII, and needs no question to the platform.
  const ascii = (codePoint: number): boolean => codePoint === lower.charCodeAt(0) || codePoint === upper.charCodeAt(0)
  return (codePoint) =>
    codePoint < 128 && code < 128 ? ascii(codePoint) : pattern.test(String.fromCodePoint(codePoint))
}

const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}'
const SHORT: Readonly<Record<string, string>> = { s: '\\p{White_Space}', d: '\\p{Nd}', w: WORD }
const CONTROLS: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', f: '\f', v: '\v' }

/** Throws UnsupportedPattern for what is not understood. */
export const parsePattern = (source: string): Node => {
  if (source.length > MOST_PATTERN)
    throw new UnsupportedPattern(`a pattern of ${source.length} characters; at most ${MOST_PATTERN} are read`)
  let at = 0
  let depth = 0
  /** By their sources: a class that stands in many places is one. */
  const classes = new Map<string, Test>()
  const classOf = (inside: string): Node => {
    let test = classes.get(inside)
    if (test === undefined) {
      if (classes.size >= MOST_CLASSES) refuse(`more than ${MOST_CLASSES} different classes`)
      test = classTest(inside)
      classes.set(inside, test)
    }
    return { kind: 'char', test }
  }
  const refuse = (what: string): never => {
    throw new UnsupportedPattern(`${what} at character ${at} of the pattern ${JSON.stringify(source)}`)
  }
  const take = (): string => {
    if (at >= source.length) refuse('an unexpected end')
    const char = String.fromCodePoint(source.codePointAt(at)!)
    at += char.length
    return char
  }
  const accept = (text: string): boolean => {
    if (!source.startsWith(text, at)) return false
    at += text.length
    return true
  }
  const property = (letter: string): string => {
    const body = /^\{\^?[A-Za-z_=]+\}/.exec(source.slice(at))?.[0]
    if (body === undefined) return refuse('a malformed property')
    at += body.length
    const negative = (letter === 'P') !== body.startsWith('{^')
    const name = body.replace(/[{}^]/g, '')
    for (const property of [name, `Script=${name}`]) {
      try {
        new RegExp(`\\p{${property}}`, 'u')
        return `\\${negative ? 'P' : 'p'}{${property}}`
      } catch {}
    }
    return refuse(`an unknown property ${name}`)
  }
  /** Parses the part behind a backslash: a character or the inside of a class. */
  const escapeSequence = (): { readonly char: string } | { readonly set: string; readonly negative: boolean } => {
    const char = take()
    if (char === 'p' || char === 'P') return { set: property(char), negative: false }
    const short = SHORT[char.toLowerCase()]
    if (short !== undefined) return { set: short, negative: char !== char.toLowerCase() }
    const control = CONTROLS[char]
    if (control !== undefined) return { char: control }
    if (char === 'x' || char === 'u') {
      const digits = /^(?:\{[0-9A-Fa-f]{1,6}\}|[0-9A-Fa-f]{2,4})/.exec(source.slice(at))?.[0]
      const hex = digits?.startsWith('{') ? digits.slice(1, -1) : digits?.slice(0, char === 'x' ? 2 : 4)
      if (hex === undefined || Number.parseInt(hex, 16) > 0x10ffff) return refuse('a malformed code point')
      at += digits!.startsWith('{') ? hex.length + 2 : hex.length
      return { char: String.fromCodePoint(Number.parseInt(hex, 16)) }
    }
    if (/[A-Za-z0-9]/.test(char)) return refuse(`the escape \\${char}`)
    return { char }
  }
  const charClass = (): Node => {
    const negative = accept('^')
    let inside = ''
    let first = true
    for (;;) {
      let char = take()
      if (char === ']' && !first) break
      first = false
      if (char === '[' || (char === '&' && source[at] === '&')) refuse('a nested or intersected class')
      if (char === '\\') {
        const found = escapeSequence()
        if ('set' in found) {
          if (found.negative && found.set === WORD) refuse('\\W inside a class')
          inside += found.negative ? found.set.replace('\\p', '\\P') : found.set
          continue
        }
        char = found.char
      }
      if (source[at] === '-' && source[at + 1] !== ']' && at + 1 < source.length) {
        at += 1
        const next = take()
        const end = next === '\\' ? escapeSequence() : { char: next }
        if (!('char' in end) || end.char.codePointAt(0)! < char.codePointAt(0)!) return refuse('a malformed range')
        inside += `${escaped(char)}-${escaped(end.char)}`
      } else inside += escaped(char)
    }
    return classOf(`[${negative ? '^' : ''}${inside}]`)
  }
  const group = (fold: boolean): Node => {
    let kind: 'group' | 'ahead' = 'group'
    let negative = false
    let folded = fold
    if (accept('?i:')) folded = true
    else if (accept('?=')) kind = 'ahead'
    else if (accept('?!')) [kind, negative] = ['ahead', true]
    else if (!accept('?:') && source[at] === '?') refuse('this kind of group')
    depth += 1
    if (depth > MOST_GROUPS) refuse(`groups inside each other deeper than ${MOST_GROUPS}`)
    const node = either(folded)
    depth -= 1
    if (!accept(')')) refuse('an unclosed group')
    return kind === 'ahead' ? { kind, node, negative } : node
  }
  const atom = (fold: boolean): Node => {
    const char = take()
    if (char === '(') return group(fold)
    if (fold && (char === '[' || char === '.')) return refuse('a class inside (?i:')
    if (char === '[') return charClass()
    if (char === '.') return { kind: 'char', test: (codePoint) => codePoint !== 10 }
    if (char === '$') return { kind: 'end' }
    if (/[\^*+?{}]/.test(char)) return refuse(`an unexpected ${char}`)
    if (char !== '\\') return { kind: 'char', test: literalTest(char, fold) }
    const found = escapeSequence()
    if ('char' in found) return { kind: 'char', test: literalTest(found.char, fold) }
    if (fold) return refuse('a class inside (?i:')
    // Outside a class the library counts these six among the word characters, as Oniguruma does.
    const set = found.set === WORD ? `${WORD}\\u00B2\\u00B3\\u00B9\\u00BC-\\u00BE` : found.set
    return classOf(`[${found.negative ? '^' : ''}${set}]`)
  }
  /** As often as it can be, and never less: behind it no such character stands. */
  const possessive = (node: Node, repeated: Node, most: number): Node => {
    const none: Node = { kind: 'ahead', node, negative: true }
    if (node.kind !== 'char') return refuse('a possessive quantifier of more than a character')
    return most === 1 ? { kind: 'either', nodes: [node, none] } : { kind: 'sequence', nodes: [repeated, none] }
  }
  const quantified = (fold: boolean): Node => {
    const node = atom(fold)
    let min = 1
    let max = 1
    const braces = /^\{(\d+)(,?)(\d*)\}/.exec(source.slice(at))
    if (accept('?')) min = 0
    else if (accept('*')) [min, max] = [0, Infinity]
    else if (accept('+')) max = Infinity
    else if (braces !== null) {
      at += braces[0].length
      min = Number(braces[1])
      max = braces[2] === '' ? min : braces[3] === '' ? Infinity : Number(braces[3])
    } else return node
    // Behind braces a + repeats once more.
    const own = braces === null && accept('+')
    if (/[?+*{]/.test(source[at] ?? '')) refuse('a lazy or repeated quantifier')
    if (max < min || max === 0) refuse('an impossible number of repetitions')
    if (node.kind === 'ahead' || node.kind === 'end') refuse('a repeated place')
    if (node.kind !== 'char') {
      if (shortest(node) === 0) refuse('a repeated group that may be empty')
      if (max === Infinity && unbounded(node)) refuse('nested repetition')
    }
    const repeated: Node = { kind: 'repeat', node, min, max }
    return own ? possessive(node, repeated, max) : repeated
  }
  const either = (fold: boolean): Node => {
    const nodes: Node[] = []
    do {
      const sequence: Node[] = []
      while (at < source.length && source[at] !== '|' && source[at] !== ')') sequence.push(quantified(fold))
      nodes.push({ kind: 'sequence', nodes: sequence })
    } while (accept('|'))
    return nodes.length === 1 ? nodes[0]! : { kind: 'either', nodes }
  }
  const node = either(false)
  if (at < source.length) refuse('an unexpected )')
  if (shortest(node) === 0)
    throw new UnsupportedPattern(`the pattern ${JSON.stringify(source)}, which may match nothing`)
  return node
}

/** The least number of characters a match takes. */
const shortest = (node: Node): number => {
  switch (node.kind) {
    case 'char':
      return 1
    case 'ahead':
    case 'end':
      return 0
    case 'repeat':
      return node.min * shortest(node.node)
    case 'sequence':
      return node.nodes.reduce((sum, part) => sum + shortest(part), 0)
    case 'either':
      return Math.min(...node.nodes.map(shortest))
  }
}

const unbounded = (node: Node): boolean => {
  if (node.kind === 'char' || node.kind === 'end') return false
  if (node.kind === 'repeat') return node.max === Infinity || unbounded(node.node)
  return node.kind === 'ahead' ? unbounded(node.node) : node.nodes.some(unbounded)
}
