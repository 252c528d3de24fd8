/** The commit stage alone, on a real embedded log: what goes in one transaction, and when. */

import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { lastValueFrom, Subject, tap, toArray } from 'rxjs'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { PLAIN_MEMORY } from '../../../src/memory.ts'
import { createBacklog } from '../../../src/operators/pipeline/backlog.ts'
import { type Commit, type CommitDeps, commit } from '../../../src/operators/pipeline/commit.ts'
import type { EmittedStep } from '../../../src/operators/pipeline/emit.ts'
import { type ContextHolder, createSessionTable } from '../../../src/operators/sessions/session-table.ts'
import { readPartitionState } from '../../../src/operators/worker/partition-state.ts'
import type { Head } from '../../../src/state/head.ts'
import { createLiveIndex } from '../../../src/state/live-index.ts'
import type { EventLog } from '../../../src/streams/log.ts'
import { openLog } from '../../../src/streams/open.ts'
import { createWatermark, type Watermark } from '../../../src/streams/watermark.ts'
import { TOPICS, topicNames } from '../../../topics/index.ts'
import { readAll, text } from '../../streams/helpers.ts'
import { bareHead } from '../heads.ts'

const names = topicNames('continuo')
const model = {
  fingerprint: 'a'.repeat(64),
  layoutFingerprint: 'b'.repeat(64),
  layout: { tensors: () => [], first: [], growth: [] },
  levels: [],
  positions: null,
  memory: PLAIN_MEMORY,
}
let folder: string
let log: EventLog
let watermark: Watermark

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'continuo-commit-'))
  log = await openLog(`file:${join(folder, 'log.db')}`)
  await log.createTopics(TOPICS.map(({ name, settings }) => ({ name: names[name], partitions: 1, config: settings })))
  watermark = createWatermark({ offset: 0, done: [] })
})
afterEach(async () => {
  await log.close()
  rmSync(folder, { recursive: true, force: true })
})

const deps = async (interval: number): Promise<CommitDeps> => ({
  log,
  names,
  group: 'g',
  partition: 0,
  writer: await log.claim('g', names.chunks, 0),
  watermark,
  table: createSessionTable({
    heads: [],
    position: watermark.position().offset,
    blobs: null,
    maxSteps: 100,
    maxRequired: 1 << 20,
  }),
  model,
  blobs: null,
  logId: undefined,
  history: 0,
  resealing: [],
  stateIndex: createLiveIndex(1 << 20),
  snapshotIndex: createLiveIndex(1 << 20),
  partBytes: 900_000,
  format: 'json',
  interval,
  warn: () => undefined,
})

const headOf = (session: string): Head =>
  bareHead({ session, model: model.fingerprint, layout: model.layoutFingerprint, status: 'open' }, names.chunks, 0)

/** A step that finishes the record at `offset` with one dead letter of `bytes`. */
const step = (offset: number, bytes = 10): EmittedStep => {
  watermark.begin(offset)
  return {
    record: { topic: names.chunks, partition: 0, offset, timestamp: 0, key: null, value: null, headers: [] },
    session: null,
    outputs: [],
    head: null,
    done: true,
    records: [{ topic: names.deadletters, key: Buffer.from(String(offset)), value: Buffer.alloc(bytes) }],
  }
}

/** Commits an hour apart: `seen` has the steps of each, `first` and `second` tell of the first two. */
const hourly = async () => {
  const source = new Subject<EmittedStep>()
  const hour = 3_600_000
  const seen: number[] = []
  const first = Promise.withResolvers<void>()
  const second = Promise.withResolvers<void>()
  const done = lastValueFrom(
    source.pipe(
      commit(await deps(hour)),
      tap(({ steps }: Commit) => {
        seen.push(steps.length)
        ;(seen.length === 1 ? first : second).resolve()
      }),
      toArray(),
    ),
  )
  return { source, seen, first, second, done }
}

