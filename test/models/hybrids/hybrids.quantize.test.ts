/**
 * Every hybrid family quantised: what is multiplied with is, what shapes states is copied, and the model stays near the
 * original.
 */
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { feed, open } from '../../engine/helpers.ts'
import { random, safetensors, writePackage } from '../../engine/packages.ts'
import { newOut, q8 } from '../helpers.ts'
import { dequantisedTensors, readStored } from '../quantize/quantized.ts'
import {
  type ExpertForm,
  falconConfig,
  graniteConfig,
  hybridTensors,
  lfm2Config,
  mamba2Config,
  nemotronConfig,
  qwen3NextConfig,
  qwen35Config,
} from './hybrid-packages.ts'
import { type HybridConfig, hybridReference } from './hybrid-reference.ts'

interface Setting {
  readonly config: HybridConfig
  readonly form?: ExpertForm
  readonly to?: 'q8' | 'i4'
}
const experts = { num_local_experts: 5, num_experts_per_tok: 2, intermediate_size: 33 }
const settings: Readonly<Record<string, Setting>> = {
  mamba2: { config: mamba2Config() },
  lfm2: { config: lfm2Config() },
  qwen3_5_text: { config: qwen35Config() },
  'qwen3_5_text, tied': { config: qwen35Config({ tie_word_embeddings: true }) },
  'qwen3_5_text, values wider than keys': {
    config: qwen35Config({ linear_key_head_dim: 7, linear_value_head_dim: 12 }),
  },
  'qwen3_5_text, keys wider than values, in 4 bits': {
    config: qwen35Config({ linear_key_head_dim: 16, linear_value_head_dim: 9 }),
    to: 'i4',
  },
  'qwen3_next, all experts of a layer in one tensor': { config: qwen3NextConfig(), form: 'fused' },
  granitemoehybrid: { config: graniteConfig() },
  'granitemoehybrid with experts': { config: graniteConfig(experts) },
  'granitemoehybrid with experts, in 4 bits': { config: graniteConfig(experts), to: 'i4' },
  falcon_h1: { config: falconConfig() },
  nemotron_h: { config: nemotronConfig() },
}

describe.each(Object.entries(settings))('%s, quantised', (_, { config, form = 'single', to = 'q8' }) => {
  it('is near the equations on the weights that it holds', async () => {
    const dir = writePackage(config, safetensors(hybridTensors(4, config, { form })))
    const out = newOut()
    const { tensors, copied } = await q8(dir, out, { to })
    expect(tensors).toBeGreaterThan(4)
    expect(copied).toBeGreaterThan(5)
    const stored = [dir, out].map((folder) => readStored(join(folder, 'model.safetensors')))
    for (const name of stored[1]!.tensors.keys())
      expect(name).not.toMatch(/(A_log|conv1d\.weight|norm\.weight|router\.layer\.weight|mlp\.gate\.weight)\.scales$/)
    for (const [name, { shape }] of stored[0]!.tensors)
      if (/experts|(in|out)put_linear/.test(name))
        expect(stored[1]!.tensors.get(`${name}.scales`)?.shape.length).toBe(shape.length)
    const next = random(6)
    const tokens = Array.from({ length: 20 }, () => Math.floor(next() * 37))
    const told = hybridReference(config, dequantisedTensors(stored[0]!, stored[1]!, 32), tokens)
    const model = await open(out)
    const context = model.createContext()
    const nats = await feed(model, context, tokens)
    const logits = await model.logits(context)
    // What remains is the rounding of activations to 8 bits, which random weights carry on from layer to layer.
    // Unrelated logits: 1.4.
    const spread = Math.sqrt(told.logits.reduce((all, each) => all + each * each, 0) / told.logits.length)
    const error = Math.sqrt(
      told.logits.reduce((all, each, i) => all + (each - logits[i]!) ** 2, 0) / told.logits.length,
    )
    expect(error / spread).toBeLessThan(0.2)
    const total = nats.slice(1).reduce((a, b) => a + b, 0)
    expect(Math.abs(total - told.nats.reduce((a, b) => a + b, 0)) / tokens.length).toBeLessThan(0.2)
  })
})
