/**
 * Models whose experts lie in a store give the CPU's bits on a CUDA device, whatever store, host and device hold of
 * them.
 */
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { DeviceKind, ExpertOptions } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import { packExperts } from '../../src/experts/pack.ts'
import { findExperts } from '../../src/models/files/experts-source.ts'
import { quantizePackage } from '../../src/models/quantize/quantize.ts'
import { continuo, DOCUMENT } from '../cli/helpers.ts'
import { errorOf, feed, open } from '../engine/helpers.ts'
import { safetensors, temporaryFolder, writePackage } from '../engine/packages.ts'
import { BASE, type DecoderConfig, randomDecoder } from '../models/decoders.ts'
import { newOut } from '../models/helpers.ts'
import { leastBytes, openPerspective } from '../models/perspective/engine.ts'
import { type Change, perspectiveConfig, writePerspective } from '../models/perspective/package.ts'
import { type Telling, tell } from '../models/perspective/scenario.ts'
import { ODD, USUAL } from '../models/perspective/variants.ts'
import { emulated } from './helpers.ts'

const TOGETHER: Telling = { chunk: 8, together: true }
const PACKAGES: Readonly<Record<string, Change>> = {
  usual: { ...USUAL, layer_types: ['pdr', 'gqa', 'pdr'] },
  // Wide enough that CUDA cuts the recurrence into two parts.
  odd: { ...ODD, pdr: { width: 141, rank: 13, write: 'plain' } },
}

describe.each(Object.entries(PACKAGES))('a perspective model, %s', (name, change) => {
  it('reads, draws and adapts on a device as on the CPU, whatever is in memory and however it is cut', async () => {
    const dir = writePerspective(join(temporaryFolder(), name), perspectiveConfig(change), 60)
    const bytes = await leastBytes(dir)
    const told = async (device: DeviceKind, experts: ExpertOptions, telling: Telling): Promise<string> => {
      const model = await openPerspective(dir, { device, experts })
      expect(model.device).toBe(device)
      const text = await tell(model, telling)
      model.close()
      return text
    }
    const wanted = await told('cpu', {}, TOGETHER)
    const ways: readonly (readonly [ExpertOptions, Telling])[] = [
      [{}, { chunk: 64, together: false }],
      [{ bytes, deviceBytes: 0 }, TOGETHER],
      [{ bytes, deviceBytes: 3 * bytes, lookAhead: false }, TOGETHER],
      [{ deviceBytes: 0 }, { chunk: 5, together: true }],
    ]
    for (const [experts, telling] of ways)
      expect(await told('cuda', experts, telling), JSON.stringify({ experts, telling })).toBe(wanted)
  })
})

const mixture: DecoderConfig = {
  ...{ ...BASE, max_position_embeddings: 48, model_type: 'qwen3_moe', head_dim: 6 },
  ...{ num_experts: 7, num_experts_per_tok: 3, moe_intermediate_size: 19, norm_topk_prob: true },
}

describe('a mixture with a store beside its weights', () => {
  const tokens = Int32Array.from({ length: 21 }, (_, i) => (i * 37 + 11) % 29)
  const chainOf = async (model: Model): Promise<readonly unknown[]> => {
    const context = model.createContext()
    const nats = await feed(model, context, tokens)
    const generate = { count: 6, temperature: 0.8, topK: 0, topP: 1, seed: 3n }
    const [drawn] = await model.process([{ context, tokens: new Int32Array(0), nats: false, generate }])
    const answer = [context.chain, [...nats], [...drawn!.generated]]
    model.close()
    return answer
  }

  it.each(['f32', 'q8', 'ternary'] as const)('gives the bits that it has on the CPU, of %s', async (to) => {
    let dir = writePackage(mixture, safetensors(randomDecoder(12, mixture), 'F32'))
    if (to !== 'f32') {
      const out = newOut()
      await quantizePackage({ dir, out, to, group: 32 })
      dir = out
    }
    await packExperts({ source: await findExperts(dir) })
    const on = (device: DeviceKind, experts: ExpertOptions = {}): Promise<Model> =>
      open(dir, { threads: 2, keepPacked: false, device, experts: { frequencies: false, ...experts } })
    const cpu = await chainOf(await on('cpu', { from: 'weights' }))
    expect(await chainOf(await on('cuda'))).toEqual(cpu)
    expect(await chainOf(await on('cuda', { deviceBytes: 0 }))).toEqual(cpu)
  })
})

