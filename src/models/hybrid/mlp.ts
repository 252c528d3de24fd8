/**
 * The feed forward of a layer: down(silu(gate x) · up x) (Shazeer, "GLU Variants Improve Transformer", 2020), whose gate and up may stand in
 * one matrix, or down(relu(up x)²) (So et al., "Primer", 2021). Sizes: C channels, F inside.
 */
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Value } from '../../engine/builder-types.ts'
import type { LayerKind } from './layers.ts'

export interface MlpPlan {
  readonly C: number
  readonly F: number
  /** Names behind the layer's prefix; `gate` and `up` may name one matrix, with the gate's rows first. No gate: relu². */
  readonly gate?: string
  readonly up: string
  readonly down: string
  readonly biased?: boolean
  /** In front of the names of values; default "ff". */
  readonly as?: string
  /** What gate and output are multiplied by. */
  readonly factors?: readonly [gate: number, down: number]
}

/** Declares the layers' constants; what it returns computes a layer's output from its normed input. */
export const feedForward = (g: GraphBuilder, layers: LayerKind, plan: MlpPlan) => {
  const { C, F, biased = false, factors = [1, 1], as = 'ff' } = plan
  const { index } = layers
  const linear = (name: string, outputs: number, inputs: number) => ({
    weight: layers.matrix(name, [outputs, inputs]),
    bias: biased ? layers.vector(`${name}.bias`, [outputs]) : null,
  })
  type Linear = ReturnType<typeof linear>
  const fused = plan.gate === plan.up
  const gate = plan.gate === undefined || fused ? null : linear(plan.gate, F, C)
  const up = linear(plan.up, fused ? 2 * F : F, C)
  const down = linear(plan.down, C, F)
  const whole = (name: string, x: Value, { bias }: Linear): Value => (bias ? g.add(`${name}.b`, x, bias(index)) : x)
  const times = (name: string, x: Value, factor: number): Value => (factor === 1 ? x : g.scale(`${name}.s`, x, factor))
  /** Gate and up; null for the gate where there is none. */
  const both = (n: Value): readonly [Value | null, Value] => {
    // Products that do not depend on each other stand side by side: a device may run them as one.
    const gates = gate && g.matmul(`${as}.gate`, n, gate.weight(index))
    const ups = g.matmul(`${as}.up`, n, up.weight(index))
    if (!fused) return [gate && gates && whole(`${as}.gate`, gates, gate), whole(`${as}.up`, ups, up)]
    const all = whole(`${as}.up`, ups, up)
    return [g.slice(`${as}.gate`, all, 0, F), g.slice(`${as}.inner`, all, F, 2 * F)]
  }
  return (n: Value): Value => {
    const [gates, ups] = both(n)
    const inner =
      gates === null
        ? g.relu2(`${as}.e`, ups)
        : g.mul(`${as}.e`, g.silu(`${as}.silu`, times(`${as}.gate`, gates, factors[0])), ups)
    return times(`${as}.down`, whole(`${as}.down`, g.matmul(`${as}.down`, inner, down.weight(index)), down), factors[1])
  }
}
