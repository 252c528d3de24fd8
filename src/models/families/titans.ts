/**
 * Titans: layers that carry, beside windowed attention, a matrix memory that is trained by every token it reads.
 * Behrouz, Zhong, Mirrokni, "Titans: Learning to Memorize at Test Time" (2025), compositions MAC, MAG and MAL; the
 * levels are those of Behrouz, Razaviyayn, Zhong, Mirrokni, "Nested Learning" (2025); docs/titans.md has the equations
 * and says where they depart from the papers.
 *
 * Sizes: L layers, D channels, H query heads and Hkv key heads of d channels, P persistent tokens, Hm memory heads of N
 * channels (E = Hm·N), K levels, W taps, V tokens.
 */
import { buildGraph, type GraphBuilder } from '../../engine/builder.ts'
import { type Index, ring, type Table, type Value, type Vector } from '../../engine/builder-types.ts'
import type { TensorEntry } from '../../engine/native.ts'
import type { MemoryDeclaration } from '../../memory.ts'
import { type Family, type FamilyModel, quantizationOf, tensorSet } from '../family.ts'
import { memoryFormOf, readTitansConfig, type TitansConfig } from './titans-config.ts'
import { type LayerWeights, layerWeights } from './titans-weights.ts'

/** Persistents that statistics are taken of. */
const MEMORY = 'memory.M'
const MOMENTUM = 'memory.S'
const BUFFER = 'memory.G'

/** The persistents of the layers, as far as the configuration has them. */
const layerState = (g: GraphBuilder, config: TitansConfig, l: Index) => {
  const { heads: Hm, head_dim: N, conv_width: W, levels } = config.memory
  const E = Hm * N
  const keys = config.num_key_value_heads * config.head_dim
  const slow = levels.filter((period) => period > 1).length
  const counted = { window: 0, mac: 0 }
  for (const composition of config.composition) counted[composition === 'mac' ? 'mac' : 'window'] += 1
  const clock = g.clock('globalStep')
  const tail = (name: string): Table | null => (W > 1 ? g.table(name, [l, W - 1, E]) : null)
  // Layers of one kind share a table; a table has a place for each of them.
  const kept = (count: number, places: number, ...names: readonly string[]): readonly Table[] =>
    count === 0 ? [] : names.map((name) => g.table(name, [count, ring(places, clock), keys]))
  return {
    clock,
    M: g.table(MEMORY, [l, levels.length, Hm, N, N]),
    S: config.memory.rule === 'titans' ? g.table(MOMENTUM, [l, levels.length, Hm, N, N]) : null,
    G: slow > 0 ? g.table(BUFFER, [l, slow, Hm, N, N]) : null,
    tails: { q: tail('memory.conv_q'), k: tail('memory.conv_k'), v: tail('memory.conv_v') },
    window: kept(counted.window, config.sliding_window, 'attn.k', 'attn.v'),
    segment: kept(counted.mac, config.segment_size ?? 1, 'segment.k', 'segment.v', 'segment.hk', 'segment.hv'),
    tail_c: counted.mac > 0 && W > 1 ? g.table('memory.conv_c', [counted.mac, W - 1, E]) : null,
    M_seg: counted.mac > 0 ? g.table('memory.M_seg', [counted.mac, Hm, N, N]) : null,
  }
}
type LayerState = ReturnType<typeof layerState>

/**
 * The tables of `layerState` that have levels, and what attention sees: with layers of both kinds, the sliding window.
 */
const declaredMemory = ({ memory, composition, sliding_window, segment_size }: TitansConfig): MemoryDeclaration => {
  const levels = memory.levels.map((_, level) => level)
  const slow = levels.filter((level) => memory.levels[level]! > 1)
  const sliding = composition.some((kind) => kind !== 'mac')
  return {
    window: sliding ? { kind: 'sliding', places: sliding_window } : { kind: 'segment', places: segment_size ?? 1 },
    tables: [
      { name: MEMORY, role: 'memory', levels },
      ...(memory.rule === 'titans' ? [{ name: MOMENTUM, role: 'momentum', levels } as const] : []),
      ...(slow.length > 0 ? [{ name: BUFFER, role: 'buffer', levels: slow } as const] : []),
    ],
  }
}

