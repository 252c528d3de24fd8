/**
 * The float64 reference against the shared model's expected values, and what no value there shows: tangents, packages,
 * clocks.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { temporaryFolder } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { random } from '../../engine/safetensors.ts'
import { type Adapted, evaluate, mapTheta } from './adapt.ts'
import { type PerspectiveConfig, TARGETS } from './config.ts'
import { together, wide } from './margins.ts'
import type { Draw } from './mpd.ts'
import {
  byteTokenizer,
  type Change,
  chooseIds,
  digestOf,
  LIMITS,
  perspectiveConfig,
  writePerspective,
} from './package.ts'
import { philox } from './philox.ts'
import { type Fed, openReference } from './reference.ts'
import { logSoftmax } from './rows.ts'
import { firstTheta, type StateTensor } from './state.ts'
import { numbersOf, readStored, type StoredTensors } from './tensors.ts'

interface Expected {
  readonly ids: readonly number[]
  readonly draw_seed: number
  readonly logits: readonly number[]
  readonly total_nll: number
  readonly nll: readonly (number | null)[]
  readonly routes: readonly unknown[]
  readonly draws: readonly {
    readonly fired: boolean
    readonly max_p: number
    readonly entropy: number
    readonly experts?: unknown
    readonly jsd?: number
    readonly jsd_all?: readonly number[]
    readonly agreed?: boolean
    readonly hdm?: unknown
    readonly weight?: number
  }[]
  readonly drawn: Readonly<Record<string, readonly number[]>>
  readonly adapts: readonly {
    readonly at: number
    readonly asked: number
    readonly seed: number
    readonly tokens: number
    readonly evaluations: number
    readonly stages: readonly Adapted['stages'][number][]
    readonly loss: number
    readonly nll: readonly number[]
    readonly binds: readonly (readonly [pulse: number, token: number, bank: number])[]
    readonly written: number
  }[]
  readonly margins: { readonly found: Readonly<Record<string, number>> }
}

/** Equal numbers to 1e-9 of what is wanted, and everything else alike. */
const expectClose = (got: unknown, wanted: unknown, at: string): void => {
  if (typeof got === 'number' && typeof wanted === 'number')
    expect(Math.abs(got - wanted), `${at}: ${got} for ${wanted}`).toBeLessThanOrEqual(1e-9 * Math.abs(wanted))
  else if (typeof wanted === 'object' && wanted !== null) {
    const [a, b] = [Object.entries(got as object), Object.entries(wanted)]
    expect(a.length, at).toBe(b.length)
    for (const [name, value] of b) expectClose((got as Record<string, unknown>)[name], value, `${at}.${name}`)
  } else expect(got, at).toBe(wanted)
}

