/**
 * GPT-Neo (Black, Gao, Wang, Leahy, Biderman, "GPT-Neo", 2021), which TinyStories uses: GPT-2 whose layers see all positions (`global`) or
 * a window (`local`), and whose scores are not divided. Sizes: L layers, C channels, H heads, F channels inside the MLP, P positions, V
 * tokens.
 *
 * A context is as a decoder's (decoder.ts): `pastLen`, a cache of the layers that see all positions, rings of the others, `hidden.last`.
 */
import { z } from 'zod'
import { buildGraph } from '../engine/builder.ts'
import { autoDim, type Index, plus, ring, type Table } from '../engine/builder-types.ts'
import { ContinuoError } from '../errors.ts'
import { type Family, quantizationOf, tensorSet } from './family.ts'
import { eachLayer, layerConstants } from './layers.ts'
import { readDecoderConfig } from './llama.ts'

const size = z.int().positive()
const KINDS = ['global', 'local'] as const
type Kind = (typeof KINDS)[number]

const gptNeoConfig = z.looseObject({
  vocab_size: size,
  hidden_size: size,
  num_layers: size,
  num_heads: size,
  intermediate_size: size.nullish(),
  max_position_embeddings: size,
  window_size: size.default(256),
  /** [[kinds, how often they repeat], …] */
  attention_types: z.array(z.tuple([z.array(z.enum(KINDS)).min(1), size])).min(1),
  activation_function: z.literal('gelu_new', 'must be "gelu_new"').default('gelu_new'),
  layer_norm_epsilon: z.number().positive().default(1e-5),
  tie_word_embeddings: z.boolean().default(true),
})

/** The kind of each layer. */
const kindsOf = (types: readonly (readonly [readonly Kind[], number])[], L: number): readonly Kind[] => {
  // A count may be any number: what is beyond the layers is not written out.
  const kinds = types.flatMap(([kinds, times]) => Array.from({ length: Math.min(times, L + 1) }, () => kinds).flat())
  if (kinds.length === L) return kinds
  throw new ContinuoError(
    'INVALID',
    `config.json lists ${kinds.length > L ? 'more' : kinds.length} attention_types, expected ${L}, one for each layer.`,
  )
}

const build: Family['build'] = (parsed, tensors) => {
  const config = readDecoderConfig(gptNeoConfig, parsed)
  const { hidden_size: C, num_heads: H, max_position_embeddings: P, vocab_size: V, layer_norm_epsilon: eps } = config
  const F = config.intermediate_size ?? 4 * C
  if (C % H !== 0) {
    throw new ContinuoError(
      'INVALID',
      `config.json says hidden_size is ${C} and num_heads is ${H}, expected heads of equal width.`,
    )
  }
  const set = tensorSet(tensors, quantizationOf(parsed))
  const L = set.layers('transformer.h.', 'num_layers', config.num_layers)
  const kinds = kindsOf(config.attention_types, L)
  // Buffers of old checkpoints: which positions see each other, and what stood for −∞.
  for (const { name } of tensors) if (/\.attn\.attention\.(masked_)?bias$/.test(name)) set.ignore(name)

  const g = buildGraph()
  const l = g.index('l', L)
  const constants = layerConstants(g, set, 'transformer.h.{l}.', l, L)
  const norm = (name: string) => ({
    weight: constants.vector(`${name}.weight`, [C]),
    bias: constants.vector(`${name}.bias`, [C]),
  })
  const linear = (name: string, outputs: number, inputs: number) => ({
    weight: constants.matrix(name, [outputs, inputs]),
    bias: constants.vector(`${name}.bias`, [outputs]),
  })
  const plain = (name: 'q' | 'k' | 'v') => constants.matrix(`attn.attention.${name}_proj`, [C, C])
  const vector = (name: string) => g.vector(name, C, set.take(`transformer.${name}`, [C]))
  const wte = g.lookup('wte', [V, C], set.take('transformer.wte.weight', [V, C]))
  const wpe = g.lookup('wpe', [P, C], set.take('transformer.wpe.weight', [P, C]))
  const [ln1, ln2] = [norm('ln_1'), norm('ln_2')]
  const w = { q: plain('q'), k: plain('k'), v: plain('v'), o: linear('attn.attention.out_proj', C, C) }
  const [up, down] = [linear('mlp.c_fc', F, C), linear('mlp.c_proj', C, F)]
  const lnF = { weight: vector('ln_f.weight'), bias: vector('ln_f.bias') }
  const tied = config.tie_word_embeddings || !set.has('lm_head.weight')
  if (tied) set.ignore('lm_head.weight')
  const head = g.matrix('lm_head', [V, C], set.takeMatrix(tied ? 'transformer.wte.weight' : 'lm_head.weight', [V, C]))

  const pastLen = g.counter('pastLen', { max: P })
  const clock = kinds.includes('local') ? g.clock('globalStep') : null
  const tableOf = (kind: Kind, name: string): Table => {
    const count = kinds.filter((each) => each === kind).length
    const layers: number | Index = count === L ? l : count
    const positions = kind === 'global' ? autoDim(pastLen) : ring(Math.min(config.window_size, P), clock!)
    return g.table(name, [layers, positions, C])
  }
  const tables = new Map(
    [...new Set(kinds)].map((kind) => {
      const [keys, values] = kind === 'global' ? ['keyCache', 'valueCache'] : ['windowKeys', 'windowValues']
      return [kind, [tableOf(kind, keys!), tableOf(kind, values!)]] as const
    }),
  )
  const last = g.table('hidden.last', [C])

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    const position = g.cacheCount('position', pastLen)
    g.cacheIncrement(pastLen)
    const x = g.add('x', g.embed('x.token', token, wte), g.embed('x.position', position, wpe))
    eachLayer(
      g,
      l,
      kinds,
      (kind) => kind,
      (kind, at, place) => {
        const n = g.norm('attn.n', x, ln1.weight(at), ln1.bias(at), { eps })
        const q = g.matmul('q', n, w.q(at))
        const k = g.matmul('k', n, w.k(at))
        const v = g.matmul('v', n, w.v(at))
        const [keys, values] = tables.get(kind) as readonly [Table, Table]
        const options = { heads: H, scale: 1 }
        const attended = () => {
          if (kind === 'local')
            return g.cacheAttend('attn.y', q, { k, v, keys: keys(place), values: values(place) }, options)
          g.cacheWrite(keys(place, plus(pastLen, -1)), k)
          g.cacheWrite(values(place, plus(pastLen, -1)), v)
          return g.attend('attn.y', q, keys(place), values(place), options)
        }
        g.add('x', x, g.add('attn.o.b', g.matmul('attn.o', attended(), w.o.weight(at)), w.o.bias(at)))
        const m = g.norm('mlp.n', x, ln2.weight(at), ln2.bias(at), { eps })
        const e = g.gelu('mlp.e', g.add('mlp.up.b', g.matmul('mlp.up', m, up.weight(at)), up.bias(at)))
        g.add('x', x, g.add('mlp.down.b', g.matmul('mlp.down', e, down.weight(at)), down.bias(at)))
      },
    )
    const hidden = g.norm('hidden', x, lnF.weight, lnF.bias, { eps })
    return { hidden, previous: g.cacheShift('hidden.previous', last(), hidden) }
  })
  const input = g.dynamic('predict.hidden', [C], 'f32')
  g.block('predict', [input], () => ({ logits: g.matmul('logits', input, head) }))
  set.finish()
  return { graph: g.finish(), vocabSize: V }
}

export const gptNeo: Family = { windows: false, build }
