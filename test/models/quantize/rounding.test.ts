import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { F16_INFINITY, F16_VALUES } from '../../../src/models/quantize/floats.ts'
import { TARGETS } from '../../../src/models/quantize/quantizers.ts'
import { type Rounding, rounderOf, searchScale, upperFactor } from '../../../src/models/quantize/rounding.ts'
import { random } from '../../engine/packages.ts'

const GROUP = 32

/** Inputs that depend on each other, as those of a model do: mixtures of few numbers, and a little of their own. */
const inputsOf = (K: number, rows: number, seed: number): Float32Array[] => {
  const next = random(seed)
  const mixes = Array.from({ length: 6 }, () => Float32Array.from({ length: K }, () => next() - 0.5))
  return Array.from({ length: rows }, () => {
    const parts = mixes.map(() => 4 * (next() - 0.5))
    return Float32Array.from({ length: K }, (_, k) =>
      mixes.reduce((sum, mix, i) => sum + mix[k]! * parts[i]!, 0.3 * (next() - 0.5)),
    )
  })
}

const momentsOf = (inputs: readonly Float32Array[], K: number): Float32Array => {
  const sum = new Float64Array(K * K)
  for (const x of inputs) for (let i = 0; i < K; i += 1) for (let j = 0; j < K; j += 1) sum[i * K + j]! += x[i]! * x[j]!
  return Float32Array.from(sum)
}

interface Rounded {
  readonly codes: Int8Array
  readonly scales: Uint16Array
  readonly weights: Float64Array
}

const roundRow = async (w: Float32Array, rounding: Rounding, moments: Float32Array | null): Promise<Rounded> => {
  const K = w.length
  const round = await rounderOf(TARGETS.i4, GROUP, K, rounding, moments)
  const codes = new Int8Array(K).fill(99)
  const scales = new Uint16Array(Math.ceil(K / GROUP))
  expect(round(Float32Array.from([7, ...w, -7]), 1, codes, scales)).toBe(-1)
  const weights = Float64Array.from({ length: K }, (_, k) => codes[k]! * F16_VALUES[scales[Math.floor(k / GROUP)]!]!)
  return { codes, scales, weights }
}

/** Σ over the inputs of the square of what rounding did to the output. */
const damage = (inputs: readonly Float32Array[], w: Float32Array, rounded: Rounded): number =>
  inputs.reduce((sum, x) => {
    const off = x.reduce((all, value, k) => all + value * (w[k]! - rounded.weights[k]!), 0)
    return sum + off * off
  }, 0)

const row = (K: number, seed: number): Float32Array => {
  const next = random(seed)
  return Float32Array.from({ length: K }, () => (next() + next() + next() - 1.5) * 0.1)
}

describe('the scale of a group', () => {
  const numbers = fc.array(
    fc.float({ min: -1, max: 1, noNaN: true }).filter((value) => value === 0 || Math.abs(value) > 1e-3),
    { minLength: 1, maxLength: GROUP },
  )
  const weights = fc.array(fc.double({ min: 0, max: 9, noNaN: true }), { minLength: GROUP, maxLength: GROUP })

  it('is never worse than that of the nearest rule, for any weights of the numbers', () => {
    fc.assert(
      fc.property(numbers, weights, (values, h) => {
        const t = Float64Array.from(values)
        const errorOf = (scale: number): number =>
          t.reduce((sum, value, k) => {
            const code = scale === 0 ? 0 : Math.max(-8, Math.min(7, Math.round(value / scale)))
            return sum + h[k]! * (value - code * scale) ** 2
          }, 0)
        const bits = searchScale(t, Float64Array.from(h), t.length)
        const nearest = TARGETS.i4.group(Float32Array.from(t), 0, 0, t.length, new Int8Array(t.length))
        expect(errorOf(F16_VALUES[bits]!)).toBeLessThanOrEqual(errorOf(F16_VALUES[nearest]!) * (1 + 1e-9))
      }),
      { numRuns: 300 },
    )
  })

  it('is 0 for zeros, and infinite where F16 has none', () => {
    const h = new Float64Array(4).fill(1)
    expect(searchScale(new Float64Array(4), h, 4)).toBe(0)
    expect(searchScale(Float64Array.of(1, 2, 1e6, 3), h, 4)).toBe(F16_INFINITY)
  })

  it('minds the numbers that weigh most', () => {
    // Alone the last number would have the largest code; those before it want a scale of 0.01.
    const t = Float64Array.of(0.01, -0.02, 0.03, 0.04, -0.05, 0.06, 0.083)
    const h = Float64Array.of(9, 9, 9, 9, 9, 9, 0)
    expect(Math.abs(F16_VALUES[searchScale(t, h, 7)]!)).toBeCloseTo(0.01, 4)
  })
})

