/**
 * The perspective family in other sizes, with other parts and without them, against an implementation that shares
 * nothing with the engine.
 *
 * @module-tag slow
 */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { feed } from '../../engine/helpers.ts'
import { type Dtype, readTensors, safetensors, temporaryFolder } from '../../engine/packages.ts'
import { TARGETS } from './config.ts'
import { adaptAs, drawAt, expectDraw, expectState, farthest, openPerspective, stateOf } from './engine.ts'
import { within } from './margins.ts'
import { type Change, LIMITS, perspectiveConfig, writePerspective } from './package.ts'
import { openReference } from './reference.ts'
import { chooseSteady, openTwins, resetTwins } from './steady.ts'

// With some seeds a random point of a perspective lies between two experts, whatever was read.
const SEED = 6
const ALL = ['base', 'jitter', 'temperature', 'dropout', 'second', 'antipode', 'random'] as const

/** Small and odd; an adaptation looks back on few tokens, or no seed would keep all its decisions away from ties. */
const BASE = {
  vocab_size: 61,
  recent: 5,
  fmea: { directions: 1 },
  // Tokens are bound and recalled at once.
  hdm: { bits: 256, banks: 4, write_nats: 3, hit_max: 115 },
} as const satisfies Change
const part = <T extends object>(base: T, own: Partial<T> | null | undefined): T | null =>
  own === null ? null : { ...base, ...own }
const withBase = (change: Change): Change => ({
  ...BASE,
  ...change,
  fmea: part(BASE.fmea as NonNullable<Change['fmea']>, change.fmea),
  hdm: part(BASE.hdm as NonNullable<Change['hdm']>, change.hdm),
})

/** A round of both stages, and one evaluation that is left over; 0 where nothing adapts. */
const roundOf = ({ fmea, hdm }: ReturnType<typeof perspectiveConfig>): number => {
  if (fmea === null) return hdm === null ? 0 : 3
  return 2 + (2 * fmea.directions + 1) + (fmea.population + 1)
}

interface Options {
  readonly dtype?: Dtype
  /** As of `chooseSteady`. */
  readonly accept?: number
  /** Of the first token. */
  readonly clock?: number
}
/**
 * Both read the same tokens, whose decisions are far from ties, begin anew in the middle, and adapt: surprisals, draws,
 * routes, adaptation and state agree. Returns how many draws fired, agreed and had a hit.
 */
const agrees = async (change: Change, seed: number, { dtype = 'F32', accept, clock = 0 }: Options = {}) => {
  const config = perspectiveConfig(withBase(change))
  const dir = writePerspective(join(temporaryFolder(), 'model'), config, seed)
  const weights = join(dir, 'model.safetensors')
  if (dtype !== 'F32') writeFileSync(weights, safetensors(readTensors(weights), dtype))
  const twins = openTwins(dir, clock)
  const { session, shaken } = twins
  const model = await openPerspective(dir)
  const context = model.createContext()
  const first = stateOf(model, context)
  context.restore(context.serialize(), { pulse: BigInt(clock), origin: BigInt(clock), chain: context.chain })
  const seen = { fired: 0, agreed: 0, hits: 0 }

  const looks = async (): Promise<void> => {
    const draw = session.draw(SEED)
    if (config.mpd === null) return
    await expectDraw(model, context, draw, SEED)
    seen.fired += draw.fired ? 1 : 0
    seen.agreed += draw.agreed ? 1 : 0
    seen.hits += draw.hdm?.hit ? 1 : 0
    const { generated, experts } = await drawAt(model, context, SEED)
    const next = session.fork().feed(generated[0]!)
    if (within(next.margins, LIMITS)) expect([...experts!]).toEqual(next.routes.flat())
  }
  const reads = async (count: number, evaluations: number): Promise<void> => {
    const sizes = { count, vocabulary: config.vocab_size, seed: seed + count, drawSeed: SEED, evaluations, accept }
    const { ids, adapt } = chooseSteady(twins, sizes)
    for (const id of ids) {
      const { nll, logits } = session.feed(id)
      shaken.feed(id)
      const nats = await feed(model, context, [id])
      if (nll !== null) expect(Math.abs(nats[0]! - nll)).toBeLessThan(1e-3)
      expect(farthest(await model.logits(context), logits)).toBeLessThan(1e-3)
      await looks()
    }
    expectState(stateOf(model, context), session.state(), first)
    if (adapt === null) return
    shaken.adapt(adapt.evaluations, adapt.seed)
    await adaptAs(model, context, adapt, session.adapt(adapt.evaluations, adapt.seed))
    expectState(stateOf(model, context), session.state(), first)
  }
  const evaluations = roundOf(config)
  await reads(4, 0)
  context.reset()
  resetTwins(twins)
  await reads(7, evaluations)
  await reads(Math.max(3, config.recent), evaluations)
  await reads(2, 0)
  model.close()
  return seen
}

