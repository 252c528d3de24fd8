/** Keys and values kept as f16 or bf16: rounded once when they are written, widened exactly when they are read. */
import { describe, expect, it, test } from 'vitest'
import type { EngineContext } from '../../src/engine/context.ts'
import type { CacheDtype } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import { statefulDecoder } from '../../src/models/stateful.ts'
import { SessionManager } from '../../src/sessions/manager.ts'
import { bits, errorOf, feed, generate, open, sameBytes } from '../engine/helpers.ts'
import { randomRwkv7, safetensors, writePackage } from '../engine/packages.ts'
import { BASE, type DecoderConfig, randomDecoder } from './decoders.ts'
import { gpt2ConfigOf, randomGpt2 } from './gpt2/gpt2.ts'
import { hybridTensors, qwen3NextConfig } from './hybrids/hybrid-packages.ts'

const LLAMA: DecoderConfig = { ...BASE, max_position_embeddings: 700 }
const GEMMA: DecoderConfig = {
  ...LLAMA,
  model_type: 'gemma3_text',
  head_dim: 6,
  num_hidden_layers: 3,
  hidden_act: 'gelu_pytorch_tanh',
  layer_types: ['sliding_attention', 'full_attention', 'sliding_attention'],
  sliding_window: 8,
  query_pre_attn_scalar: 10,
}
const decoder = (config: DecoderConfig): string => writePackage(config, safetensors(randomDecoder(12, config)))
const gpt2 = (): string => {
  const sizes = { L: 2, H: 3, N: 4, F: 19, V: 29, P: 700 }
  return writePackage(gpt2ConfigOf(sizes), safetensors(randomGpt2(11, sizes)))
}
const hybrid = (): string => {
  const config = qwen3NextConfig({ max_position_embeddings: 700 })
  return writePackage(config, safetensors(hybridTensors(13, config)))
}
const tokens = (count: number): number[] => Array.from({ length: count }, (_, i) => (i * i + 3 * i) % 29)
const drawn = { temperature: 1, topK: 0, topP: 1, seed: 5n }

/** What an f32 is, stored as this type: its bits. */
const rounded = (values: Float32Array, dtype: CacheDtype): Uint16Array => {
  if (dtype === 'f16') return new Uint16Array(new Float16Array(values).buffer)
  const words = new Uint32Array(values.slice().buffer)
  return Uint16Array.from(words, (word) => (word + 0x7fff + ((word >>> 16) & 1)) >>> 16)
}
/** The numbers of a table as they are stored, of layer 0: keys and values that no attention has touched yet. */
const layer0 = (model: Model, context: EngineContext, name: string): Uint8Array => {
  const state = context.serialize()
  const { offset, bytes, shape } = model.layout.tensors(state).find((entry) => entry.name === name)!
  return state.slice(offset, offset + bytes / shape[0]!)
}
const logitsOf = async (model: Model, count: number): Promise<Float32Array> => {
  const context = model.createContext()
  await feed(model, context, tokens(count), false)
  return model.logits(context)
}

