/** The constants of a model's layers, and the loop over the layers: what all layers have in common is said once. */
import type { GraphBuilder } from '../engine/builder.ts'
import type { Index, Matrix, Member, Ref, Stack, Vector } from '../engine/builder-types.ts'
import type { View } from '../engine/graph.ts'
import type { Layers, TensorSet } from './family.ts'

/** What a constant is made of besides its tensor. */
type Change = Omit<Ref, 'ref'>

export interface VectorOptions extends Change {
  /** Width and name of the constant where they are others than the tensor's. */
  readonly width?: number
  readonly as?: string
  /** The layers that have it; default: all. */
  readonly where?: readonly number[]
}

export interface LayerConstants {
  readonly count: Layers
  /** `name`: of the tensor, behind the prefix. */
  vector(name: string, shape: readonly number[], options?: VectorOptions): Member<Vector>
  /** The tensor `name`.weight. */
  matrix(name: string, shape: readonly [outputs: number, inputs: number], where?: readonly number[]): Member<Matrix>
  /** Rows of the tensor `name`.weight [rows, inputs], which is then not quantised. */
  part(
    name: string,
    as: string,
    tensor: readonly [rows: number, inputs: number],
    outputs: number,
    view: View,
  ): Member<Matrix>
  /** The tensors `name`.weight, one for each matrix: `{e}` in the name stands for its number. */
  stack(
    name: string,
    shape: readonly [matrices: number, outputs: number, inputs: number],
    where?: readonly number[],
  ): Member<Stack>
}

/**
 * Takes the tensors of layers, named `prefix` with `{l}` for the layer. What all layers have becomes a family of constants; what only
 * some have is taken for each of them, and its member is picked by a number.
 */
export const layerConstants = (
  g: GraphBuilder,
  set: TensorSet,
  prefix: string,
  l: Index,
  L: Layers,
): LayerConstants => {
  const range = { over: l, to: L }
  const members = <T>(where: readonly number[] | undefined, family: () => Member<T>, one: (layer: number) => T) => {
    if (where === undefined || where.length === L) return family()
    const own = new Map(where.map((layer) => [layer, one(layer)]))
    return (at: Parameters<Member<T>>[0]): T => own.get(at as number)!
  }
  const tensorOf = (name: string, layer: number): string => `${prefix}${name}`.replace('{l}', String(layer))
  return {
    count: L,
    vector: (name, shape, { where, width, as = name, ...change } = {}) => {
      const wide = width ?? shape.reduce((product, extent) => product * extent, 1)
      return members<Vector>(
        where,
        () => g.vectors(as, wide, { ...set.takeAll(`${prefix}${name}`, range, shape), ...change }, range),
        (layer) => g.vector(`${as}.${layer}`, wide, { ...set.take(tensorOf(name, layer), shape), ...change }),
      )
    },
    matrix: (name, shape, where) =>
      members<Matrix>(
        where,
        () => g.matrices(name, shape, set.takeMatrices(`${prefix}${name}.weight`, range, shape), range),
        (layer) => g.matrix(`${name}.${layer}`, shape, set.takeMatrix(tensorOf(`${name}.weight`, layer), shape)),
      ),
    part: (name, as, tensor, outputs, view) =>
      g.matrices(as, [outputs, tensor[1]], { ...set.takeAll(`${prefix}${name}.weight`, range, tensor), view }, range),
    stack: (name, shape, where) =>
      members<Stack>(
        where,
        () => g.stacks(name, shape, set.takeStacks(`${prefix}${name}.weight`, range, shape), range),
        (layer) => g.stack(`${name}.${layer}`, shape, set.takeStack(tensorOf(`${name}.weight`, layer), shape)),
      ),
  }
}

/**
 * Calls `body` for every layer: in a loop where all are of one kind. `place` counts the layers for which `groupOf` gives the same:
 * those that share a table.
 */
export const eachLayer = <K>(
  g: GraphBuilder,
  l: Index,
  kinds: readonly K[],
  groupOf: (kind: K) => unknown,
  body: (kind: K, at: Index | number, place: Index | number) => void,
): void => {
  const [first] = kinds
  if (first !== undefined && kinds.every((kind) => kind === first)) {
    g.loop(l, {}, () => body(first, l, l))
    return
  }
  const seen = new Map<unknown, number>()
  for (const [at, kind] of kinds.entries()) {
    const place = seen.get(groupOf(kind)) ?? 0
    seen.set(groupOf(kind), place + 1)
    body(kind, at, place)
  }
}
