/** Looks into the contexts of Titans models. */
import type { EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import type { LayoutEntry } from '../../../src/memory.ts'

/** [layer][level][head]. */
export type Norms = readonly (readonly (readonly number[])[])[]

const NAMES = { M: 'memory.M', S: 'memory.S', G: 'memory.G' } as const

/** A table of the context by its name, or undefined where this model has none. */
export const tableOf = (
  model: Model,
  state: Uint8Array,
  name: string,
): { readonly entry: LayoutEntry; readonly data: Float32Array } | undefined => {
  const entry = model.layout.tensors(state).find((each) => each.name === name)
  return entry && { entry, data: new Float32Array(state.slice(entry.offset, entry.offset + entry.bytes).buffer) }
}

/** Frobenius norms of the memories, momenta and buffers; 0 where a form has none. `levels` are the periods. */
export const normsOf = (
  model: Model,
  context: EngineContext,
  levels: readonly number[],
): Record<'M' | 'S' | 'G', Norms> => {
  const state = context.serialize()
  const [layers = 0, , heads = 0] = tableOf(model, state, NAMES.M)?.entry.shape ?? []
  const slow = levels.filter((period) => period > 1)
  const of = (which: keyof typeof NAMES): Norms => {
    const table = tableOf(model, state, NAMES[which])
    const [, kept = 0, , n = 0] = table?.entry.shape ?? []
    return Array.from({ length: layers }, (_, layer) =>
      levels.map((period, level) =>
        Array.from({ length: heads }, (__, head) => {
          const place = which === 'G' ? levels.slice(0, level).filter((each) => each > 1).length : level
          if (!table || (which === 'G' && period === 1)) return 0
          const at = ((layer * kept + place) * heads + head) * n * n
          return Math.hypot(...table.data.subarray(at, at + n * n))
        }),
      ),
    )
  }
  if (slow.length !== (tableOf(model, state, NAMES.G)?.entry.shape[1] ?? 0))
    throw new Error('there are not as many buffers as slow levels')
  return { M: of('M'), S: of('S'), G: of('G') }
}