describe('an expert that is on the device', () => {
  it('is not read again, and counts as a use all the same', async () => {
    const dir = writePerspective(join(temporaryFolder(), 'kept'), perspectiveConfig(PACKAGES.usual!), 61)
    const bytes = await leastBytes(dir)
    const tokens = Int32Array.from({ length: 40 }, (_, i) => (i * 37 + 11) % 64)
    const counts = async (deviceBytes: number) => {
      const model = await openPerspective(dir, {
        device: 'cuda',
        experts: { bytes, deviceBytes, lookAhead: false, deltas: false },
      })
      const context = model.createContext()
      for (const token of tokens) await feed(model, context, [token])
      const first = model.experts!.statistics
      for (const token of tokens) await feed(model, context, [token])
      const then = model.experts!.statistics
      model.close()
      const [uses, hits] = [then.uses - first.uses, then.hits - first.hits]
      return { uses, hits, demanded: then.demandBytes - first.demandBytes }
    }
    const none = await counts(0)
    const all = await counts(1 << 26)
    expect(all.uses).toBe(none.uses)
    expect(all.hits).toBeGreaterThan(0.9 * all.uses)
    expect(none.hits).toBeLessThan(0.9 * none.uses)
    expect(none.demanded).toBeGreaterThan(0)
    expect(all.demanded).toBeLessThan(none.demanded / 4)
  })
})

describe('a store that cannot be read', () => {
  it('ends the call with the reason; the device is not lost, and the session goes on when the store can be read', async () => {
    const source = writePerspective(join(temporaryFolder(), 'source'), perspectiveConfig(PACKAGES.usual!), 62)
    const first = await openPerspective(source, { device: 'cpu' })
    first.close()
    const dir = join(temporaryFolder(), 'broken')
    cpSync(source, dir, { recursive: true })
    const bytes = await leastBytes(dir)
    const experts = { bytes, deviceBytes: 0, lookAhead: false }
    const model = await openPerspective(dir, { device: 'cuda', experts })
    const tokens = Int32Array.from({ length: 30 }, (_, i) => (i * 37 + 11) % 64)
    const context = model.createContext()
    const wanted = await feed(model, context, tokens)
    const layers = [0, 1, 2].map((layer) => join(dir, 'experts', `layer-00${layer}.experts`))
    const whole = layers.map((path) => readFileSync(path))
    for (const [i, path] of layers.entries()) {
      const damaged = Buffer.from(whole[i]!)
      damaged.fill(0x55, damaged.length / 8)
      writeFileSync(path, damaged)
    }
    const other = model.createContext()
    const { message } = await errorOf(() => feed(model, other, tokens))
    expect(message).toMatch(/layer-00\d\.experts/)
    expect(message).not.toMatch(/device was lost/)
    expect(model.unavailableReason()).toBeNull()
    for (const [i, path] of layers.entries()) writeFileSync(path, whole[i]!)
    other.reset()
    expect([...(await feed(model, other, tokens))]).toEqual([...wanted])
    model.close()
  })
})

describe.runIf(emulated)('a device that is lost while experts of a store are multiplied', () => {
  it('is named as lost, and nothing else goes wrong', async () => {
    const dir = temporaryFolder()
    for (const file of ['config.json', 'model.safetensors', 'experts.safetensors', 'tokenizer.json'])
      cpSync(join(import.meta.dirname, '..', '..', 'models', 'perspective', file), join(dir, file))
    for (const launch of [40, 300, 600]) {
      const { code, err } = await continuo(['eval', DOCUMENT, '--model', dir, '--device', 'cuda'], {
        env: { CONTINUO_EMULATED_FAULT: String(launch) },
      })
      expect(code).toBe(1)
      expect(err).toMatch(/The CUDA device was lost when it tried to .+\(cudaErrorIllegalAddress\)/)
    }
  })
})
