/**
 * blobs gc: what no committed head names goes, from a store, from the topic, and of logs that are gone; all else stays.
 */
import { copyFileSync, existsSync, mkdirSync, readdirSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { collectPartition, orphansOf, removeTrials } from '../../../src/operators/blobs/gc.ts'
import { openLog } from '../../../src/streams/open.ts'
import { eventually } from '../../streams/helpers.ts'
import { BLOCK_BYTES, blobsIn, freshFolder, growingBenches, read, textOf } from '../block-bench.ts'
import { type Bench, event, onBothLogsWith, verified } from '../harness.ts'
import { heldBy, inFolder, PAGED, tokens, wideBenches } from '../memory-bench.ts'

const benches = growingBenches()
const wide = wideBenches()

const collect = ({ log, names }: Pick<Bench, 'log' | 'names'>, dry = false) => collectPartition({ log, names, dry }, 0)

/** What a crash leaves, and what a killed writer does. */
const leave = (folder: string): void => {
  const [own] = blobsIn(folder)
  for (let i = 0; i < 3; i += 1)
    copyFileSync(own!, join(dirname(own!), `${'ab'.repeat(32)}.${String(i).padStart(16, '0')}`))
  writeFileSync(`${own!}.4711.tmp`, 'half')
}

test('in a folder: garbage and halves of blobs go, what heads name stays, and other folders are left alone', () => {
  const store = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('a', textOf(600)), read('b', textOf(600)), read('c', textOf(900, 2)))
      await bench.settle()
      await bench.feed(event('c', { type: 'close' }))
      await bench.settle()
      leave(store)
      const other = join(store, 'f'.repeat(32), '0')
      mkdirSync(other, { recursive: true })
      copyFileSync(blobsIn(store)[0]!, join(other, `${'cd'.repeat(32)}.${'0'.repeat(16)}`))
      const before = blobsIn(store)
      const expected = {
        partition: 0,
        store: {
          folder: expect.stringMatching(/^[0-9a-f]{32}\/0$/),
          kept: { blobs: 2, bytes: 2 * BLOCK_BYTES },
          removed: { blobs: 3 + 3 + 1, bytes: 6 * BLOCK_BYTES + 4 },
        },
        topic: { kept: { blobs: 0, bytes: 0 }, removed: 0, begin: 0, end: 0 },
      }
      expect(await collect(bench, true)).toEqual(expected)
      expect(blobsIn(store)).toEqual(before)
      expect(await collect(bench)).toEqual(expected)
      expect(blobsIn(store)).toHaveLength(2 + 1)
      expect(existsSync(other)).toBe(true)
      await bench.feed(read('a', 'more'), read('b', 'more'))
      const { states } = await bench.settle()
      expect(states.every(({ error }) => error === undefined)).toBe(true)
      await verified(bench)
    },
    { blobStore: store },
  )
})

onBothLogsWith({ tags: 'slow' })((fresh) => {
  test('in the topic: what lies before all that is named is trimmed', () =>
    benches.use(async (bench) => {
      await bench.feed(read('a', textOf(1300)))
      await bench.settle()
      await bench.feed(event('a', { type: 'close' }), read('b', textOf(600, 2)))
      await bench.settle()
      const { begin, end } = await bench.log.bounds(bench.names.blobs, 0)
      const living = Math.min(...(await heldBy(bench, 'b')).map(({ place }) => Number.parseInt(place, 16)))
      const seen = await collect(bench)
      expect(seen).toMatchObject({ store: null, topic: { kept: { blobs: 2, bytes: 2 * BLOCK_BYTES }, begin, end } })
      expect(seen.topic!.removed).toBe(living - begin)
      expect(living).toBeGreaterThan(begin)
      expect((await bench.log.bounds(bench.names.blobs, 0)).begin).toBe(living)
      expect((await collect(bench)).topic!.removed).toBe(0)
      await bench.feed(read('b', 'more'))
      await bench.settle()
      await verified(bench)
    }, fresh()))
})

test('a log that went from the topic to a store: when no head names the topic any more, it is trimmed to its end', () =>
  benches.use(async (bench) => {
    await bench.feed(read('a', textOf(600)), read('b', textOf(600, 2)))
    await bench.settle()
    const log = await openLog(bench.url, { blobStore: freshFolder() })
    await bench.feed(read('a', 'and on'))
    await bench.settle({ log })
    const { end } = await bench.log.bounds(bench.names.blobs, 0)
    const half = await collect({ ...bench, log })
    expect(half.topic!.kept.blobs).toBe(2)
    expect(half.store!.kept.blobs).toBe(2)
    await bench.feed(read('b', 'and on'))
    await bench.settle({ log })
    expect((await collect({ ...bench, log })).topic!.kept.blobs).toBe(0)
    expect(await log.bounds(bench.names.blobs, 0)).toEqual({ begin: end, end })
    await verified({ ...bench, log })
    await log.close()
  }))

