/**
 * The perspective family: recurrent layers whose channels forget at their own pace (PDR), windowed attention, and
 * feed-forward parts that are ternary experts on a torus, read from a store. Behind the last layer stand a projection
 * on half-spaces (SPP), decoding from several perspectives (MPD), a hyperdimensional memory (HDM) and adaptation
 * between messages (FMEA). docs/perspective.md has the equations.
 *
 * Sizes: L layers, D channels, E channels and r keys of a recurrent layer, H query heads and Hkv key heads of d
 * channels, W positions of the window, N experts of I channels, of which a token goes to K, V tokens, R recent tokens.
 */
import { buildGraph, type GraphBuilder } from '../../engine/builder.ts'
import { type Matrix, type Member, type Part, plus, ring, type Table, type Value } from '../../engine/builder-types.ts'
import type { TensorEntry } from '../../engine/native.ts'
import {
  type BuildOptions,
  type Family,
  type FamilyModel,
  type Layers,
  quantizationOf,
  type TensorSet,
  tensorSet,
} from '../family.ts'
import { type PerspectiveConfig, readPerspectiveConfig } from './perspective-config.ts'

/** ε of keys, queries of the recurrence, which have length 1. */
const UNIT_EPS = 1e-6
/** Layers ahead of which routes are predicted. */
const LOOK_AHEAD = 2

/** The layers of a kind: their numbers, and the index that numbers them; null where there are none. */
interface Kind {
  readonly layers: readonly number[]
  readonly part: Part
}

/** Row by row of the layers: what a kind's families hold of one layer. */
const kindsOf = (g: GraphBuilder, config: PerspectiveConfig, L: Layers) => {
  const l = g.index('l', L)
  const kind = (name: string, includes: (layer: number) => boolean): Kind | null => {
    const layers = Array.from({ length: L }, (_, layer) => layer).filter(includes)
    return layers.length === 0 ? null : { layers, part: g.part(name, l, layers) }
  }
  return {
    l,
    pdr: kind('l.pdr', (layer) => config.layer_types[layer] === 'pdr')!,
    gqa: kind('l.gqa', (layer) => config.layer_types[layer] === 'gqa'),
    experts: kind('l.experts', (layer) => config.ffn_types[layer] === 'experts')!,
    dense: kind('l.dense', (layer) => config.ffn_types[layer] === 'dense'),
  }
}
type Kinds = ReturnType<typeof kindsOf>

