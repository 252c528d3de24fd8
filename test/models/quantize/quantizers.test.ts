import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { F16_INFINITY, F16_VALUES, nearestF16 } from '../../../src/models/quantize/floats.ts'
import { packTrits, quantizeRow, TARGETS } from '../../../src/models/quantize/quantizers.ts'
import { half } from './quantized.ts'

// The reference: plain double arithmetic over arrays, F16 by searching the list of all of them.

const HALVES = Array.from({ length: 0x7c00 }, (_, bits) => half(bits))
const LARGEST = 65504

const referenceF16 = (x: number): number => {
  if (x >= 65520) return Infinity
  let low = 0
  let high = HALVES.length - 1
  while (low < high) {
    const middle = Math.ceil((low + high) / 2)
    if (HALVES[middle]! <= x) low = middle
    else high = middle - 1
  }
  const [below, above = Infinity] = [HALVES[low]!, HALVES[low + 1]]
  if (x - below < above - x) return below
  if (x - below > above - x) return above
  return low % 2 === 0 ? below : above
}

const referenceRound = (x: number): number => {
  const floor = Math.floor(x)
  const rest = x - floor
  if (rest === 0.5) return floor % 2 === 0 ? floor : floor + 1
  return rest < 0.5 ? floor : floor + 1
}

const clamp = (x: number, most: number): number => Math.max(-most, Math.min(most, x)) + 0

interface Group {
  readonly scale: number
  readonly codes: readonly number[]
}

const referenceQ8 = (w: readonly number[]): Group => {
  const most = Math.max(...w.map(Math.abs))
  let scale = Math.min(referenceF16(most / 127), LARGEST)
  if (most / scale > 127.5) scale = HALVES[HALVES.indexOf(scale) + 1] ?? Infinity
  const codes = w.map((value) => (scale === 0 || scale === Infinity ? 0 : clamp(referenceRound(value / scale), 127)))
  return { scale, codes }
}

const referenceTernary = (w: readonly number[]): Group => {
  const scale = referenceF16(w.reduce((sum, value) => sum + Math.abs(value), 0) / w.length)
  const codes = w.map((value) => (scale === 0 || scale === Infinity ? 0 : clamp(referenceRound(value / scale), 1)))
  const used = codes.filter((code) => code !== 0).length
  if (used === 0) return { scale, codes }
  return { scale: referenceF16(w.reduce((sum, value, k) => sum + value * codes[k]!, 0) / used), codes }
}

const referenceI4 = (w: readonly number[]): Group => {
  const most = w.find((value) => Math.abs(value) === Math.max(...w.map(Math.abs)))!
  const [size, sign] = [Math.abs(most), most > 0 ? -1 : 1]
  let scale = Math.min(referenceF16(size / 8), LARGEST)
  if (size / scale > 8.5) scale = HALVES[HALVES.indexOf(scale) + 1] ?? Infinity
  if (scale === 0 || scale === Infinity) return { scale, codes: w.map(() => 0) }
  const codes = w.map((value) => Math.max(-8, Math.min(7, referenceRound(value / (sign * scale)))) + 0)
  return { scale: sign * scale, codes }
}

const REFERENCES = { q8: referenceQ8, i4: referenceI4, ternary: referenceTernary }

const quantise = (to: keyof typeof TARGETS, group: number, w: readonly number[]) => {
  const codes = new Int8Array(w.length).fill(99)
  const scales = new Uint16Array(Math.ceil(w.length / group))
  // The row stands inside a larger piece.
  const bad = quantizeRow(TARGETS[to], group, Float32Array.from([7, ...w, -7]), 1, codes, scales)
  return { codes: [...codes], scales: [...scales].map((bits) => (bits === F16_INFINITY ? Infinity : half(bits))), bad }
}

const float32 = (max: number) => fc.float({ min: -Math.fround(max), max: Math.fround(max), noNaN: true })
/**
 * Weights as models have them, and as they do not: zeros, F16's subnormals and below, near its end, and all of that
 * mixed.
 */
