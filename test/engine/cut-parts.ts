/** The reference for captures: takes a serialised state apart, piece by piece, in the test's own process. */
import { join } from '../../src/bulk.ts'
import { takeParts } from '../../src/engine/growth.ts'
import type { KnownParts, StateLayout, StateParts } from '../../src/memory.ts'

/** As `capture` of a context with this state. Throws REFUSED when it does not fit the layout. */
export const cutParts = async (layout: StateLayout, state: Uint8Array, known: KnownParts): Promise<StateParts> => {
  const entries = layout.tensors(state)
  const view = new DataView(state.buffer, state.byteOffset, state.byteLength)
  const counters = entries.map(({ dtype, offset }) => (dtype === 'I64' ? Number(view.getBigInt64(offset, true)) : 0))
  const tables = new Map(layout.growth.flatMap((growth) => growth.tables).map((table) => [table.name, table]))
  return takeParts(layout, counters, known, ({ from, to }, rest) => {
    const pieces: Uint8Array[] = []
    for (const [i, { name, shape, offset, bytes }] of entries.entries()) {
      const table = tables.get(name)
      if (table === undefined) {
        if (rest) pieces.push(state.subarray(offset, offset + bytes))
        continue
      }
      const positions = shape[table.axis]!
      const [first, last] = [from[i]!, to[i]! < 0 ? positions : to[i]!]
      for (let part = 0; part < table.outer; part += 1) {
        const at = offset + part * positions * table.row
        pieces.push(state.subarray(at + first * table.row, at + last * table.row))
      }
    }
    return join(pieces)
  })
}
