import { expect, test } from 'vitest'
import { createTally } from '../../src/observe/tally.ts'
import type { Commit } from '../../src/operators/pipeline/commit.ts'
import type { Head } from '../../src/state/head.ts'

/** What a tally reads of a head. */
const headOf = (session: string, tokens: number) =>
  ({
    session,
    totals: { tokens, predictions: 0, nats: 0, generated: 0 },
    born: 0,
    cursor: { offset: 1 },
  }) as unknown as Head
const commitOf = (partition: number, head: Head) =>
  ({ partition, steps: [{ session: head.session, head, outputs: [] }] }) as unknown as Commit

test('a session that another worker deleted, and that began anew, counts from its new beginning', () => {
  const tally = createTally()
  tally.begin(0, new Map([['a', headOf('a', 100)]]))
  expect(tally.add(commitOf(0, headOf('a', 130)))).toMatchObject({ read: 30 })
  // The partition was elsewhere meanwhile.
  tally.begin(0, new Map())
  expect(tally.add(commitOf(0, headOf('a', 5)))).toMatchObject({ read: 5 })
  // One of the same name in another partition is another session.
  tally.begin(1, new Map([['a', headOf('a', 40)]]))
  expect(tally.add(commitOf(1, headOf('a', 42)))).toMatchObject({ read: 2 })
  expect(tally.add(commitOf(0, headOf('a', 6)))).toMatchObject({ read: 1 })
  expect(tally.totals.read).toBe(38)
})
