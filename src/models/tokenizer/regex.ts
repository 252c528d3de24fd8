/**
 * Regular expressions of pre-tokenizers, matched so that one can tell whether more text could change the answer.
 *
 * A backtracking matcher decides by the characters it looks at and by nothing else. So if a match (or the failure to match) was
 * found without once looking beyond the end of the known text, no continuation changes it; `hitEnd` says whether it did look.
 * That is all a stream needs, and what the platform's RegExp does not tell. The syntax is the part of Oniguruma's that
 * tokenizer.json files use, with the classes of @huggingface/tokenizers (\s is White_Space, \d is Nd). What is not understood
 * is refused: lookbehind, anchors, backreferences, lazy and possessive quantifiers, nested classes. JavaScript's order of
 * alternatives and greediness are kept.
 */
export class UnsupportedPattern extends Error {}

type Test = (codePoint: number) => boolean

type Node =
  | { readonly kind: 'char'; readonly test: Test }
  | { readonly kind: 'sequence'; readonly nodes: readonly Node[] }
  | { readonly kind: 'either'; readonly nodes: readonly Node[] }
  | { readonly kind: 'repeat'; readonly node: Node; readonly min: number; readonly max: number }
  | { readonly kind: 'ahead'; readonly node: Node; readonly negative: boolean }

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

const literalTest = (char: string, fold: boolean): Test => {
  const code = char.codePointAt(0)!
  if (!fold || !/[A-Za-z]/.test(char)) return (codePoint) => codePoint === code
  const [lower, upper] = [char.toLowerCase().charCodeAt(0), char.toUpperCase().charCodeAt(0)]
  return (codePoint) => codePoint === lower || codePoint === upper
}

const WORD = '\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}'
const SHORT: Readonly<Record<string, string>> = { s: '\\p{White_Space}', d: '\\p{Nd}', w: WORD }
const CONTROLS: Readonly<Record<string, string>> = { n: '\n', r: '\r', t: '\t', f: '\f', v: '\v' }
const MOST_COPIES = 64

const escaped = (char: string): string => `\\u{${char.codePointAt(0)!.toString(16)}}`

const parse = (source: string): Node => {
  let at = 0
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
  /** What follows a backslash: a character or the inside of a class. */
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
    return { kind: 'char', test: classTest(`[${negative ? '^' : ''}${inside}]`) }
  }
  const group = (fold: boolean): Node => {
    let kind: 'group' | 'ahead' = 'group'
    let negative = false
    let folded = fold
    if (accept('?i:')) folded = true
    else if (accept('?=')) kind = 'ahead'
    else if (accept('?!')) [kind, negative] = ['ahead', true]
    else if (!accept('?:') && source[at] === '?') refuse('this kind of group')
    const node = either(folded)
    if (!accept(')')) refuse('an unclosed group')
    return kind === 'ahead' ? { kind, node, negative } : node
  }
  const atom = (fold: boolean): Node => {
    const char = take()
    if (char === '(') return group(fold)
    if (fold && (char === '[' || char === '.')) return refuse('a class inside (?i:')
    if (char === '[') return charClass()
    if (char === '.') return { kind: 'char', test: (codePoint) => codePoint !== 10 }
    if (/[\^$*+?{}]/.test(char)) return refuse(`an unexpected ${char}`)
    if (char !== '\\') return { kind: 'char', test: literalTest(char, fold) }
    const found = escapeSequence()
    if ('char' in found) return { kind: 'char', test: literalTest(found.char, fold) }
    if (fold) return refuse('a class inside (?i:')
    // Outside a class the library counts these six among the word characters, as Oniguruma does.
    const set = found.set === WORD ? `${WORD}\\u00B2\\u00B3\\u00B9\\u00BC-\\u00BE` : found.set
    return { kind: 'char', test: classTest(`[${found.negative ? '^' : ''}${set}]`) }
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
    if (/[?+*{]/.test(source[at] ?? '')) refuse('a lazy or possessive quantifier')
    if (max < min || max === 0) refuse('an impossible number of repetitions')
    if (node.kind === 'ahead') refuse('a repeated lookahead')
    if (node.kind !== 'char') {
      if (shortest(node) === 0) refuse('a repeated group that may be empty')
      if (max === Infinity && unbounded(node)) refuse('nested repetition')
      if (Math.max(min, max === Infinity ? 0 : max) > MOST_COPIES) refuse('a group repeated too often')
    }
    return { kind: 'repeat', node, min, max }
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
  if (node.kind === 'char') return false
  if (node.kind === 'repeat') return node.max === Infinity || unbounded(node.node)
  return node.kind === 'ahead' ? unbounded(node.node) : node.nodes.some(unbounded)
}

export interface Pattern {
  /** The end of the match that begins at `at`, in text[0, end); −1: none does. */
  match(text: string, at: number, end: number): number
  /** Whether the last call looked beyond `end`: then its answer may change with more text. */
  readonly hitEnd: boolean
}

/** Throws UnsupportedPattern for what is not understood. */
export const compilePattern = (source: string): Pattern => {
  let text = ''
  let end = 0
  let hitEnd = false
  type Step = (at: number) => number // the end of the whole match, or −1

  const unitsAt = (at: number): number => (text.codePointAt(at)! > 0xffff ? 2 : 1)
  const passes = (test: Test, at: number): boolean => {
    if (at < end) return test(text.codePointAt(at)!)
    hitEnd = true
    return false
  }
  const repeatChar = (test: Test, min: number, max: number, next: Step): Step => {
    return (from) => {
      let at = from
      let taken = 0
      while (taken < max && passes(test, at)) {
        at += unitsAt(at)
        taken += 1
      }
      for (; taken >= min; taken -= 1) {
        const found = next(at)
        if (found >= 0) return found
        at -= at - 2 >= from && text.codePointAt(at - 2)! > 0xffff ? 2 : 1
      }
      return -1
    }
  }
  const compile = (node: Node, next: Step): Step => {
    switch (node.kind) {
      case 'char':
        return (at) => (passes(node.test, at) ? next(at + unitsAt(at)) : -1)
      case 'sequence':
        return node.nodes.reduceRight((after, part) => compile(part, after), next)
      case 'either': {
        const branches = node.nodes.map((branch) => compile(branch, next))
        return (at) => {
          for (const branch of branches) {
            const found = branch(at)
            if (found >= 0) return found
          }
          return -1
        }
      }
      case 'ahead': {
        const inner = compile(node.node, (at) => at)
        return (at) => (inner(at) >= 0 === node.negative ? -1 : next(at))
      }
      case 'repeat': {
        if (node.node.kind === 'char') return repeatChar(node.node.test, node.min, node.max, next)
        const optionally = (body: Step, after: Step): Step => {
          return (at) => {
            const found = body(at)
            return found >= 0 ? found : after(at)
          }
        }
        let step = next
        if (node.max === Infinity) {
          const again: Step = (at) => loop(at)
          const loop = optionally(compile(node.node, again), next)
          step = loop
        } else {
          for (let copy = node.min; copy < node.max; copy += 1) step = optionally(compile(node.node, step), next)
        }
        for (let copy = 0; copy < node.min; copy += 1) step = compile(node.node, step)
        return step
      }
    }
  }
  const start = compile(parse(source), (at) => at)
  return {
    match(whole, at, to) {
      text = whole
      end = to
      hitEnd = false
      return start(at)
    },
    get hitEnd() {
      return hitEnd
    },
  }
}
