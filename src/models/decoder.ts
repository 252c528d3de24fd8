/**
 * Decoders of the kind that Llama made common (Touvron et al., "LLaMA", 2023): attention over turned keys of which several query heads
 * share one (Ainslie et al. 2023), a gated MLP, root mean square norms. Families say in a `DecoderPlan` which of its parts they have;
 * here the plan and the tensors become a graph.
 *
 * Sizes: L layers, D channels, H query heads and G key heads of d channels, I channels inside the MLP, P positions, V tokens.
 *
 * A context is `pastLen`, the positions in use; `keyCache` and `valueCache`, [layers, positions, G·d], of the layers that see the whole
 * context; `windowKeys` and `windowValues`, [layers, window, G·d], of those that see a window; and `hidden.last`. Keys are kept turned:
 * their positions never change. It is full after P tokens.
 */
import { buildGraph, type GraphBuilder } from '../engine/builder.ts'
import {
  autoDim,
  type Counter,
  type Index,
  type Matrix,
  type Member,
  plus,
  ring,
  type Table,
  type Value,
  type Vector,
} from '../engine/builder-types.ts'
import type { TensorEntry } from '../engine/native.ts'
import { type FamilyModel, quantizationOf, type TensorSet, tensorSet } from './family.ts'
import { eachLayer, type LayerConstants, layerConstants } from './layers.ts'

/** How one layer attends. Layers that attend alike share one object. */
export interface LayerKind {
  /** The positions that it sees, the row's own included; null: all. */
  readonly window: number | null
  /** How its pairs turn; null: positions are not turned into anything. */
  readonly increments: readonly number[] | null
}

export interface DecoderPlan {
  readonly vocab: number
  readonly width: number
  readonly layers: number
  readonly heads: number
  readonly keyHeads: number
  readonly headWidth: number
  readonly inner: number
  readonly positions: number
  readonly eps: number
  /** What layer l is, 0 … layers − 1; asked once the tensors have told how many there are. */
  readonly kinds: (layers: number) => readonly LayerKind[]
  /** Biases of q, k and v; of o; of the MLP's matrices. */
  readonly biases?: { readonly qkv?: boolean; readonly o?: boolean; readonly mlp?: boolean }
  /** Whether the head is the embedding. A package without a head has it so in any case. */
  readonly tied: boolean
}

interface Linear {
  readonly weight: Member<Matrix>
  readonly bias: Member<Vector> | null
}

const linear = (
  constants: LayerConstants,
  name: string,
  shape: readonly [outputs: number, inputs: number],
  biased: boolean | undefined,
): Linear => ({
  weight: constants.matrix(name, shape),
  bias: biased ? constants.vector(`${name}.bias`, [shape[0]]) : null,
})

const weightsOf = (constants: LayerConstants, plan: DecoderPlan) => {
  const { width: D, heads: H, keyHeads: G, headWidth: d, inner: I, biases = {} } = plan
  const norm = (name: string): Member<Vector> => constants.vector(`${name}.weight`, [D])
  return {
    inputNorm: norm('input_layernorm'),
    q: linear(constants, 'self_attn.q_proj', [H * d, D], biases.qkv),
    k: linear(constants, 'self_attn.k_proj', [G * d, D], biases.qkv),
    v: linear(constants, 'self_attn.v_proj', [G * d, D], biases.qkv),
    o: linear(constants, 'self_attn.o_proj', [D, H * d], biases.o),
    feedNorm: norm('post_attention_layernorm'),
    gate: linear(constants, 'mlp.gate_proj', [I, D], biases.mlp),
    up: linear(constants, 'mlp.up_proj', [I, D], biases.mlp),
    down: linear(constants, 'mlp.down_proj', [D, I], biases.mlp),
  }
}
type Weights = ReturnType<typeof weightsOf>

/** The positions of a context, and the tables of the layers that see all of them and of those that see a window. */
interface State {
  readonly pastLen: Counter
  readonly tables: ReadonlyMap<LayerKind, readonly [keys: Table, values: Table]>
}

const stateOf = (g: GraphBuilder, plan: DecoderPlan, kinds: readonly LayerKind[], l: Index): State => {
  const width = plan.keyHeads * plan.headWidth
  const pastLen = g.counter('pastLen', { max: plan.positions })
  const tables = new Map<LayerKind, readonly [Table, Table]>()
  const clock = kinds.some(({ window }) => window !== null) ? g.clock('globalStep') : null
  for (const kind of new Set(kinds)) {
    const count = kinds.filter((each) => each === kind).length
    const layers = count === kinds.length ? l : count
    const axes = kind.window === null ? [layers, autoDim(pastLen), width] : [layers, ring(kind.window, clock!), width]
    const names = kind.window === null ? ['keyCache', 'valueCache'] : ['windowKeys', 'windowValues']
    tables.set(kind, names.map((name) => g.table(name, axes)) as unknown as readonly [Table, Table])
  }
  return { pastLen, tables }
}