/** The parameters of all layers. */
const weightsOf = (g: GraphBuilder, set: TensorSet, config: PerspectiveConfig, kinds: Kinds, L: Layers) => {
  const { hidden_size: D, num_attention_heads: H, num_key_value_heads: Hkv, head_dim: d, intermediate_size } = config
  const { width: E, rank: r } = config.pdr
  const { count: N, intermediate_size: I } = config.experts
  const norms = (name: string) =>
    g.vectors(name, D, set.takeAll(`model.layers.{l}.${name}.weight`, { to: L }, [D]), { over: kinds.l })
  const at = ({ part }: Kind, name: string): string => `model.layers.{${part.index}}.${name}`
  const vectors = (kind: Kind, name: string, width: number) =>
    g.vectors(name, width, set.takeAll(at(kind, name), { over: kind.part }, [width]), { over: kind.part })
  const matrices = (kind: Kind, name: string, shape: Matrix['shape']): Member<Matrix> =>
    g.matrices(name, shape, set.takeMatrices(`${at(kind, name)}.weight`, { over: kind.part }, shape), {
      over: kind.part,
    })
  const { pdr, gqa, experts, dense } = kinds
  return {
    inputNorm: norms('input_layernorm'),
    ffnNorm: norms('post_attention_layernorm'),
    pdr: {
      p: matrices(pdr, 'pdr.p_proj', [E, D]),
      bias: vectors(pdr, 'pdr.p_proj.bias', E),
      k: matrices(pdr, 'pdr.k_proj', [r, D]),
      q: matrices(pdr, 'pdr.q_proj', [r, D]),
      v: matrices(pdr, 'pdr.v_proj', [E, D]),
      o: matrices(pdr, 'pdr.o_proj', [D, E]),
      norm: vectors(pdr, 'pdr.out_norm.weight', E),
    },
    attn: gqa && {
      q: matrices(gqa, 'attn.q_proj', [H * d, D]),
      k: matrices(gqa, 'attn.k_proj', [Hkv * d, D]),
      v: matrices(gqa, 'attn.v_proj', [Hkv * d, D]),
      o: matrices(gqa, 'attn.o_proj', [D, H * d]),
    },
    router: matrices(experts, 'router', [2, D]),
    routerBias: vectors(experts, 'router.bias', 2),
    positions: g.vector('positions', 2 * N, set.take('model.experts.positions', [N, 2])),
    experts: g.expertLayers('experts', [N, I, D], { over: experts.part }),
    mlp: dense && {
      gate: matrices(dense, 'mlp.gate_proj', [intermediate_size, D]),
      up: matrices(dense, 'mlp.up_proj', [intermediate_size, D]),
      down: matrices(dense, 'mlp.down_proj', [D, intermediate_size]),
    },
    norm: g.vector('norm', D, set.take('model.norm.weight', [D])),
    spp: config.spp && {
      normals: g.vector(
        'spp.normals',
        config.spp.half_spaces * D,
        set.take('model.spp.normals', [config.spp.half_spaces, D]),
      ),
      offsets: g.vector('spp.offsets', config.spp.half_spaces, set.take('model.spp.offsets', [config.spp.half_spaces])),
    },
  }
}
type Weights = ReturnType<typeof weightsOf>

/** Inputs and outputs of the linear maps that adapters may stand beside. */
const mapSizes = (config: PerspectiveConfig): Readonly<Record<string, readonly [outputs: number, inputs: number]>> => {
  const { hidden_size: D, num_attention_heads: H, num_key_value_heads: Hkv, head_dim: d } = config
  const { width: E, rank: r } = config.pdr
  return {
    'pdr.p_proj': [E, D],
    'pdr.k_proj': [r, D],
    'pdr.q_proj': [r, D],
    'pdr.v_proj': [E, D],
    'pdr.o_proj': [D, E],
    'attn.q_proj': [H * d, D],
    'attn.k_proj': [Hkv * d, D],
    'attn.v_proj': [Hkv * d, D],
    'attn.o_proj': [D, H * d],
  }
}

/** The persistents, in the order of a snapshot. */
const stateOf = (g: GraphBuilder, config: PerspectiveConfig, kinds: Kinds) => {
  const { hidden_size: D, recent: R, sliding_window: W, mpd, hdm, fmea } = config
  const { width: E, rank: r } = config.pdr
  const keys = config.num_key_value_heads * config.head_dim
  const clock = g.clock('globalStep')
  const S = g.table('pdr.S', [kinds.pdr.part, r, E])
  const attn = kinds.gqa && {
    k: g.table('attn.k', [kinds.gqa.part, ring(W, clock), keys]),
    v: g.table('attn.v', [kinds.gqa.part, ring(W, clock), keys]),
  }
  const recent = R > 0 && {
    ids: g.table('recent.ids', [ring(R, clock)], { dtype: 'i32' }),
    hidden: g.table('recent.hidden', [ring(R, clock), D], { dtype: 'i8' }),
  }
  const x = mpd && g.table('mpd.x', [D])
  const adapters = new Map<string, { readonly A: Table; readonly B: Table }>()
  for (const target of fmea?.targets ?? []) {
    const [outputs, inputs] = mapSizes(config)[target]!
    const { part } = target.startsWith('pdr.') ? kinds.pdr : kinds.gqa!
    adapters.set(target, {
      A: g.table(`fmea.${target}.A`, [part, fmea!.rank, inputs]),
      B: g.table(`fmea.${target}.B`, [part, outputs, fmea!.rank]),
    })
  }
  const offset = fmea && g.table('router.offset', [config.experts.count, 2])
  if (hdm) {
    g.table('hdm.banks', [hdm.banks, hdm.bits], { dtype: 'i8' })
    g.counter('hdm.through')
  }
  return { clock, S, attn, recent, x, adapters, offset, last: g.table('hidden.last', [D]) }
}
type PerspectiveState = ReturnType<typeof stateOf>

