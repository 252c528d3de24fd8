/**
 * Decoders of the kind that Llama made common (Touvron et al., "LLaMA", 2023): attention over turned keys of which several query heads
 * share one (Ainslie et al. 2023), a gated MLP or a mixture of them, root mean square norms. Families say in a `DecoderPlan` which of
 * its parts they have; here the plan and the tensors become a graph.
 *
 * Sizes: L layers, D channels, H query heads and G key heads of d channels, I channels inside the MLP, P positions, V tokens; E experts,
 * of which a token goes to K.
 *
 * A context is `pastLen`, the positions in use; `keyCache` and `valueCache`, [layers, positions, G·d], of the layers that see the whole
 * context; `windowKeys` and `windowValues`, [layers, window, G·d], of those that see a window; and `hidden.last`. Keys are kept turned:
 * their positions never change. It is full after P tokens.
 */
import { buildGraph, type GraphBuilder } from '../engine/builder.ts'
import { autoDim, type Counter, type Index, plus, ring, type Table, type Value } from '../engine/builder-types.ts'
import type { TensorEntry } from '../engine/native.ts'
import { type DecoderWeights, decoderWeights, type ExpertsPlan, type Linear } from './decoder-weights.ts'
import { type FamilyModel, quantizationOf, tensorSet } from './family.ts'
import { eachLayer, layerConstants } from './layers.ts'

/** What sets layers apart. Layers that are alike share one object. */
export interface LayerKind {
  /** The positions that it sees, the row's own included; null: all. */
  readonly window: number | null
  /** How the pairs of a head turn; null: queries and keys know no positions. */
  readonly increments: readonly number[] | null
  /** Whether it has experts in place of the MLP. */
  readonly sparse?: boolean
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
  /** What each layer is; asked once the tensors have told how many there are. */
  readonly kinds: (layers: number) => readonly LayerKind[]
  /** Biases of q, k and v; of o; of the MLP's matrices. */
  readonly biases?: { readonly qkv?: boolean; readonly o?: boolean; readonly mlp?: boolean }
  /** Whether queries and keys are normalised within each head, before they turn. */
  readonly headNorms?: boolean
  /** Norms multiply by 1 + weight. */
  readonly onePlus?: boolean
  /** What attention and the MLP give is normalised before it is added. */
  readonly postNorms?: boolean
  /** Of the scores; default: 1/√d. */
  readonly scale?: number
  /** Inside the MLP; default: silu. */
  readonly activation?: 'silu' | 'gelu'
  readonly experts?: ExpertsPlan
  /** What embeddings are multiplied by. */
  readonly embeddingScale?: number
  /** logits = cap · tanh(logits / cap). */
  readonly logitCap?: number | null
  /** Whether the head is the embedding. A package without a head has it so in any case. */
  readonly tied: boolean
  /** What stands before "embed_tokens", "layers" and "norm"; default: "model.". */
  readonly prefix?: string
  /** Tensors of other parts of the package. */
  readonly foreign?: (name: string) => boolean
}

/** The positions of a context, and the tables of the layers that see all of them (null) and of those that see a window. */
interface State {
  readonly pastLen: Counter
  readonly tables: ReadonlyMap<number | null, readonly [keys: Table, values: Table]>
}

const stateOf = (g: GraphBuilder, plan: DecoderPlan, kinds: readonly LayerKind[], l: Index): State => {
  const width = plan.keyHeads * plan.headWidth
  const pastLen = g.counter('pastLen', { max: plan.positions })
  const clock = kinds.some(({ window }) => window !== null) ? g.clock('globalStep') : null
  const tables = new Map<number | null, readonly [Table, Table]>()
  for (const window of new Set(kinds.map((kind) => kind.window))) {
    const count = kinds.filter((kind) => kind.window === window).length
    const positions = window === null ? autoDim(pastLen) : ring(window, clock!)
    const [keys, values] = window === null ? ['keyCache', 'valueCache'] : ['windowKeys', 'windowValues']
    const table = (name: string): Table => g.table(name, [count === kinds.length ? l : count, positions, width])
    tables.set(window, [table(keys!), table(values!)])
  }
  return { pastLen, tables }
}

