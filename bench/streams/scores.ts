/**
 * Scores of a line by the bits that a reader needed for each of its bytes: the higher, the more the line is taken for
 * new.
 */

import { createJudge, type Novelty } from '../../src/novelty/judge.ts'

const HIGHEST = 8
const [TAB, LINE_END, RETURN, BLANK, ZERO, NINE] = [9, 10, 13, 32, 48, 57]

const isSpace = (byte: number): boolean => byte === BLANK || byte === LINE_END || byte === TAB || byte === RETURN

/** The bits of the bytes that are in no word with a digit; blanks are in no word. */
export const outsideValues = (bits: Float64Array, line: Uint8Array): Float64Array => {
  const kept: number[] = []
  for (let at = 0; at < line.length; ) {
    let end = at
    while (end < line.length && !isSpace(line[end]!)) end += 1
    const isValue = line.subarray(at, end).some((byte) => byte >= ZERO && byte <= NINE)
    if (!isValue) kept.push(...bits.subarray(at, end))
    if (end < line.length) kept.push(bits[end]!)
    at = end + 1
  }
  return Float64Array.from(kept)
}

const sum = (bits: Float64Array): number => bits.reduce((a, b) => a + b, 0)
/** A typed array sorts by value; the highest stand at its end. */
const highest = (bits: Float64Array): number => sum(bits.toSorted().subarray(-HIGHEST))

export const SCORES: readonly (readonly [name: string, of: (bits: Float64Array, line: Uint8Array) => number])[] = [
  ['bits', sum],
  ['eight highest bytes', highest],
  ['bits outside values', (bits, line) => sum(outsideValues(bits, line))],
  ['eight highest outside values', (bits, line) => highest(outsideValues(bits, line))],
]

/** What `continuo watch` says of each line. */
export const watched = (lengths: readonly number[], bytes: Uint8Array, bits: Float64Array): readonly Novelty[] => {
  const { judge } = createJudge()
  let at = 0
  return lengths.map((length, line) => {
    const [from, to] = [at, at + length - 1]
    at += length
    return judge(bytes.subarray(from, to), bits.subarray(from, to), line)
  })
}

/** How each line stands among the thousand before it, by its structure, its values, and its rate. */
export const watchedScores = (
  lengths: readonly number[],
  bytes: Uint8Array,
  bits: Float64Array,
): readonly { readonly name: string; readonly scores: readonly number[] }[] => {
  const judged = watched(lengths, bytes, bits)
  return (['structure', 'values', 'rate'] as const).flatMap((part) => [
    { name: part, scores: judged.map((novelty) => novelty[part].score) },
    { name: `rank of ${part}`, scores: judged.map((novelty) => novelty[part].rank ?? 0) },
  ])
}

/** The scores of each line, of `bytes` with a line end behind each line and the bits of each byte. */
export const scoresOf = (
  lengths: readonly number[],
  bytes: Uint8Array,
  bits: Float64Array,
): readonly (readonly number[])[] =>
  SCORES.map(([, of]) => {
    let at = 0
    return lengths.map((length) => {
      const from = at
      at += length
      return of(bits.subarray(from, at), bytes.subarray(from, at))
    })
  })
