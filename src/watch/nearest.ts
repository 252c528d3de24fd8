/** The lines that were read last, and which of them is most like another one. */

/** Characters of a line that are kept. */
const MOST_LINE = 400

export interface Nearest {
  /** Keeps a line; the oldest gives way. */
  add(number: number, text: string): void
  /**
   * The kept line that has most words in common with this one, of equal ones the last; null: none has one. Words with a
   * digit count as one word.
   */
  find(text: string): { readonly line: number; readonly text: string } | null
}

const wordsOf = (text: string): readonly string[] =>
  text
    .split(/\s+/)
    .filter(Boolean)
    .map((word) => (/\d/.test(word) ? '<*>' : word))

/** `most`: lines that are kept. */
export const createNearest = (most: number): Nearest => {
  const kept: { readonly line: number; readonly text: string }[] = []
  let next = 0
  return {
    add(line, text) {
      kept[next] = { line, text: text.slice(0, MOST_LINE) }
      next = (next + 1) % most
    },
    find(text) {
      const words = wordsOf(text.slice(0, MOST_LINE))
      const counts = new Map<string, number>()
      for (const word of words) counts.set(word, (counts.get(word) ?? 0) + 1)
      let best: { readonly line: number; readonly text: string } | null = null
      let most = 0
      for (const line of kept) {
        const own = wordsOf(line.text)
        const left = new Map(counts)
        let common = 0
        for (const word of own) {
          const count = left.get(word) ?? 0
          if (count === 0) continue
          common += 1
          left.set(word, count - 1)
        }
        // Dice's coefficient.
        const likeness = (2 * common) / (words.length + own.length)
        if (likeness < most || likeness === 0 || (likeness === most && best !== null && best.line > line.line)) continue
        most = likeness
        best = line
      }
      return best
    },
  }
}
