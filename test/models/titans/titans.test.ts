/** Titans against the published expectations, and against an implementation that shares nothing with the engine. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { Context } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import { feed, open } from '../../engine/helpers.ts'
import { surprisalOf } from '../../engine/oracle.ts'
import { random, readTensors, writePackage } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { randomTitans, someTokens, type TitansChange, titansConfig, writeTitans } from './titans-packages.ts'
import {
  type Composition,
  type Retention,
  type Rule,
  type TitansPackageConfig,
  titansReference,
} from './titans-reference.ts'
import { type Norms, normsOf } from './titans-state.ts'

const COMPOSITIONS: readonly Composition[] = ['mag', 'mal', 'mac']
const RULES: readonly Rule[] = ['titans', 'delta', 'hebbian']
const RETENTIONS: readonly Retention[] = ['l2', 'kl', 'sphere', 'elastic', 'none']

/** Feeds `tokens` in pieces of `chunk`; the surprisals of all. */
const feedBy = async (model: Model, context: Context, tokens: readonly number[], chunk: number): Promise<number[]> => {
  const nats: number[] = []
  for (let at = 0; at < tokens.length; at += chunk)
    nats.push(...(await feed(model, context, tokens.slice(at, at + chunk))))
  return nats
}

/** The largest difference of norms, relative where they are above 1. */
const farthest = (got: Norms, want: Norms): number => {
  const [a, b] = [got, want].map((norms) => norms.flat(2)) as [number[], number[]]
  expect(a.length).toBe(b.length)
  return b.reduce((most, norm, i) => Math.max(most, Math.abs(a[i]! - norm) / Math.max(1, norm)), 0)
}

const worst = (got: ArrayLike<number>, want: readonly number[]): number => {
  expect(got.length).toBe(want.length)
  return want.reduce((most, value, i) => Math.max(most, Math.abs(value - got[i]!)), 0)
}

// They are not ours to ship; CONTINUO_SHARED says where they are.
describe.skipIf(!hasShared).each(COMPOSITIONS)('the published package of %s', (composition) => {
  const folder = sharedModel(`titans-tiny-${composition}`)
  // Its tokenizer.json says that ids are bytes, which a package without one says as well.
  const copy = (): string =>
    writePackage(readFileSync(join(folder, 'config.json'), 'utf8'), readFileSync(join(folder, 'model.safetensors')))
  const json = (file: string) => JSON.parse(readFileSync(join(folder, file), 'utf8'))

  it('gives the expected logits, surprisals and norms in any pieces', async () => {
    const model = await open(copy())
    const expected = json('expected.json')
    for (const chunk of [96, 1, 7]) {
      const context = model.createContext()
      const nats = (await feedBy(model, context, expected.input_ids, chunk)).slice(1)
      const logits = await model.logits(context)
      expect(worst(logits, expected.logits)).toBeLessThan(1e-4)
      expect(logits.indexOf(Math.max(...logits))).toBe(expected.argmax)
      expect(worst(nats, expected.nll)).toBeLessThan(1e-3)
      expect(nats.reduce((total, each) => total + each, 0)).toBeCloseTo(expected.total_nll, 2)
      const norms = normsOf(model, context, json('config.json').memory.levels)
      expect(farthest(norms.M, expected.M_norm)).toBeLessThan(1e-4)
      expect(farthest(norms.S, expected.S_norm)).toBeLessThan(1e-4)
      expect(farthest(norms.G, expected.G_norm)).toBeLessThan(1e-4)
    }
  })

  it('the reference of these tests gives the expectations to the last digits of a double', () => {
    const expected = json('expected.json')
    const reference = titansReference(json('config.json'), readTensors(join(folder, 'model.safetensors')))
    let logits: readonly number[] = []
    const nats: number[] = []
    for (const [i, token] of (expected.input_ids as number[]).entries()) {
      if (i > 0) nats.push(surprisalOf([...logits], token))
      logits = reference.step(token)
    }
    expect(worst(logits, expected.logits)).toBeLessThan(1e-7)
    expect(worst(nats, expected.nll)).toBeLessThan(1e-7)
    const norms = reference.norms()
    expect(farthest(norms.M, expected.M_norm)).toBeLessThan(1e-9)
    expect(farthest(norms.S, expected.S_norm)).toBeLessThan(1e-9)
    expect(farthest(norms.G, expected.G_norm)).toBeLessThan(1e-9)
  })
})

const TOKENS = 26

/**
 * A random package of this configuration gives the reference's surprisals, logits and norms, with a reset in the
 * middle.
 */
const agrees = async (config: TitansPackageConfig, seed: number): Promise<void> => {
  const tensors = randomTitans(seed, config)
  const model = await open(writeTitans(config, tensors))
  const reference = titansReference(config, tensors)
  const context = model.createContext()
  const next = random(seed + 1)
  const close = async (tokens: readonly number[]): Promise<void> => {
    const nats = await feedBy(model, context, tokens, 1 + Math.floor(next() * 9))
    let logits: readonly number[] = []
    for (const [i, token] of tokens.entries()) {
      if (i > 0) expect(Math.abs(nats[i]! - surprisalOf([...logits], token))).toBeLessThan(5e-5)
      logits = reference.step(token)
    }
    expect(worst(await model.logits(context), logits)).toBeLessThan(5e-5)
    const got = normsOf(model, context, config.memory.levels)
    const want = reference.norms()
    for (const which of ['M', 'S', 'G'] as const) expect(farthest(got[which], want[which])).toBeLessThan(1e-4)
  }
  const tokens = someTokens(seed + 2, TOKENS, config.vocab_size)
  await close(tokens.slice(0, 9))
  context.reset()
  reference.reset()
  await close(tokens.slice(9))
  model.close()
}