describe.skipIf(!hasShared)('the shared model', () => {
  const dir = sharedModel('perspective-tiny')
  let expected: Expected
  let tensors: StoredTensors
  const fed: Fed[] = []
  const draws: Draw[] = []
  const adapted: Adapted[] = []
  const states = new Map<string, Map<string, StateTensor>>()
  beforeAll(() => {
    expected = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8')) as Expected
    tensors = readStored(join(dir, 'expected.safetensors'))
    const session = openReference(dir).open()
    for (const [i, id] of expected.ids.entries()) {
      for (const [j, { at, asked, seed }] of expected.adapts.entries()) {
        if (at !== i) continue
        adapted.push(session.adapt(asked, seed))
        states.set(`after-adapt-${j}.`, session.state())
      }
      fed.push(session.feed(id))
      draws.push(session.draw(expected.draw_seed))
    }
    states.set('', session.state())
  })

  test('is read as it should be', () => {
    expectClose(
      fed.map(({ nll }) => nll),
      expected.nll,
      'nll',
    )
    expectClose(
      fed.reduce((total, { nll }) => total + (nll ?? 0), 0),
      expected.total_nll,
      'total_nll',
    )
    expectClose([...fed.at(-1)!.logits], expected.logits, 'logits')
    expect(fed.slice(0, expected.routes.length).map(({ routes }) => routes)).toEqual(expected.routes)
  })

  test('finds what a draw finds', () => {
    const told = draws.map(({ fired, maxP, entropy, experts, jsd, jsds, agreed, hdm, weight }) => ({
      fired,
      max_p: maxP,
      entropy,
      ...(fired ? { experts, jsd, jsd_all: jsds, agreed, hdm } : {}),
      ...(weight === null ? {} : { weight }),
    }))
    // The file leaves out what was not computed; of the memory it does so where the perspectives agreed.
    const wanted = expected.draws.map((each) => (each.fired ? { ...each, hdm: each.hdm ?? null } : each))
    expectClose(told, wanted, 'draws')
    for (const [i, logits] of Object.entries(expected.drawn))
      expectClose([...draws[Number(i)]!.drawn], [...logSoftmax(Float64Array.from(logits))], `drawn.${i}`)
  })

  test('adapts', () => {
    const told = adapted.map(({ tokens, evaluations, stages, loss, nll, bound }) => ({
      tokens,
      evaluations,
      stages,
      loss: loss?.before,
      nll,
      binds: bound.map(({ pulse, token, bank }) => [pulse, token, bank]),
      written: bound.length,
    }))
    const wanted = expected.adapts.map(({ at: _, asked: __, seed: ___, ...each }) => each)
    expectClose(told, wanted, 'adapts')
  })

  test('leaves the state that it should', () => {
    for (const [name, stored] of tensors) {
      const prefix = /^after-adapt-\d+\./.exec(name)?.[0] ?? ''
      const { shape, dtype, data } = states.get(prefix)!.get(name.slice(prefix.length))!
      expect([dtype, shape], name).toEqual([stored.dtype, stored.shape])
      const same = dtype === 'F32' ? Array.from(data, Math.fround) : Array.from(data)
      expect(same, name).toEqual([...numbersOf(stored)])
    }
    expect([...states.get('')!.keys()].sort()).toEqual(
      [...tensors.keys()].filter((name) => !/^after/.test(name)).sort(),
    )
  })

  test('has the margins that its maker found', () => {
    const read = together([...fed, ...draws].map(({ margins }) => margins))
    const learned = together(adapted.map(({ margins }) => margins))
    const { found } = expected.margins
    for (const name of ['rounding', 'route', 'trigger', 'jsd'] as const)
      expect(read[name]).toBeCloseTo(found[name]!, 12)
    for (const name of ['write', 'accept'] as const) expect(learned[name]).toBeCloseTo(found[name]!, 12)
    for (const name of ['rounding', 'route'] as const) expect(learned[name]).toBeCloseTo(found[`adapt_${name}`]!, 12)
  })

  test('has the digest and the tokenizer that a package of ours would have', () => {
    const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8')) as PerspectiveConfig
    expect(digestOf(config, readStored(join(dir, 'experts.safetensors')))).toBe(config.experts.digest)
    expect(JSON.parse(readFileSync(join(dir, 'tokenizer.json'), 'utf8'))).toEqual(byteTokenizer())
  })
})

const written = (change: Change, seed = 3): string =>
  writePerspective(join(temporaryFolder(), 'model'), perspectiveConfig(change), seed)

/** Sizes that neither 5 nor a group divides, and what the shared model does not have. */
const OTHER: Change = {
  hidden_size: 96,
  num_attention_heads: 6,
  layer_types: ['gqa', 'pdr', 'pdr', 'gqa'],
  ffn_types: ['experts', 'dense', 'experts', 'experts'],
  tie_word_embeddings: true,
  sliding_window: 4,
  recent: 6,
  pdr: { width: 80, rank: 8, write: 'plain', gamma_min: 0.1, gamma_max: 0.95 },
  experts: { torus: [3, 4], top_k: 2, group_size: 64, intermediate_size: 80, temperature: 0.05 },
  mpd: {
    layers: 4,
    perspectives: ['base', 'jitter', 'dropout', 'second', 'antipode', 'random'],
    max_p: 1,
    jitter_std: 0,
    dropout: 0,
  },
  fmea: { targets: TARGETS, rank: 3 },
}

describe('Philox', () => {
  test('gives the words that its authors publish', () => {
    const ones = 0xffffffff
    expect(philox([0, 0, 0, 0], [0, 0])).toEqual([0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8])
    expect(philox([ones, ones, ones, ones], [ones, ones])).toEqual([0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd])
  })
})

