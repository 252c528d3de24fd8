/** What the readers of grammars make: expressions over characters, and the rules that they name. */
import { ANY, among, type Chars } from './chars.ts'

/** A rule may name itself: `body` is set after it was made. */
export interface Rule {
  /** For sentences. */
  readonly name: string
  body: Expression
}

export type Expression =
  /** One character of a set; none where the set is empty. */
  | { readonly kind: 'chars'; readonly set: Chars }
  /** One of these texts, which have no lone surrogates. */
  | { readonly kind: 'words'; readonly words: readonly string[] }
  | { readonly kind: 'sequence'; readonly parts: readonly Expression[] }
  /** One of these; without parts: nothing at all is that. */
  | { readonly kind: 'either'; readonly parts: readonly Expression[] }
  /** From `min` to `max` times, which may be Infinity. */
  | { readonly kind: 'repeat'; readonly part: Expression; readonly min: number; readonly max: number }
  | { readonly kind: 'rule'; readonly rule: Rule }

export const chars = (set: Chars): Expression => ({ kind: 'chars', set })
export const oneOf = (text: string): Expression => chars(among(text))
export const words = (texts: readonly string[]): Expression => ({ kind: 'words', words: texts })
export const word = (text: string): Expression => words([text])
export const sequence = (...parts: readonly Expression[]): Expression =>
  parts.length === 1 ? parts[0]! : { kind: 'sequence', parts }
export const NOTHING: Expression = { kind: 'either', parts: [] }
export const EMPTY: Expression = { kind: 'sequence', parts: [] }
export const ANY_CHAR: Expression = chars(ANY)

/** Texts among the parts become one list, which shares its beginnings. */
export const either = (...parts: readonly Expression[]): Expression => {
  const texts = parts.flatMap((part) => (part.kind === 'words' ? part.words : []))
  const others = parts.filter(({ kind }) => kind !== 'words')
  const all = texts.length > 0 ? [words(texts), ...others] : others
  return all.length === 1 ? all[0]! : { kind: 'either', parts: all }
}

export const repeat = (part: Expression, min: number, max = Number.POSITIVE_INFINITY): Expression => ({
  kind: 'repeat',
  part,
  min,
  max,
})
export const maybe = (part: Expression): Expression => repeat(part, 0, 1)
export const ruleOf = (name: string, body: Expression = NOTHING): Rule => ({ name, body })
export const use = (rule: Rule): Expression => ({ kind: 'rule', rule })
