import { describe, expect, test } from 'vitest'
import { quantizePackage } from '../../../src/models/quantize/quantize.ts'
import { bits, errorOf, feed, open } from '../../engine/helpers.ts'
import { safetensors, writePackage } from '../../engine/packages.ts'
import { farthest, randomIds } from '../decoder-suite.ts'
import { newOut } from '../helpers.ts'
import { type GptConfig, gptReference, randomGpt } from './gpt-family.ts'

const NEOX: GptConfig = {
  model_type: 'gpt_neox',
  vocab_size: 29,
  hidden_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 3,
  intermediate_size: 41,
  max_position_embeddings: 60,
  hidden_act: 'gelu',
  layer_norm_eps: 1e-5,
  rotary_pct: 0.25,
  rotary_emb_base: 10_000,
  use_parallel_residual: true,
}
const NEO: GptConfig = {
  model_type: 'gpt_neo',
  vocab_size: 29,
  hidden_size: 24,
  num_layers: 3,
  num_heads: 3,
  max_position_embeddings: 60,
  window_size: 9,
  activation_function: 'gelu_new',
  attention_types: [
    [['global', 'local'], 1],
    [['local'], 1],
  ],
}

describe.each<readonly [string, GptConfig]>([
  ['GPT-NeoX', NEOX],
  [
    'GPT-NeoX, half of each head turns, gelu by tanh',
    { ...NEOX, rotary_pct: 0.5, rotary_emb_base: 300, hidden_act: 'gelu_new' },
  ],
  ['GPT-NeoX, one after the other', { ...NEOX, use_parallel_residual: false, rotary_pct: 1 }],
  ['GPT-Neo, layers of both kinds', NEO],
  ['GPT-Neo, all positions', { ...NEO, attention_types: [[['global'], 3]], intermediate_size: 31 }],
  ['GPT-Neo, windows that are never full', { ...NEO, window_size: 256 }],
])('against it in double precision: %s', (_, config) => {
  const tensors = randomGpt(5, config)
  const P = config.max_position_embeddings

  test('logits', async () => {
    const model = await open(writePackage(config, safetensors(tensors)), { threads: 2 })
    expect(model.positions).toBe(P)
    const reference = gptReference(config, tensors)
    const context = model.createContext()
    for (const [at, id] of randomIds(P, config.vocab_size, 3).entries()) {
      const wanted = reference.feed(id)
      await feed(model, context, [id], false)
      const scale = Math.max(1, ...wanted.map(Math.abs))
      expect(farthest(await model.logits(context), wanted) / scale, `position ${at}`).toBeLessThan(2e-5)
    }
    expect((await errorOf(() => feed(model, context, [0]))).message).toContain(`${P + 1} positions exceed the ${P}`)
  })

  test('any cut and any threads: the same bits', async () => {
    const ids = randomIds(P, config.vocab_size, 8)
    let whole: { nats: Uint32Array; chain: string } | null = null
    for (const threads of [1, 3]) {
      const model = await open(writePackage(config, safetensors(tensors, 'F16')), { threads })
      for (const size of [1, 6, P]) {
        const context = model.createContext()
        const nats: number[] = []
        for (let at = 0; at < ids.length; at += size)
          nats.push(...(await feed(model, context, ids.slice(at, at + size))))
        const now = { nats: bits(Float32Array.from(nats)), chain: context.chain }
        whole ??= now
        expect(now).toEqual(whole)
      }
    }
  })

  test('quantised, it reads and stays close', async () => {
    const dir = writePackage(config, safetensors(tensors))
    const out = newOut()
    const { tensors: count } = await quantizePackage({ dir, out, to: 'q8', group: 32 })
    expect(count).toBe(config.model_type === 'gpt_neox' ? 2 * 4 + 1 : 3 * 6)
    const model = await open(out, { threads: 2 })
    const reference = gptReference(config, tensors)
    const context = model.createContext()
    let wanted: readonly number[] = []
    const ids = randomIds(20, config.vocab_size, 4)
    for (const id of ids) wanted = reference.feed(id)
    await feed(model, context, ids, false)
    expect(farthest(await model.logits(context), wanted) / Math.max(...wanted.map(Math.abs))).toBeLessThan(0.15)
  })
})

test.each<readonly [string, object, RegExp]>([
  ['an odd number of turning channels', { ...NEOX, rotary_pct: 0.4 }, /0\.4 of 8 channels turn, 3 of them/],
  [
    'another activation',
    { ...NEOX, hidden_act: 'relu' },
    /not a gpt_neox configuration: hidden_act must be one of gelu,/,
  ],
  ['no biases', { ...NEOX, attention_bias: false }, /attention_bias must be true/],
  ['heads of unequal width', { ...NEOX, num_attention_heads: 5 }, /hidden_size is 24 and num_attention_heads is 5/],
  ['an unknown rope', { ...NEOX, rope_scaling: { type: 'dynamic', factor: 2 } }, /rope_scaling has the type "dynamic"/],
  ['kinds of too few layers', { ...NEO, attention_types: [[['global'], 2]] }, /lists 2 attention_types, expected 3/],
  [
    'kinds of far too many layers',
    { ...NEO, attention_types: [[['global', 'local'], 2 ** 50]] },
    /lists more attention_types, expected 3/,
  ],
  ['an unknown kind of layer', { ...NEO, attention_types: [[['sparse'], 3]] }, /attention_types\.0/],
])('%s is refused', async (_, config, message) => {
  const tensors = randomGpt(5, (config as GptConfig).model_type === 'gpt_neox' ? NEOX : NEO)
  const error = await errorOf(() => open(writePackage(config, safetensors(tensors)), { threads: 1 }))
  expect(error.code).toBe('INVALID')
  expect(error.message).toMatch(message)
})