describe('tangents', () => {
  test.each([
    ['convex', {} as Change],
    ['plain, two experts, a dense layer', OTHER],
  ])('are central differences without rounding: %s', (_, change) => {
    // A weight that depends on the route counts as a constant: at this temperature it is one.
    const experts = { ...change.experts, temperature: 1e15 }
    const { model } = openReference(written({ ...change, experts, fmea: { ...OTHER.fmea } }), { rounding: false })
    const next = random(5)
    const theta = mapTheta(firstTheta(model), (value) => value + 0.1 * (next() - 0.5))
    const offsets = Float64Array.from({ length: 2 * model.config.experts.count }, () => 0.1 * (next() - 0.5))
    const ids = [7, 99, 200, 7, 31, 150, 2]
    // One direction for each table, so that no term hides behind another.
    for (const target of TARGETS) {
      for (const which of ['A', 'B'] as const) {
        const zero = mapTheta(theta, () => 0)
        const signs = zero
          .get(target)!
          .map((pair) => ({ ...pair, [which]: pair[which].map(() => (next() < 0.5 ? -1 : 1)) }))
        const along = new Map(zero).set(target, signs)
        const { slopes } = evaluate(model, { theta, offsets, along: [along] }, ids, wide())
        const moved = (h: number): number => {
          const pairs = theta.get(target)!.map(({ A, B }, place) => ({
            A: A.map((value, i) => value + h * signs[place]!.A[i]!),
            B: B.map((value, i) => value + h * signs[place]!.B[i]!),
          }))
          return evaluate(model, { theta: new Map(theta).set(target, pairs), offsets }, ids, wide()).loss
        }
        const h = 1e-5
        const difference = (8 * (moved(h) - moved(-h)) - (moved(2 * h) - moved(-2 * h))) / (12 * h)
        expect(Math.abs(slopes[0]!), `${target}.${which}`).toBeGreaterThan(1e-4)
        expect(Math.abs(slopes[0]! - difference), `${target}.${which}`).toBeLessThan(1e-8 + 1e-8 * Math.abs(difference))
      }
    }
  })
})

describe('the reference', () => {
  test('finds in a perspective that changes nothing what it finds in base', () => {
    const session = openReference(written(OTHER)).open()
    for (const id of [5, 80, 33, 12, 250, 9]) {
      session.feed(id)
      const { perspectives, jsds, experts } = session.draw(1)
      const [base, jitter, dropout, second] = perspectives!
      expect(jitter).toEqual(base)
      expect(dropout).toEqual(base)
      expect(second).not.toEqual(base)
      expect(jsds).toHaveLength(15)
      // `second` begins where the token's own first layer had its rank 1.
      expect(experts![3]![0]![0]).toBe(experts![1]![0]![1])
    }
  })

  test('evaluates a window that begins with the session as the session read it', () => {
    const session = openReference(written(OTHER)).open(2 ** 33)
    const nll = [5, 80, 33, 12, 250].map((id) => session.feed(id).nll)
    const { tokens, evaluations, nll: again } = session.adapt(3)
    expect([tokens, evaluations]).toEqual([5, 1])
    expectClose(again, nll.slice(1), 'nll')
  })

  test('reads at any clock as at the first, and begins anew at the present one', () => {
    const reference = openReference(written(OTHER))
    const ids = [5, 80, 33, 12, 250, 9, 14]
    const [near, far] = [reference.open(), reference.open(2 ** 45)]
    const nll = ids.map((id) => near.feed(id).nll)
    expectClose(
      ids.map((id) => far.feed(id).nll),
      nll,
      'nll',
    )
    far.adapt(12)
    far.reset()
    expect(far.clock()).toBe(2 ** 45 + ids.length)
    expect(far.state()).toEqual(reference.open().state())
    expectClose(
      ids.map((id) => far.feed(id).nll),
      nll,
      'nll',
    )
  })
})

describe('packages', () => {
  test('are the same for the same seed, and have inputs whose decisions are far from ties', () => {
    const dir = written({ spp: null, fmea: null })
    const again = written({ spp: null, fmea: null })
    for (const file of ['config.json', 'model.safetensors', 'experts.safetensors'])
      expect(readFileSync(join(dir, file)).equals(readFileSync(join(again, file))), file).toBe(true)
    const { open, config } = openReference(dir)
    const ids = chooseIds(open(), 6, config.vocab_size, { draw: 4 })
    const session = open()
    for (const id of ids) {
      const { rounding, route } = session.feed(id).margins
      expect(rounding).toBeGreaterThanOrEqual(LIMITS.rounding)
      expect(route).toBeGreaterThanOrEqual(LIMITS.route)
    }
    expect([...session.state().keys()]).not.toContain('router.offset')
  })
})