const weight = fc.oneof(
  { weight: 6, arbitrary: float32(0.5) },
  { weight: 2, arbitrary: fc.constantFrom(0, -0, 1, -1, 0.5, 1.5, 127, -127, 63.5) },
  { weight: 1, arbitrary: float32(2 ** -20) },
  { weight: 1, arbitrary: float32(2 ** -30) },
)
const row = (size: { minLength: number; maxLength: number }, most = 8_000_000) =>
  fc.oneof(
    fc.array(weight, size),
    fc.array(float32(2 ** -14), size),
    fc.array(float32(2 ** -22), size),
    fc.array(fc.constantFrom(0, -0), size),
    fc.array(float32(most), size),
  )
const sizes = { minLength: 1, maxLength: 150 }
const group = fc.constantFrom(32 as const, 64 as const)

describe('F16', () => {
  it('reads every bit pattern back as the number it is, and finds the pattern of every number', {
    tags: 'slow',
  }, () => {
    for (const [bits, value] of HALVES.entries()) {
      expect(F16_VALUES[bits]).toBe(value)
      expect(nearestF16(value)).toBe(bits)
    }
    expect([F16_VALUES[0x7c00], F16_VALUES[0xfc00]]).toEqual([Infinity, -Infinity])
    expect(F16_VALUES[0x7e00]).toBeNaN()
  })

  it('rounds to the nearest, to the even one half way', () => {
    const patternOf = (x: number): number => (x === Infinity ? F16_INFINITY : HALVES.indexOf(x))
    const anything = fc.oneof(
      fc.double({ min: 0, max: 70_000, noNaN: true }),
      fc.double({ min: 0, max: 2 ** -13, noNaN: true }),
      fc.nat(HALVES.length - 2).map((at) => (HALVES[at]! + HALVES[at + 1]!) / 2),
      fc.constantFrom(65504, 65519.99999, 65520, 1e300, 2 ** -14, 2 ** -25, 2 ** -26),
    )
    fc.assert(
      fc.property(anything, (x) => {
        expect(nearestF16(x)).toBe(patternOf(referenceF16(x)))
      }),
      { numRuns: 2000 },
    )
  })
})

describe.each(['q8', 'i4', 'ternary'] as const)('%s', (to) => {
  it('gives the codes and scales of the reference', () => {
    fc.assert(
      fc.property(row(sizes), group, (w, size) => {
        const { codes, scales, bad } = quantise(to, size, w)
        for (let g = 0; g < scales.length; g++) {
          const want = REFERENCES[to](w.slice(g * size, (g + 1) * size))
          expect({ scale: scales[g], codes: codes.slice(g * size, (g + 1) * size) }).toEqual(want)
        }
        expect(bad).toBe(scales.indexOf(Infinity))
      }),
      { numRuns: 1000 },
    )
  })

  it('gives a group of zeros scale 0 and codes 0', () => {
    const w = [...new Array(32).fill(-0), ...new Array(32).fill(1), ...new Array(5).fill(0)]
    const { codes, scales } = quantise(to, 32, w)
    expect([scales[0], scales[2]]).toEqual([0, 0])
    expect(Math.abs(scales[1]!)).toBeGreaterThan(0)
    expect([...codes.slice(0, 32), ...codes.slice(64)].every((code) => code === 0)).toBe(true)
  })

  it('names the first group whose scale F16 does not have', () => {
    const w = new Array(96).fill(1)
    expect(quantise(to, 32, w).bad).toBe(-1)
    w.fill(9e6, 40)
    expect(quantise(to, 32, w).bad).toBe(1)
  })
})

describe('i4', () => {
  it('has the code −8 for the largest weight, and is off by a scale at most, by half of one but at the other end', () => {
    fc.assert(
      fc.property(row(sizes), group, (w, size) => {
        const { codes, scales } = quantise('i4', size, w)
        for (const [k, value] of w.entries()) {
          const scale = scales[Math.floor(k / size)]!
          if (scale === 0 || scale === Infinity) continue
          const off = Math.abs(value - codes[k]! * scale)
          expect(off).toBeLessThanOrEqual(Math.abs(scale) * (codes[k] === 7 ? 1.5 : 0.5))
        }
      }),
    )
  })

  it('stores two codes a byte, the first in the low bits', () => {
    const bytes = new Uint8Array(3).fill(1)
    TARGETS.i4.store(Int8Array.of(-8, 7, 0, -1, 3), bytes, 0)
    expect([...bytes]).toEqual([0xf0, 0x78, 0x8b])
    expect(TARGETS.i4.rowBytes(5)).toBe(3)
  })
})

