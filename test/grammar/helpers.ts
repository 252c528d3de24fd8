/** Answers of a grammar without a model, and a slow reference for what a grammar reads. */

import type { Expression, Rule } from '../../src/grammar/expression.ts'
import { faultOfGrammar, type Matcher, openMatcher } from '../../src/grammar/index.ts'
import type { Vocabulary } from '../../src/grammar/vocabulary.ts'
import { byteTokenizer } from '../../src/models/tokenizer/bytes.ts'
import { type Grammar, type GrammarInput, grammar as grammarSchema } from '../../topics/chunks.ts'

export const BYTES: Vocabulary = { vocabSize: 256, tokenizer: byteTokenizer() }

export const grammarOf = (input: GrammarInput): Grammar => grammarSchema.parse(input)
export const schemaGrammar = (schema: unknown): Grammar => grammarOf({ type: 'jsonSchema', schema })
export const gbnf = (text: string): Grammar => grammarOf({ type: 'gbnf', text })
export const regex = (pattern: string): Grammar => grammarOf({ type: 'regex', pattern })

/** The sentence with which it is refused. */
export const fault = (grammar: Grammar): string => {
  const found = faultOfGrammar(grammar)
  if (found === null) throw new Error('The grammar was expected to be refused.')
  return found
}

export const allowedIds = (matcher: Matcher): readonly number[] => {
  const bits = new Uint32Array(matcher.mask().allowed.buffer)
  return Array.from({ length: 32 * bits.length }, (_, id) => id).filter((id) => (bits[id >>> 5]! >>> (id & 31)) & 1)
}

/** What ends a generation in these tests: a token that no text has. */
const END = 0xff

/** `ended`: the text is an answer; `open`: it begins one; null: neither. */
export const reading = (grammar: Grammar, text: string | Uint8Array): 'ended' | 'open' | null => {
  const matcher = openMatcher(grammar, BYTES, [END])
  for (const byte of Buffer.from(text)) if (!allowedIds(matcher).includes(byte) || !matcher.accept(byte)) return null
  return allowedIds(matcher).includes(END) ? 'ended' : 'open'
}

/** What ends most things that are open, in this order. */
const CLOSING = Buffer.from('"}]\\nx@')

/**
 * An answer that is drawn without a model; `random` gives numbers from 0 to below 1. Long ones are led to their end;
 * null: one that is not there after `most` bytes. Throws where nothing may follow and the grammar has not ended.
 */
export const drawn = (grammar: Grammar, random: () => number, most = 2000): string | null => {
  const matcher = openMatcher(grammar, BYTES, [END])
  const bytes: number[] = []
  while (bytes.length < most) {
    const long = bytes.length > 150
    const allowed = new Set(allowedIds(matcher))
    const ended = allowed.delete(END)
    if (allowed.size === 0 || (ended && (long || random() < 0.2))) {
      if (!ended || matcher.over() !== (allowed.size === 0 ? 'grammar' : null))
        throw new Error(`Nothing may follow ${Buffer.from(bytes)}.`)
      return Buffer.from(bytes).toString()
    }
    const closing = [...CLOSING].filter((id) => allowed.has(id))
    const from = closing.length > 0 && random() < (long ? 0.9 : 0.3) ? closing : [...allowed]
    // The first of those that close something is the likeliest.
    const id = from[Math.floor(random() ** (from === closing ? 3 : 1) * from.length)]!
    matcher.accept(id)
    bytes.push(id)
  }
  return null
}

/** Where a rule that begins at `at` can end, in characters: the definition, followed word for word. */
const endsOf = (expression: Expression, text: readonly string[], at: number): ReadonlySet<number> => {
  const from = (starts: Iterable<number>, part: Expression): Set<number> =>
    new Set([...starts].flatMap((start) => [...endsOf(part, text, start)]))
  switch (expression.kind) {
    case 'chars': {
      const code = text[at]?.codePointAt(0)
      const is = code !== undefined && expression.set.some(([first, last]) => first <= code && code <= last)
      return new Set(is ? [at + 1] : [])
    }
    case 'words':
      return new Set(
        expression.words.flatMap((word) => {
          const chars = [...word]
          return chars.every((char, i) => text[at + i] === char) ? [at + chars.length] : []
        }),
      )
    case 'rule':
      return endsOf(expression.rule.body, text, at)
    case 'either':
      return new Set(expression.parts.flatMap((part) => [...endsOf(part, text, at)]))
    case 'sequence':
      return expression.parts.reduce<ReadonlySet<number>>((starts, part) => from(starts, part), new Set([at]))
    case 'repeat': {
      let ends: ReadonlySet<number> = new Set([at])
      for (let count = 0; count < expression.min; count += 1) ends = from(ends, expression.part)
      const all = new Set(ends)
      for (let count = expression.min; count < expression.max && ends.size > 0; count += 1) {
        ends = new Set([...from(ends, expression.part)].filter((end) => !all.has(end)))
        for (const end of ends) all.add(end)
      }
      return all
    }
  }
}

/** Whether the rule reads the whole text. */
export const reads = (rule: Rule, text: string): boolean => {
  const chars = [...text]
  return endsOf(rule.body, chars, 0).has(chars.length)
}
