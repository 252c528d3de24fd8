/**
 * Perspective packages and stores that cannot be served: each is refused at load, by the name of the key, the tensor or
 * the file.
 */
import { cpSync, readFileSync, rmSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import type { OpenModelOptions } from '../../../src/engine/options.ts'
import { openModel } from '../../../src/models/open.ts'
import { errorOf, feed } from '../../engine/helpers.ts'
import { readTensors, safetensors, type Tensor, temporaryFolder } from '../../engine/packages.ts'
import { leastBytes, openPerspective } from './engine.ts'
import { type Change, perspectiveConfig, storedFile, writePerspective } from './package.ts'
import { readStored, type Stored } from './tensors.ts'

type Loose = Record<string, unknown> &
  Record<'pdr' | 'experts' | 'spp' | 'mpd' | 'hdm' | 'fmea', Record<string, unknown>>

const refusal = (dir: string, options: OpenModelOptions = {}) =>
  errorOf(() =>
    openModel(dir, {
      ...{ threads: 1, keepPacked: false, warn: () => {} },
      ...options,
      experts: { bytes: 1 << 22, frequencies: false, ...options.experts },
    }),
  )
const says = (...parts: readonly string[]) => ({
  message: expect.stringMatching(
    new RegExp(parts.map((part) => part.replaceAll(/[.[\](){}"+]/g, '\\$&')).join('[^]*')),
  ),
})
const invalid = (...parts: readonly string[]) => ({ code: 'INVALID', ...says(...parts) })
const refused = (...parts: readonly string[]) => ({ code: 'REFUSED', ...says(...parts) })

const SMALL: Change = {
  ...{ vocab_size: 37, hidden_size: 40, num_attention_heads: 2, num_key_value_heads: 1, head_dim: 8 },
  ...{ intermediate_size: 24, recent: 4, ffn_types: ['experts', 'experts', 'dense'] },
  pdr: { width: 24, rank: 6 },
  experts: { torus: [2, 3], intermediate_size: 33 },
  hdm: { bits: 256, hit_max: 110 },
}

let good: string
let packed: string
beforeAll(async () => {
  good = writePerspective(join(temporaryFolder(), 'good'), perspectiveConfig(SMALL), 5)
  packed = join(temporaryFolder(), 'packed')
  cpSync(good, packed, { recursive: true })
  ;(await openModel(packed, { keepPacked: false, warn: () => {}, experts: { frequencies: false } })).close()
})
/** A copy of the good package, with its store where it has one. */
const copied = (from: string): string => {
  const dir = join(temporaryFolder(), 'model')
  cpSync(from, dir, { recursive: true })
  return dir
}
const configured = (change: (config: Loose) => void, from = good): string => {
  const dir = copied(from)
  const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as Loose
  change(config)
  writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
  return dir
}
/** Sets a member by its path, `experts.torus`; undefined: takes it away. */
const set = (path: string, value?: unknown) => (config: Loose) => {
  const names = path.split('.')
  const last = names.pop()!
  const to = names.reduce<Record<string, unknown>>((at, name) => at[name] as Record<string, unknown>, config)
  if (value === undefined) delete to[last]
  else to[last] = value
}

describe('config.json of a perspective model', () => {
  it('the good one opens, and its store is packed', async () => {
    const warnings: string[] = []
    const model = await openPerspective(copied(good), { warn: (message) => void warnings.push(message) })
    await feed(model, model.createContext(), [1, 2, 3])
    expect(warnings).toEqual([expect.stringContaining('Packed the experts of')])
  })

  const SECTIONS = {
    '': [
      'vocab_size',
      'hidden_size',
      'num_hidden_layers',
      'layer_types',
      'ffn_types',
      'intermediate_size',
      'rms_norm_eps',
    ],
    ' ': [
      'tie_word_embeddings',
      'num_attention_heads',
      'num_key_value_heads',
      'head_dim',
      'sliding_window',
      'rope_theta',
    ],
    '  ': ['rope_increments', 'pdr', 'experts', 'recent', 'spp', 'mpd', 'hdm', 'fmea'],
    'pdr.': ['width', 'rank', 'write'],
    'experts.': ['count', 'torus', 'intermediate_size', 'top_k', 'temperature', 'format', 'group_size', 'digest'],
    'spp.': ['half_spaces', 'iterations', 'inflation'],
    'mpd.': ['layers', 'perspectives', 'max_p', 'entropy', 'jsd'],
    'hdm.': ['bits', 'banks', 'seed', 'hit_max', 'blend', 'write_nats'],
    'fmea.': ['targets', 'rank', 'seed', 'directions', 'learning_rate', 'anchor', 'population', 'sigma'],
    'fmea. ': ['router_rate', 'router_anchor'],
  }
  it.each(
    Object.entries(SECTIONS).flatMap(([part, keys]) => keys.map((key) => part.trim() + key)),
  )('without %s', async (key) => {
    expect(await refusal(configured(set(key)))).toMatchObject(invalid('config.json', key))
  })
  it.each([
    'pdr.gamma_min',
    'pdr.gamma_max',
    'mpd.jitter_std',
    'mpd.temperature',
    'mpd.dropout',
  ])('%s has a default', async (key) => {
    await openPerspective(configured(set(key)))
  })

  const increments = perspectiveConfig(SMALL).rope_increments
  it.each<[string, string, unknown, readonly string[]]>([
    ['a layer of another type', 'layer_types', ['pdr', 'mamba', 'pdr'], ['layer_types.1']],
    ['too few layer types', 'layer_types', ['pdr', 'gqa'], ['layer_types', '3']],
    ['no recurrent layer', 'layer_types', ['gqa', 'gqa', 'gqa'], ['layer_types', 'no "pdr"']],
    ['a feed-forward part of another type', 'ffn_types', ['experts', 'moe', 'dense'], ['ffn_types.1']],
    ['too many of these', 'ffn_types', ['experts', 'dense', 'dense', 'dense'], ['ffn_types', '4 entries, expected 3']],
    ['no experts', 'ffn_types', ['dense', 'dense', 'dense'], ['ffn_types', 'no "experts"']],
    ['heads that cannot share', 'num_key_value_heads', 4, ['num_attention_heads', 'is 2, expected a multiple of', '4']],
    ['an odd head_dim', 'head_dim', 7, ['head_dim', 'is 7, expected an even number']],
    ['too many increments', 'rope_increments', [...increments, 1], ['rope_increments', '5 numbers, expected 4']],
    [
      'a wrong increment',
      'rope_increments',
      increments.with(2, increments[2]! + 2),
      ['rope_increments[2]', 'rope_theta'],
    ],
    ['a fractional increment', 'rope_increments', increments.with(1, 0.5), ['rope_increments.1']],
    ['another theta', 'rope_theta', 10001, ['rope_increments[1]', 'rope_theta 10001']],
    ['a window of none', 'sliding_window', 0, ['sliding_window']],
    ['an ε of 0', 'rms_norm_eps', 0, ['rms_norm_eps']],
    ['a rank beyond 1024', 'pdr.rank', 1025, ['pdr.rank']],
    ['a decay below 0', 'pdr.gamma_min', -0.1, ['pdr.gamma_min']],
    ['a decay above 1', 'pdr.gamma_max', 1.1, ['pdr.gamma_max']],
    ['decays in no range', 'pdr.gamma_min', 0.999, ['pdr.gamma_min', 'is 0.999, expected less than gamma_max, 0.999']],
    ['a write of another kind', 'pdr.write', 'delta', ['pdr.write']],
    ['a torus of other places', 'experts.torus', [2, 4], ['experts.torus', '2 · 4 places, expected 6']],
    ['a torus of one coordinate', 'experts.torus', [6], ['experts.torus']],
    ['more experts for a token than there are', 'experts.top_k', 7, ['experts.top_k', '7 of 6 experts']],
    ['no expert for a token', 'experts.top_k', 0, ['experts.top_k']],
    ['a temperature of 0', 'experts.temperature', 0, ['experts.temperature']],
    ['experts of another format', 'experts.format', 'q8', ['experts.format']],
    ['groups of 16', 'experts.group_size', 16, ['experts.group_size']],
    ['a digest that is too short', 'experts.digest', 'ab', ['experts.digest', '64 hexadecimal digits']],
    ['fewer recent tokens than adapting needs', 'recent', 1, ['recent', 'is 1, expected at least 2']],
    ['no recent tokens with a memory', 'recent', 0, ['recent', 'is 0, expected at least 2']],
    ['no half-space', 'spp.half_spaces', 0, ['spp.half_spaces']],
    ['no sweep', 'spp.iterations', 0, ['spp.iterations']],
    ['perspectives of more layers than there are', 'mpd.layers', 4, ['mpd.layers', 'is 4, expected at most 3']],
    ['perspectives of no layer', 'mpd.layers', 0, ['mpd.layers']],
    ['one perspective', 'mpd.perspectives', ['base'], ['mpd.perspectives']],
    ['nine perspectives', 'mpd.perspectives', ['base', ...Array(8).fill('jitter')], ['mpd.perspectives']],
    ['perspectives that do not begin with base', 'mpd.perspectives', ['jitter', 'base'], ['begins with "jitter"']],
    ['base twice', 'mpd.perspectives', ['base', 'base'], ['mpd.perspectives', 'base']],
    ['an unknown perspective', 'mpd.perspectives', ['base', 'mirror'], ['mpd.perspectives.1']],
    ['a share above 1', 'mpd.max_p', 1.5, ['mpd.max_p']],
    ['a dropout of all', 'mpd.dropout', 1, ['mpd.dropout']],
    ['a negative jitter', 'mpd.jitter_std', -1, ['mpd.jitter_std']],
    ['a perspective of temperature 0', 'mpd.temperature', 0, ['mpd.temperature']],
    ['a memory without perspectives', 'mpd', null, ['hdm', 'mpd is null']],
    ['keys of an odd number of bits', 'hdm.bits', 200, ['hdm.bits', 'multiple of 128']],
    ['banks that no bits name', 'hdm.banks', 6, ['hdm.banks', 'power of 2']],
    ['too many banks', 'hdm.banks', 8192, ['hdm.banks']],
    ['hits of half the bits', 'hdm.hit_max', 128, ['hdm.hit_max', 'less than half of 256']],
    ['a blend above 1', 'hdm.blend', 1.01, ['hdm.blend']],
    ['an unknown target', 'fmea.targets', ['mlp.up_proj'], ['fmea.targets.0']],
    ['a target twice', 'fmea.targets', ['pdr.p_proj', 'pdr.p_proj'], ['fmea.targets', 'twice']],
    ['an odd population', 'fmea.population', 3, ['fmea.population', 'is 3, expected an even number']],
    ['too large a population', 'fmea.population', 2050, ['fmea.population']],
    ['too many directions', 'fmea.directions', 65, ['fmea.directions']],
    ['a σ of 0', 'fmea.sigma', 0, ['fmea.sigma']],
    ['a fractional seed', 'fmea.seed', 1.5, ['fmea.seed']],
    ['a negative seed', 'hdm.seed', -1, ['hdm.seed']],
  ])('%s', async (_, key, value, parts) => {
    expect(await refusal(configured(set(key, value)))).toMatchObject(invalid('config.json', ...parts))
  })

  it('a plain write whose decay may be 1, also where only f32 says so', async () => {
    for (const gamma of [1, 1 - 1e-9])
      expect(
        await refusal(
          configured((config) => {
            set('pdr.write', 'plain')(config)
            set('pdr.gamma_max', gamma)(config)
          }),
        ),
      ).toMatchObject(invalid('pdr.gamma_max', '"plain"'))
  })
  it('the second expert of a token that takes all', async () => {
    const bad = configured((config) => {
      set('experts.top_k', 6)(config)
      set('mpd.perspectives', ['base', 'second'])(config)
    })
    expect(await refusal(bad)).toMatchObject(invalid('mpd.perspectives', '"second"'))
  })
  it('an adapter of attention where no layer has any', async () => {
    const config = perspectiveConfig({
      ...SMALL,
      layer_types: ['pdr', 'pdr', 'pdr'],
      fmea: { targets: ['attn.q_proj'] },
    })
    const bad = writePerspective(join(temporaryFolder(), 'model'), config)
    expect(await refusal(bad)).toMatchObject(invalid('fmea.targets', 'attention'))
  })
})

/** Drops, reshapes or spoils tensors of the good package. */
const spoilt = (change: (tensors: Map<string, Tensor>) => void): string => {
  const dir = copied(packed)
  const file = join(dir, 'model.safetensors')
  const tensors = readTensors(file)
  change(tensors)
  writeFileSync(file, safetensors(tensors))
  return dir
}

describe('tensors of a perspective model', () => {
  it('every one is needed, in its shape, and finite', { tags: 'slow' }, async () => {
    const names = [...readTensors(join(good, 'model.safetensors')).keys()]
    expect(names.length).toBeGreaterThan(30)
    for (const name of names) {
      expect(await refusal(spoilt((tensors) => void tensors.delete(name)))).toMatchObject(
        invalid(`"${name}" is missing`),
      )
      const longer = spoilt((tensors) => {
        const { shape, data } = tensors.get(name)!
        const grown = [shape[0]! + 1, ...shape.slice(1)]
        tensors.set(name, { shape: grown, data: new Float32Array((data.length / shape[0]!) * grown[0]!) })
      })
      expect(await refusal(longer)).toMatchObject(invalid(`"${name}"`, 'expected ['))
      const bad = spoilt((tensors) => {
        tensors.get(name)!.data[1] = Number.NaN
      })
      expect(await refusal(bad)).toMatchObject(invalid(name))
    }
  })

  it.each([1, -0.01, 1.5])('a position of %s is not on the torus', async (position) => {
    const bad = spoilt((tensors) => {
      tensors.get('model.experts.positions')!.data[7] = position
    })
    expect(await refusal(bad)).toMatchObject(
      invalid('"model.experts.positions"', 'element 7', 'expected positions from 0 to less than 1'),
    )
  })
  it('a normal of length 0 bounds no half-space', async () => {
    const bad = spoilt((tensors) => {
      tensors.get('model.spp.normals')!.data.fill(0, 3 * 40, 4 * 40)
    })
    expect(await refusal(bad)).toMatchObject(invalid('"model.spp.normals"', 'row 3'))
  })
  it('one that nobody knows', async () => {
    for (const name of [
      'model.layers.0.pdr.gate.weight',
      'model.layers.2.router.bias',
      'model.layers.1.pdr.out_norm.weight',
    ]) {
      const bad = spoilt((tensors) => void tensors.set(name, { shape: [2], data: new Float32Array(2) }))
      expect(await refusal(bad)).toMatchObject(invalid(name, 'is not part of this model family'))
    }
  })
  it('a layer too many', async () => {
    const bad = spoilt((tensors) => {
      tensors.set('model.layers.3.input_layernorm.weight', { shape: [40], data: new Float32Array(40) })
    })
    expect((await refusal(bad)).message).toMatch(/num_hidden_layers is 3, but tensors "model\.layers\.\*" .* say 4/)
  })
  it('parts that the configuration does not have', async () => {
    for (const [part, name] of [['spp', 'model.spp.normals']] as const)
      expect(await refusal(configured(set(part, null)))).toMatchObject(
        invalid(name, 'is not part of this model family'),
      )
  })
})

describe('the experts of a perspective model', () => {
  const layerFile = (dir: string, layer = 1): string => join(dir, 'experts', `layer-00${layer}.experts`)

  it('are served from the store alone: their source need not be there', async () => {
    const dir = copied(packed)
    rmSync(join(dir, 'experts.safetensors'))
    const model = await openPerspective(dir)
    await feed(model, model.createContext(), [1, 2, 3])
  })
  it('are neither in a store nor in a source', async () => {
    const dir = copied(good)
    rmSync(join(dir, 'experts.safetensors'))
    expect(await refusal(dir)).toMatchObject(refused('no store of experts', 'continuo experts pack'))
  })
  it('have another digest than config.json says, in a store and in a source', async () => {
    const digest = 'ab'.repeat(32)
    expect(await refusal(configured(set('experts.digest', digest), packed))).toMatchObject(refused(digest))
    expect(await refusal(configured(set('experts.digest', digest), good))).toMatchObject(refused(digest))
  })
  it('have other sizes than config.json says', async () => {
    for (const [key, value, parts] of [
      ['experts.intermediate_size', 34, ['[6, 33, 40]', 'expected [6, 34, 40]']],
      ['experts.group_size', 64, ['groups of 32', 'expected ternary3 in groups of 64']],
    ] as const)
      expect(await refusal(configured(set(key, value), packed))).toMatchObject(says(...parts))
    const fewer = configured((config) => {
      set('experts.torus', [2, 2])(config)
      set('experts.count', 4)(config)
    }, packed)
    const file = join(fewer, 'model.safetensors')
    const tensors = readTensors(file)
    tensors.set('model.experts.positions', { shape: [4, 2], data: new Float32Array(8) })
    writeFileSync(file, safetensors(tensors))
    expect(await refusal(fewer)).toMatchObject(says('[6, 33, 40]', 'expected [4, 33, 40]'))
  })
  it('lack a layer', async () => {
    const dir = copied(packed)
    rmSync(layerFile(dir))
    expect(await refusal(dir)).toMatchObject(says('layer-001.experts'))
  })
  it('are cut short, or have a header that was damaged', async () => {
    const short = copied(packed)
    truncateSync(layerFile(short), 8192)
    expect(await refusal(short)).toMatchObject(says('layer-001.experts'))
    const damaged = copied(packed)
    const bytes = readFileSync(layerFile(damaged, 0))
    bytes[130]! ^= 4
    writeFileSync(layerFile(damaged, 0), bytes)
    expect(await refusal(damaged)).toMatchObject(says('layer-000.experts'))
  })
  it('are more than a bound of less than two of their records can hold', async () => {
    const two = await leastBytes(packed)
    const model = await openPerspective(copied(packed), { experts: { bytes: two } })
    await feed(model, model.createContext(), [1, 2, 3, 4])
    expect(await refusal(packed, { experts: { bytes: two - 1 } })).toMatchObject(
      refused(`--expert-bytes is ${two - 1}`, 'two experts of layer 0', `${two} bytes`),
    )
    for (const bytes of [0, -1, 1.5])
      expect(await refusal(packed, { experts: { bytes } })).toMatchObject(invalid('experts.bytes'))
    for (const depth of [7, 33])
      expect(await refusal(packed, { experts: { depth } })).toMatchObject(invalid('experts.depth'))
  })
  it('are not whole in their source', async () => {
    const source = (change: (tensors: Map<string, Stored>) => void): string => {
      const dir = copied(good)
      const tensors = new Map(readStored(join(dir, 'experts.safetensors')))
      change(tensors)
      writeFileSync(join(dir, 'experts.safetensors'), storedFile(tensors))
      return dir
    }
    const name = 'model.layers.1.experts.4.up_proj.weight'
    expect(await refusal(source((tensors) => void tensors.delete(name)))).toMatchObject(invalid(`"${name}"`))
    const other = source((tensors) => {
      const { dtype, bytes } = tensors.get(name)!
      tensors.set(name, { dtype, bytes: bytes.slice(8), shape: [32, 8] })
    })
    expect(await refusal(other)).toMatchObject(invalid(`"${name}"`, 'expected U8 [33, 8]'))
    const code = source((tensors) => {
      const { bytes, ...rest } = tensors.get(name)!
      tensors.set(name, { ...rest, bytes: bytes.slice().fill(243, 9, 10) })
    })
    expect(await refusal(code)).toMatchObject(says('Layer 1, expert 4: up holds the byte 243 at element 9'))
  })
})
