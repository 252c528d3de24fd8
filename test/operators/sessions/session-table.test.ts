/** What stands between infer and commit: heads, and captures on their way to snapshots. */
import { describe, expect, test } from 'vitest'
import { createSessionTable, type SessionTable } from '../../../src/operators/sessions/session-table.ts'
import { MAX_CAPTURES } from '../../../src/operators/snapshots/captures.ts'
import type { Capture } from '../../../src/operators/types.ts'
import type { Head, SnapshotRef } from '../../../src/state/head.ts'
import { eventually } from '../../streams/helpers.ts'
import { benches, event, verified } from '../harness.ts'
import { bareHead } from '../heads.ts'

const { use } = benches()

const headOf = (session: string, offset: number, status: Head['status'] = 'open'): Head =>
  bareHead({ session, model: 'a'.repeat(64), layout: 'b'.repeat(64), status }, 'continuo.chunks', offset)

const captureOf = (head: Head, bytes = 1): Capture => ({
  head,
  kept: { recent: '', judged: '' },
  state: new Uint8Array(bytes),
  gates: [],
})
const refAt = (first: number): SnapshotRef => ({
  pulse: 0,
  first,
  last: first,
  parts: 1,
  bytes: 1,
  sha256: 'd'.repeat(64),
})
const tableOf = (heads: readonly Head[] = [], maxRequired = 1 << 20): SessionTable =>
  createSessionTable({ heads, position: 0, blobs: null, maxSteps: 2, maxRequired })
const commitAll = (table: SessionTable, ...heads: readonly Head[]): readonly Head[] => {
  const { heads: prepared } = table.prepare(heads.map((head) => ({ head })))
  table.committed(prepared, heads.length, 0)
  return prepared
}

describe('heads', () => {
  test('the newest is that of the last step, also while an older one is being committed', () => {
    const table = tableOf([headOf('s', 0)])
    expect(table.newest('s')!.cursor.offset).toBe(0)
    const [one, two] = [headOf('s', 1), headOf('s', 2)]
    table.stepped(one)
    const { heads: prepared } = table.prepare([{ head: one }])
    table.stepped(two)
    table.committed(prepared, 1, 1)
    expect(table.heads.get('s')!.cursor.offset).toBe(1)
    expect(table.newest('s')!.cursor.offset).toBe(2)
    commitAll(table, two)
    expect(table.heads.get('s')!.cursor.offset).toBe(2)
    expect(table.newest('s')).toBe(table.heads.get('s'))
    expect(table.newest('other')).toBeUndefined()
  })

  test('a snapshot that is written is named by the next commit, which has the head of its session once', () => {
    const table = tableOf([headOf('a', 0), headOf('b', 0)])
    table.written('a', refAt(5))
    table.written('b', refAt(6))
    expect(table.heads.get('a')!.snapshot).toBeNull()
    expect(table.snapshotOf('a')!.first).toBe(5)
    const prepared = commitAll(table, headOf('b', 3))
    expect(prepared.map(({ session, snapshot, cursor }) => [session, snapshot?.first, cursor.offset])).toEqual([
      ['b', 6, 3],
      ['a', 5, 0],
    ])
    expect(table.hasTouched).toBe(false)
    expect(commitAll(table)).toEqual([])
  })

  test('a closed session names no snapshot, but one whose events are not in this log keeps its own', () => {
    const table = tableOf([{ ...headOf('s', 0), snapshot: refAt(1) }])
    expect(commitAll(table, headOf('s', 1, 'closed'))[0]!.snapshot).toBeNull()
    expect(table.snapshotOf('s')).toBeUndefined()
    const imported = tableOf([{ ...headOf('s', 0), born: -1, snapshot: refAt(1) }])
    expect(commitAll(imported, { ...headOf('s', 1, 'closed'), born: -1 })[0]!.snapshot!.first).toBe(1)
  })

  test('steps wait while as many as allowed wait for their commit', async () => {
    const table = tableOf()
    table.arrived()
    expect(table.room()).toBeUndefined()
    table.arrived()
    const room = table.room()
    expect(room).toBeInstanceOf(Promise)
    table.committed([], 1, 1)
    await room
    expect(table.room()).toBeUndefined()
  })
})