/** One layer: `at` picks its constants, `place` its tables. */
const layer = (
  g: GraphBuilder,
  plan: DecoderPlan,
  w: DecoderWeights,
  { pastLen, tables }: State,
  x: Value,
  kind: LayerKind,
  at: Index | number,
  place: Index | number,
): void => {
  const { heads: H, keyHeads: G, headWidth: d, eps } = plan
  const product = (name: string, value: Value, { weight }: Linear): Value => g.matmul(name, value, weight(at))
  const biased = (name: string, value: Value, { bias }: Linear): Value =>
    bias === null ? value : g.add(`${name}.b`, value, bias(at))
  const activated = (name: string, value: Value): Value =>
    plan.activation === 'gelu' ? g.gelu(name, value) : g.silu(name, value)

  const attention = (n: Value): Value => {
    // Products that do not depend on each other stand side by side: a device runs them together.
    const products = { q: product('q', n, w.q), k: product('k', n, w.k), v: product('v', n, w.v) }
    const turned = (name: 'q' | 'k', heads: number): Value => {
      const value = biased(name, products[name], w[name])
      const norm = w.headNorms?.[name]
      const scaled = norm === undefined ? value : g.rmsnorm(`${name}.n`, value, norm(at), { groups: heads, eps })
      return kind.increments === null
        ? scaled
        : g.rope(`${name}.turned`, scaled, pastLen, { heads, increments: kind.increments })
    }
    const [q, k, v] = [turned('q', H), turned('k', G), biased('v', products.v, w.v)]
    const [keys, values] = tables.get(kind.window)!
    const options = { heads: H, shared: H / G, scale: plan.scale ?? 1 / Math.sqrt(d) }
    const attended = (): Value => {
      if (kind.window !== null)
        return g.cacheAttend('attn.y', q, { k, v, keys: keys(place), values: values(place) }, options)
      g.cacheWrite(keys(place, plus(pastLen, -1)), k)
      g.cacheWrite(values(place, plus(pastLen, -1)), v)
      return g.attend('attn.y', q, keys(place), values(place), options)
    }
    return biased('attn.o', product('attn.o', attended(), w.o), w.o)
  }

  const dense = (n: Value): Value => {
    const { gate, up, down } = w.mlp!
    const [inner, factor] = [product('gate', n, gate), product('up', n, up)]
    const gated = g.mul('mlp.gated', activated('mlp.gate', biased('gate', inner, gate)), biased('up', factor, up))
    return biased('mlp.down', product('mlp.down', gated, down), down)
  }

  /** Fedus, Zoph, Shazeer, "Switch Transformers" (2021), with several experts for a token. */
  const experts = (n: Value): Value => {
    const { chosen, normalised } = plan.experts!
    const { router, gate, up, down } = w.experts!
    const shares = g.softmax('router.p', g.matmul('router.z', n, router(at)))
    const ids = g.topk('router.ids', shares, chosen)
    const own = g.gather('router.chosen', shares, ids)
    const weights = normalised ? g.normalise('router.w', own) : own
    const [inner, factor] = [g.routed('experts.gate', n, ids, gate(at)), g.routed('experts.up', n, ids, up(at))]
    const gated = g.mul('experts.gated', activated('experts.silu', inner), factor)
    return g.combine('experts.y', g.routed('experts.down', gated, ids, down(at)), weights)
  }

  const added = (name: string, value: Value, norm: DecoderWeights['postNorms'][number] | undefined): Value =>
    g.add('x', x, norm === undefined ? value : g.rmsnorm(name, value, norm(at), { eps }))
  const [afterAttention, afterFeed] = w.postNorms
  added('attn.post', attention(g.rmsnorm('attn.n', x, w.inputNorm(at), { eps })), afterAttention)
  const n = g.rmsnorm('mlp.n', x, w.feedNorm(at), { eps })
  added('mlp.post', kind.sparse ? experts(n) : dense(n), afterFeed)
}

/** The model that a plan and the tensors of its package make. Throws INVALID where they do not fit. */
export const buildDecoder = (plan: DecoderPlan, config: unknown, tensors: readonly TensorEntry[]): FamilyModel => {
  const { vocab: V, width: D, positions: P, eps, prefix = 'model.', foreign = () => false } = plan
  const set = tensorSet(tensors, quantizationOf(config))
  const L = set.layers(`${prefix}layers.`, 'num_hidden_layers', plan.layers)
  const kinds = plan.kinds(L)
  for (const { name } of tensors) if (name.endsWith('rotary_emb.inv_freq') || foreign(name)) set.ignore(name)
  const g = buildGraph()
  const l = g.index('l', L)
  const embedding = g.lookup('embed_tokens', [V, D], set.take(`${prefix}embed_tokens.weight`, [V, D]))
  const constants = layerConstants(g, set, `${prefix}layers.{l}.`, l, L)
  const weights = decoderWeights(constants, plan, kinds)
  const lastNorm = g.vector('norm', D, {
    ...set.take(`${prefix}norm.weight`, [D]),
    ...(plan.onePlus ? { map: 'one_plus' } : {}),
  })
  // Some packages say nothing of a tied head and just have none; others hold it once more.
  const tied = plan.tied || !set.has('lm_head.weight')
  if (tied) set.ignore('lm_head.weight')
  const head = g.matrix(
    'lm_head',
    [V, D],
    set.takeMatrix(tied ? `${prefix}embed_tokens.weight` : 'lm_head.weight', [V, D]),
  )
  const state = stateOf(g, plan, kinds, l)
  const last = g.table('hidden.last', [D])

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    g.cacheIncrement(state.pastLen)
    const embedded = g.embed('x', token, embedding)
    const x = plan.embeddingScale === undefined ? embedded : g.scale('x', embedded, plan.embeddingScale)
    eachLayer(
      g,
      l,
      kinds,
      ({ window }) => window,
      (kind, at, place) => layer(g, plan, weights, state, x, kind, at, place),
    )
    const hidden = g.rmsnorm('hidden', x, lastNorm, { eps })
    return { hidden, previous: g.cacheShift('hidden.previous', last(), hidden) }
  })
  const input = g.dynamic('predict.hidden', [D], 'f32')
  g.block('predict', [input], () => {
    const logits = g.matmul('logits', input, head)
    if (plan.logitCap == null) return { logits }
    const capped = g.tanh('logits.tanh', g.scale('logits.scaled', logits, 1 / plan.logitCap))
    return { logits: g.scale('logits', capped, plan.logitCap) }
  })

  set.finish()
  const [first] = kinds
  const window = first !== undefined && kinds.every((kind) => kind.window === first.window) ? first.window : null
  return {
    graph: g.finish(),
    vocabSize: V,
    memory: { window: window === null ? null : { kind: 'sliding', places: Math.min(window, P) }, tables: [] },
  }
}
