/**
 * What the retentions of a Titans memory promise, over thousands of tokens (docs/titans.md, "What is bounded").
 *
 * @module-tag slow
 */
import { describe, expect, it } from 'vitest'
import type { EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import { feed, open } from '../../engine/helpers.ts'
import type { Tensors } from '../../engine/packages.ts'
import { randomTitans, someTokens, type TitansChange, titansConfig, writeTitans } from './titans-packages.ts'
import type { TitansPackageConfig } from './titans-reference.ts'
import { normsOf, tableOf } from './titans-state.ts'

const TOKENS = 3000
const SLACK = 1 + 1e-4

/** Feeds `TOKENS` random tokens, with long runs of one token among them, and calls `look` after each piece. */
const long = async (model: Model, look: (context: EngineContext, fed: number) => void): Promise<void> => {
  const context = model.createContext()
  look(context, 0)
  const random = someTokens(9, TOKENS, model.vocabSize)
  const tokens = random.map((token, i) => (i % 600 < 300 ? token : random[Math.floor(i / 600)]!))
  for (let at = 0; at < TOKENS; at += 7) {
    await feed(model, context, tokens.slice(at, at + 7), false)
    look(context, Math.min(TOKENS, at + 7))
  }
}

/** V of each head of a layer: what ‖v‖ cannot pass, from the weights alone. */
const valueBounds = (config: TitansPackageConfig, tensors: Tensors, layer: number): readonly number[] => {
  const { hidden_size: D, memory, composition } = config
  const { heads, head_dim: N, conv_width: W } = memory
  const at = `model.layers.${layer}`
  const data = (name: string): Float32Array => tensors.get(`${at}.${name}`)!.data
  const gain = data(composition === 'mac' ? 'memory.write_norm.weight' : 'input_layernorm.weight')
  const [proj, taps] = [data('memory.v_proj.weight'), data('memory.v_conv.weight')]
  const channel = (c: number): number => {
    const row = proj.subarray(c * D, (c + 1) * D).map((x, i) => x * gain[i]!)
    return (
      taps.subarray(c * W, (c + 1) * W).reduce((sum, x) => sum + Math.abs(x), 0) * Math.sqrt(D) * Math.hypot(...row)
    )
  }
  return Array.from({ length: heads }, (_, h) =>
    Math.hypot(...Array.from({ length: N }, (__, c) => channel(h * N + c))),
  )
}

const opened = async (change: TitansChange) => {
  const config = titansConfig(change)
  const tensors = randomTitans(17, config)
  const model = await open(writeTitans(config, tensors))
  const { levels } = config.memory
  const bounds = [0, 1].map((layer) => valueBounds(config, tensors, layer))
  return { model, levels, bounds, norms: (context: EngineContext) => normsOf(model, context, levels) }
}

describe('a Titans memory stays within what its retention promises', () => {
  it.each(['mag', 'mal', 'mac'] as const)('sphere: the norm is the radius throughout (%s)', async (composition) => {
    const { model, norms } = await opened({ composition, memory: { retention: 'sphere', sphere_radius: 1.5 } })
    await long(model, (context) => {
      for (const norm of norms(context).M.flat(2)) expect(Math.abs(norm - 1.5)).toBeLessThan(1.5e-4)
    })
  })

  it.each(['titans', 'delta', 'hebbian'] as const)('kl: rows stay on the simplex (%s)', async (rule) => {
    const { model, norms } = await opened({ memory: { rule, retention: 'kl', theta_max: 8 } })
    const N = 5
    await long(model, (context) => {
      for (const norm of norms(context).M.flat(2)) {
        expect(norm).toBeGreaterThan(1 / SLACK)
        expect(norm).toBeLessThan(Math.sqrt(N) * SLACK)
      }
      // M lies [key][value]: a row of the equations is a column here.
      const { data } = tableOf(model, context.serialize(), 'memory.M')!
      let farthest = 0
      for (let matrix = 0; matrix < data.length; matrix += N * N) {
        for (let a = 0; a < N; a += 1) {
          const row = Array.from({ length: N }, (_, b) => data[matrix + b * N + a]!)
          farthest = Math.max(farthest, Math.abs(row.reduce((sum, x) => sum + x, 0) - 1), -Math.min(...row))
        }
      }
      expect(farthest).toBeLessThan(1e-6)
    })
  })

  it.each([
    ['titans', 'l2'],
    ['titans', 'none'],
    ['hebbian', 'none'],
    ['delta', 'elastic'],
  ] as const)('norm_max: neither memory nor momentum passes its bound (%s, %s)', async (rule, retention) => {
    const R = 2
    const { model, norms, bounds } = await opened({ memory: { rule, retention, norm_max: R, alpha_min: 0 } })
    let most = 0
    await long(model, (context, fed) => {
      const { M, S } = norms(context)
      for (const [layer, heads] of bounds.entries()) {
        for (const level of M[layer]!.keys()) {
          for (const [head, V] of heads.entries()) {
            if (fed > 0) expect(M[layer]![level]![head]).toBeLessThan(R * SLACK)
            expect(S[layer]![level]![head]).toBeLessThan((R + V) * SLACK)
            most = Math.max(most, M[layer]![level]![head]!)
          }
        }
      }
    })
    // The cap was reached, so it was needed.
    expect(most).toBeGreaterThan(R / SLACK)
  })

  const half = { alpha_min: 0.4, alpha_max: 0.6, theta_max: 1 }
  it.each([
    ['delta', 'l2', 0.4, half],
    ['hebbian', 'l2', 0.4, half],
    ['delta', 'elastic', 0.32, { ...half, elastic_l1: 0.01, elastic_l2: 0.8 }],
    ['hebbian', 'elastic', 0.32, { ...half, elastic_l1: 0.01, elastic_l2: 0.8 }],
  ] as const)('%s with %s: the bound from the weights holds', async (rule, retention, alpha, more) => {
    const { model, norms, bounds } = await opened({ memory: { rule, retention, ...more } })
    let first: readonly (readonly (readonly number[])[])[] = []
    await long(model, (context, fed) => {
      const { M } = norms(context)
      if (fed === 0) first = M
      for (const [layer, levels] of M.entries()) {
        for (const [level, heads] of levels.entries()) {
          for (const [head, norm] of heads.entries())
            expect(norm).toBeLessThan(Math.max(first[layer]![level]![head]!, bounds[layer]![head]! / alpha) * SLACK)
        }
      }
    })
  })

  it('without any, the same stream takes a hebbian memory past that bound', async () => {
    const { model, norms, bounds } = await opened({ memory: { rule: 'hebbian', retention: 'none', theta_max: 1 } })
    const most = { early: 0, late: 0 }
    let passed = false
    await long(model, (context, fed) => {
      const { M } = norms(context)
      const largest = Math.max(...M.flat(2))
      if (fed <= 301) most.early = largest
      most.late = largest
      passed ||= M.some((levels, layer) =>
        levels.some((heads) => heads.some((norm, h) => norm > bounds[layer]![h]! / 0.4)),
      )
    })
    expect(passed).toBe(true)
    expect(most.late).toBeGreaterThan(5 * most.early)
  })
})
