/**
 * Health of a memory: how large its tensors have become. A memory that rewrites itself can diverge; its norm says so
 * long before a number stops being finite and the engine refuses to go on.
 */
import { normsOf } from '../bulk.ts'
import type { LayoutEntry, MemoryDeclaration, StateTensors } from '../memory.ts'

/** How large one tensor of a memory has become. */
export interface TensorHealth {
  /** As the layout names the persistent. */
  readonly name: string
  /** Index along the first axis of a persistent of two or more axes, by convention the layer; else 0. */
  readonly layer: number
  /** Index into the model's memory levels, of a table that has levels; else null. */
  readonly level: number | null
  /** Frobenius norm: √Σx². NaN or infinite when a number is. */
  readonly norm: number
  /** max |x|. */
  readonly max: number
}

/** f32 ends at 3.4·10³⁸, and products of a norm beyond this with gates and keys come near. */
export const DIVERGING = 1e30

/** Tables with levels by name, and the levels on their second axis. */
export type TableLevels = Readonly<Record<string, number[]>>

export const tableLevels = ({ tables }: MemoryDeclaration): TableLevels =>
  Object.fromEntries(tables.map(({ name, levels }) => [name, [...levels]]))

/** Norms of every f32 tensor of a serialised context, for each layer [and level], in the order of the layout. */
export const tensorHealth = async (
  tensors: readonly LayoutEntry[],
  state: Uint8Array,
  levelsOf: TableLevels = {},
): Promise<readonly TensorHealth[]> => {
  const parts = tensors.flatMap(({ name, dtype, shape, offset, bytes }) => {
    if (dtype !== 'F32' || bytes === 0) return []
    const layers = shape.length >= 2 ? shape[0]! : 1
    const declared = Object.hasOwn(levelsOf, name) ? levelsOf[name]! : []
    // A file may say what its tensors are not.
    const levels = shape.length >= 3 && shape[1] === declared.length ? declared : [null]
    const count = bytes / 4 / layers / levels.length
    return Array.from({ length: layers * levels.length }, (_, at) => {
      const which = { name, layer: Math.floor(at / levels.length), level: levels[at % levels.length]! }
      return { which, floats: { offset: offset + 4 * at * count, count } }
    })
  })
  const norms = await normsOf(
    state,
    parts.map(({ floats }) => floats),
  )
  return parts.map(({ which }, at) => ({ ...which, ...norms[at]! }))
}

/** The same by the model's layout and declaration. Rejects with REFUSED when the state does not fit it. */
export const health = async (
  model: { readonly layout: StateTensors; readonly memory: MemoryDeclaration },
  state: Uint8Array,
): Promise<readonly TensorHealth[]> => tensorHealth(model.layout.tensors(state), state, tableLevels(model.memory))

/** The largest norm of each tensor over its layers and levels. */
export const largestNorms = (parts: readonly TensorHealth[]): ReadonlyMap<string, number> => {
  const norms = new Map<string, number>()
  // Math.max keeps NaN.
  for (const { name, norm } of parts) norms.set(name, Math.max(norms.get(name) ?? 0, norm))
  return norms
}

/** A sentence for each tensor whose norm has passed `DIVERGING`, while its numbers may still be finite. */
export const diverging = (session: string, pulse: number, parts: readonly TensorHealth[]): readonly string[] =>
  parts
    .filter(({ norm }) => !(norm <= DIVERGING))
    .map(
      ({ name, layer, level, norm }) =>
        `Session "${session}" diverges: at pulse ${pulse} the norm of ${name}, layer ${layer}${level === null ? '' : `, level ${level}`}, is ${norm.toPrecision(3)}. It will soon be no number; begin a new context (boundary with reset) or go back to an earlier snapshot.`,
    )
