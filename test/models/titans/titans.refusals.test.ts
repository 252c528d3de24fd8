/** Titans packages that cannot be served: each is refused at load, by the name of the key or the tensor. */
import { describe, expect, it } from 'vitest'
import { openModel } from '../../../src/models/open.ts'
import { errorOf, feed, open } from '../../engine/helpers.ts'
import { random, safetensors, type Tensor, writePackage } from '../../engine/packages.ts'
import { randomTitans, titansConfig } from './titans-packages.ts'
import type { Composition, TitansPackageConfig } from './titans-reference.ts'

interface Loose {
  [key: string]: unknown
  memory: Record<string, unknown>
}
const refusal = (dir: string) => errorOf(() => openModel(dir, { threads: 1 }))
const invalid = (...parts: readonly string[]) => ({
  code: 'INVALID',
  message: expect.stringMatching(new RegExp(parts.map((part) => part.replaceAll(/[.[\](){}"]/g, '\\$&')).join('.*'))),
})

/** The good package, after a change to its config.json. */
const configured = (change: (config: Loose) => void, good = titansConfig()): string => {
  const config = structuredClone(good) as unknown as Loose
  change(config)
  return writePackage(config, safetensors(randomTitans(1, good)))
}

describe('config.json of Titans', () => {
  it('the good one opens', async () => {
    const model = await open(configured(() => {}))
    await feed(model, model.createContext(), [1, 2, 3])
    expect(model.vocabSize).toBe(37)
  })

  const set = (key: string, value: unknown) => (config: Loose) => void Object.assign(config, { [key]: value })
  const inMemory = (key: string, value: unknown) => (config: Loose) =>
    void Object.assign(config.memory, { [key]: value })
  const without = (key: string) => (config: Loose) => void delete config[key]
  const withoutMemory = (key: string) => (config: Loose) => void delete config.memory[key]

  const required = [
    ...['vocab_size', 'hidden_size', 'num_hidden_layers', 'num_attention_heads', 'num_key_value_heads', 'head_dim'],
    ...[
      'sliding_window',
      'num_persistent_tokens',
      'rope_theta',
      'rope_increments',
      'intermediate_size',
      'rms_norm_eps',
    ],
    ...['tie_word_embeddings', 'composition', 'memory'],
  ]
  it.each(required)('without %s', async (key) => {
    expect(await refusal(configured(without(key)))).toMatchObject(invalid('config.json', key))
  })
  it.each([
    'rule',
    'heads',
    'head_dim',
    'conv_width',
    'levels',
    'retention',
    'init',
  ])('without memory.%s', async (key) => {
    expect(await refusal(configured(withoutMemory(key)))).toMatchObject(invalid('config.json', `memory.${key}`))
  })
  it('without memory.eta_max, which only the rule "titans" needs', async () => {
    expect(await refusal(configured(withoutMemory('eta_max')))).toMatchObject(invalid('memory.eta_max', 'is missing'))
    await open(configured(withoutMemory('eta_max'), titansConfig({ memory: { rule: 'delta' } })))
  })
  it('without segment_size, which only "mac" needs', async () => {
    for (const composition of ['mac', ['mag', 'mac']] as const) {
      const bad = configured(without('segment_size'), titansConfig({ composition }))
      expect(await refusal(bad)).toMatchObject(invalid('segment_size', 'is missing'))
    }
    await open(configured(without('segment_size'), titansConfig({ composition: ['mal', 'mag'] })))
  })
  it.each(['alpha_min', 'alpha_max', 'theta_max', 'norm_max'])('memory.%s has a default', async (key) => {
    await open(configured(withoutMemory(key)))
  })

  it.each<[string, (config: Loose) => void, readonly string[]]>([
    ['a composition that is none', set('composition', 'mam'), ['composition']],
    ['a composition that is none in a list', set('composition', ['mag', 'mam']), ['composition']],
    ['too few compositions', set('composition', ['mag']), ['composition', '1 entries, expected 2']],
    ['a rule that is none', inMemory('rule', 'oja'), ['memory.rule']],
    ['a retention that is none', inMemory('retention', 'l1'), ['memory.retention']],
    ['an init that is none', inMemory('init', 'ones'), ['memory.init']],
    [
      'heads that cannot share',
      set('num_key_value_heads', 4),
      ['num_attention_heads', '6, expected a multiple of', '4'],
    ],
    ['an odd head_dim', set('head_dim', 5), ['head_dim', 'is 5, expected an even number']],
    ['too many increments', set('rope_increments', [1, 2, 3, 4]), ['rope_increments', '4 numbers, expected 3']],
    [
      'a wrong increment',
      set('rope_increments', titansConfig().rope_increments.with(1, titansConfig().rope_increments[1]! + 2)),
      ['rope_increments[1]', 'rope_theta'],
    ],
    ['a fractional increment', set('rope_increments', [0.5, 1, 2]), ['rope_increments.0']],
    ['another theta', set('rope_theta', 101), ['rope_increments[1]', 'rope_theta 101']],
    ['no level', inMemory('levels', []), ['memory.levels']],
    ['a period of 0', inMemory('levels', [1, 0, 4]), ['memory.levels.1']],
    ['a fractional period', inMemory('levels', [1, 1.5, 4]), ['memory.levels.1']],
    ['a list that is too short', inMemory('alpha_min', [0, 0]), ['memory.alpha_min', '2 numbers, expected 3']],
    ['a list that is too long', inMemory('alpha_max', [1, 1, 1, 1]), ['memory.alpha_max', '4 numbers, expected 3']],
    ['a short list of momenta', inMemory('eta_max', [0.5]), ['memory.eta_max', '1 numbers, expected 3']],
    ['a short list of rates', inMemory('theta_max', [0.5]), ['memory.theta_max', '1 numbers, expected 3']],
    ['alpha_min below 0', inMemory('alpha_min', -0.1), ['memory.alpha_min', 'is -0.1, expected 0 to 1']],
    ['alpha_max above 1', inMemory('alpha_max', [1, 1.1, 1]), ['memory.alpha_max', 'is 1.1, expected 0 to 1']],
    ['alpha_min above alpha_max', inMemory('alpha_min', [0, 0.6, 0]), ['memory.alpha_min', 'above memory.alpha_max']],
    ['eta_max of 1', inMemory('eta_max', [0.5, 1, 0.5]), ['memory.eta_max']],
    ['eta_max of 1 in f32', inMemory('eta_max', 1 - 1e-9), ['memory.eta_max', 'is 1 in f32']],
    ['a theta_max of 0 in f32', inMemory('theta_max', 1e-50), ['memory.theta_max', 'is 0 in f32']],
    ['a negative eta_max', inMemory('eta_max', -0.5), ['memory.eta_max', 'is -0.5']],
    ['a theta_max of 0', inMemory('theta_max', 0), ['memory.theta_max']],
    ['a negative theta_max', inMemory('theta_max', [1, -1, 1]), ['memory.theta_max', 'is -1']],
    ['a norm_max of 0', inMemory('norm_max', 0), ['memory.norm_max']],
    ['a negative elastic_l1', inMemory('elastic_l1', -1), ['memory.elastic_l1']],
    ['a sphere without radius', inMemory('sphere_radius', 0), ['memory.sphere_radius']],
    ['a negative number of persistent tokens', set('num_persistent_tokens', -1), ['num_persistent_tokens']],
    ['a window of none', set('sliding_window', 0), ['sliding_window']],
    ['a segment of none', set('segment_size', 0), ['segment_size']],
    ['no taps', inMemory('conv_width', 0), ['memory.conv_width']],
    ['an ε of 0', set('rms_norm_eps', 0), ['rms_norm_eps']],
  ])('%s', async (_, change, parts) => {
    expect(await refusal(configured(change))).toMatchObject(invalid('config.json', ...parts))
  })

  it('a sphere that would begin without a direction', async () => {
    const good = titansConfig({ memory: { retention: 'sphere' } })
    expect(await refusal(configured(inMemory('init', 'zero'), good))).toMatchObject(invalid('memory.init', 'sphere'))
  })
  it.each([
    ['norm_max', 'l2', 'norm_max'],
    ['sphere_radius', 'sphere', 'radius'],
    ['kl_floor', 'kl', 'floor'],
  ] as const)('a memory.%s so small that f32 has 0 for it, which means something else', async (key, retention, name) => {
    const good = titansConfig({ memory: { retention } })
    const bad = configured(inMemory(key, 1e-50), good)
    expect(await refusal(bad)).toMatchObject(invalid(`needs ${name} to be a number`, 'that f32 can hold'))
    await open(configured(inMemory(key, 1e-40), good))
  })
  it.each(['kl', 'sphere'] as const)('a cap on what %s bounds itself', async (retention) => {
    const good = titansConfig({ memory: { retention } })
    const bad = configured(inMemory('norm_max', 2), good)
    expect(await refusal(bad)).toMatchObject(invalid('memory.norm_max', retention))
  })
})

/** Drops, reshapes or spoils one tensor of the good package. */
const spoilt = (config: TitansPackageConfig, change: (tensors: Map<string, Tensor>) => void): string => {
  const tensors = randomTitans(2, config)
  change(tensors)
  return writePackage(config, safetensors(tensors))
}

describe('tensors of Titans', () => {
  it.each<Composition>(['mag', 'mal', 'mac'])('every one of %s is needed, in its shape', async (composition) => {
    const config = titansConfig({ composition, num_hidden_layers: 1 })
    const names = [...randomTitans(2, config).keys()]
    expect(names.length).toBeGreaterThan(28)
    for (const name of names) {
      const missing = spoilt(config, (tensors) => void tensors.delete(name))
      expect(await refusal(missing)).toMatchObject(invalid(`"${name}" is missing`))
      const longer = spoilt(config, (tensors) => {
        const { shape, data } = tensors.get(name)!
        const grown = [shape[0]! + 1, ...shape.slice(1)]
        tensors.set(name, { shape: grown, data: new Float32Array((data.length / shape[0]!) * grown[0]!) })
      })
      expect(await refusal(longer)).toMatchObject(invalid(`"${name}"`, 'expected ['))
    }
  })

  it('any that is not finite is refused', async () => {
    const config = titansConfig({ num_hidden_layers: 1 })
    const next = random(3)
    for (const name of randomTitans(2, config).keys()) {
      const bad = spoilt(config, (tensors) => {
        const { data } = tensors.get(name)!
        data[Math.floor(next() * data.length)] = next() < 0.5 ? Number.NaN : Number.NEGATIVE_INFINITY
      })
      expect(await refusal(bad)).toMatchObject(invalid(name))
    }
  })

  const one = (name: string, ...shape: number[]) => {
    return (tensors: Map<string, Tensor>) =>
      void tensors.set(name, { shape, data: new Float32Array(shape.reduce((product, extent) => product * extent, 1)) })
  }
  it.each<[string, TitansPackageConfig, (tensors: Map<string, Tensor>) => void, string]>([
    ['nobody knows', titansConfig(), one('model.layers.0.memory.beta', 3), 'model.layers.0.memory.beta'],
    [
      'has a momentum that the rule does not',
      titansConfig({ memory: { rule: 'delta' } }),
      one('model.layers.1.memory.eta_proj.bias', 9),
      'memory.eta_proj.bias',
    ],
    [
      'has a retention gate that the retention does not',
      titansConfig({ memory: { retention: 'sphere' } }),
      one('model.layers.1.memory.alpha_proj.bias', 9),
      'memory.alpha_proj.bias',
    ],
    [
      'has a first state that is not asked for',
      titansConfig({ memory: { init: 'zero' } }),
      one('model.layers.0.memory.init_state', 3, 3, 5, 5),
      'memory.init_state',
    ],
    [
      'has a context that "mag" has not',
      titansConfig(),
      one('model.layers.0.memory.context_norm.weight', 18),
      'memory.context_norm.weight',
    ],
    [
      'has persistent tokens where there are none',
      titansConfig({ num_persistent_tokens: 0 }),
      one('model.layers.0.attn.persistent_k', 2, 3, 6),
      'attn.persistent_k',
    ],
  ])('a file that %s', async (_, config, change, name) => {
    expect(await refusal(spoilt(config, change))).toMatchObject(invalid(name, 'is not part of this model family'))
  })

  it('a file that has a layer too many', async () => {
    const spoil = one('model.layers.2.memory.level_logits', 3, 3)
    const { message } = await refusal(spoilt(titansConfig(), spoil))
    expect(message).toMatch(/num_hidden_layers is 2, but tensors "model\.layers\.\*" .* say 3/)
  })

  it('a tied head may carry the matrix that it does not use', async () => {
    const config = titansConfig({ tie_word_embeddings: true })
    await open(spoilt(config, one('lm_head.weight', 37, 18)))
  })
})