/** What a perspective has other than the last token: where it begins, its routes. Null: the step of a token. */
interface Again {
  /** By which the point of a route is multiplied, and what is added: [2], the latter of each of the layers. */
  readonly keep: Value
  readonly move: (layer: number) => Value
  /** The rank of the first expert. */
  readonly rank: Value<'i32'>
}

interface Building {
  readonly g: GraphBuilder
  readonly config: PerspectiveConfig
  readonly kinds: Kinds
  readonly w: Weights
  readonly state: PerspectiveState
  /** Whether the store is told ahead of time which experts are likely to be wanted. */
  readonly ahead: boolean
}

/** y = W x, with its adapter where the model has one. `place`: of the layer among those of its kind. */
const mapped = ({ g, state }: Building, out: string, target: string, W: Matrix, x: Value, place: number): Value => {
  const own = state.adapters.get(target)
  if (own === undefined) return g.matmul(out, x, W)
  return g.adapter(out, g.matmul(`${out}.p`, x, W), x, own.A(place), own.B(place))
}

const recurrence = (building: Building, n: Value, layer: number, again: Again | null, p: string): Value => {
  const { g, config, kinds, w, state } = building
  const { gamma_min, gamma_max, write } = config.pdr
  const place = kinds.pdr.layers.indexOf(layer)
  const one = { groups: 1, eps: UNIT_EPS }
  const map = (name: 'p' | 'k' | 'q' | 'v' | 'o', x: Value): Value =>
    mapped(building, `${p}pdr.${name}`, `pdr.${name}_proj`, w.pdr[name](place), x, place)
  const q = g.unit(`${p}pdr.q.unit`, map('q', n), one)
  const o = again
    ? g.cacheRecall(`${p}pdr.read`, state.S(place), q, 1)
    : g.cachePdr(
        `${p}pdr.read`,
        state.S(place),
        {
          gamma: g.range(`${p}pdr.gamma`, g.add(`${p}pdr.logits`, map('p', n), w.pdr.bias(place)), {
            low: [gamma_min],
            high: [gamma_max],
          }),
          k: g.unit(`${p}pdr.k.unit`, map('k', n), one),
          q,
          v: map('v', n),
        },
        write,
      )
  return map('o', g.rmsnorm(`${p}pdr.normed`, o, w.pdr.norm(place), { eps: config.rms_norm_eps }))
}

const attention = (building: Building, n: Value, layer: number, again: Again | null, p: string): Value => {
  const { g, config, kinds, w, state } = building
  const { num_attention_heads: H, num_key_value_heads: Hkv, head_dim: d, rope_increments: increments } = config
  const place = kinds.gqa!.layers.indexOf(layer)
  const map = (name: 'q' | 'k' | 'v' | 'o', x: Value): Value =>
    mapped(building, `${p}attn.${name}`, `attn.${name}_proj`, w.attn![name](place), x, place)
  const turned = (name: 'q' | 'k', heads: number): Value =>
    g.rope(`${p}attn.${name}.turned`, map(name, n), state.clock, { heads, increments })
  const options = { heads: H, shared: H / Hkv, scale: 1 / Math.sqrt(d) }
  const [keys, values] = [state.attn!.k(place), state.attn!.v(place)]
  const q = turned('q', H)
  const y = again
    ? g.attend(`${p}attn.y`, q, keys, values, options)
    : g.cacheAttend(`${p}attn.y`, q, { k: turned('k', Hkv), v: map('v', n), keys, values }, options)
  return map('o', y)
}

