import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { feed, generate, open } from './helpers.ts'
import { readTensors, safetensors, toFla, writePackage } from './packages.ts'
import { hasShared, sharedData, sharedModel } from './paths.ts'

const json = (model: string, file: string) => JSON.parse(readFileSync(join(sharedModel(model), file), 'utf8'))

const worst = (got: Float32Array, want: readonly number[]): number => {
  expect(got.length).toBe(want.length)
  return want.reduce((most, value, i) => Math.max(most, Math.abs(value - got[i]!)), 0)
}

const demoModel = join(import.meta.dirname, '..', '..', 'models', 'demo')

describe('the shipped model', () => {
  it('(bf16) gives the expected logits and continuation', async () => {
    const model = await open(demoModel)
    const { prompt_bytes, logits, greedy_bytes } = JSON.parse(readFileSync(join(demoModel, 'expected.json'), 'utf8'))
    const context = model.createContext()
    await feed(model, context, prompt_bytes)
    expect(worst(await model.logits(context), logits)).toBeLessThan(5e-5)
    expect([...(await generate(model, context, greedy_bytes.length)).generated]).toEqual(greedy_bytes)
  })
})

// They are not ours to ship; CONTINUO_SHARED says where they are.
describe.skipIf(!hasShared)('published models', () => {
  it('tiny-rwkv7 gives the logits of rwkv.cpp', async () => {
    const model = await open(sharedModel('tiny-rwkv7'))
    const { prompt, logits } = json('tiny-rwkv7', 'expected.json')
    const context = model.createContext()
    await feed(model, context, prompt.tokens)
    expect(worst(await model.logits(context), logits)).toBeLessThan(1e-5)
    expect(model.parameters).toBe(829888)
  })

  it('tiny-rwkv7 scores the first 2000 bytes of tinyshakespeare with 7447.0732 nats', async () => {
    const model = await open(sharedModel('tiny-rwkv7'))
    const nats = await feed(
      model,
      model.createContext(),
      readFileSync(sharedData('tinyshakespeare.txt')).subarray(0, 2000),
    )
    expect(nats[0]).toBeNaN()
    expect(nats.subarray(1).reduce((a, b) => a + b, 0)).toBeCloseTo(7447.0732, 2)
  })

  it('rwkv7-reverse gives the expected logits and reverses digits', async () => {
    const model = await open(sharedModel('rwkv7-reverse'))
    for (const { tokens, logits_after_prompt, greedy_tokens } of json('rwkv7-reverse', 'expected.json').cases) {
      const context = model.createContext()
      await feed(model, context, tokens)
      expect(worst(await model.logits(context), logits_after_prompt)).toBeLessThan(2.5e-4)
      expect([...(await generate(model, context, greedy_tokens.length)).generated]).toEqual(greedy_tokens)
    }
  })

  it('rwkv7-reverse has no tokenizer; a model of 256 tokens has the bytes', async () => {
    const reverse = await openPackage(sharedModel('rwkv7-reverse'), { threads: 1 })
    const tiny = await openPackage(sharedModel('tiny-rwkv7'), { threads: 1 })
    expect(reverse.tokenizer).toBeNull()
    expect(tiny.tokenizer?.vocabSize).toBe(256)
    reverse.model.close()
    tiny.model.close()
  })

  it('tiny-rwkv7 under flash-linear-attention names computes the same bits', async () => {
    const config = {
      ...json('tiny-rwkv7', 'config.json'),
      norm_first: true,
      hidden_act: 'sqrelu',
      attn: null,
      fuse_norm: true,
    }
    const renamed = toFla(readTensors(join(sharedModel('tiny-rwkv7'), 'model.safetensors')))
    expect(renamed.has('model.layers.11.attn.v_lora.lora.2.bias')).toBe(true)
    const fla = await open(writePackage(config, safetensors(renamed)))
    const official = await open(sharedModel('tiny-rwkv7'))
    const tokens = readFileSync(sharedData('blake-poems.txt')).subarray(0, 300)
    const [a, b] = [fla.createContext(), official.createContext()]
    await feed(fla, a, tokens)
    await feed(official, b, tokens)
    expect(a.chain).toBe(b.chain)
    expect(await fla.logits(a)).toEqual(await official.logits(b))
    expect(fla.layoutFingerprint).toBe(official.layoutFingerprint)
    expect(fla.fingerprint).not.toBe(official.fingerprint)
  })
})
