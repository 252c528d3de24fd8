/**
 * The feed forward of a layer: down(silu(gate x) · up x) (Shazeer, "GLU Variants Improve Transformer", 2020), whose
 * gate and up may stand in one matrix, or down(relu(up x)²) without a gate (So et al., "Primer", 2021), each with one
 * of several functions in place of silu and relu². Sizes: C channels, F inside.
 */
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Value } from '../../engine/builder-types.ts'
import type { LayerKind } from './kinds.ts'
import { linear } from './linear.ts'

const ACTIVATIONS = {
  silu: 'silu',
  relu2: 'relu2',
  /** By tanh. */
  gelu: 'gelu',
  gelu_erf: 'geluErf',
} as const satisfies Readonly<Record<string, keyof GraphBuilder>>

export interface MlpPlan {
  readonly C: number
  readonly F: number
  /** Names behind the layer's prefix; `gate` and `up` may name one matrix, with the gate's rows first. */
  readonly gate?: string
  readonly up: string
  readonly down: string
  /** Of the gate, or of up where there is none; default silu. */
  readonly activation?: keyof typeof ACTIVATIONS
  readonly biased?: boolean
  /** In front of the names of values; default "ff". */
  readonly as?: string
  /** What gate and output are multiplied by. */
  readonly factors?: readonly [gate: number, down: number]
}

/** Names as most packages have them. */
export const MLP_NAMES = { gate: 'mlp.gate_proj', up: 'mlp.up_proj', down: 'mlp.down_proj' } as const

/** Declares the layers' constants; what it returns computes a layer's output from its normed input. */
export const feedForward = (g: GraphBuilder, layers: LayerKind, plan: MlpPlan) => {
  const { C, F, activation = 'silu', biased = false, factors = [1, 1], as = 'ff' } = plan
  const fused = plan.gate === plan.up
  const gate = plan.gate === undefined || fused ? null : linear(g, layers, plan.gate, [F, C], biased)
  const up = linear(g, layers, plan.up, [fused ? 2 * F : F, C], biased)
  const down = linear(g, layers, plan.down, [C, F], biased)
  const times = (name: string, x: Value, factor: number): Value => (factor === 1 ? x : g.scale(`${name}.s`, x, factor))
  const activated = (x: Value): Value => g[ACTIVATIONS[activation]](`${as}.${activation}`, x)
  /** Gate and up; null for the gate where there is none. */
  const both = (n: Value): readonly [Value | null, Value] => {
    // Products that do not depend on each other stand side by side: a device may run them as one.
    const gates = gate?.product(`${as}.gate`, n)
    const ups = up.product(`${as}.up`, n)
    if (gate !== null && gates !== undefined) return [gate.biased(`${as}.gate`, gates), up.biased(`${as}.up`, ups)]
    const all = up.biased(`${as}.up`, ups)
    return fused ? [g.slice(`${as}.gate`, all, 0, F), g.slice(`${as}.inner`, all, F, 2 * F)] : [null, all]
  }
  return (n: Value): Value => {
    const [gates, ups] = both(n)
    const inner =
      gates === null ? activated(ups) : g.mul(`${as}.e`, activated(times(`${as}.gate`, gates, factors[0])), ups)
    return times(`${as}.down`, down.apply(`${as}.down`, inner), factors[1])
  }
}
