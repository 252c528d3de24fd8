/**
 * The graph of topics of an external memory in double precision: its gardener and its walker
 * (docs/infinite-context.md#topics).
 */
import { dot, plus, type Vector } from '../float64.ts'
import { mean, unit } from './outer-memory-modules.ts'

export interface Topics {
  readonly max_virtual: number
  readonly new_distance: number
  readonly drift_min: number
  readonly split_variance: number
  readonly split_min: number
  readonly split_iterations: number
  readonly merge_distance: number
  readonly fan: number
  readonly max_hops: number
  readonly walker_width: number
}
interface Topic {
  c: Vector
  n: number
  s: number
}

const distance = (a: Vector, b: Vector): number => a.reduce((sum, x, i) => sum + (x - b[i]!) ** 2, 0)

/** `xOf`: the vector of a block. `compared`: told of two numbers on whose order something depended. */
export const gardenReference = (
  topics: Topics,
  xOf: (block: number) => Vector,
  note: (event: { type: string; [more: string]: unknown }) => void,
  compared: (a: number, b: number) => void,
) => {
  const slots: (Topic | null)[] = Array.from({ length: topics.max_virtual }, () => null)
  const member: number[] = []
  const members = (slot: number): number[] => member.flatMap((of, block) => (of === slot ? [block] : []))
  /** The number whose value is least, the first of equals. */
  const least = (values: readonly number[]): number => {
    const sorted = values.toSorted((a, b) => a - b)
    if (sorted.length > 1) compared(sorted[0]!, sorted[1]!)
    return values.indexOf(sorted[0]!)
  }
  const split = (slot: number): void => {
    const topic = slots[slot]!
    const other = slots.indexOf(null)
    if (topic.n < topics.split_min || other < 0) return
    compared(topic.s, topics.split_variance)
    if (topic.s <= topics.split_variance) return
    const own = members(slot)
    const farthest = (from: Vector): number => own[least(own.map((b) => -distance(xOf(b), from)))]!
    const a = farthest(topic.c)
    const centers: [Vector, Vector] = [xOf(a), xOf(farthest(xOf(a)))]
    let sides: [number[], number[]] = [own, []]
    for (let turn = 0; turn < topics.split_iterations; turn += 1) {
      const first = (b: number): boolean => {
        const [near, far] = [distance(xOf(b), centers[0]), distance(xOf(b), centers[1])]
        compared(near, far)
        return near <= far
      }
      sides = [own.filter(first), own.filter((b) => !first(b))]
      for (const i of [0, 1] as const) if (sides[i].length > 0) centers[i] = mean(sides[i].map(xOf))
    }
    if (sides[0].length === 0 || sides[1].length === 0) return
    for (const [i, at] of [slot, other].entries()) {
      const side = sides[i]!
      slots[at] = {
        c: centers[i]!,
        n: side.length,
        s: side.reduce((sum, b) => sum + distance(xOf(b), centers[i]!), 0) / side.length,
      }
      for (const block of side) member[block] = at
    }
    note({ type: 'split', virtual: slot, new: other, moved: sides[1] })
  }
  const merge = (): void => {
    const active = slots.flatMap((topic, i) => (topic === null ? [] : [i]))
    const pairs = active.flatMap((i) => active.filter((j) => j > i).map((j) => [i, j] as const))
    if (pairs.length === 0) return
    const far = pairs.map(([i, j]) => distance(slots[i]!.c, slots[j]!.c))
    const nearest = Math.min(...far)
    compared(nearest, topics.merge_distance)
    if (nearest >= topics.merge_distance) return
    const [i, j] = pairs[least(far)]!
    const [a, b] = [slots[i]!, slots[j]!]
    const n = a.n + b.n
    slots[i] = {
      c: plus(
        a.c.map((x) => (a.n / n) * x),
        b.c.map((x) => (b.n / n) * x),
      ),
      n,
      s: (a.n * a.s + b.n * b.s) / n + ((a.n * b.n) / n ** 2) * nearest,
    }
    slots[j] = null
    for (const block of members(j)) member[block] = i
    note({ type: 'merge', into: i, from: j })
  }
  return {
    insert: (block: number): void => {
      const x = xOf(block)
      const active = slots.flatMap((topic, i) => (topic === null ? [] : [i]))
      const far = active.map((i) => distance(x, slots[i]!.c))
      const free = slots.indexOf(null)
      const near = far.length === 0 ? -1 : least(far)
      if (near >= 0 && free >= 0) compared(far[near]!, topics.new_distance)
      const fresh = near < 0 || (far[near]! > topics.new_distance && free >= 0)
      const slot = fresh ? free : active[near]!
      if (fresh) slots[slot] = { c: x, n: 1, s: 0 }
      else {
        const { c, n, s } = slots[slot]!
        const rate = Math.max(1 / (n + 1), topics.drift_min)
        slots[slot] = {
          c: c.map((value, i) => value + rate * (x[i]! - value)),
          n: n + 1,
          s: (1 - rate) * (s + rate * far[near]!),
        }
      }
      member[block] = slot
      note({ type: 'node', block, virtual: slot, new: fresh })
      if (!fresh) split(slot)
      merge()
    },
    /** The blocks that a question collects, n at most. */
    walk: (e: Vector, archived: number, n: number, score: (features: Vector) => number): readonly number[] => {
      interface Node {
        readonly virtual: boolean
        readonly at: number
        readonly x: Vector
      }
      const topic = (at: number): Node => ({ virtual: true, at, x: unit(slots[at]!.c) })
      const real = (at: number): Node => ({ virtual: false, at, x: xOf(at) })
      const active = slots.flatMap((each, i) => (each === null ? [] : [i]))
      if (active.length === 0) return []
      let here = topic(active[least(active.map((i) => -dot(e, topic(i).x)))]!)
      const collected: number[] = []
      for (let hop = 0; hop < topics.max_hops && collected.length < n; hop += 1) {
        let next: Node[]
        if (here.virtual) {
          const own = members(here.at).filter((b) => !collected.includes(b))
          const order = own.toSorted((a, b) => dot(e, xOf(b)) - dot(e, xOf(a)) || b - a)
          for (let i = 1; i <= topics.fan && i < order.length; i += 1)
            compared(dot(e, xOf(order[i - 1]!)), dot(e, xOf(order[i]!)))
          next = order.slice(0, topics.fan).map(real)
        } else {
          const beside = [here.at - 1, here.at + 1].filter((b) => b >= 0 && b < archived && !collected.includes(b))
          next = [...beside.map(real), topic(member[here.at]!)]
        }
        const may = collected.length > 0
        if (may) next.unshift(here)
        if (next.length === 0) break
        const from = here
        const found = next.map((to, i) => {
          const stop = may && i === 0
          const step = stop || from.virtual || to.virtual ? 0 : Math.sign(to.at - from.at)
          const likeness = [dot(e, from.x), dot(e, to.x), dot(from.x, to.x)]
          const kinds = [from.virtual ? 1 : 0, to.virtual ? 1 : 0, step]
          return -score([...likeness, ...kinds, hop / topics.max_hops, collected.length / n, stop ? 1 : 0])
        })
        const chosen = least(found)
        if (may && chosen === 0) break
        here = next[chosen]!
        if (!here.virtual) collected.push(here.at)
      }
      return collected
    },
  }
}