describe('the factor of the moments', () => {
  it.each([1, 7, 33, 96])('of %i inputs multiplies back to them', async (K) => {
    const moments = Float64Array.from(momentsOf(inputsOf(K, 2 * K + 9, 3), K))
    for (let k = 0; k < K; k += 1) moments[k * K + k]! += 0.5
    const R = moments.slice()
    expect(await upperFactor(R, K)).toBe(true)
    for (let i = 0; i < K; i += 1) {
      for (let j = i; j < K; j += 1) {
        let sum = 0
        for (let k = j; k < K; k += 1) sum += R[i * K + k]! * R[j * K + k]!
        expect(Math.abs(sum - moments[i * K + j]!)).toBeLessThan(1e-9 * (1 + Math.abs(moments[i * K + j]!)))
      }
    }
  })

  it('is none of what is not positive definite', async () => {
    expect(await upperFactor(Float64Array.of(1, 2, 2, 1), 2)).toBe(false)
  })
})

describe('a compensated row', () => {
  const K = 100 // the last group is shorter
  const inputs = inputsOf(K, 400, 11)
  const moments = momentsOf(inputs, K)

  it('has the codes of GPTQ as its paper states it, with the inverse of the moments', async () => {
    const w = row(K, 12)
    const { codes, scales } = await roundRow(w, 'compensated', moments)
    // The inverse by Gauss and Jordan, of the moments with 1 % of their mean diagonal added.
    const mean = Array.from({ length: K }, (_, k) => moments[k * K + k]! / K).reduce((a, b) => a + b)
    const left = Array.from({ length: K }, (_, i) =>
      Float64Array.from({ length: 2 * K }, (_, j) =>
        j < K ? moments[i * K + j]! + (i === j ? 0.01 * mean : 0) : j - K === i ? 1 : 0,
      ),
    )
    for (let p = 0; p < K; p += 1) {
      const by = left[p]![p]!
      for (let j = 0; j < 2 * K; j += 1) left[p]![j]! /= by
      for (let i = 0; i < K; i += 1) {
        const factor = left[i]![p]!
        if (i !== p) for (let j = 0; j < 2 * K; j += 1) left[i]![j]! -= factor * left[p]![j]!
      }
    }
    const inverse = left.map((each) => each.slice(K))
    const rest = Float64Array.from(w)
    const wanted: number[] = []
    for (let k = 0; k < K; k += 1) {
      const scale = F16_VALUES[scales[Math.floor(k / GROUP)]!]!
      const code = Math.max(-8, Math.min(7, Math.round(rest[k]! / scale)))
      wanted.push(code)
      const error = (rest[k]! - code * scale) / inverse[k]![k]!
      for (let j = k + 1; j < K; j += 1) rest[j]! -= error * inverse[k]![j]!
      for (let i = k + 1; i < K; i += 1)
        for (let j = k + 1; j < K; j += 1) inverse[i]![j]! -= (inverse[i]![k]! * inverse[k]![j]!) / inverse[k]![k]!
    }
    expect([...codes].map((code) => code + 0)).toEqual(wanted.map((code) => code + 0))
  })

  it('harms outputs less than importance, and that less than the nearest rule, also for inputs that were not measured', async () => {
    const others = inputsOf(K, 300, 11).slice(100)
    const sums = { nearest: 0, importance: 0, compensated: 0 }
    for (let seed = 20; seed < 60; seed += 1) {
      const w = row(K, seed)
      for (const rounding of ['nearest', 'importance', 'compensated'] as const)
        sums[rounding] += damage(others, w, await roundRow(w, rounding, moments))
    }
    expect(sums.importance).toBeLessThan(sums.nearest)
    expect(sums.compensated).toBeLessThan(0.5 * sums.importance)
  })

  it('is a searched one where nothing was measured, or no input ever moved', async () => {
    const w = row(K, 70)
    const searched = await roundRow(w, 'search', null)
    for (const rounding of ['importance', 'compensated'] as const)
      for (const none of [null, new Float32Array(K * K)]) expect(await roundRow(w, rounding, none)).toEqual(searched)
  })

  it('says which group needs a scale that F16 does not have', async () => {
    const round = await rounderOf(TARGETS.i4, GROUP, K, 'compensated', moments)
    const w = row(K, 71)
    w[40] = 1e6
    expect(round(w, 0, new Int8Array(K), new Uint16Array(4))).toBe(1)
  })
})
