/** The tokens of a vocabulary as a tree over their bytes, in the order of a walk, so that a walk is one loop. */

/** The tokens of a model: how many ids it has, and the bytes of each. */
export interface Vocabulary {
  readonly vocabSize: number
  readonly tokenizer: { bytesOf(id: number): Uint8Array }
}

export interface Tree {
  readonly vocabSize: number
  /**
   * Of each node, depth first: the byte that leads to it, how many bytes lead to it, the node behind its last
   * descendant, a token that ends there or -1.
   */
  readonly byte: Uint8Array
  readonly depth: Uint16Array
  readonly after: Int32Array
  readonly token: Int32Array
  /** Of each token: another one of the same bytes, or -1. */
  readonly same: Int32Array
  readonly deepest: number
}

/** Tokens without bytes (special ones, unused ids) are not in it. */
export const treeOf = ({ vocabSize, tokenizer }: Vocabulary): Tree => {
  const tokens: { readonly id: number; readonly bytes: Uint8Array }[] = []
  let total = 0
  let deepest = 0
  for (let id = 0; id < vocabSize; id += 1) {
    const bytes = tokenizer.bytesOf(id)
    if (bytes.length === 0) continue
    tokens.push({ id, bytes })
    total += bytes.length
    deepest = Math.max(deepest, bytes.length)
  }
  tokens.sort((a, b) => Buffer.compare(a.bytes, b.bytes) || a.id - b.id)
  const byte = new Uint8Array(total)
  const depth = new Uint16Array(total)
  const after = new Int32Array(total)
  const token = new Int32Array(total).fill(-1)
  const same = new Int32Array(vocabSize).fill(-1)
  const path: number[] = []
  let last: Uint8Array = new Uint8Array(0)
  let count = 0
  const close = (to: number): void => {
    while (path.length > to) after[path.pop()!] = count
  }
  for (const { id, bytes } of tokens) {
    let shared = 0
    while (shared < last.length && shared < bytes.length && last[shared] === bytes[shared]) shared += 1
    close(shared)
    for (let at = shared; at < bytes.length; at += 1) {
      byte[count] = bytes[at]!
      depth[count] = at + 1
      path.push(count)
      count += 1
    }
    const node = path.at(-1)!
    if (token[node] !== -1) same[id] = token[node]!
    token[node] = id
    last = bytes
  }
  close(0)
  const nodes = { byte: byte.slice(0, count), depth: depth.slice(0, count), after: after.slice(0, count) }
  return { ...nodes, vocabSize, token: token.slice(0, count), same, deepest }
}
