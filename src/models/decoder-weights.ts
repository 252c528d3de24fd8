/** The constants of a decoder's layers: which tensors there are, and under which names the graph has them. */
import type { Matrix, Member, Stack, Vector } from '../engine/builder-types.ts'
import type { DecoderPlan, LayerKind } from './decoder.ts'
import type { LayerConstants, VectorOptions } from './layers.ts'

/** A mixture of experts; names of tensors are those behind the layer's prefix, `{e}` stands for the expert. */
export interface ExpertsPlan {
  readonly count: number
  /** How many experts a token goes to. */
  readonly chosen: number
  /** Channels inside an expert. */
  readonly inner: number
  /** Whether the weights of the chosen experts are divided by their sum. */
  readonly normalised: boolean
  readonly router: string
  readonly gate: string
  readonly up: string
  readonly down: string
}

export interface Linear {
  readonly weight: Member<Matrix>
  readonly bias: Member<Vector> | null
}

export interface DecoderWeights {
  readonly inputNorm: Member<Vector>
  readonly feedNorm: Member<Vector>
  /** Of what attention gives, and of what the MLP gives; empty: there are none. */
  readonly postNorms: readonly Member<Vector>[]
  readonly q: Linear
  readonly k: Linear
  readonly v: Linear
  readonly o: Linear
  readonly headNorms: { readonly q: Member<Vector>; readonly k: Member<Vector> } | null
  readonly mlp: { readonly gate: Linear; readonly up: Linear; readonly down: Linear } | null
  readonly experts: {
    readonly router: Member<Matrix>
    readonly gate: Member<Stack>
    readonly up: Member<Stack>
    readonly down: Member<Stack>
  } | null
}

export const decoderWeights = (
  constants: LayerConstants,
  plan: DecoderPlan,
  kinds: readonly LayerKind[],
): DecoderWeights => {
  const { width: D, heads: H, keyHeads: G, headWidth: d, inner: I, biases = {}, experts } = plan
  const changed: VectorOptions = plan.onePlus ? { map: 'one_plus' } : {}
  const norm = (name: string): Member<Vector> => constants.vector(`${name}.weight`, [D], changed)
  /** One weight for each channel of a head, the same for all heads. */
  const headNorm = (name: string, heads: number): Member<Vector> =>
    constants.vector(`${name}.weight`, [d], {
      ...changed,
      width: heads * d,
      view: { repeat: heads, step: 0, parts: [[0, d]] },
    })
  const linear = (
    name: string,
    shape: readonly [outputs: number, inputs: number],
    biased = false,
    where?: readonly number[],
  ): Linear => ({
    weight: constants.matrix(name, shape, where),
    bias: biased ? constants.vector(`${name}.bias`, [shape[0]], where === undefined ? {} : { where }) : null,
  })
  const those = (sparse: boolean): readonly number[] =>
    kinds.flatMap((kind, layer) => ((kind.sparse ?? false) === sparse ? [layer] : []))
  const [dense, sparse] = [those(false), those(true)]
  return {
    inputNorm: norm('input_layernorm'),
    feedNorm: norm(plan.postNorms ? 'pre_feedforward_layernorm' : 'post_attention_layernorm'),
    postNorms: plan.postNorms ? [norm('post_attention_layernorm'), norm('post_feedforward_layernorm')] : [],
    q: linear('self_attn.q_proj', [H * d, D], biases.qkv),
    k: linear('self_attn.k_proj', [G * d, D], biases.qkv),
    v: linear('self_attn.v_proj', [G * d, D], biases.qkv),
    o: linear('self_attn.o_proj', [D, H * d], biases.o),
    headNorms: plan.headNorms ? { q: headNorm('self_attn.q_norm', H), k: headNorm('self_attn.k_norm', G) } : null,
    mlp:
      dense.length > 0
        ? {
            gate: linear('mlp.gate_proj', [I, D], biases.mlp, dense),
            up: linear('mlp.up_proj', [I, D], biases.mlp, dense),
            down: linear('mlp.down_proj', [D, I], biases.mlp, dense),
          }
        : null,
    experts:
      experts !== undefined && sparse.length > 0
        ? {
            router: constants.matrix(experts.router, [experts.count, D], sparse),
            gate: constants.stack(experts.gate, [experts.count, experts.inner, D], sparse),
            up: constants.stack(experts.up, [experts.count, experts.inner, D], sparse),
            down: constants.stack(experts.down, [experts.count, D, experts.inner], sparse),
          }
        : null,
  }
}
