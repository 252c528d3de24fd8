/**
 * Mixtures of experts (Shazeer et al. 2017): a router scores E experts, and the K best of them compute
 *
 *   y = Σ_e w_e · down_e(silu(gate_e x) · up_e x), or w_e · down_e(relu(up_e x)²) without a gate
 *
 * Experts stand in the file one by one, or all of a layer in one tensor for gate, up and down each, or for gate and up
 * together, gate rows before up rows. Sizes: C channels, E experts of which a token goes to K, F channels inside an
 * expert.
 */
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Value } from '../../engine/builder-types.ts'
import type { LayerKind } from './kinds.ts'

export interface MixturePlan {
  readonly C: number
  readonly E: number
  readonly K: number
  readonly F: number
  /**
   * w: `softmax`: of the scores of all experts, as they are; `divided`: those of the chosen divided by their sum;
   * `chosen`: softmax over the scores of the chosen alone; `sigmoid`: of each score by itself, divided by the sum of
   * the chosen, where a bias that is added to it has a say in the choice only (Wang et al., "Auxiliary-Loss-Free Load
   * Balancing Strategy for Mixture-of-Experts", 2024).
   */
  readonly weights: 'softmax' | 'divided' | 'chosen' | 'sigmoid'
  /** What the weights are multiplied by; default 1. */
  readonly factor?: number
  /** Names behind the layer's prefix, of tensors. */
  readonly names: {
    /** Without .weight. */
    readonly router: string
    /** Of the choice, for `sigmoid`. */
    readonly bias?: string
    /** Gate and up of all experts in one tensor; where the package has it, it goes before `gate` and `up`. */
    readonly gateUp?: string
    /** None: there is no gate. */
    readonly gate?: ExpertNames
    readonly up?: ExpertNames
    readonly down: ExpertNames
  }
}

/**
 * How a package may name a matrix of the experts: with {e} for the expert, or as one tensor of all of them. At least
 * one of both.
 */
export interface ExpertNames {
  readonly single?: string
  readonly all?: string
}

/** Declares the layers' constants; what it returns computes a layer's output from its normed input. */
export const mixture = (g: GraphBuilder, layers: LayerKind, plan: MixturePlan) => {
  const { C, E, K, F, weights, factor = 1, names } = plan
  const { index } = layers
  const bias = names.bias === undefined ? null : layers.vector(names.bias, [E])
  const router = layers.matrix(names.router, [E, C])
  const half = (gateUp: string, name: string, from: number) =>
    layers.stack(gateUp, [E, F, C], {
      as: `experts.${name}_proj`,
      rows: 2 * F,
      view: { each: 2 * F, repeat: 1, step: 0, parts: [[from, F]] },
    })
  const stack = (name: string, { single, all }: ExpertNames, outputs: number, inputs: number) => {
    const tensor = all !== undefined && (single === undefined || layers.has(all)) ? all : single!
    return layers.stack(tensor, [E, outputs, inputs], { as: `experts.${name}_proj` })
  }
  const { gateUp } = names
  const together = gateUp !== undefined && layers.has(gateUp) ? gateUp : undefined
  const gate = together ? half(together, 'gate', 0) : names.gate ? stack('gate', names.gate, F, C) : null
  const up = together ? half(together, 'up', F) : stack('up', names.up!, F, C)
  const down = stack('down', names.down, C, F)
  const share = (scores: Value): { ids: Value<'i32'>; w: Value } => {
    if (weights === 'chosen') {
      const ids = g.topk('router.ids', scores, K)
      return { ids, w: g.softmax('router.w', g.gather('router.chosen', scores, ids)) }
    }
    const shares = weights === 'sigmoid' ? g.sigmoid('router.p', scores) : g.softmax('router.p', scores)
    const ids = g.topk('router.ids', bias ? g.add('router.choice', shares, bias(index)) : shares, K)
    const chosen = g.gather('router.chosen', shares, ids)
    return { ids, w: weights === 'softmax' ? chosen : g.normalise('router.w', chosen) }
  }
  const inside = (n: Value, ids: Value<'i32'>): Value => {
    const gates = gate && g.routed('experts.gate', n, ids, gate(index))
    const ups = g.routed('experts.up', n, ids, up(index))
    return gates ? g.mul('experts.e', g.silu('experts.silu', gates), ups) : g.relu2('experts.e', ups)
  }
  return (n: Value): Value => {
    const { ids, w } = share(g.matmul('router.z', n, router(index)))
    const scaled = factor === 1 ? w : g.scale('router.w.s', w, factor)
    return g.combine('experts.y', g.routed('experts.down', inside(n, ids), ids, down(index)), scaled)
  }
}
