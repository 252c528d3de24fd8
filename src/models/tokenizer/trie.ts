/**
 * Tokens as the longest match over bytes (RWKV's World vocabulary): at each place of the text the longest token that
 * stands there.
 *
 * Every single byte is a token, so nothing fails, and text is read as its UTF-8 without being looked at otherwise. A
 * token is certain when the walk down the trie has died, or has come to a token that no other begins with; until then
 * the bytes from its place on are held: fewer than the longest token has.
 */
import { type AddedToken, addedTokens, findAdded } from './added.ts'
import { isHighHalf } from './held.ts'
import { MOST_NODES, MOST_TOKEN } from './limits.ts'
import type { Pushed, Tokenizer } from './types.ts'
import { Unstreamable } from './unstreamable.ts'

const utf8 = new TextEncoder()
const NOTHING = new Uint8Array(0)

/**
 * Nodes in flat arrays, the root first; the children of a node lie beside each other, in ascending order of their
 * bytes.
 */
interface Trie {
  /** The id of the token that ends at a node; −1: none. */
  readonly token: Int32Array
  /** The byte that leads to a node. */
  readonly byte: Uint8Array
  /** children[start[n]] … children[start[n + 1] − 1] are those of node n. */
  readonly start: Int32Array
  readonly children: Int32Array
}

const shown = (bytes: Uint8Array): string => JSON.stringify(Buffer.from(bytes).toString('latin1').slice(0, 40))

const commonLength = (a: Uint8Array, b: Uint8Array): number => {
  let at = 0
  while (at < a.length && at < b.length && a[at] === b[at]) at += 1
  return at
}

/** The child of a node for a byte; −1: none. */
const step = ({ byte, start, children }: Trie, node: number, wanted: number): number => {
  let low = start[node]!
  let high = start[node + 1]!
  while (low < high) {
    const middle = (low + high) >> 1
    const found = byte[children[middle]!]!
    if (found === wanted) return children[middle]!
    if (found < wanted) low = middle + 1
    else high = middle
  }
  return -1
}

const hasChildren = ({ start }: Trie, node: number): boolean => start[node + 1]! > start[node]!

/** Throws Unstreamable for a token twice, an empty one, a longer one than is taken, and where a byte is no token. */
const trieOf = (tokens: ReadonlyMap<number, Uint8Array>): Trie => {
  const sorted = [...tokens].sort(([, a], [, b]) => Buffer.compare(a, b))
  let nodes = 1
  let before: Uint8Array = NOTHING
  for (const [id, bytes] of sorted) {
    if (bytes.length === 0) throw new Unstreamable(`an empty token with the id ${id}`)
    if (bytes.length > MOST_TOKEN)
      throw new Unstreamable(`the token ${shown(bytes)} of ${bytes.length} bytes; at most ${MOST_TOKEN} are taken`)
    const common = commonLength(before, bytes)
    if (common === bytes.length) throw new Unstreamable(`the token ${shown(bytes)} twice, the second time as ${id}`)
    nodes += bytes.length - common
    before = bytes
  }
  if (nodes > MOST_NODES)
    throw new Unstreamable(
      `tokens of ${nodes} bytes in all, without common beginnings; at most ${MOST_NODES} are taken`,
    )
  const token = new Int32Array(nodes).fill(-1)
  const byte = new Uint8Array(nodes)
  const parent = new Int32Array(nodes)
  const start = new Int32Array(nodes + 1)
  /** The nodes of the token before, by depth. */
  const path = [0]
  let made = 1
  before = NOTHING
  for (const [id, bytes] of sorted) {
    for (let depth = commonLength(before, bytes); depth < bytes.length; depth += 1) {
      byte[made] = bytes[depth]!
      parent[made] = path[depth]!
      start[path[depth]! + 1]! += 1
      path[depth + 1] = made
      made += 1
    }
    token[path[bytes.length]!] = id
    before = bytes
  }
  for (let node = 0; node < nodes; node += 1) start[node + 1]! += start[node]!
  // Nodes were made in the order of their bytes, so the children of each come in that order.
  const children = new Int32Array(nodes)
  const next = start.slice()
  for (let node = 1; node < nodes; node += 1) children[next[parent[node]!]!++] = node
  const trie = { token, byte, start, children }
  for (let value = 0; value < 256; value += 1)
    if ((token[step(trie, 0, value)] ?? -1) < 0)
      throw new Unstreamable(`no token for the byte 0x${value.toString(16).padStart(2, '0')}; every byte needs one`)
  return trie
}

/**
 * Appends the tokens that no later byte can change to `ids`, or all tokens where the text has `ended`; returns how many
 * bytes they have.
 */
const encode = (trie: Trie, bytes: Uint8Array, ended: boolean, ids: number[]): number => {
  let at = 0
  while (at < bytes.length) {
    let node = 0
    let seen = at
    let end = at
    let id = -1
    while (hasChildren(trie, node)) {
      if (seen === bytes.length) {
        if (!ended) return at
        break
      }
      node = step(trie, node, bytes[seen]!)
      if (node < 0) break
      seen += 1
      if (trie.token[node]! >= 0) {
        id = trie.token[node]!
        end = seen
      }
    }
    ids.push(id)
    at = end
  }
  return at
}