const layer = (
  g: GraphBuilder,
  plan: DecoderPlan,
  w: Weights,
  { pastLen, tables }: State,
  x: Value,
  kind: LayerKind,
  l: Index | number,
  place: Index | number,
): void => {
  const { heads: H, keyHeads: G, headWidth: d, eps } = plan
  const options = { heads: H, shared: H / G, scale: 1 / Math.sqrt(d) }
  const multiplied = (name: string, value: Value, { weight }: Linear): Value => g.matmul(name, value, weight(l))
  const biased = (name: string, value: Value, { bias }: Linear): Value =>
    bias === null ? value : g.add(`${name}.b`, value, bias(l))
  const applied = (name: string, value: Value, matrix: Linear): Value =>
    biased(name, multiplied(name, value, matrix), matrix)
  const turned = (name: string, value: Value, heads: number): Value =>
    kind.increments === null ? value : g.rope(`${name}.turned`, value, pastLen, { heads, increments: kind.increments })

  const n = g.rmsnorm('attn.n', x, w.inputNorm(l), { eps })
  // Products that do not depend on each other stand side by side: a device runs them together.
  const products = { q: multiplied('q', n, w.q), k: multiplied('k', n, w.k), v: multiplied('v', n, w.v) }
  const q = turned('q', biased('q', products.q, w.q), H)
  const k = turned('k', biased('k', products.k, w.k), G)
  const v = biased('v', products.v, w.v)
  const [keys, values] = tables.get(kind)!
  const attended = (): Value => {
    if (kind.window !== null)
      return g.cacheAttend('attn.y', q, { k, v, keys: keys(place), values: values(place) }, options)
    g.cacheWrite(keys(place, plus(pastLen, -1)), k)
    g.cacheWrite(values(place, plus(pastLen, -1)), v)
    return g.attend('attn.y', q, keys(place), values(place), options)
  }
  g.add('x', x, applied('attn.o', attended(), w.o))

  const m = g.rmsnorm('mlp.n', x, w.feedNorm(l), { eps })
  const [gate, up] = [multiplied('gate', m, w.gate), multiplied('up', m, w.up)]
  const gated = g.mul('mlp.gated', g.silu('mlp.silu', biased('gate', gate, w.gate)), biased('up', up, w.up))
  g.add('x', x, applied('mlp.down', gated, w.down))
}

const buildPlan = (plan: DecoderPlan, set: TensorSet): FamilyModel => {
  const { vocab: V, width: D, positions: P, eps } = plan
  const L = set.layers('model.layers.', 'num_hidden_layers', plan.layers)
  const kinds = plan.kinds(L)
  for (const at of ['model.', ...kinds.map((_, layer) => `model.layers.${layer}.self_attn.`)])
    set.ignore(`${at}rotary_emb.inv_freq`)
  const g = buildGraph()
  const l = g.index('l', L)
  const embedding = g.lookup('embed_tokens', [V, D], set.take('model.embed_tokens.weight', [V, D]))
  const weights = weightsOf(layerConstants(g, set, 'model.layers.{l}.', l, L), plan)
  const lastNorm = g.vector('norm', D, set.take('model.norm.weight', [D]))
  // Some packages say nothing of a tied head and just have none; others hold it once more.
  const tied = plan.tied || !set.has('lm_head.weight')
  if (tied) set.ignore('lm_head.weight')
  const head = g.matrix(
    'lm_head',
    [V, D],
    set.takeMatrix(tied ? 'model.embed_tokens.weight' : 'lm_head.weight', [V, D]),
  )
  const state = stateOf(g, plan, kinds, l)
  const last = g.table('hidden.last', [D])

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    g.cacheIncrement(state.pastLen)
    const x = g.embed('x', token, embedding)
    eachLayer(g, l, kinds, (kind, at, place) => layer(g, plan, weights, state, x, kind, at, place))
    const hidden = g.rmsnorm('hidden', x, lastNorm, { eps })
    return { hidden, previous: g.cacheShift('hidden.previous', last(), hidden) }
  })
  const input = g.dynamic('predict.hidden', [D], 'f32')
  g.block('predict', [input], () => ({ logits: g.matmul('logits', input, head) }))

  set.finish()
  const [{ window }, ...others] = kinds as [LayerKind, ...LayerKind[]]
  const sliding = window !== null && others.every((each) => each.window === window)
  return {
    graph: g.finish(),
    vocabSize: V,
    memory: { window: sliding ? { kind: 'sliding', places: Math.min(window, P) } : null, tables: [] },
  }
}

/** The model that a plan and the tensors of its package make. Throws INVALID where they do not fit. */
export const buildDecoder = (plan: DecoderPlan, config: unknown, tensors: readonly TensorEntry[]): FamilyModel =>
  buildPlan(plan, tensorSet(tensors, quantizationOf(config)))
