/** GPT-2 on our side: its graph, put together through the engine's public builder, over the package in `dir`. */
import { join } from 'node:path'
import { autoDim, buildGraph, type Pattern, pattern, plus, type Ref, ref } from '../../src/engine/builder.ts'
import { inspectTensors, openGraph } from '../../src/engine/engine.ts'
import type { Graph } from '../../src/engine/graph.ts'
import { gpt2Sizes } from './gpt2.ts'
import { sideOf } from './ours.ts'
import type { Side } from './side.ts'

/** Radford, Wu, Child, Luan, Amodei, Sutskever, "Language Models are Unsupervised Multitask Learners" (2019), small. */
const gpt2Graph = (quantised: boolean): Graph => {
  const { layers, vocabulary, channels: C, heads: H, positions: P } = gpt2Sizes
  const g = buildGraph()
  const l = g.index('l', layers)
  const over = { over: l }
  /** Sixteen-bit packages hold [inputs, outputs]; q8 ones [outputs, inputs] and scales. */
  const stored = (tensor: string) =>
    quantised ? ({ storage: 'q8', scales: `${tensor}.scales`, group: 32 } as const) : {}
  const weights = (tensor: string): Pattern => pattern(tensor, quantised ? stored(tensor) : { transposed: true })
  const head: Ref = quantised ? ref('lm_head.weight', stored('lm_head.weight')) : ref('wte.weight')
  const linear = (name: string, outputs: number, inputs: number) => ({
    weight: g.matrices(`${name}.weight`, [outputs, inputs], weights(`h.{l}.${name}.weight`), over),
    bias: g.vectors(`${name}.bias`, outputs, pattern(`h.{l}.${name}.bias`), over),
  })
  const norm = (name: string) => ({
    weight: g.vectors(`${name}.weight`, C, pattern(`h.{l}.${name}.weight`), over),
    bias: g.vectors(`${name}.bias`, C, pattern(`h.{l}.${name}.bias`), over),
  })
  const wte = g.lookup('wte', [vocabulary, C], ref('wte.weight'))
  const wpe = g.lookup('wpe', [P, C], ref('wpe.weight'))
  const out = g.matrix('lm_head', [vocabulary, C], head)
  const [ln1, ln2] = [norm('ln_1'), norm('ln_2')]
  const [attn, proj] = [linear('attn.c_attn', 3 * C, C), linear('attn.c_proj', C, C)]
  const [up, down] = [linear('mlp.c_fc', 4 * C, C), linear('mlp.c_proj', C, 4 * C)]
  const last = {
    weight: g.vector('ln_f.weight', C, ref('ln_f.weight')),
    bias: g.vector('ln_f.bias', C, ref('ln_f.bias')),
  }
  const pastLen = g.counter('pastLen', { max: P })
  const K = g.table('keyCache', [l, autoDim(pastLen), C])
  const V = g.table('valueCache', [l, autoDim(pastLen), C])
  const kept = g.table('hidden.last', [C])
  const eps = 1e-5

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    const position = g.cacheCount('position', pastLen)
    g.cacheIncrement(pastLen)
    const x = g.add('x', g.embed('x.token', token, wte), g.embed('x.position', position, wpe))
    g.loop(l, {}, () => {
      const n = g.norm('attn.n', x, ln1.weight(l), ln1.bias(l), { eps })
      const qkv = g.add('attn.qkv', g.matmul('attn.qkv.z', n, attn.weight(l)), attn.bias(l))
      g.cacheWrite(K(l, plus(pastLen, -1)), g.slice('attn.k', qkv, C, 2 * C))
      g.cacheWrite(V(l, plus(pastLen, -1)), g.slice('attn.v', qkv, 2 * C, 3 * C))
      const q = g.slice('attn.q', qkv, 0, C)
      const a = g.attend('attn.a', q, K(l), V(l), { heads: H, scale: 1 / Math.sqrt(C / H) })
      g.add('x', x, g.add('attn.o', g.matmul('attn.o.z', a, proj.weight(l)), proj.bias(l)))
      const m = g.norm('mlp.n', x, ln2.weight(l), ln2.bias(l), { eps })
      const e = g.gelu('mlp.e', g.add('mlp.u', g.matmul('mlp.u.z', m, up.weight(l)), up.bias(l)))
      g.add('x', x, g.add('mlp.d', g.matmul('mlp.d.z', e, down.weight(l)), down.bias(l)))
    })
    const hidden = g.norm('hidden', x, last.weight, last.bias, { eps })
    return { hidden, previous: g.cacheShift('hidden.previous', kept(), hidden) }
  })
  const input = g.dynamic('predict.hidden', [C], 'f32')
  g.block('predict', [input], () => ({ logits: g.matmul('logits', input, out) }))
  return g.finish()
}

export const openGpt2 = async (dir: string, threads: number, sessions: number): Promise<Side> => {
  const path = join(dir, 'model.safetensors')
  const quantised = inspectTensors(path).some(({ name }) => name === 'lm_head.weight.scales')
  return sideOf(await openGraph(gpt2Graph(quantised), path, { threads }), sessions)
}