/** The experts of a row, in order of rank, and how far they are. */
const route = ({ g, config, kinds, w, state }: Building, u: Value, layer: number, again: Again | null, p: string) => {
  const place = kinds.experts.layers.indexOf(layer)
  const there = g.add(`${p}route.z`, g.matmul(`${p}route.p`, u, w.router(place)), w.routerBias(place))
  const z = again ? g.add(`${p}route.moved`, g.mul(`${p}route.kept`, there, again.keep), again.move(layer)) : there
  const d = g.torus(`${p}route.d`, z, w.positions, state.offset ? state.offset() : undefined)
  return { place, d, ids: g.nearest(`${p}experts`, d, config.experts.top_k, again?.rank) }
}

/** Tells the store which experts the next layers are likely to want, by their own norms and routers. */
const lookAhead = (building: Building, x: Value, layer: number, p: string): void => {
  const { g, config, kinds, w } = building
  for (let k = 1; k <= LOOK_AHEAD; k += 1) {
    const next = layer + k
    if (!kinds.experts.layers.includes(next)) continue
    const u = g.rmsnorm(`${p}ahead.${k}.u`, x, w.ffnNorm(next), { eps: config.rms_norm_eps })
    const { ids, place } = route(building, u, next, null, `${p}ahead.${k}.`)
    g.expertsAhead(ids, w.experts(place), k)
  }
}

/** The feed-forward part; of a step, x is what it is added to. */
const feedForward = (building: Building, u: Value, x: Value, layer: number, again: Again | null, p: string): Value => {
  const { g, config, kinds, w } = building
  if (config.ffn_types[layer] === 'dense') {
    const place = kinds.dense!.layers.indexOf(layer)
    const gate = g.silu(`${p}mlp.silu`, g.matmul(`${p}mlp.gate`, u, w.mlp!.gate(place)))
    return g.matmul(
      `${p}mlp.down`,
      g.mul(`${p}mlp.gated`, gate, g.matmul(`${p}mlp.up`, u, w.mlp!.up(place))),
      w.mlp!.down(place),
    )
  }
  const { place, d, ids } = route(building, u, layer, again, p)
  g.expertsAhead(ids, w.experts(place), 0)
  if (!again && building.ahead) lookAhead(building, x, layer, p)
  const nearness = g.scale(`${p}route.near`, g.gather(`${p}route.chosen`, d, ids), -1 / config.experts.temperature)
  const F = g.experts(`${p}experts.y`, u, ids, w.experts(place))
  return g.combine(`${p}experts.sum`, F, g.softmax(`${p}route.weights`, nearness))
}

/** A layer; gives x behind it. */
const layerOf = (building: Building, x: Value, layer: number, again: Again | null): Value => {
  const { g, config, w } = building
  const p = `${again ? 'again.' : ''}${layer}.`
  const eps = config.rms_norm_eps
  const n = g.rmsnorm(`${p}n`, x, w.inputNorm(layer), { eps })
  const mix = config.layer_types[layer] === 'pdr' ? recurrence : attention
  const mixed = g.add(`${p}x.mixed`, x, mix(building, n, layer, again, p))
  const u = g.rmsnorm(`${p}u`, mixed, w.ffnNorm(layer), { eps })
  return g.add(`${p}x`, mixed, feedForward(building, u, mixed, layer, again, p))
}

const hiddenOf = ({ g, config, w }: Building, x: Value, p: string): Value => {
  const normed = g.rmsnorm(w.spp ? `${p}normed` : `${p}hidden`, x, w.norm, { eps: config.rms_norm_eps })
  if (!w.spp) return normed
  const { iterations, inflation } = config.spp!
  return g.project(`${p}hidden`, normed, w.spp.normals, w.spp.offsets, { iterations, inflation })
}