/** One layer: `l` picks its member, `place` its place among the layers of its kind. */
const layer = (
  g: GraphBuilder,
  config: TitansConfig,
  w: LayerWeights,
  state: LayerState,
  x: Value,
  composition: TitansConfig['composition'][number],
  l: Index | number,
  place: Index | number,
): void => {
  const { num_attention_heads: H, num_key_value_heads: Hkv, head_dim: d, rms_norm_eps: eps } = config
  const { heads: Hm, qk_norm_eps } = config.memory
  const form = memoryFormOf(config)
  const shared = H / Hkv
  const scale = 1 / Math.sqrt(d)
  const norm = (name: string, value: Value, weight: Vector): Value => g.rmsnorm(name, value, weight, { eps })
  const turned = (name: string, value: Value, heads: number): Value =>
    g.rope(name, value, state.clock, { heads, increments: config.rope_increments })
  const convolved = (name: string, value: Value, tail: Table | null, at: Index | number, weights: Vector): Value =>
    tail === null ? g.silu(name, g.mul(`${name}.tap`, value, weights)) : g.cacheConv(name, tail(at), value, weights)
  const unit = (name: string, value: Value): Value => g.unit(name, value, { groups: Hm, eps: qk_norm_eps })
  const bounded = (
    name: string,
    gate: LayerWeights['theta'],
    u: Value,
    low: readonly number[],
    high: readonly number[],
  ) => g.range(name, g.add(`${name}.z`, g.matmul(`${name}.p`, u, gate.weight(l)), gate.bias(l)), { low, high })

  /** Writes u into the memory, then reads: r [E]. */
  const memory = (u: Value): Value => {
    const projected = (c: 'q' | 'k' | 'v'): Value =>
      convolved(`mem.${c}.conv`, g.matmul(`mem.${c}.p`, u, w.mem[c].proj(l)), state.tails[c], l, w.mem[c].conv(l))
    const q = unit('mem.q', projected('q'))
    const k = unit('mem.k', projected('k'))
    const v = projected('v')
    const { alpha_min, alpha_max, eta_max, theta_max } = config.memory
    const zeros = theta_max.map(() => 0)
    const y = g.cacheMemory(
      'mem.y',
      { M: state.M(l), momentum: state.S?.(l), buffer: state.G?.(l) },
      {
        q,
        k,
        v,
        theta: bounded('mem.theta', w.theta, u, zeros, theta_max),
        eta: w.eta && bounded('mem.eta', w.eta, u, zeros, eta_max),
        alpha: w.alpha && bounded('mem.alpha', w.alpha, u, alpha_min, alpha_max),
        logits: w.levelLogits(l),
      },
      { ...form, heads: Hm },
    )
    return headNorm('mem.r', y)
  }
  const headNorm = (name: string, y: Value): Value => g.rmsnorm(name, y, w.outNorm(l), { groups: Hm, eps })
  const persistent = (q: Value) =>
    w.persistent && { persistent: { q, keys: w.persistent.k(l), values: w.persistent.v(l) } }
  const gateOf = (r: Value): Value => {
    const gate = w.gate!
    return g.sigmoid('mem.gate', g.add('mem.gate.z', g.matmul('mem.gate.p', r, gate.weight(l)), gate.bias(l)))
  }

  /** Attention over the window: position t in place t mod w. */
  const window = (n: Value): Value => {
    const q = g.matmul('attn.q', n, w.attn.q(l))
    const k = turned('attn.k.turned', g.matmul('attn.k.p', n, w.attn.k(l)), Hkv)
    const v = g.matmul('attn.v.p', n, w.attn.v(l))
    const [keys, values] = state.window as [Table, Table]
    const own = { k, v, keys: keys(place), values: values(place) }
    const y = g.cacheAttend('attn.y', turned('attn.q.turned', q, H), own, { heads: H, shared, scale, ...persistent(q) })
    return g.matmul('attn.o', y, w.attn.o(l))
  }

  /** Attention over the segment, with what the memory of its beginning recalls of each token as context. */
  const segment = (n: Value): Value => {
    const B = config.segment_size!
    const M = state.M_seg!(place)
    g.cacheMix(M, state.M(l), w.levelLogits(l), { heads: Hm, segment: B })
    const asked = g.matmul('mem.c.p', n, w.context!.proj(l))
    const c = unit('mem.c', convolved('mem.c.conv', asked, state.tail_c, place, w.context!.conv(l)))
    const recalled = headNorm('mem.recalled', g.cacheRecall('mem.c.y', M, c, Hm))
    const h = norm('attn.h', g.matmul('mem.c.o', recalled, w.mem.o(l)), w.context!.norm(l))
    const q = g.matmul('attn.q', n, w.attn.q(l))
    const [keys, values, contextKeys, contextValues] = state.segment as [Table, Table, Table, Table]
    const own = {
      k: turned('attn.k.turned', g.matmul('attn.k.p', n, w.attn.k(l)), Hkv),
      v: g.matmul('attn.v.p', n, w.attn.v(l)),
      keys: keys(place),
      values: values(place),
    }
    const context = {
      k: turned('attn.hk.turned', g.matmul('attn.hk.p', h, w.attn.k(l)), Hkv),
      v: g.matmul('attn.hv.p', h, w.attn.v(l)),
      keys: contextKeys(place),
      values: contextValues(place),
    }
    const options = { heads: H, shared, scale, segment: B, context, ...persistent(q) }
    return g.matmul('attn.o', g.cacheAttend('attn.y', turned('attn.q.turned', q, H), own, options), w.attn.o(l))
  }

  const n = norm('n', x, w.inputNorm(l))
  if (composition === 'mag') {
    // g ⊙ a + (1 − g) ⊙ m, as a step from m towards a.
    const r = memory(n)
    const m = g.matmul('mem.o', r, w.mem.o(l))
    g.add('x', x, g.lerp('mixed', m, window(n), gateOf(r)))
  } else if (composition === 'mal') {
    const between = g.add('x.between', x, g.matmul('mem.o', memory(n), w.mem.o(l)))
    g.add('x', between, window(norm('attn.n', between, w.attnNorm!(l))))
  } else {
    const y = segment(n)
    const r = memory(norm('mem.u', y, w.context!.writeNorm(l)))
    g.add('x', x, g.mul('mixed', y, gateOf(r)))
  }
  const u = norm('mlp.n', x, w.mlp.norm(l))
  const gated = g.mul(
    'mlp.gated',
    g.silu('mlp.silu', g.matmul('mlp.gate', u, w.mlp.gate(l))),
    g.matmul('mlp.up', u, w.mlp.up(l)),
  )
  g.add('x', x, g.matmul('mlp.down', gated, w.mlp.down(l)))
}

