/** Every hybrid family quantised: what is multiplied with is, what shapes states is copied, and the model stays near the original. */
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { feed, open } from '../engine/helpers.ts'
import { random, safetensors, writePackage } from '../engine/packages.ts'
import { newOut, q8 } from './helpers.ts'
import {
  falconConfig,
  graniteConfig,
  hybridTensors,
  lfm2Config,
  mamba2Config,
  nemotronConfig,
  qwen35Config,
} from './hybrid-packages.ts'
import { hybridReference } from './hybrid-reference.ts'
import { dequantisedTensors, readStored } from './quantized.ts'

const configs = [
  mamba2Config(),
  lfm2Config(),
  qwen35Config(),
  qwen35Config({ tie_word_embeddings: true }),
  graniteConfig(),
  falconConfig(),
  nemotronConfig(),
]

describe.each(configs.map((config) => [config.model_type as string, config] as const))('%s in 8 bits', (_, config) => {
  it('is near the equations on the weights that it holds', async () => {
    const dir = writePackage(config, safetensors(hybridTensors(4, config)))
    const out = newOut()
    const { tensors, copied } = await q8(dir, out)
    expect(tensors).toBeGreaterThan(4)
    expect(copied).toBeGreaterThan(5)
    const stored = [dir, out].map((folder) => readStored(join(folder, 'model.safetensors')))
    for (const name of stored[1]!.tensors.keys())
      expect(name).not.toMatch(/(A_log|conv1d\.weight|norm\.weight)\.scales$/)
    const next = random(6)
    const tokens = Array.from({ length: 20 }, () => Math.floor(next() * 37))
    const told = hybridReference(config, dequantisedTensors(stored[0]!, stored[1]!, 32), tokens)
    const model = await open(out)
    const context = model.createContext()
    const nats = await feed(model, context, tokens)
    const logits = await model.logits(context)
    // What remains is the rounding of activations to 8 bits, which random weights carry on from layer to layer. Unrelated logits: 1.4.
    const spread = Math.sqrt(told.logits.reduce((all, each) => all + each * each, 0) / told.logits.length)
    const error = Math.sqrt(
      told.logits.reduce((all, each, i) => all + (each - logits[i]!) ** 2, 0) / told.logits.length,
    )
    expect(error / spread).toBeLessThan(0.2)
    const total = nats.slice(1).reduce((a, b) => a + b, 0)
    expect(Math.abs(total - told.nats.reduce((a, b) => a + b, 0)) / tokens.length).toBeLessThan(0.2)
  })
})