test('a worker that runs loses its partition, claims it again and goes on', () => {
  const store = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('a', textOf(600)))
      // Long enough for the collection to end before the worker claims the partition again.
      const running = await bench.start({ fencedPause: 2000 })
      await running.idle()
      await bench.feed(read('a', textOf(300, 2)))
      const { store: seen } = await collect(bench)
      expect(seen!.kept.blobs + seen!.removed.blobs).toBeLessThan(4)
      await running.idle()
      await bench.feed(read('a', textOf(300, 3)))
      await running.idle()
      await running.worker.stop()
      expect(running.states.map(({ state }) => state)).toContain('migrated')
      await verified(bench)
    },
    { blobStore: store },
  )
})

test('where a manifest cannot be read nothing is called dead', () => {
  const store = freshFolder()
  return wide.use(
    async (bench) => {
      await bench.feed(tokens('s', PAGED))
      await bench.settle()
      await inFolder(store).flip(bench, (await heldBy(bench, 's')).find(({ what }) => what.startsWith('page'))!)
      leave(store)
      const before = blobsIn(store)
      await expect(collect(bench)).rejects.toMatchObject({
        code: 'REFUSED',
        message: expect.stringMatching(/^The blob with page 0 .* continuo repair --session s/),
      })
      expect(blobsIn(store)).toEqual(before)
    },
    { blobStore: store },
  )
})

test('a store that is away is said to be, and a partition without a cursor has nothing', () => {
  const store = freshFolder()
  return benches.use(
    async (bench) => {
      expect(await collect(bench)).toEqual({ partition: 0, store: null, topic: null })
      await bench.feed(read('a', textOf(600)))
      await bench.settle()
      const log = await openLog(bench.url, { blobStore: freshFolder() })
      await expect(collect({ ...bench, log })).rejects.toMatchObject({ code: 'UNAVAILABLE' })
      await log.close()
    },
    { blobStore: store },
  )
})

test('folders of logs that are unknown are listed with their marks, and only those that are named go', () => {
  const store = freshFolder()
  return benches.use(
    async (gone) => {
      await gone.feed(read('a', textOf(600)))
      await gone.settle()
      await benches.use(
        async (bench) => {
          await bench.feed(read('b', textOf(900, 2)))
          await bench.settle()
          const blobs = bench.log.blobs!
          const own = (await collect(bench)).store!.folder
          // A worker was killed between the mark and its commit.
          const killed = `${'e'.repeat(32)}/0`
          await blobs.begin(killed)
          await blobs.put(`${killed}/log`, Buffer.from('continuo.state, partition 0\n'))
          await blobs.begin('ping')
          await blobs.put('ping/0123', new Uint8Array(1))
          const known = new Set([own])
          const listed = await orphansOf(blobs, known, [])
          const other = (await collect(gone, true)).store!.folder
          expect([...listed].sort((a, b) => b.bytes - a.bytes)).toEqual([
            {
              ...{ folder: other, blobs: 2, bytes: 2 * BLOCK_BYTES, removed: false },
              mark: `continuo.state, partition 0, of ${gone.log.url}`,
            },
            { folder: killed, mark: 'continuo.state, partition 0', blobs: 0, bytes: 0, removed: false },
          ])
          for (const wrong of [own, 'nothing/0'])
            await expect(orphansOf(blobs, known, [other, wrong])).rejects.toMatchObject({ code: 'INVALID' })
          expect(await orphansOf(blobs, known, [])).toEqual(listed)
          expect((await orphansOf(blobs, known, [other, killed])).map(({ removed }) => removed)).toEqual([true, true])
          expect(await orphansOf(blobs, known, [])).toEqual([])
          expect(await removeTrials(blobs, true)).toBe(1)
          expect(await removeTrials(blobs, false)).toBe(1)
          expect(readdirSync(store).sort()).toEqual([own.slice(0, 32), 'ping'].sort())
          await verified(bench)
        },
        { blobStore: store },
      )
    },
    { blobStore: store },
  )
})

test('a worker that goes on beside a collection of another log in the same store loses nothing', () => {
  const store = freshFolder()
  return benches.use(
    async (one) => {
      await benches.use(
        async (two) => {
          await one.feed(read('s', textOf(600)))
          await two.feed(read('s', textOf(600)))
          const running = await two.start()
          await running.idle()
          await one.settle()
          await collect(one)
          await two.feed(read('s', textOf(600, 2)))
          await running.idle()
          await running.worker.stop()
          await eventually(async () => expect((await two.heads()).get('s')!.snapshot!.pulse).toBe(1200))
          await verified(one)
          await verified(two)
        },
        { blobStore: store },
      )
    },
    { blobStore: store },
  )
})