describe.each(['f16', 'bf16'] as const)('caches of %s', (cacheDtype) => {
  it('hold each key and value of the f32 cache, rounded once to nearest even, in half the bytes', async () => {
    const dir = decoder(LLAMA)
    const [wide, narrow] = [await open(dir), await open(dir, { threads: 1, cacheDtype })]
    const contexts = [wide.createContext(), narrow.createContext()] as const
    await feed(wide, contexts[0], tokens(300), false)
    await feed(narrow, contexts[1], tokens(300), false)
    for (const name of ['keyCache', 'valueCache']) {
      const f32 = new Float32Array(layer0(wide, contexts[0], name).buffer)
      expect(f32).toHaveLength(300 * 12)
      const stored = new Uint16Array(layer0(narrow, contexts[1], name).buffer)
      expect(Buffer.from(stored.buffer).equals(Buffer.from(rounded(f32, cacheDtype).buffer))).toBe(true)
    }
    expect(narrow.layout.first.find(({ name }) => name === 'keyCache')!.dtype).toBe(cacheDtype.toUpperCase())
  })

  test.each([
    ['llama', () => decoder(LLAMA)],
    ['gemma3, whose windows stay f32', () => decoder(GEMMA)],
    ['gpt2', gpt2],
    ['qwen3-next, whose other layers are recurrent', hybrid],
  ])('give %s the same bits at any cut, in company, forked and restored; and logits near those of f32', async (_, dir) => {
    const path = dir()
    const model = await open(path, { threads: 2, cacheDtype })
    const whole = model.createContext()
    const nats = bits(await feed(model, whole, tokens(400)))
    const cut = model.createContext()
    const seen: number[] = []
    for (let at = 0; at < 400; at += 37) {
      const own = Int32Array.from(tokens(400).slice(at, at + 37))
      const other = { context: model.createContext(), tokens: Int32Array.from(tokens(9)), nats: false }
      const [result] = await model.process([{ context: cut, tokens: own, nats: true }, other])
      seen.push(...bits(result!.nats))
    }
    expect(Uint32Array.from(seen)).toEqual(nats)
    expect(cut.chain).toBe(whole.chain)
    const fork = model.forkContext(cut)
    const { pulse, origin, chain } = cut
    const restored = model.createContext()
    restored.restore(cut.serialize(), { pulse, origin, chain })
    for (const context of [fork, restored, cut]) await generate(model, context, 9, drawn)
    expect([fork.chain, restored.chain]).toEqual([cut.chain, cut.chain])
    expect(sameBytes(fork.serialize(), restored.serialize())).toBe(true)

    const [near, exact] = [await logitsOf(model, 120), await logitsOf(await open(path), 120)]
    const largest = Math.max(...exact.map(Math.abs))
    const error = Math.max(...near.map((value, i) => Math.abs(value - exact[i]!)))
    expect(error).toBeGreaterThan(0)
    expect(error / largest).toBeLessThan(cacheDtype === 'f16' ? 0.01 : 0.08)
  })
})

describe('the type of the caches', () => {
  it('is part of the model: another fingerprint and layout, unless it is f32; the option counts before config.json', async () => {
    const { cache_dtype: _, ...plain } = { ...LLAMA, cache_dtype: 'f16' }
    const dirs = [decoder(plain as DecoderConfig), decoder({ ...LLAMA, cache_dtype: 'f16' })] as const
    const [usual, f32, f16, told, back] = [
      await open(dirs[0]),
      await open(dirs[0], { cacheDtype: 'f32' }),
      await open(dirs[0], { cacheDtype: 'f16' }),
      await open(dirs[1]),
      await open(dirs[1], { cacheDtype: 'f32' }),
    ]
    expect([f32!.fingerprint, f32!.layoutFingerprint]).toEqual([usual!.fingerprint, usual!.layoutFingerprint])
    expect(new Set([usual, f16, told, back].map((model) => model!.fingerprint)).size).toBe(4)
    expect(f16!.layoutFingerprint).toBe(told!.layoutFingerprint)
    expect(f16!.layoutFingerprint).not.toBe(usual!.layoutFingerprint)
    expect(back!.layoutFingerprint).toBe(usual!.layoutFingerprint)
    const managers = [usual!, f16!].map((model) => new SessionManager(model, { verifyWeights: false }))
    const session = managers[1]!.createSession('s')
    await managers[1]!.process(session, tokens(9))
    const blob = await managers[1]!.checkpointSession(session)
    expect(await errorOf(() => managers[0]!.resumeSession(blob))).toMatchObject({ code: 'REFUSED' })
    expect((await managers[1]!.resumeSession(blob, { id: 't' })).chain).toBe(session.chain)
    for (const manager of managers) await manager.close()
  })

  it('is refused where it is none of the three, and for a model that keeps no such tables', async () => {
    const dir = decoder(LLAMA)
    expect(await errorOf(() => open(dir, { cacheDtype: 'f8' as CacheDtype }))).toEqual({
      code: 'INVALID',
      message: 'cacheDtype is "f8", expected "f32", "f16" or "bf16".',
    })
    expect(await errorOf(() => open(decoder({ ...LLAMA, cache_dtype: 16 })))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('config.json, cache_dtype is 16'),
    })
    const sizes = { L: 1, H: 1, N: 16, F: 16, V: 29, D: { w: 4, a: 4, v: 4, g: 4 } }
    const rwkv7 = writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(1, sizes)))
    expect(await errorOf(() => open(rwkv7, { cacheDtype: 'f16' }))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('keeps no keys and values'),
    })
    const model = await open(gpt2(), { cacheDtype: 'f16' })
    expect(await errorOf(() => statefulDecoder(model))).toMatchObject({ code: 'INVALID' })
  })
})