const SETTINGS: readonly (readonly [name: string, change: Change])[] = [
  ['as it usually is', {}],
  ['two experts for a token', { experts: { top_k: 2, temperature: 0.05 } }],
  ['all experts for a token', { experts: { torus: [2, 2], top_k: 4, temperature: 0.1 } }],
  ['a torus of 3 by 5', { experts: { torus: [3, 5] } }],
  ['a torus of a single column', { experts: { torus: [1, 7] } }],
  ['groups of 64', { experts: { group_size: 64 } }],
  [
    'sizes that neither 5 nor a group nor a vector divides',
    {
      hidden_size: 42,
      num_attention_heads: 3,
      num_key_value_heads: 3,
      head_dim: 6,
      intermediate_size: 37,
      pdr: { width: 51, rank: 11 },
      experts: { intermediate_size: 73, group_size: 64 },
      fmea: { rank: 3 },
    },
  ],
  ['dense layers', { ffn_types: ['dense', 'experts', 'dense'], mpd: { layers: 3 } }],
  ['perspectives that pass dense layers alone', { ffn_types: ['experts', 'dense', 'dense'], mpd: { layers: 2 } }],
  ['recurrent layers alone', { layer_types: ['pdr', 'pdr'] }],
  ['one layer', { layer_types: ['pdr'], mpd: { layers: 1 } }],
  ['a plain write', { pdr: { write: 'plain', gamma_min: 0.3, gamma_max: 0.9 } }],
  ['a narrow range of decays', { pdr: { gamma_min: 0.4, gamma_max: 0.5 } }],
  ['one key, one channel', { pdr: { rank: 1, width: 1 } }],
  ['as many keys as channels', { pdr: { rank: 24, width: 24 } }],
  ['more keys than channels', { pdr: { rank: 40, width: 9 } }],
  ['a tied head', { tie_word_embeddings: true }],
  ['one key head for all query heads', { num_attention_heads: 5, num_key_value_heads: 1, head_dim: 4 }],
  ['a window of one token', { sliding_window: 1 }],
  ['a window that wraps', { sliding_window: 3 }],
  ['no projection', { spp: null }],
  ['a projection of one sweep', { spp: { half_spaces: 5, iterations: 1, inflation: -0.5 } }],
  ['a projection of many half-spaces', { spp: { half_spaces: 70, iterations: 30, inflation: 0 } }],
  ['no perspectives', { mpd: null }],
  ['no memory', { hdm: null }],
  ['no adapters', { fmea: null }],
  ['nothing but layers', { spp: null, mpd: null, hdm: null, fmea: null, recent: 0 }],
  ['perspectives without recent tokens', { hdm: null, fmea: null, recent: 0 }],
  ['recent tokens and nothing that uses them', { mpd: null, hdm: null, fmea: null }],
  ['adapters at all maps', { fmea: { targets: TARGETS, rank: 2, learning_rate: 0.0005 }, recent: 4 }],
  ['adapters at attention alone', { fmea: { targets: ['attn.v_proj', 'attn.q_proj'] } }],
  ['several directions and pairs', { fmea: { directions: 3, population: 4, rank: 1 }, recent: 3 }],
  ['a memory of one bank', { hdm: { banks: 1 } }],
  ['a memory of many banks', { hdm: { bits: 128, banks: 64, hit_max: 60 } }],
  ['perspectives that seldom agree', { mpd: { jsd: 0.001, max_p: 1 } }],
  ['perspectives that mostly agree', { mpd: { jsd: 0.69, max_p: 1 } }],
  ['perspectives of the last layer', { mpd: { layers: 1, max_p: 1 } }],
  ['a large ε of the norms', { rms_norm_eps: 0.3 }],
] as const

