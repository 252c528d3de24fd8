/**
 * Few queries behind thousands of positions: however many threads share a history, and how, the bits are those of one
 * thread.
 *
 * @module-tag slow
 */
import { expect, test } from 'vitest'
import { bits, feed, generate, open } from '../engine/helpers.ts'
import { safetensors, writePackage } from '../engine/packages.ts'
import { BASE, type DecoderConfig, randomDecoder } from './decoders.ts'

const CONFIG: DecoderConfig = {
  ...BASE,
  model_type: 'gemma3_text',
  head_dim: 16,
  num_hidden_layers: 2,
  hidden_act: 'gelu_pytorch_tanh',
  layer_types: ['sliding_attention', 'full_attention'],
  // Neither a multiple of a block nor few enough for heads to be shared out.
  sliding_window: 4500,
  query_pre_attn_scalar: 10,
  max_position_embeddings: 6000,
}
const tokens = (count: number, seed: number): number[] =>
  Array.from({ length: count }, (_, i) => (i * i + seed * i + seed) % 29)

test.each(['f32', 'f16'] as const)('caches of %s: one, two and eight threads', async (cacheDtype) => {
  const dir = writePackage(CONFIG, safetensors(randomDecoder(21, CONFIG)))
  const seen = []
  for (const threads of [1, 2, 8]) {
    const model = await open(dir, { threads, cacheDtype })
    const contexts = [model.createContext(), model.createContext()] as const
    await Promise.all(contexts.map((context, at) => feed(model, context, tokens(5000 + at, 3 + at), false)))
    // One session, several rows of it, and two sessions beside each other.
    const drawn = [await generate(model, contexts[0], 5)]
    await feed(model, contexts[0], tokens(3, 7), false)
    drawn.push(...(await Promise.all(contexts.map((context) => generate(model, context, 5)))))
    const logits = await Promise.all(contexts.map((context) => model.logits(context)))
    seen.push({ drawn, logits: logits.map(bits) })
  }
  for (const each of seen.slice(1)) expect(each).toEqual(seen[0])
})