describe('commit', () => {
  test('steps that come together go together: outputs, cursor and offset in one transaction', async () => {
    const source = new Subject<EmittedStep>()
    const done = lastValueFrom(source.pipe(commit(await deps(0)), toArray()))
    for (const offset of [0, 1, 2]) source.next(step(offset))
    source.complete()
    const commits = await done
    expect(commits.map(({ offset, steps }) => [offset, steps.length])).toEqual([[3, 3]])
    expect((await readAll(log, names.deadletters)).map(({ key }) => text(key))).toEqual(['0', '1', '2'])
    expect(await log.committed('g', names.chunks, 0)).toBe(3)
    const { cursor } = await readPartitionState(log, names, 0, 1 << 20)
    expect(cursor).toMatchObject({ group: 'g', offset: 3, done: [], model: model.fingerprint })
  })

  test('what is finished behind something unfinished is remembered, and not handed over as an offset', async () => {
    const source = new Subject<EmittedStep>()
    const done = lastValueFrom(source.pipe(commit(await deps(0)), toArray()))
    watermark.begin(0)
    source.next(step(1))
    source.next(step(2))
    source.complete()
    expect((await done).map(({ offset }) => offset)).toEqual([0])
    expect(await log.committed('g', names.chunks, 0)).toBe(0)
    expect((await readPartitionState(log, names, 0, 1 << 20)).cursor).toMatchObject({ offset: 0, done: [[1, 3]] })
  })

  test('waits for its interval, but not over budget: 4 MB go at once', async () => {
    const { source, seen, first, second, done } = await hourly()
    // Nothing came before, so nothing is waited for.
    source.next(step(0))
    await first.promise
    source.next(step(1))
    for (let offset = 2; offset < 7; offset += 1) source.next(step(offset, 900_000))
    await second.promise
    expect(seen).toEqual([1, 6])
    // The end waits for nobody either.
    source.next(step(7))
    source.complete()
    await done
    expect(seen).toEqual([1, 6, 1])
  })

  test('tokens that somebody waits for do not wait for the interval', async () => {
    const { source, seen, first, second, done } = await hourly()
    source.next(step(0))
    await first.promise
    // What went an hour ago at most stays: it would make the transaction long.
    source.next(step(1))
    source.next({ ...step(2), awaited: true })
    await second.promise
    expect(seen).toEqual([1, 1])
    source.complete()
    expect((await done).at(-1)).toMatchObject({ offset: 3 })
    expect(seen).toEqual([1, 1, 1])
  })

  test.each([
    [100, 32],
    [1600, 100],
  ])('of %i steps that nobody waits for, %i go with tokens that somebody waits for', async (waiting, go) => {
    const { source, seen, first, done } = await hourly()
    for (let offset = 0; offset < waiting; offset += 1) source.next(step(offset))
    source.next({ ...step(waiting), awaited: true })
    await first.promise
    expect(seen).toEqual([go + 1])
    source.complete()
    await done
    expect(seen).toEqual([go + 1, waiting - go])
  })

  test('states that others wait for are written as long as there are any, a few at a time, between two commits', async () => {
    const source = new Subject<EmittedStep>()
    const hour = 3_600_000
    const mine = await deps(hour)
    const heads = Array.from({ length: 50 }, (_, n) => headOf(`s${n}`))
    let most = 0
    let waiting = false
    const { captures } = mine.table
    const holder: ContextHolder = {
      committed() {
        const places = waiting ? captures.places : 0
        most = Math.max(most, places)
        for (const head of heads.splice(0, places))
          captures.atRest(
            Promise.resolve({ head, state: new Uint8Array(0), kept: { recent: '', judged: '' }, gates: [] }),
          )
      },
      saveRest: async () => undefined,
    }
    mine.table.attach(holder)
    const first = Promise.withResolvers<void>()
    const all = Promise.withResolvers<void>()
    let commits = 0
    const done = lastValueFrom(
      source.pipe(
        commit({
          ...mine,
          onSnapshot: ({ head }) => {
            if (head.session === 's49') all.resolve()
          },
        }),
        tap(() => {
          commits += 1
          first.resolve()
        }),
        toArray(),
      ),
    )
    source.next(step(0))
    await first.promise
    waiting = true
    mine.table.makeRoom()
    await all.promise
    expect(commits).toBe(1)
    expect(most).toBe(8)
    source.complete()
    await done
    expect(new Set((await readAll(log, names.snapshots)).map(({ key }) => text(key))).size).toBe(50)
  })

  test('a fork waits for its snapshot, and what is in its order with it; others commit meanwhile', async () => {
    const source = new Subject<EmittedStep>()
    const mine = await deps(0)
    const done = lastValueFrom(source.pipe(commit(mine), toArray()))
    const born = (session: string, offset: number, from: string): EmittedStep => {
      const bare = bareHead(
        { session, model: model.fingerprint, layout: model.layoutFingerprint, status: 'open' },
        names.chunks,
        offset,
      )
      const head: Head = { ...bare, born: offset, from: { session: from, pulse: 0, chain: bare.chain } }
      mine.table.stepped(head)
      mine.table.captures.ofStep(
        head,
        { head, state: new Uint8Array(500_000), kept: { recent: '', judged: '' }, gates: [] },
        true,
      )
      return { ...step(offset), session, head }
    }
    const of = (session: string, offset: number): EmittedStep => {
      const head = headOf(session)
      return { ...step(offset), session, head: { ...head, cursor: { ...head.cursor, offset } } }
    }
    // Their states are more than one commit would have waited for.
    for (const at of [0, 1, 2, 3]) source.next(born(`fork-${at}`, at, 'parent'))
    source.next(of('parent', 4))
    source.next(born('fork-of-fork', 5, 'fork-3'))
    source.next({ ...step(6), session: 'fork-0', deleted: true })
    source.next(of('other', 7))
    source.complete()
    const commits = await done
    const order = commits.map(({ steps }) => steps.map(({ record }) => record.offset))
    expect(order[0]).toEqual([7])
    expect(order.flat().toSorted()).toEqual([0, 1, 2, 3, 4, 5, 6, 7])
    const at = (offset: number): number => order.flat().indexOf(offset)
    for (const fork of [0, 1, 2, 3]) expect(at(fork)).toBeLessThan(at(4))
    expect(at(0)).toBeLessThan(at(6))
    expect(at(3)).toBeLessThan(at(5))
    const { heads, cursor } = await readPartitionState(log, names, 0, 1 << 20)
    expect(cursor).toMatchObject({ offset: 8, done: [] })
    const kept = [...heads.values()].filter(({ from }) => from !== undefined)
    expect(kept.map(({ session }) => session).toSorted()).toEqual(['fork-1', 'fork-2', 'fork-3', 'fork-of-fork'])
    for (const { snapshot } of kept) expect(snapshot).toMatchObject({ pulse: 0 })
  })

  test('an error while room is made ends it, also while it waits for its time', async () => {
    const source = new Subject<EmittedStep>()
    const mine = await deps(3_600_000)
    const first = Promise.withResolvers<void>()
    const done = lastValueFrom(
      source.pipe(
        commit(mine),
        tap(() => first.resolve()),
      ),
    )
    source.next(step(0))
    await first.promise
    mine.table.captures.atRest(Promise.reject(new Error('the device is gone')))
    await expect(done).rejects.toMatchObject({ code: 'INTERNAL', message: 'Commit failed: Error: the device is gone' })
  })

  test('an error upstream ends it: what was pending is not written', async () => {
    const source = new Subject<EmittedStep>()
    const done = lastValueFrom(source.pipe(commit(await deps(3_600_000)), toArray()))
    source.next(step(0))
    source.error(new Error('upstream'))
    await expect(done).rejects.toThrow('upstream')
    expect(await log.committed('g', names.chunks, 0)).toBeNull()
  })

  test('fenced, it ends with FENCED and has written nothing', async () => {
    const source = new Subject<EmittedStep>()
    const mine = await deps(0)
    const newer = await log.claim('g', names.chunks, 0)
    const done = lastValueFrom(source.pipe(commit(mine), toArray()))
    source.next(step(0))
    source.complete()
    await expect(done).rejects.toMatchObject({ code: 'FENCED' })
    expect(await readAll(log, names.deadletters)).toEqual([])
    await newer.close()
  })
})

describe('backlog', () => {
  test('lets go when there is room again, and everybody at once', async () => {
    const backlog = createBacklog(2)
    expect(backlog.room()).toBeUndefined()
    backlog.add(1)
    backlog.add(1)
    let gone = 0
    const waiting = [backlog.room(), backlog.room()].map((room) => room!.then(() => (gone += 1)))
    await Promise.resolve()
    expect(gone).toBe(0)
    backlog.release(1)
    await Promise.all(waiting)
    expect(gone).toBe(2)
  })
})
