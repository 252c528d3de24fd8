/**
 * SentencePiece's BPE as GGUF files have it: of all pairs of neighbouring pieces whose union is a piece, the one whose
 * union has the highest score is joined, the leftmost of equals, until none is left. A character that is no piece
 * becomes the bytes of its UTF-8. (Kudo and Richardson 2018, SentencePiece; the order of equals is that of the
 * reference's agenda.)
 */
import type { Parts } from './stream.ts'

export interface ScoredPiece {
  readonly id: number
  readonly score: number
}

export interface SentencePieces {
  readonly pieces: ReadonlyMap<string, ScoredPiece>
  /** The id of each byte; undefined: the vocabulary has no token for it. */
  readonly bytes: readonly (number | undefined)[]
  /** For characters that are no piece and whose bytes are not all tokens; null: they give nothing. */
  readonly unknown: number | null
}

interface Pair {
  readonly left: number
  readonly right: number
  readonly score: number
  /** UTF-16 units of both together, by which a pair is known to be stale. */
  readonly size: number
}

const before = (a: Pair, b: Pair): boolean => a.score > b.score || (a.score === b.score && a.left < b.left)

const put = (heap: Pair[], pair: Pair): void => {
  let at = heap.push(pair) - 1
  while (at > 0) {
    const up = (at - 1) >> 1
    if (!before(pair, heap[up]!)) break
    heap[at] = heap[up]!
    at = up
  }
  heap[at] = pair
}

const takeFirst = (heap: Pair[]): Pair | undefined => {
  const first = heap[0]
  const last = heap.pop()
  if (last === undefined || heap.length === 0) return first
  let at = 0
  for (;;) {
    let down = 2 * at + 1
    if (down >= heap.length) break
    if (down + 1 < heap.length && before(heap[down + 1]!, heap[down]!)) down += 1
    if (!before(heap[down]!, last)) break
    heap[at] = heap[down]!
    at = down
  }
  heap[at] = last
  return first
}

const utf8 = new TextEncoder()

/** The ids of a word; steps grow as n log n with its characters. */
export const sentencePieceEncoder = ({ pieces, bytes, unknown }: SentencePieces): Parts['encode'] => {
  const idsOf = (symbol: string): readonly number[] => {
    const piece = pieces.get(symbol)
    if (piece !== undefined) return [piece.id]
    const ids = Array.from(utf8.encode(symbol), (byte) => bytes[byte])
    if (ids.every((id) => id !== undefined)) return ids
    return unknown === null ? [] : [unknown]
  }
  return (word) => {
    /** A symbol that was joined to its left neighbour is empty. */
    const symbols = [...word]
    const next = symbols.map((_, at) => at + 1)
    const previous = symbols.map((_, at) => at - 1)
    const heap: Pair[] = []
    const offer = (left: number, right: number): void => {
      if (left < 0 || right >= symbols.length) return
      const union = symbols[left]! + symbols[right]!
      const piece = pieces.get(union)
      if (piece !== undefined) put(heap, { left, right, score: piece.score, size: union.length })
    }
    for (let at = 1; at < symbols.length; at += 1) offer(at - 1, at)
    for (let pair = takeFirst(heap); pair !== undefined; pair = takeFirst(heap)) {
      const { left, right, size } = pair
      const stale =
        symbols[left] === '' || symbols[right] === '' || symbols[left]!.length + symbols[right]!.length !== size
      if (stale) continue
      symbols[left] += symbols[right]!
      symbols[right] = ''
      next[left] = next[right]!
      if (next[left]! < symbols.length) previous[next[left]!] = left
      offer(previous[left]!, left)
      offer(left, next[left]!)
    }
    return symbols.flatMap((symbol) => (symbol === '' ? [] : idsOf(symbol)))
  }
}