describe('captures', () => {
  test('a copy made with a step is not written before the step commits', () => {
    const table = tableOf()
    const head = headOf('s', 1)
    table.captures.ofStep(head, captureOf(head), false)
    expect(table.captures.first).toBeUndefined()
    table.prepare([{ head }])
    expect(table.captures.first!.head).toBe(head)
  })

  test('of a session the newest one is written, behind those of others that wait longer', () => {
    const { captures } = tableOf()
    for (const [session, offset] of [
      ['a', 1],
      ['b', 1],
      ['a', 2],
    ] as const)
      captures.queue(captureOf(headOf(session, offset)))
    expect([...captures.queued()].map(({ head }) => [head.session, head.cursor.offset])).toEqual([
      ['b', 1],
      ['a', 2],
    ])
    captures.take(captures.first!)
    expect(captures.first!.head.session).toBe('a')
  })

  test('one that its head requires is not followed by an older one of its session, whose life is over', () => {
    const table = tableOf()
    const [closed, forked] = [headOf('s', 1), headOf('s', 2)]
    table.captures.ofStep(closed, captureOf(closed), false)
    table.captures.ofStep(forked, captureOf(forked), true)
    expect([closed, forked].map((head) => table.captures.required(head) > 0)).toEqual([false, true])
    table.captures.due(forked)
    table.captures.take(table.captures.first!)
    table.prepare([{ head: closed }, { head: forked }])
    expect(table.captures.first).toBeUndefined()
  })

  test('the bytes of required ones count until their commit, and those of others never', async () => {
    const table = tableOf([], 100)
    const [one, two] = [headOf('a', 1), headOf('b', 2)]
    table.captures.ofStep(one, captureOf(one, 1000), false)
    expect(table.captures.room()).toBeUndefined()
    table.captures.ofStep(two, captureOf(two, 100), true)
    const room = table.captures.room()
    expect(room).toBeInstanceOf(Promise)
    table.captures.due(two)
    table.captures.take(table.captures.first!)
    expect(table.captures.room()).toBeInstanceOf(Promise)
    commitAll(table, one, two)
    await room
    expect(table.captures.room()).toBeUndefined()
  })

  test('places are taken by copies being made and by those in the queue', async () => {
    const { captures } = tableOf()
    const copying = Promise.withResolvers<Capture>()
    captures.queue(captureOf(headOf('a', 1)))
    captures.atRest(copying.promise)
    expect(captures.places).toBe(MAX_CAPTURES - 2)
    expect(captures.isCopying).toBe(true)
    copying.resolve(captureOf(headOf('b', 1)))
    await captures.copied()
    expect(captures.isCopying).toBe(false)
    expect(captures.places).toBe(MAX_CAPTURES - 2)
    captures.take(captures.first!)
    expect(captures.places).toBe(MAX_CAPTURES - 1)
  })

  test('a copy that fails wakes the commit stage, which meets the error', async () => {
    const table = tableOf()
    let woken = 0
    table.onWork(() => {
      woken += 1
    })
    table.captures.atRest(Promise.reject(new Error('no device')))
    await table.captures.copied()
    expect(woken).toBeGreaterThan(0)
    expect(table.captures.hasFailed).toBe(true)
    expect(() => table.captures.first).toThrow('no device')
  })
})

test('at a clean stop a snapshot that no commit names yet is named, and not written again', () =>
  use(async (bench) => {
    const running = await bench.start({ snapshotEvery: 1, commitInterval: 3_600_000 })
    await bench.feed(event('s', { type: 'text', text: 'Once upon a time' }))
    // The first commit does not wait, and the next one would for an hour.
    await eventually(async () => expect(await bench.records('snapshots')).toHaveLength(1))
    expect((await bench.heads()).get('s')!.snapshot).toBeNull()
    await running.worker.stop()
    expect(await bench.records('snapshots')).toHaveLength(1)
    expect((await bench.heads()).get('s')!.snapshot!.pulse).toBe(16)
    await verified(bench)
  }))