const build = (parsed: unknown, tensors: readonly TensorEntry[]): FamilyModel => {
  const config = readTitansConfig(parsed)
  const { vocab_size: V, hidden_size: D, rms_norm_eps: eps, composition } = config
  const set = tensorSet(tensors, quantizationOf(parsed))
  const L = set.layers('model.layers.', 'num_hidden_layers', config.num_hidden_layers)
  const g = buildGraph()
  const l = g.index('l', L)
  const embedding = g.lookup('embed_tokens', [V, D], set.take('model.embed_tokens.weight', [V, D]))
  const weights = layerWeights(g, set, config, l, L)
  const lastNorm = g.vector('norm', D, set.take('model.norm.weight', [D]))
  const state = layerState(g, config, l)
  const last = g.table('hidden.last', [D])
  const { heads } = config.memory
  const form = memoryFormOf(config)
  const first = composition[0]!
  const uniform = composition.every((each) => each === first)
  /** Calls `body` for every layer: in a loop where they are all alike. */
  const layers = (body: (kind: typeof first, at: Index | number, place: Index | number) => void): void => {
    const seen = { window: 0, mac: 0 }
    if (uniform) g.loop(l, {}, () => body(first, l, l))
    for (const [at, kind] of uniform ? [] : composition.entries()) {
      const which = kind === 'mac' ? 'mac' : 'window'
      body(kind, at, seen[which])
      seen[which] += 1
    }
  }

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    const x = g.embed('x', token, embedding)
    layers((kind, at, place) => layer(g, config, weights, state, x, kind, at, place))
    const hidden = g.rmsnorm('hidden', x, lastNorm, { eps })
    return { hidden, previous: g.cacheShift('hidden.previous', last(), hidden) }
  })

  const tied = config.tie_word_embeddings
  if (tied) set.ignore('lm_head.weight')
  const head = g.matrix(
    'lm_head',
    [V, D],
    set.takeMatrix(tied ? 'model.embed_tokens.weight' : 'lm_head.weight', [V, D]),
  )
  const input = g.dynamic('predict.hidden', [D], 'f32')
  g.block('predict', [input], () => ({ logits: g.matmul('logits', input, head) }))

  g.block('first', [], () => {
    layers((kind, at, place) => {
      g.cacheMemoryFirst(state.M(at), weights.init?.(at) ?? null, { ...form, heads })
      if (kind === 'mac') g.cacheMix(state.M_seg!(place), state.M(at), weights.levelLogits(at), { heads })
    })
    return {}
  })
  set.finish()
  return { graph: g.finish(), vocabSize: V, levels: config.memory.levels, memory: declaredMemory(config) }
}

export const titans: Family = { build }
