/**
 * What people use to find new lines of a log, as references: each takes the lines in their order and says of each
 * whether, or how far, it is new.
 */

/** What stands for a word that varies. */
export const MARK = '<*>'

/** A word of which a digit is part is taken for a value. */
const isValue = (word: string): boolean => /[0-9]/.test(word)

export const wordsOf = (text: string): readonly string[] => text.split(/[ \t\r\n]+/).filter(Boolean)

export const masked = (text: string): string =>
  wordsOf(text)
    .map((word) => (isValue(word) ? MARK : word))
    .join(' ')

/** A set of masked lines: a line is new if its masked form was never seen. */
export const createMaskedSet = (): ((text: string) => boolean) => {
  const seen = new Set<string>()
  return (text) => seen.size < seen.add(masked(text)).size
}

/** Share of the pairs of neighbouring masked words, the line's ends among them, that were never seen. */
export const createPairs = (): ((text: string) => number) => {
  const seen = new Set<string>()
  return (text) => {
    const words = ['', ...masked(text).split(' '), '']
    const pairs = words.slice(1).map((word, i) => `${words[i]} ${word}`)
    const share = pairs.filter((pair) => !seen.has(pair)).length / pairs.length
    for (const pair of pairs) seen.add(pair)
    return share
  }
}

interface Node {
  readonly children: Map<string, Node>
  /** Of a leaf: templates, as words. */
  readonly groups: string[][]
}

export interface TreeOptions {
  /** Layers, the root and the leaves among them. */
  readonly depth: number
  /** The least share of equal words that joins a line to a template. */
  readonly similarity: number
  /** The most children of a node; what would be another one goes to the child of MARK. */
  readonly children: number
}

const PAPER: TreeOptions = { depth: 4, similarity: 0.5, children: 100 }

/**
 * Template mining with a fixed-depth tree (P. He, J. Zhu, Z. Zheng, M. R. Lyu: Drain, ICWS 2017, section III, without
 * the expressions that a user may give it for each log): a line goes by its number of words, then by its first depth −
 * 2 words, where one with a digit goes by MARK, to a leaf; there it joins the template with the most equal words at
 * equal places, if these are enough. Words of the template that differ become MARK. A line is new if it begins a
 * template.
 */
export const createTree = ({ depth, similarity, children }: TreeOptions = PAPER): ((text: string) => boolean) => {
  const root: Node = { children: new Map(), groups: [] }
  const childOf = (node: Node, key: string, most: number): Node => {
    // A place is kept for MARK.
    const full = node.children.size + Number(!node.children.has(MARK)) >= most
    const name = node.children.has(key) || !full ? key : MARK
    const child = node.children.get(name) ?? { children: new Map(), groups: [] }
    node.children.set(name, child)
    return child
  }
  return (text) => {
    const words = wordsOf(text)
    let node = childOf(root, String(words.length), Number.POSITIVE_INFINITY)
    for (const word of words.slice(0, depth - 2)) node = childOf(node, isValue(word) ? MARK : word, children)
    let [best, most]: [string[] | null, number] = [null, -1]
    for (const group of node.groups) {
      const equal = group.filter((word, i) => word === words[i]).length
      if (equal > most) [best, most] = [group, equal]
    }
    if (best === null || most < similarity * words.length) {
      node.groups.push([...words])
      return true
    }
    for (const [i, word] of words.entries()) if (best[i] !== word) best[i] = MARK
    return false
  }
}
