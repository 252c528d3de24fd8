/**
 * What of a grammar is possible behind a text: states, made as they are met. A state is the set of places at which the
 * text can stand: a node that reads bytes, and the nodes at which unfinished rules go on (a chain of frames). What was
 * met is kept; it can be forgotten at any time, since a state follows from the bytes alone.
 */
import { MOST_DEPTH, MOST_PLACES, refuse } from './limits.ts'
import type { Network } from './network.ts'

/** A number; -1: nothing is possible. */
export type State = number
export const DEAD = -1
const UNKNOWN = -2

/** What a state is: of each place the node, then those of its frames, the innermost first. */
export interface Places {
  readonly stacks: readonly (readonly number[])[]
  readonly ended: boolean
}

const NOWHERE = { state: DEAD, passed: 0 }
/** Beyond every node. */
const FRAME = 2 ** 17

/** Bytes that no node of the network tells apart. */
const classesOf = ({ nodes }: Network): { readonly classes: Uint8Array; readonly count: number } => {
  const cuts = new Uint8Array(257)
  for (const { bytes } of nodes)
    for (const [first, last] of bytes) {
      cuts[first] = 1
      cuts[last + 1] = 1
    }
  const classes = new Uint8Array(256)
  let count = 0
  for (let byte = 0; byte < 256; byte += 1) {
    if (byte > 0 && cuts[byte] === 1) count += 1
    classes[byte] = count
  }
  return { classes, count: count + 1 }
}

export class Automaton {
  readonly #network: Network
  /** Of each byte. */
  readonly classes: Uint8Array
  readonly classCount: number
  /** [state][class]: where a byte leads. */
  #next: Int32Array
  /** [state][class]: the work to find that out, once it is known. It depends on the state and the class alone. */
  #work: Uint16Array
  /** Number of states found so far, and of the numbers that are stored for these states. */
  count = 0
  kept = 0
  /** Of each state: its places, [node, frame] each, and whether the text can end there. */
  readonly #places: Int32Array[] = []
  readonly #ended: boolean[] = []
  readonly #known = new Map<string, State>()
  /** Frame 0 is below all. */
  readonly #parents = [0]
  readonly #nodes = [-1]
  readonly #depths = [0]
  readonly #frames = new Map<number, number>()
  /** Before any byte. */
  readonly start: State

  /** Throws INVALID where the grammar has too many places before its first byte. */
  constructor(network: Network) {
    this.#network = network
    const { classes, count } = classesOf(network)
    this.classes = classes
    this.classCount = count
    this.#next = new Int32Array(64 * count)
    this.#work = new Uint16Array(64 * count)
    this.start = this.#follow([[network.start, 0]]).state
    if (this.start === DEAD)
      refuse(
        `The grammar stands at more than ${MOST_PLACES} places before its first character. Ask for fewer alternatives.`,
      )
  }

  /** Whether the text can end here. */
  ended(state: State): boolean {
    return this.#ended[state]!
  }

  step(state: State, byte: number): State {
    const at = state * this.classCount + this.classes[byte]!
    const known = this.#next[at]!
    return known === UNKNOWN ? this.#find(state, byte, at) : known
  }

  /** The work that `step` was, or would have been, had it not been known. */
  workOf(state: State, byte: number): number {
    return this.#work[state * this.classCount + this.classes[byte]!]!
  }

  /** The state without the numbers of this automaton. */
  placesOf(state: State): Places {
    const places = this.#places[state]!
    const stacks: number[][] = []
    for (let at = 0; at < places.length; at += 2) {
      const stack = [places[at]!]
      for (let frame = places[at + 1]!; frame !== 0; frame = this.#parents[frame]!) stack.push(this.#nodes[frame]!)
      stacks.push(stack)
    }
    return { stacks, ended: this.#ended[state]! }
  }

  /** The state of these places, which another automaton of the same network told. */
  stateOf({ stacks, ended }: Places): State {
    const places = stacks.map(([node, ...frames]): [number, number] => [
      node!,
      frames.reduceRight((below, each) => this.#frame(below, each), 0),
    ])
    return this.#intern(places, ended)
  }

  #find(state: State, byte: number, at: number): State {
    const places = this.#places[state]!
    const seeds: [number, number][] = []
    for (let each = 0; each < places.length; each += 2)
      for (const [first, last, to] of this.#network.nodes[places[each]!]!.bytes)
        if (first <= byte && byte <= last) seeds.push([to, places[each + 1]!])
    const { state: found, passed } = seeds.length === 0 ? NOWHERE : this.#follow(seeds)
    this.#next[at] = found
    this.#work[at] = 16 + places.length / 2 + passed
    return found
  }

  #frame(parent: number, node: number): number {
    const key = parent * FRAME + node
    const known = this.#frames.get(key)
    if (known !== undefined) return known
    this.kept += 1
    this.#nodes.push(node)
    this.#depths.push(this.#depths[parent]! + 1)
    const frame = this.#parents.push(parent) - 1
    this.#frames.set(key, frame)
    return frame
  }

  /** Follows all that costs no byte. DEAD where that passes too many places; how many does not depend on the order. */
  #follow(seeds: readonly (readonly [number, number])[]): { readonly state: State; readonly passed: number } {
    const { nodes, ends, onlyEnds } = this.#network
    const seen = new Set<number>()
    const waiting: (readonly [number, number])[] = []
    const reach = (node: number, frame: number): void => {
      const key = frame * FRAME + node
      if (seen.has(key)) return
      seen.add(key)
      waiting.push([node, frame])
    }
    for (const [node, frame] of seeds) reach(node, frame)
    const reading: (readonly [number, number])[] = []
    let ended = false
    for (let place = waiting.pop(); place !== undefined; place = waiting.pop()) {
      if (seen.size > MOST_PLACES) return { state: DEAD, passed: MOST_PLACES }
      const [at, frame] = place
      const { bytes, free, calls } = nodes[at]!
      if (bytes.length > 0) reading.push(place)
      for (const to of free) reach(to, frame)
      for (const { start, to } of calls) {
        if (onlyEnds[to]) reach(start, frame)
        else if (this.#depths[frame]! < MOST_DEPTH) reach(start, this.#frame(frame, to))
      }
      if (!ends[at]) continue
      if (frame === 0) ended = true
      else reach(this.#nodes[frame]!, this.#parents[frame]!)
    }
    // A place that only leads on was passed, and is no part of the state.
    const state = reading.length === 0 && !ended ? DEAD : this.#intern(reading, ended)
    return { state, passed: seen.size }
  }

  #intern(places: readonly (readonly [number, number])[], ended: boolean): State {
    const sorted = [...places].sort(([a, f], [b, g]) => a - b || f - g)
    const key = `${ended}${sorted.map(([node, frame]) => `,${node}:${frame}`).join('')}`
    const known = this.#known.get(key)
    if (known !== undefined) return known
    const state = this.count
    this.count += 1
    this.#known.set(key, state)
    this.#places.push(Int32Array.from(sorted.flat()))
    this.#ended.push(ended)
    this.kept += sorted.length + this.classCount
    const end = (state + 1) * this.classCount
    if (end > this.#next.length) {
      const [next, work] = [new Int32Array(2 * this.#next.length), new Uint16Array(2 * this.#next.length)]
      next.set(this.#next)
      work.set(this.#work)
      this.#next = next
      this.#work = work
    }
    this.#next.fill(UNKNOWN, end - this.classCount, end)
    return state
  }
}
