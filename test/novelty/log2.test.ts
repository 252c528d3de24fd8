import { expect, test } from 'vitest'
import { log2 } from '../../src/novelty/log2.ts'

test('a logarithm by sums, products and divisions is within rounding of the one by the machine', () => {
  for (const x of [1e-9, 0.1, 0.75, 0.999, 1, 1.5, 2, 3, 10, 1023, 1e6, 999_999_999_999_999])
    expect(Math.abs(log2(x) - Math.log2(x))).toBeLessThanOrEqual(1e-15 * Math.max(1, Math.abs(Math.log2(x))))
  for (let power = 0; power < 50; power += 1) expect(log2(2 ** power)).toBe(power)
})
