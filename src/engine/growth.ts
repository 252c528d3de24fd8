/**
 * Tables that grow, and rings, as blocks. Where nothing lowers the counter and every write goes to the last positions,
 * a position that was left behind stands for good, in a ring until the next lap. This is read off the graph; a table
 * for which it cannot be shown stays whole in every snapshot.
 */
import {
  ARCHIVE,
  blockBytes,
  type FreshBlock,
  firstBytes,
  type GrowingTable,
  type Growth,
  type KnownParts,
  placesOf,
  type Runs,
  runsOf,
  type StateLayout,
  type StateParts,
} from '../memory.ts'
import type { Graph, Node, OpNode } from './graph.ts'

/** Nodes of all blocks, loops and branches. */
function* nodesOf(nodes: readonly Node[]): Generator<OpNode> {
  for (const node of nodes) {
    if ('nodes' in node) {
      yield* nodesOf(node.nodes as readonly Node[])
      yield* nodesOf(('otherwise' in node ? (node.otherwise as readonly Node[]) : undefined) ?? [])
    } else if ('op' in node) yield node
  }
}

/** "K(l,len-1)": K, and the picks of its axes. */
const placeOf = (state: string): { readonly name: string; readonly picks: readonly string[] } => {
  const [, name = state, picks] = /^(.*?)\((.*)\)$/.exec(state) ?? []
  return { name, picks: picks === undefined ? [] : picks.split(',') }
}

/** How far back from the counter the node writes the table that it names as its state; null: anywhere. */
const reachOf = (op: string, table: GrowingTable, counter: string, picks: readonly string[]): number | null => {
  if (op === 'cache.read') return 0
  const pick = picks[table.axis]
  if (op !== 'cache.write' || pick === undefined || !pick.startsWith(counter)) return null
  const offset = pick.slice(counter.length)
  return /^-[1-9]\d{0,5}$/.test(offset) ? Number(offset.slice(1)) : null
}

/** The same of a table that it names among its operands. */
const operandReach = (op: string): number | null => {
  // It writes the row's own key and value, at the newest position.
  if (op === 'cache.attend') return 1
  return op.startsWith('cache.') ? null : 0
}

/** Tables that follow one counter. */
export type Followers = Pick<Growth, 'counter' | 'places' | 'block' | 'tables'>

/** What of these is written at the last positions only; a ring at the very last. */
export const growthOf = (graph: Graph, followers: readonly Followers[]): readonly Growth[] => {
  const nodes = [...nodesOf(graph.blocks.flatMap((block) => block.nodes))]
  return followers.flatMap((each) => {
    const { counter, places, tables } = each
    let reach = 0
    for (const { op, state, in: operands = [] } of nodes) {
      const place = state === undefined ? null : placeOf(state)
      if (place?.name === counter && (op === 'cache.decrement' || op === 'cache.reset')) return []
      const table = tables.find(({ name }) => name === place?.name)
      const reaches = [
        table === undefined ? 0 : reachOf(op, table, counter, place!.picks),
        ...operands.filter((one) => tables.some(({ name }) => name === placeOf(one).name)).map(() => operandReach(op)),
      ]
      for (const back of reaches) {
        if (back === null) return []
        reach = Math.max(reach, back)
      }
    }
    const sleeps = graph.memory !== undefined && tables.every(({ name }) => name === ARCHIVE)
    return places !== undefined && reach > 1 ? [] : [{ ...each, reach, ...(sleeps && { sleeps }) }]
  })
}

/**
 * Positions from … to − 1 of each persistent that grows, places of each ring, in the order of the layout; `to` −1: up
 * to its counter, or all places.
 */
export interface Ranges {
  readonly from: readonly number[]
  readonly to: readonly number[]
}

const indexIn = ({ first }: StateLayout, wanted: string): number => first.findIndex(({ name }) => name === wanted)

/**
 * The frozen runs of each growth. `counters`: the value of each persistent that is a counter; the clock has no place in
 * the layout.
 */
export const frozenRuns = (layout: StateLayout, counters: readonly number[], pulse: number): readonly Runs[] =>
  layout.growth.map((each) => runsOf(each, counters[indexIn(layout, each.counter)] ?? pulse))

/**
 * Takes a state apart. `counters`: the value of each persistent that is a counter. `part` copies those positions and
 * places; what follows no counter, only with `rest`.
 */
export const takeParts = async (
  layout: StateLayout,
  counters: readonly number[],
  { pulse, ends, most }: KnownParts,
  part: (ranges: Ranges, rest: boolean) => Promise<Uint8Array>,
): Promise<StateParts> => {
  const { first, growth } = layout
  const frozen = frozenRuns(layout, counters, pulse)
  const filled = (value: number): number[] => first.map(() => value)
  const choose = ({ from, to }: { from: number[]; to: number[] }, each: Growth, run: number): void => {
    const places = placesOf(each, run)
    for (const { name } of each.tables) {
      from[indexIn(layout, name)] = places.from
      to[indexIn(layout, name)] = places.to
    }
  }
  const wanted = growth.flatMap((_, g) => {
    const { first: oldest, end } = frozen[g]!
    const from = Math.max(oldest, Math.min(ends[g] ?? 0, end))
    return Array.from({ length: end - from }, (_, at) => ({ g, run: from + at }))
  })
  const taken = firstBytes(wanted, ({ g, run }) => blockBytes(growth[g]!, run), most)
  const hot = { from: filled(0), to: filled(-1) }
  for (const [g, each] of growth.entries()) {
    choose(hot, each, frozen[g]!.end)
    if (each.places === undefined) for (const { name } of each.tables) hot.to[indexIn(layout, name)] = -1
  }
  const isPart = taken.length < wanted.length
  const copy = isPart ? new Uint8Array(0) : await part(hot, true)
  // One after the other: a context does one thing at a time.
  const fresh: FreshBlock[][] = growth.map(() => [])
  for (const { g, run } of taken) {
    const block = { from: filled(0), to: filled(0) }
    choose(block, growth[g]!, run)
    fresh[g]!.push({ run, bytes: await part(block, false) })
  }
  return { hot: copy, frozen, fresh, ...(isPart && { more: true }) }
}