describe('Titans against an independent implementation in double precision', () => {
  describe.each(COMPOSITIONS)('%s', (composition) => {
    describe.each(RULES)('rule %s', (rule) => {
      it.each(RETENTIONS)('retention %s', async (retention) => {
        const at = COMPOSITIONS.indexOf(composition) * 15 + RULES.indexOf(rule) * 5 + RETENTIONS.indexOf(retention)
        await agrees(titansConfig({ composition, memory: { rule, retention, elastic_l1: 0.02 } }), 1000 * at + 1)
      })
    })
  })

  it.each<[string, TitansChange]>([
    ['a list of compositions', { num_hidden_layers: 4, composition: ['mal', 'mac', 'mag', 'mac'] }],
    ['a list that is uniform', { composition: ['mac', 'mac'] }],
    ['windows and no segments in a list', { num_hidden_layers: 3, composition: ['mal', 'mag', 'mag'] }],
    ['one layer', { num_hidden_layers: 1, composition: 'mac' }],
    ['a tied head', { tie_word_embeddings: true }],
    ['no persistent tokens', { num_persistent_tokens: 0 }],
    ['no persistent tokens beside context', { num_persistent_tokens: 0, composition: 'mac' }],
    ['one key head for each query head', { num_attention_heads: 3, num_key_value_heads: 3, head_dim: 10 }],
    ['one key head for all query heads', { num_attention_heads: 5, num_key_value_heads: 1, head_dim: 2 }],
    ['a window of one token', { sliding_window: 1 }],
    ['a window longer than the text', { sliding_window: 300 }],
    ['a segment of one token', { composition: 'mac', segment_size: 1 }],
    ['a segment longer than the text', { composition: 'mac', segment_size: 300 }],
    ['no convolution', { memory: { conv_width: 1 } }],
    ['no convolution of the context', { composition: 'mac', memory: { conv_width: 1 } }],
    ['a convolution of two taps', { composition: 'mac', memory: { conv_width: 2 } }],
    ['a convolution as long as the text', { memory: { conv_width: 31 } }],
    ['one level at every pulse', { memory: { levels: [1] } }],
    ['one slow level', { composition: 'mac', memory: { levels: [5] } }],
    ['five levels in no order, two alike', { memory: { levels: [7, 1, 2, 64, 2] } }],
    [
      'gates of each level',
      {
        memory: {
          levels: [3, 1],
          alpha_min: [0.2, 0],
          alpha_max: [0.9, 0.3],
          eta_max: [0.5, 0.99],
          theta_max: [2, 0.3],
        },
      },
    ],
    ['the ranges that nobody names', { memory: { alpha_min: 0, alpha_max: 1, theta_max: 1, qk_norm_eps: 1e-6 } }],
    ['one memory head as wide as the stream', { hidden_size: 17, memory: { heads: 1, head_dim: 17 } }],
    ['wide heads of an odd number of channels', { memory: { heads: 2, head_dim: 33 } }],
    ['a cap on the norm', { memory: { norm_max: 0.7 } }],
    ['a cap on the norm of elastic', { memory: { retention: 'elastic', elastic_l1: 0.05, norm_max: 1.1 } }],
    ['a cap on the norm without retention', { memory: { rule: 'hebbian', retention: 'none', norm_max: 2 } }],
    ['elastic with both terms', { memory: { rule: 'delta', retention: 'elastic', elastic_l1: 0.3, elastic_l2: 0.5 } }],
    ['a sphere of a chosen radius', { composition: 'mal', memory: { retention: 'sphere', sphere_radius: 0.9 } }],
    ['simplices that learn fast', { memory: { retention: 'kl', theta_max: 8 } }],
    ['simplices with a high floor', { memory: { retention: 'kl', theta_max: 8, kl_floor: 0.01 } }],
    ['a memory that begins with nothing', { memory: { init: 'zero' } }],
    ['simplices that begin uniform', { composition: 'mac', memory: { retention: 'kl', init: 'zero', theta_max: 4 } }],
    ['another floor of keys and queries', { composition: 'mac', memory: { qk_norm_eps: 0.5 } }],
    ['a large ε of the norms', { rms_norm_eps: 0.3 }],
  ])('%s', async (name, change) => {
    await agrees(titansConfig(change), name.length * 7919 + 5)
  })

  it('sees what a single wrong number in the equations would do', async () => {
    // The tolerances above are of use only if they tell neighbouring models apart.
    const config = titansConfig({ composition: 'mac' })
    const tensors = randomTitans(3, config)
    const tokens = someTokens(4, TOKENS, config.vocab_size)
    const model = await open(writeTitans(config, tensors))
    const context = model.createContext()
    await feed(model, context, tokens)
    const logits = await model.logits(context)
    const other = (change: TitansChange, clock = 0): number => {
      const reference = titansReference(titansConfig({ composition: 'mac', ...change }), tensors, clock)
      return worst(logits, tokens.map((token) => reference.step(token)).at(-1)!)
    }
    expect(other({})).toBeLessThan(5e-5)
    const changes: readonly TitansChange[] = [
      { segment_size: 7 },
      { rope_theta: 99 },
      { rms_norm_eps: 1.1e-2 },
      { memory: { levels: [4, 1, 7] } },
      { memory: { levels: [1, 4, 6] } },
      { memory: { rule: 'delta' } },
      { memory: { retention: 'none' } },
      { memory: { alpha_max: 0.51 } },
      { memory: { eta_max: 0.94 } },
      { memory: { theta_max: 1.01 } },
      { memory: { norm_max: 1.5 } },
      { memory: { qk_norm_eps: 1e-3 } },
    ]
    for (const change of changes) expect([change, other(change) > 5e-5]).toEqual([change, true])
    expect(other({}, 1)).toBeGreaterThan(5e-5)
  })
})
