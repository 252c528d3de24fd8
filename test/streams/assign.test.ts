import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { assign, type Holder } from '../../src/streams/assign.ts'

/** Any group, holding disjoint partitions or, after a mishap, overlapping and missing ones. */
const groups = fc
  .record({
    partitions: fc.integer({ min: 1, max: 24 }),
    held: fc.array(fc.uniqueArray(fc.integer({ min: 0, max: 30 }), { maxLength: 24 }), { minLength: 1, maxLength: 8 }),
  })
  .map(({ partitions, held }) => ({
    partitions,
    holders: held.map((list, i): Holder => ({ member: `m${i}`, partitions: list })),
  }))

const holdersOf = (shares: Map<string, number[]>): Holder[] =>
  [...shares].map(([member, partitions]) => ({ member, partitions }))

describe('assign', () => {
  test('gives every partition one holder, and nobody more than one above another', () => {
    fc.assert(
      fc.property(groups, ({ partitions, holders }) => {
        const shares = assign(partitions, holders)
        expect([...shares.keys()]).toEqual(holders.map(({ member }) => member))
        expect([...shares.values()].flat().sort((a, b) => a - b)).toEqual([...Array(partitions).keys()])
        const sizes = [...shares.values()].map((list) => list.length)
        expect(Math.max(...sizes) - Math.min(...sizes)).toBeLessThanOrEqual(1)
      }),
    )
  })

  test('changes nothing that is balanced', () => {
    fc.assert(
      fc.property(groups, ({ partitions, holders }) => {
        const shares = assign(partitions, holders)
        expect(assign(partitions, holdersOf(shares))).toEqual(shares)
      }),
    )
  })

  test('moves no more than a newcomer needs, and than a leaver leaves', () => {
    fc.assert(
      fc.property(groups, ({ partitions, holders }) => {
        const before = holdersOf(assign(partitions, holders))
        const kept = (after: Map<string, number[]>): number =>
          before.flatMap(({ member, partitions: held }) => held.filter((p) => after.get(member)?.includes(p))).length
        const joined = assign(partitions, [...before, { member: 'new', partitions: [] }])
        expect(kept(joined)).toBe(partitions - joined.get('new')!.length)
        if (before.length === 1) return
        const [leaver, ...others] = before
        expect(kept(assign(partitions, others))).toBe(partitions - leaver!.partitions.length)
      }),
    )
  })
})