/** The step of a token. */
const stepBlock = (building: Building, embed: (token: Value<'i32'>) => Value): void => {
  const { g, config, kinds, state } = building
  const { num_hidden_layers: L, mpd } = config
  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    let x = embed(token)
    for (let layer = 0; layer < L; layer += 1) {
      if (mpd && layer === L - mpd.layers) g.cacheShift('mpd.previous', state.x!(), x)
      x = layerOf(building, x, layer, null)
    }
    const hidden = hiddenOf(building, x, '')
    if (state.recent) {
      g.cacheWrite(state.recent.ids(plus(state.clock, -1)), token)
      g.cacheWrite(state.recent.hidden(plus(state.clock, -1)), g.whole('hidden.whole', hidden))
    }
    const routes = kinds.experts.layers.map((layer, i) => [
      `route.${i}`,
      { name: `${layer}.experts`, shape: [config.experts.top_k], dtype: 'i32' } as Value<'i32'>,
    ])
    return { hidden, previous: g.cacheShift('hidden.previous', state.last(), hidden), ...Object.fromEntries(routes) }
  })
}

/** The last layers once more for each perspective, reading only. */
const againBlock = (building: Building): void => {
  const { g, config, kinds } = building
  const { num_hidden_layers: L, hidden_size: D, mpd } = config
  if (!mpd) return
  const first = L - mpd.layers
  const routed = kinds.experts.layers.filter((layer) => layer >= first)
  const start = g.dynamic('again.start', [D], 'f32')
  const keep = g.dynamic('again.keep', [2], 'f32')
  const moves = routed.map((layer) => [layer, g.dynamic(`again.move.${layer}`, [2], 'f32')] as const)
  const rank = g.dynamic('again.rank', [], 'i32')
  const again: Again = { keep, rank, move: (layer) => moves.find(([at]) => at === layer)![1] }
  const used = routed.length > 0 ? [keep, rank, ...moves.map(([, move]) => move)] : []
  g.block('again', [start, ...used], () => {
    let x: Value = start
    for (let layer = first; layer < L; layer += 1) x = layerOf(building, x, layer, again)
    const routes = routed.map((layer, i) => [
      `route.${i}`,
      { name: `again.${layer}.experts`, shape: [config.experts.top_k], dtype: 'i32' } as Value<'i32'>,
    ])
    return { hidden: hiddenOf(building, x, 'again.'), ...Object.fromEntries(routes) }
  })
}

const build = (
  parsed: unknown,
  tensors: readonly TensorEntry[],
  { lookAhead: ahead = true }: BuildOptions = {},
): FamilyModel => {
  const config = readPerspectiveConfig(parsed)
  const { vocab_size: V, hidden_size: D } = config
  const set = tensorSet(tensors, quantizationOf(parsed))
  const L = set.layers('model.layers.', 'num_hidden_layers', config.num_hidden_layers)
  const g = buildGraph()
  const kinds = kindsOf(g, config, L)
  const embedding = g.lookup('embed_tokens', [V, D], set.take('model.embed_tokens.weight', [V, D]))
  const building: Building = {
    g,
    config,
    kinds,
    w: weightsOf(g, set, config, kinds, L),
    state: stateOf(g, config, kinds),
    ahead,
  }
  stepBlock(building, (token) => g.embed('x', token, embedding))

  const tied = config.tie_word_embeddings
  if (tied) set.ignore('lm_head.weight')
  const source = set.takeMatrix(tied ? 'model.embed_tokens.weight' : 'lm_head.weight', [V, D])
  const head = g.matrix('lm_head', [V, D], source)
  const input = g.dynamic('predict.hidden', [D], 'f32')
  g.block('predict', [input], () => ({ logits: g.matmul('logits', input, head) }))
  againBlock(building)
  set.finish()

  const { mpd, hdm, fmea, recent, experts, layer_types, ffn_types, pdr } = config
  g.perspective({ layer_types, ffn_types, pdr, experts, recent, mpd, hdm, fmea, eps: config.rms_norm_eps })
  return {
    graph: g.finish(),
    vocabSize: V,
    experts: { layers: kinds.experts.layers, digest: experts.digest },
  }
}

export const perspective: Family = { build }
