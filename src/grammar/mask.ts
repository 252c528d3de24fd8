/** Which tokens may follow: those whose bytes lead through the automaton of a grammar. */
import { type Automaton, DEAD, type State } from './automaton.ts'
import { MOST_WORK } from './limits.ts'
import type { Tree } from './vocabulary.ts'

export interface Mask {
  /** Whether a token may be drawn: id 64 i + j at bit j of word i. */
  readonly allowed: BigUint64Array
  /** How many may. */
  readonly count: number
}

/** 32 tokens a word: the same bytes, on the machines that there are. */
const words = ({ allowed }: Mask): Uint32Array => new Uint32Array(allowed.buffer)

/**
 * The tokens that may follow in a state. Each byte that is followed costs the work of its step, once for a state and a
 * class of bytes; where a token's bytes would take more than MOST_WORK together with the tokens before it in the order
 * of their bytes, it may not follow. That needs a grammar that is highly ambiguous, and it keeps a worker from standing
 * still for it.
 */
export const maskOf = (automaton: Automaton, state: State, tree: Tree): Mask => {
  const { byte, depth, after, token, same } = tree
  const mask = { allowed: new BigUint64Array(Math.ceil(tree.vocabSize / 64)), count: 0 }
  const bits = words(mask)
  const { classes, classCount } = automaton
  const states = new Int32Array(tree.deepest + 1)
  states[0] = state
  let paid = new Uint8Array(Math.max(64, automaton.count) * classCount)
  let work = 0
  /** Whether there is enough left for the work of this step. */
  const affordable = (place: number, from: State, by: number): boolean => {
    if (place >= paid.length) {
      const grown = new Uint8Array(2 * Math.max(place + 1, automaton.count * classCount))
      grown.set(paid)
      paid = grown
    }
    const more = work + automaton.workOf(from, by)
    if (more > MOST_WORK) return false
    paid[place] = 1
    work = more
    return true
  }
  for (let node = 0; node < byte.length; ) {
    const at = depth[node]!
    const from = states[at - 1]!
    const by = byte[node]!
    const next = automaton.step(from, by)
    const place = from * classCount + classes[by]!
    if ((paid[place] !== 1 && !affordable(place, from, by)) || next === DEAD) {
      node = after[node]!
      continue
    }
    states[at] = next
    for (let id = token[node]!; id >= 0; id = same[id]!) {
      bits[id >>> 5]! |= 1 << (id & 31)
      mask.count += 1
    }
    node += 1
  }
  return mask
}

/**
 * The mask with tokens that may end the answer, whatever their bytes: they may be drawn where the grammar can end, and
 * nowhere else.
 */
export const withEnds = (mask: Mask, ends: readonly number[], ended: boolean): Mask => {
  if (ends.length === 0) return mask
  const out = { allowed: mask.allowed.slice(), count: mask.count }
  const bits = words(out)
  for (const id of new Set(ends)) {
    const [word, bit] = [id >>> 5, 1 << (id & 31)]
    out.count += Number(ended) - ((bits[word]! >>> (id & 31)) & 1)
    bits[word] = ended ? bits[word]! | bit : bits[word]! & ~bit
  }
  return out
}
