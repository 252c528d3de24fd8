/** The persistents of a graph as the bytes of a serialised context: dense, little-endian, in order of declaration. */
import { ContinuoError } from '../errors.ts'
import { BLOCK_POSITIONS, type GrowingTable, type LayoutEntry, type StateLayout } from '../memory.ts'
import { type AxisDeclaration, type Dtype, type Graph, indexExtent, isDerived } from './graph.ts'
import { type Followers, growthOf } from './growth.ts'

/**
 * dtypes as safetensors names them, and the array that holds such numbers: floats narrower than f32 as bits. `i64` is a
 * counter's.
 */
export const storedDtypes = {
  f32: { name: 'F32', array: Float32Array },
  f16: { name: 'F16', array: Uint16Array },
  bf16: { name: 'BF16', array: Uint16Array },
  f8: { name: 'F8_E4M3', array: Uint8Array },
  i8: { name: 'I8', array: Int8Array },
  u8: { name: 'U8', array: Uint8Array },
  i32: { name: 'I32', array: Int32Array },
  i64: { name: 'I64', array: BigInt64Array },
  bool: { name: 'BOOL', array: Uint8Array },
} as const satisfies Readonly<Record<Dtype | 'i64', { readonly name: string; readonly array: unknown }>>

interface Persistent {
  readonly name: string
  readonly dtype: Dtype | 'i64'
  readonly axes: readonly AxisDeclaration[]
  readonly rewritten?: boolean
  readonly block?: number | undefined
}

const persistentsOf = (graph: Graph): readonly Persistent[] =>
  graph.declarations.flatMap((declaration): readonly Persistent[] => {
    if (declaration.kind !== 'persistent' || isDerived(declaration)) return []
    if ('clock' in declaration && declaration.clock) return []
    if ('counter' in declaration) return [{ name: declaration.name, dtype: 'i64', axes: [] }]
    const { name, dtype, axes, rewritten = false, block } = declaration
    return [{ name, dtype, axes, rewritten, block }]
  })

/**
 * Those that grow with each counter and with no other, in blocks of 256 positions, in order of the counters'
 * declaration; and behind them those in shorter blocks and the rings of more than one block, in order of their own. A
 * ring that is no longer than a block is written there by every token, so nothing of it ever stands.
 */
const followersOf = (graph: Graph, persistents: readonly Persistent[]): readonly Followers[] => {
  const tables = new Map<string, { counter: string; places?: number; block?: number; tables: GrowingTable[] }>()
  for (const { name, dtype } of persistents) if (dtype === 'i64') tables.set(name, { counter: name, tables: [] })
  for (const { name, dtype, axes, rewritten = false, block } of persistents) {
    if (rewritten) continue
    const following = axes.flatMap((each, i) => (typeof each === 'number' || 'index' in each ? [] : [i]))
    const [axis] = following
    if (axis === undefined || following.length > 1) continue
    const product = (some: readonly AxisDeclaration[], from: number): number =>
      some.reduce<number>((count, each) => {
        if (typeof each === 'number') return count * each
        return 'index' in each ? count * indexExtent(graph, each.index) : count
      }, from)
    const outer = product(axes.slice(0, axis), 1)
    const row = product(axes.slice(axis + 1), storedDtypes[dtype].array.BYTES_PER_ELEMENT)
    const follows = axes[axis] as Exclude<AxisDeclaration, number | { readonly index: string }>
    const table = { name, axis, outer, row }
    if ('grows' in follows && (block ?? BLOCK_POSITIONS) === BLOCK_POSITIONS)
      tables.get(follows.grows)?.tables.push(table)
    else if ('grows' in follows) {
      const key = `${follows.grows} in ${block}`
      const found = tables.get(key)
      if (found === undefined) tables.set(key, { counter: follows.grows, block: block!, tables: [table] })
      else found.tables.push(table)
    } else if (follows.ring > BLOCK_POSITIONS) {
      const { ring: places, counter } = follows
      const key = `${counter} ${places}`
      const found = tables.get(key)
      if (found === undefined) tables.set(key, { counter, places, tables: [table] })
      else found.tables.push(table)
    }
  }
  return [...tables.values()].filter((each) => each.tables.length > 0)
}

/**
 * What the layout fingerprint is taken over: [name, axes, dtype] of every persistent; an axis is its extent, or
 * "ring(n,counter)", or "grows(counter)".
 */
export const layoutText = (graph: Graph): readonly (readonly unknown[])[] =>
  persistentsOf(graph).map(({ name, dtype, axes }) => [
    name,
    axes.map((axis) => {
      if (typeof axis === 'number') return axis
      if ('index' in axis) return indexExtent(graph, axis.index)
      return 'ring' in axis ? `ring(${axis.ring},${axis.counter})` : `grows(${axis.grows})`
    }),
    dtype,
  ])

const nothingSkipped = (): number => 0

export const stateLayout = (graph: Graph): StateLayout => {
  const persistents = persistentsOf(graph)
  /** A counter is declared, and so stored, before the tables that grow with it. */
  const place = (read: (at: number) => bigint, skipped: (table: string) => number): readonly LayoutEntry[] => {
    const counters = new Map<string, number>()
    let offset = 0
    return persistents.map(({ name, dtype, axes }) => {
      const shape = axes.map((axis) => {
        if (typeof axis === 'number') return axis
        if ('index' in axis) return indexExtent(graph, axis.index)
        const positions = 'ring' in axis ? axis.ring : (counters.get(axis.grows) ?? 0)
        return Math.max(0, positions - skipped(name))
      })
      const stored = storedDtypes[dtype]
      const bytes = shape.reduce((product, extent) => product * extent, stored.array.BYTES_PER_ELEMENT)
      if (dtype === 'i64') counters.set(name, Number(read(offset)))
      const entry = { name, dtype: stored.name, shape, offset, bytes }
      offset += bytes
      return entry
    })
  }
  return {
    tensors: (state, skipped = nothingSkipped) => {
      const view = new DataView(state.buffer, state.byteOffset, state.byteLength)
      const entries = place((at) => (at + 8 <= state.length ? view.getBigInt64(at, true) : 0n), skipped)
      const expected = entries.reduce((sum, { bytes }) => sum + bytes, 0)
      if (expected !== state.length) {
        throw new ContinuoError(
          'REFUSED',
          `The state has ${state.length} bytes, expected ${expected} by the model's layout. Nothing was changed; use another copy of it.`,
        )
      }
      return entries
    },
    first: place(() => 0n, nothingSkipped),
    growth: growthOf(graph, followersOf(graph, persistents)),
  }
}