describe('q8', () => {
  it('is off by half a scale at most, whatever the weights', () => {
    fc.assert(
      fc.property(row(sizes), group, (w, size) => {
        const { codes, scales } = quantise('q8', size, w)
        for (const [k, value] of w.entries()) {
          const scale = scales[Math.floor(k / size)]!
          expect(Math.abs(value - codes[k]! * scale)).toBeLessThanOrEqual(scale / 2)
        }
      }),
    )
  })

  it('takes the next scale where the nearest would cut the largest weight off', () => {
    // 1.4 · 2^-24 is nearer to 2^-24, of which the largest weight would be 177.8.
    expect(quantise('q8', 32, [127 * 1.4 * 2 ** -24])).toMatchObject({ codes: [89], scales: [2 * 2 ** -24] })
    expect(quantise('q8', 32, [2 ** -40])).toMatchObject({ codes: [0], scales: [2 ** -24] })
    // Above 127 · 65504, but within half a step of it; then beyond.
    expect(quantise('q8', 32, [127.5 * 65504])).toMatchObject({ codes: [127], scales: [65504], bad: -1 })
    expect(quantise('q8', 32, [127.5 * 65504 + 1])).toMatchObject({ bad: 0 })
  })

  it('rounds half way to the even code', () => {
    // The largest weight makes the scale 1.
    expect(quantise('q8', 32, [127, 0.5, 1.5, 2.5, -0.5, -1.5, -2.5]).codes).toEqual([127, 0, 2, 2, 0, -2, -2])
  })
})

describe('ternary', () => {
  it('has the scale with the least squared error among those next to it', () => {
    fc.assert(
      fc.property(row(sizes, 60_000), group, (w, size) => {
        const { codes, scales } = quantise('ternary', size, w)
        for (const [g, scale] of scales.entries()) {
          const part = w.slice(g * size, (g + 1) * size)
          const own = codes.slice(g * size, (g + 1) * size)
          if (own.every((code) => code === 0)) continue
          const error = (s: number): number => part.reduce((sum, value, k) => sum + (value - own[k]! * s) ** 2, 0)
          const at = HALVES.indexOf(scale)
          for (const other of [HALVES[at - 1], HALVES[at + 1]]) {
            if (other !== undefined) expect(error(scale)).toBeLessThanOrEqual(error(other) * (1 + 1e-12))
          }
        }
      }),
    )
  })

  it('keeps ternary weights as they are', () => {
    const w = Array.from({ length: 40 }, (_, k) => ((k % 3) - 1) * 0.25)
    const { codes, scales } = quantise('ternary', 32, w)
    expect(codes.map((code, k) => code * scales[Math.floor(k / 32)]! + 0)).toEqual(w.map((value) => value + 0))
  })

  it('packs five codes a byte, which unpack to the same', () => {
    fc.assert(
      fc.property(fc.array(fc.constantFrom(-1, 0, 1), { minLength: 1, maxLength: 40 }), fc.nat(3), (codes, at) => {
        const length = Math.ceil(codes.length / 5)
        const bytes = new Uint8Array(at + length + 1).fill(255)
        packTrits(Int8Array.from(codes), bytes, at)
        const digits = [...bytes.subarray(at, at + length)].flatMap((byte) =>
          [...byte.toString(3).padStart(5, '0')].toReversed().map((digit) => Number(digit) - 1),
        )
        expect(digits.slice(0, codes.length)).toEqual(codes)
        expect(digits.slice(codes.length).every((digit) => digit === 0)).toBe(true)
        expect([...bytes.subarray(0, at), bytes.at(-1)]).toEqual(new Array(at + 1).fill(255))
      }),
    )
    const bytes = new Uint8Array(1)
    packTrits(Int8Array.from([-1, 0, 1, 1]), bytes, 0)
    expect(bytes[0]).toBe(0 + 1 * 3 + 2 * 9 + 2 * 27 + 1 * 81)
  })
})
