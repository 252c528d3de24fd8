/** Products with a bias, and norms: what most parts of a layer begin or end with. */
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Value, Vector } from '../../engine/builder-types.ts'
import type { View } from '../../engine/graph.ts'
import type { LayerKind } from './kinds.ts'

/**
 * Where a matrix [outputs, inputs] and its bias stand: in the tensors `name`.weight and `name`.bias, or in some rows of
 * them.
 */
export type Place =
  | string
  | {
      readonly name: string
      /** The constants' name. */
      readonly as: string
      /** How many rows the tensors have. */
      readonly rows: number
      readonly view: View
    }

/** y = W x + b, or W x alone. */
export interface Linear {
  /** W x. */
  product(as: string, x: Value): Value
  /** What `product` gave, with its bias if there is one. */
  biased(as: string, y: Value): Value
  /** Both. */
  apply(as: string, x: Value): Value
}

/** Declares the layers' constants. */
export const linear = (
  g: GraphBuilder,
  layers: LayerKind,
  place: Place,
  [outputs, inputs]: readonly [outputs: number, inputs: number],
  biased = false,
): Linear => {
  const { name, as, rows, view } = typeof place === 'string' ? { name: place, as: place, rows: outputs } : place
  const from = view === undefined ? {} : { view }
  const weight = layers.matrix(name, [outputs, inputs], { as, rows, ...from })
  const bias = biased ? layers.vector(`${name}.bias`, [rows], { as: `${as}.bias`, width: outputs, ...from }) : null
  const own: Omit<Linear, 'apply'> = {
    product: (to, x) => g.matmul(to, x, weight(layers.index)),
    biased: (to, y) => (bias === null ? y : g.add(`${to}.b`, y, bias(layers.index))),
  }
  return { ...own, apply: (to, x) => own.biased(to, own.product(to, x)) }
}

export interface NormPlan {
  /** x / √(mean x² + ε) · weight; or (x − mean) / √(variance + ε) · weight + bias. */
  readonly kind: 'rms' | 'layer'
  readonly eps: number
  /** `one_plus`: 1 + weight in place of the weight. */
  readonly map?: 'one_plus'
}

/** A norm of all channels, which names its result `as`. */
export type Norm = (as: string, x: Value) => Value

/** Declares the norm `name`, whose constants `vector` makes of the tensors with these names. */
export const normBy = (
  g: GraphBuilder,
  { kind, eps, map }: NormPlan,
  name: string,
  vector: (tensor: string, change: { readonly map?: 'one_plus' }) => () => Vector,
): Norm => {
  const weight = vector(`${name}.weight`, map === undefined ? {} : { map })
  if (kind === 'rms') return (as, x) => g.rmsnorm(as, x, weight(), { eps })
  const bias = vector(`${name}.bias`, {})
  return (as, x) => g.norm(as, x, weight(), bias(), { eps })
}
