/** The outer parameters of Titans layers: which tensors there are, and under which names the graph has them. */
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Index, Matrix, Member, Vector } from '../../engine/builder-types.ts'
import type { Layers, TensorSet } from '../family.ts'
import type { TitansConfig } from './titans-config.ts'

interface Gate {
  readonly weight: Member<Matrix>
  readonly bias: Member<Vector>
}
interface Projection {
  readonly proj: Member<Matrix>
  readonly conv: Member<Vector>
}

export interface LayerWeights {
  readonly inputNorm: Member<Vector>
  readonly attn: Readonly<Record<'q' | 'k' | 'v' | 'o', Member<Matrix>>>
  readonly persistent: { readonly k: Member<Vector>; readonly v: Member<Vector> } | undefined
  readonly mem: Readonly<Record<'q' | 'k' | 'v', Projection>> & { readonly o: Member<Matrix> }
  readonly theta: Gate
  readonly eta: Gate | undefined
  readonly alpha: Gate | undefined
  readonly init: Member<Vector> | undefined
  readonly levelLogits: Member<Vector>
  readonly outNorm: Member<Vector>
  /** mag, mac */
  readonly gate: Gate | undefined
  /** mac */
  readonly context: (Projection & { readonly norm: Member<Vector>; readonly writeNorm: Member<Vector> }) | undefined
  /** mal */
  readonly attnNorm: Member<Vector> | undefined
  readonly mlp: { readonly norm: Member<Vector> } & Readonly<Record<'gate' | 'up' | 'down', Member<Matrix>>>
}

/**
 * Takes the tensors of all layers. What every layer has is a family over l; what only layers of some composition have
 * is taken one by one where compositions differ.
 */
export const layerWeights = (
  g: GraphBuilder,
  set: TensorSet,
  config: TitansConfig,
  l: Index,
  L: Layers,
): LayerWeights => {
  const { hidden_size: D, intermediate_size: I, composition, memory } = config
  const { num_attention_heads: H, num_key_value_heads: Hkv, head_dim: d, num_persistent_tokens: P } = config
  const { heads: Hm, head_dim: N, conv_width: W } = memory
  const K = memory.levels.length
  const E = Hm * N
  const file = 'model.layers.{l}'
  const range = { over: l, to: L }
  const size = (shape: readonly number[]): number => shape.reduce((product, extent) => product * extent, 1)

  /** For the layers `where`: all of them as a family, some of them each for itself. */
  const members =
    <T, S extends readonly number[]>(
      where: readonly number[],
      family: (shape: S) => Member<T>,
      one: (layer: number, shape: S) => T,
    ) =>
    (shape: S): Member<T> => {
      if (where.length === L) return family(shape)
      const own = new Map(where.map((layer) => [layer, one(layer, shape)]))
      return (at) => own.get(at as number)!
    }
  const everywhere: readonly number[] = Array.from({ length: L }, (_, layer) => layer)
  const at = (name: string, layer: number): string => name.replace('{l}', String(layer))
  const vector = (name: string, shape: readonly number[], where = everywhere): Member<Vector> =>
    members<Vector, readonly number[]>(
      where,
      (all) => g.vectors(name, size(all), set.takeAll(`${file}.${name}`, range, all), range),
      (layer, one) => g.vector(`${name}.${layer}`, size(one), set.take(at(`${file}.${name}`, layer), one)),
    )(shape)
  const matrix = (name: string, shape: readonly [number, number], where = everywhere): Member<Matrix> =>
    members<Matrix, readonly [number, number]>(
      where,
      (all) => g.matrices(name, all, set.takeMatrices(`${file}.${name}.weight`, range, all), range),
      (layer, one) => g.matrix(`${name}.${layer}`, one, set.takeMatrix(at(`${file}.${name}.weight`, layer), one)),
    )(shape)
  const gate = (name: string, shape: readonly [number, number], where = everywhere): Gate => ({
    weight: matrix(name, shape, where),
    bias: vector(`${name}.bias`, [shape[0]], where),
  })
  const projection = (name: string, where = everywhere): Projection => ({
    proj: matrix(`memory.${name}_proj`, [E, D], where),
    conv: vector(`memory.${name}_conv.weight`, [E, W], where),
  })
  const those = (...kinds: readonly TitansConfig['composition'][number][]): readonly number[] =>
    everywhere.filter((layer) => kinds.includes(composition[layer]!))
  const [gated, mac, mal] = [those('mag', 'mac'), those('mac'), those('mal')]
  const perLevel = [K * Hm, D] as const
  const retains = memory.retention === 'l2' || memory.retention === 'elastic' || memory.retention === 'kl'
  return {
    inputNorm: vector('input_layernorm.weight', [D]),
    attn: {
      q: matrix('attn.q_proj', [H * d, D]),
      k: matrix('attn.k_proj', [Hkv * d, D]),
      v: matrix('attn.v_proj', [Hkv * d, D]),
      o: matrix('attn.o_proj', [D, H * d]),
    },
    persistent:
      P === 0
        ? undefined
        : { k: vector('attn.persistent_k', [Hkv, P, d]), v: vector('attn.persistent_v', [Hkv, P, d]) },
    mem: { q: projection('q'), k: projection('k'), v: projection('v'), o: matrix('memory.o_proj', [D, E]) },
    theta: gate('memory.theta_proj', perLevel),
    eta: memory.rule === 'titans' ? gate('memory.eta_proj', perLevel) : undefined,
    alpha: retains ? gate('memory.alpha_proj', perLevel) : undefined,
    init: memory.init === 'learned' ? vector('memory.init_state', [K, Hm, N, N]) : undefined,
    levelLogits: vector('memory.level_logits', [K, Hm]),
    outNorm: vector('memory.out_norm.weight', [E]),
    gate: gated.length > 0 ? gate('memory.gate_proj', [D, E], gated) : undefined,
    context:
      mac.length > 0
        ? {
            ...projection('context_q', mac),
            norm: vector('memory.context_norm.weight', [D], mac),
            writeNorm: vector('memory.write_norm.weight', [D], mac),
          }
        : undefined,
    attnNorm: mal.length > 0 ? vector('attn_layernorm.weight', [D], mal) : undefined,
    mlp: {
      norm: vector('post_attention_layernorm.weight', [D]),
      gate: matrix('mlp.gate_proj', [I, D]),
      up: matrix('mlp.up_proj', [I, D]),
      down: matrix('mlp.down_proj', [D, I]),
    },
  }
}
