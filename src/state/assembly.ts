/** The whole state of a snapshot in blocks (manifest.ts): its hot part and its blocks, copied to where they belong. */
import { digest, type Move, scatter, uninitialised } from '../bulk.ts'
import { blockBytes, type LayoutEntry, placesOf, type StateLayout } from '../memory.ts'
import { type Described, describedIn, hotTensors, type RunOf, refuse } from './manifest.ts'
import type { SnapshotFile } from './snapshot.ts'

/** The whole state: the hot part of a file with its blocks, which are put in as they come. */
export interface Assembly {
  /**
   * Copies the block that name number `block` of growth `g` stands for into the state. Returns the sha256 of the bytes,
   * for the caller to compare with the blob's name.
   */
  place(g: number, block: number, bytes: Uint8Array): Promise<string>
  /** To be called when all are in. Rejects with REFUSED where one had another length than its tables need. */
  finish(): Promise<{ readonly state: Uint8Array; readonly tensors: readonly LayoutEntry[] }>
}

/** Copies bytes to where they belong. Returns their sha256. */
type Placing = (state: Uint8Array) => Promise<string>

/** Throws REFUSED where the file contradicts itself. */
export const assembly = (file: SnapshotFile): Assembly => assemble(file.state, file.tensors, describedIn(file))

/**
 * The same of parts that never were in a snapshot, with these blocks of each growth. `onlyRings`: the blocks of other
 * tables are not put, and the state stays without them, as a `StateSource` has it. Throws REFUSED when `hot` does not
 * fit.
 */
export const assemblyOf = (
  layout: StateLayout,
  hot: Uint8Array,
  blocks: readonly (readonly RunOf[])[],
  onlyRings = false,
): Assembly => {
  const tensors = hotTensors(layout, hot, blocks)
  const growth = layout.growth.map(({ places, block, tables }, g): Described => {
    if (onlyRings && places === undefined) return { first: 0, blocks: 0, tables: [] }
    return {
      ...(places !== undefined && { places }),
      ...(block !== undefined && { block }),
      first: blocks[g]![0]?.run ?? 0,
      blocks: blocks[g]!.length,
      tables: tables.map(({ name, axis, outer, row }) => {
        const entry = tensors.find((each) => each.name === name)!
        return { entry, axis, outer, row }
      }),
    }
  })
  return assemble(hot, tensors, growth)
}

const assemble = (hot: Uint8Array, tensors: readonly LayoutEntry[], growth: readonly Described[]): Assembly => {
  /** Of each tensor in blocks: its positions in the blocks, and where among all of them those in the file begin. */
  const grown = new Map(
    growth.flatMap((each) => {
      const { first, blocks, places, tables } = each
      const { from } = placesOf(each, first + blocks)
      return tables.map((table) => {
        const added = places === undefined ? from : places - table.entry.shape[table.axis]!
        return [table.entry, { ...table, added, from }] as const
      })
    }),
  )
  let length = 0
  const placed = new Map(
    tensors.map((entry): [LayoutEntry, LayoutEntry] => {
      const table = grown.get(entry)
      const bytes = entry.bytes + (table === undefined ? 0 : table.added * table.outer * table.row)
      const shape = entry.shape.map((extent, axis) => (axis === table?.axis ? extent + table.added : extent))
      const offset = length
      length += bytes
      return [entry, { ...entry, shape, offset, bytes }]
    }),
  )

  const placeHot: Placing = (state) => {
    const moves = tensors.flatMap((entry): Move[] => {
      const table = grown.get(entry)
      const to = placed.get(entry)!.offset
      if (table === undefined) return [{ from: entry.offset, to, bytes: entry.bytes }]
      const bytes = entry.bytes / table.outer
      return Array.from({ length: table.outer }, (_, part) => ({
        from: entry.offset + part * bytes,
        to: to + part * (table.added * table.row + bytes) + table.from * table.row,
        bytes,
      }))
    })
    return scatter(hot, moves, state)
  }

  const placeBlock =
    (g: number, block: number, blob: Uint8Array): Placing =>
    (state) => {
      let from = 0
      const places = placesOf(growth[g]!, growth[g]!.first + block)
      const moves = growth[g]!.tables.flatMap(({ entry, axis, outer, row }) => {
        const { offset, shape } = placed.get(entry)!
        const bytes = (places.to - places.from) * row
        return Array.from({ length: outer }, (_, part) => {
          const move = { from, to: offset + (part * shape[axis]! + places.from) * row, bytes }
          from += bytes
          return move
        })
      })
      return scatter(blob, moves, state)
    }

  /** Memory is taken once a block of each growth has shown that they are as large as the file says. */
  let state: Uint8Array | null = null
  const shown = new Set<number>()
  const early: Placing[] = []
  let fault: string | null = null
  return {
    async place(g, block, bytes) {
      const wanted = blockBytes(growth[g]!, growth[g]!.first + block)
      if (bytes.length !== wanted) {
        fault = `has a block of ${bytes.length} bytes; its tables have ${wanted}`
        return digest([bytes])
      }
      shown.add(g)
      const placing = placeBlock(g, block, bytes)
      if (growth.every(({ blocks }, at) => blocks === 0 || shown.has(at))) {
        state ??= uninitialised(length)
        return placing(state)
      }
      early.push(placing)
      return digest([bytes])
    },
    async finish() {
      if (fault !== null) return refuse(fault)
      const whole = state ?? uninitialised(length)
      await Promise.all([placeHot, ...early].map((placing) => placing(whole)))
      return { state: whole, tensors: [...placed.values()] }
    },
  }
}
