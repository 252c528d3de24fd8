/**
 * The hidden vectors behind the tokens of an observation, made one: their mean, and the last of them. Sums are of
 * double precision, each slice's added by the engine in the order of its tokens, the slices' in theirs; where slices
 * end follows from the record, so a replay adds the same numbers.
 */
import type { Observed } from '../../../topics/observations.ts'
import type { WorkResult } from '../../engine/work.ts'
import type { Head } from '../../state/head.ts'

const base64Of = ({ buffer, byteOffset, byteLength }: Float32Array | Float64Array): string =>
  Buffer.from(buffer, byteOffset, byteLength).toString('base64')

/** The bytes of a vector in base64, copied to where an f32 or f64 may begin. */
export const numbersIn = (text: string): ArrayBuffer => Uint8Array.from(Buffer.from(text, 'base64')).buffer

/** Adds what a slice of input left, where it was asked for. */
export const pooled = (head: Head, { hidden }: Pick<WorkResult, 'hidden'>): Head => {
  if (hidden === undefined) return head
  const before = head.span.hidden && new Float64Array(numbersIn(head.span.hidden.sum))
  const sum = before === undefined ? hidden.sum : before.map((value, at) => value + hidden.sum[at]!)
  return { ...head, span: { ...head.span, hidden: { sum: base64Of(sum), last: base64Of(hidden.last) } } }
}

/** What is told of the vectors behind so many tokens, one at least. */
export const embeddingOf = (
  { sum, last }: NonNullable<Head['span']['hidden']>,
  tokens: number,
): NonNullable<Observed['embedding']> => ({
  mean: base64Of(Float32Array.from(new Float64Array(numbersIn(sum)), (value) => value / tokens)),
  last,
})
