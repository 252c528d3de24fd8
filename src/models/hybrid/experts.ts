/**
 * A mixture of experts (Shazeer et al. 2017) beside one that all tokens share, as Qwen3-Next has it:
 *
 *   p = softmax(gate x), the K largest, divided by their sum where `divides`
 *   y = Σ p_e · down_e(silu(gate_e x) · up_e x) + sigmoid(shared_expert_gate x) · shared_expert(x)
 *
 * Experts stand in the file one by one, or all of a layer in one tensor for gate, up and down each, or for gate and up together, gate
 * rows before up rows.
 * Sizes: C channels, E experts of which a token goes to K, F channels inside an expert, S inside the shared one.
 */
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Value } from '../../engine/builder-types.ts'
import type { LayerKind } from './layers.ts'
import { feedForward } from './mlp.ts'

export interface ExpertsPlan {
  readonly C: number
  readonly E: number
  readonly K: number
  readonly F: number
  readonly S: number
  readonly divides: boolean
}

/** Declares the layers' constants; what it returns computes a layer's output from its normed input. */
export const experts = (g: GraphBuilder, layers: LayerKind, { C, E, K, F, S, divides }: ExpertsPlan) => {
  const { index } = layers
  const router = layers.matrix('mlp.gate', [E, C])
  const sharedGate = layers.matrix('mlp.shared_expert_gate', [1, C])
  const shared = feedForward(g, layers, {
    ...{ C, F: S, as: 'shared' },
    gate: 'mlp.shared_expert.gate_proj',
    up: 'mlp.shared_expert.up_proj',
    down: 'mlp.shared_expert.down_proj',
  })
  const fused = layers.has('mlp.experts.gate_up_proj')
  const half = (name: string, from: number) =>
    layers.stack('mlp.experts.gate_up_proj', [E, 2 * F, C], {
      as: `mlp.experts.${name}_proj`,
      outputs: F,
      view: { each: 2 * F, repeat: 1, step: 0, parts: [[from, F]] },
    })
  const single = (name: string, outputs: number, inputs: number) =>
    layers.stack(`mlp.experts.{e}.${name}_proj.weight`, [E, outputs, inputs])
  const whole = (name: string, outputs: number, inputs: number) =>
    layers.stack(`mlp.experts.${name}_proj`, [E, outputs, inputs])
  const each = layers.has('mlp.experts.down_proj') ? whole : single
  const gate = fused ? half('gate', 0) : each('gate', F, C)
  const up = fused ? half('up', F) : each('up', F, C)
  const down = each('down', C, F)
  return (n: Value): Value => {
    const shares = g.softmax('router.p', g.matmul('router.z', n, router(index)))
    const ids = g.topk('router.ids', shares, K)
    const chosen = g.gather('router.chosen', shares, ids)
    const weights = divides ? g.normalise('router.w', chosen) : chosen
    const gates = g.routed('experts.gate', n, ids, gate(index))
    const inner = g.mul('experts.e', g.silu('experts.silu', gates), g.routed('experts.up', n, ids, up(index)))
    const routed = g.combine('experts.y', g.routed('experts.down', inner, ids, down(index)), weights)
    const share = g.sigmoid('shared.gate', g.matmul('shared.gate.z', n, sharedGate(index)))
    const own = g.mul('shared.y', shared(n), g.repeat('shared.share', share, { groups: 1, times: C }))
    return g.add('feed.y', routed, own)
  }
}