/** `.ci/run` takes a third of them, `npm run test:slow` all. */
const tagsOf = (at: number): string[] => (at % 3 === 0 ? [] : ['long'])

describe('the perspective family against an independent implementation in double precision', () => {
  for (const [at, [name, change]] of SETTINGS.entries())
    it(name, { tags: tagsOf(at) }, async () => {
      await agrees(change, name.length * 7919 + 5)
    })

  it.each<[string, Change]>([
    ['one expert', { experts: { torus: [1, 1] } }],
    ['no adapters, but offsets', { fmea: { targets: [] } }],
  ])('%s: what a stage cannot move, it does not accept', async (name, change) => {
    await agrees(change, name.length * 7919 + 5, { accept: 0 })
  })

  for (const [at, kind] of ALL.slice(1).entries())
    it(`the perspective ${kind}`, { tags: tagsOf(at) }, async () => {
      const mpd = {
        perspectives: ['base', kind] as const,
        max_p: 1,
        jsd: 0.02,
        jitter_std: 0.3,
        dropout: 0.2,
        layers: 3,
      }
      const { fired } = await agrees({ mpd, experts: { top_k: 2, temperature: 0.05 } }, 100 + kind.length)
      expect(fired).toBeGreaterThan(10)
    })
  it('all perspectives, one of them twice', async () => {
    const perspectives = [...ALL, 'jitter'] as const
    await agrees({ mpd: { perspectives, max_p: 1, jsd: 0.3, layers: 2 } }, 9)
  })
  it('what the memory recalls, where perspectives do not agree', async () => {
    const { hits } = await agrees({ mpd: { jsd: 0, max_p: 1 }, hdm: { hit_max: 127, write_nats: 0 } }, 10)
    expect(hits).toBeGreaterThan(2)
  })
  it('a session whose clock does not fit into 32 bits', async () => {
    const mpd = { perspectives: ['base', 'jitter', 'dropout', 'random'], max_p: 1 } as const
    await agrees({ mpd, sliding_window: 3, fmea: { targets: TARGETS } }, 12, { clock: 2 ** 45 + 2 ** 32 - 6 })
  })
  it.each<Dtype>(['BF16', 'F16'])('weights of %s', async (dtype) => {
    await agrees({ experts: { top_k: 2 }, ffn_types: ['experts', 'dense', 'experts'] }, 11, { dtype })
  })

  it('sees what a single wrong number in the equations would do', async () => {
    // The tolerances above are of use only if they tell neighbouring models apart.
    const base = { ...BASE, experts: { top_k: 2 }, sliding_window: 4, spp: { inflation: -0.2 } } as const
    const written = (change: Change): string =>
      writePerspective(join(temporaryFolder(), 'model'), perspectiveConfig({ ...base, ...change }), 31)
    const dir = written({})
    const { ids } = chooseSteady(openTwins(dir), { count: 9, vocabulary: 61, seed: 3, drawSeed: SEED, evaluations: 0 })
    const model = await openPerspective(dir)
    const context = model.createContext()
    await feed(model, context, ids)
    const logits = await model.logits(context)
    // A package of the same seed has the same tensors.
    const apart = (change: Change): number => {
      const session = openReference(written(change)).open()
      return farthest(logits, ids.map((id) => session.feed(id)).at(-1)!.logits)
    }
    expect(apart({})).toBeLessThan(1e-3)
    const changes: readonly Change[] = [
      { rms_norm_eps: 1e-3 },
      { sliding_window: 5 },
      { sliding_window: 3 },
      { rope_theta: 9000 },
      { pdr: { gamma_max: 0.99 } },
      { pdr: { gamma_min: 0.01 } },
      { pdr: { write: 'plain' } },
      { experts: { top_k: 1 } },
      { experts: { top_k: 2, temperature: 0.025 } },
      { spp: { inflation: -0.19 } },
      { spp: { inflation: -0.2, iterations: 1 } },
      { spp: null },
    ]
    for (const change of changes) expect([change, apart(change) > 1e-3]).toEqual([change, true])
  })
})