/** Bytes as a string: text where they are UTF-8, else U+DC00 + byte, as Python's surrogateescape (PEP 383). */
const asHeld = (bytes: Uint8Array): string => {
  const decoder = new TextDecoder('utf-8', { fatal: true, ignoreBOM: true })
  let held = ''
  for (let at = 0; at < bytes.length; ) {
    const first = bytes[at]!
    const length = first < 0x80 ? 1 : first < 0xe0 ? 2 : first < 0xf0 ? 3 : 4
    const char = bytes.subarray(at, at + length)
    try {
      held += decoder.decode(char)
      at += length
    } catch {
      held += String.fromCharCode(0xdc00 + first)
      at += 1
    }
  }
  return held
}

/** The bytes of a held text, and the high surrogate at its end, if there is one. Takes any string. */
const bytesOfHeld = (held: string): { readonly bytes: Uint8Array; readonly half: string } => {
  const half = isHighHalf(held.slice(-1)) ? held.slice(-1) : ''
  const pieces = held.slice(0, held.length - half.length).split(/([\udc80-\udcff]+)/u)
  // Every second piece is bytes.
  const bytes = pieces.map((piece, at) =>
    at % 2 === 0 ? utf8.encode(piece) : Uint8Array.from(piece, (char) => char.charCodeAt(0) - 0xdc00),
  )
  return { bytes: Buffer.concat(bytes), half }
}

/** Bytes as characters U+0000 … U+00FF, in which added tokens are looked for. */
const asBinary = (bytes: Uint8Array): string => Buffer.from(bytes).toString('latin1')

export interface TrieOptions {
  readonly eos: number | null
  /**
   * Looked for in the text before any other token: from left to right, the longest at each place. They have no text.
   */
  readonly control?: readonly { readonly id: number; readonly content: string }[]
}

/** `tokens`: the bytes of each id. Throws Unstreamable. */
export const trieTokenizer = (
  tokens: ReadonlyMap<number, Uint8Array>,
  { eos, control = [] }: TrieOptions,
): Tokenizer => {
  const trie = trieOf(tokens)
  const added = addedTokens(
    control.map(({ id, content }) => ({ id, content: asBinary(utf8.encode(content)), lstrip: false, rstrip: false })),
  )
  const read = (bytes: Uint8Array, ended: boolean): { readonly ids: Int32Array; readonly rest: Uint8Array } => {
    const ids: number[] = []
    let open: Uint8Array = NOTHING
    const text = (binary: string): void => {
      const all = Buffer.concat([open, Buffer.from(binary, 'latin1')])
      open = all.subarray(encode(trie, all, false, ids))
    }
    const token = ({ id }: AddedToken): void => {
      encode(trie, open, true, ids)
      open = NOTHING
      ids.push(id)
    }
    if (control.length === 0) open = bytes.subarray(encode(trie, bytes, ended, ids))
    else {
      const binary = asBinary(bytes)
      const { rest } = findAdded(added, binary, ended, false, text, token)
      // What is held is looked through again from its beginning: no control token began in what the trie holds.
      open = Buffer.concat([open, Buffer.from(binary.slice(rest), 'latin1')])
      if (ended) open = open.subarray(encode(trie, open, true, ids))
    }
    return { ids: Int32Array.from(ids), rest: open }
  }
  let highest = Math.max(eos ?? 0, ...control.map(({ id }) => id))
  for (const id of tokens.keys()) if (id > highest) highest = id
  return {
    vocabSize: highest + 1,
    eos,
    begun: '',
    push(held, text): Pushed {
      if (text === '') return { ids: new Int32Array(0), held }
      const before = bytesOfHeld(held)
      const all = before.half + text
      const last = all.slice(-1)
      const half = isHighHalf(last) ? last : ''
      // TextEncoder replaces lone surrogates by U+FFFD itself.
      const { ids, rest } = read(
        Buffer.concat([before.bytes, utf8.encode(all.slice(0, all.length - half.length))]),
        false,
      )
      return { ids, held: asHeld(rest) + half }
    },
    pushBytes(held, bytes): Pushed {
      // No bytes are no event: they must not break a pair.
      if (bytes.length === 0) return { ids: new Int32Array(0), held }
      const before = bytesOfHeld(held)
      const { ids, rest } = read(Buffer.concat([before.bytes, utf8.encode(before.half), bytes]), false)
      return { ids, held: asHeld(rest) }
    },
    flush(held) {
      const { bytes, half } = bytesOfHeld(held)
      return read(Buffer.concat([bytes, utf8.encode(half)]), true).ids
    },
    bytesOf: (id) => tokens.get(id) ?? NOTHING,
    turns: {
      special: new Map(control.map(({ id, content }) => [content, id])),
      encode(text) {
        const ids: number[] = []
        encode(trie, utf8.encode(text), true, ids)
        return Int32Array.from(ids)
      },
    },
  }
}
