/**
 * A flipped bit in any blob, in any store, and what repair makes of it: the session's events give the blob again, and
 * its sha256 proves that it is the one.
 */
import { copyFileSync } from 'node:fs'
import { expect, test } from 'vitest'
import { collectPartition } from '../../../src/operators/blobs/gc.ts'
import { eventually } from '../../streams/helpers.ts'
import { blobsIn, fileOf, freshFolder, growingBenches, read, textOf } from '../block-bench.ts'
import { flippedBits } from '../flipped.ts'
import { type Bench, event, verified } from '../harness.ts'
import {
  flipRecord,
  type Held,
  heldBy,
  inFolder,
  inTopic,
  PAGED,
  repaired,
  tokens,
  wideBenches,
} from '../memory-bench.ts'
import { plantFile } from '../planting.ts'

const wide = wideBenches()
const other = wideBenches(5)
const rings = growingBenches(2000)
const growing = growingBenches()

const slow = { tags: 'slow' }
flippedBits('the topic', wide, () => ({ options: {}, damage: inTopic }), { worker: slow, repair: slow })
flippedBits(
  'a folder',
  wide,
  () => {
    const blobStore = freshFolder()
    return { options: { blobStore }, damage: inFolder(blobStore) }
  },
  { worker: slow, repair: slow },
)

/** Nothing is wrong any more in what newest heads name, and another worker goes on. */
const expectMended = async (bench: Bench, session: string): Promise<void> => {
  for (const each of await repaired(bench))
    expect(each).toMatchObject({ wrong: 0, repaired: 0, reason: null, left: null })
  await bench.feed(tokens(session, 20, 5))
  const warnings: string[] = []
  const { states } = await bench.settle({ warn: (message) => warnings.push(message) })
  expect(warnings).toEqual([])
  expect(states.every(({ error }) => error === undefined)).toBe(true)
}
const expectWhole = async (bench: Bench, session: string): Promise<void> => {
  await expectMended(bench, session)
  await verified(bench)
}

/** Two models of one layout, in logs of their own: neither has a blob of the other, though they read the same. */
test("two models' blobs in one store: each goes on, is verified, mended and cleaned by itself", {
  tags: 'slow',
}, () => {
  const blobStore = freshFolder()
  return wide.use(
    (one) =>
      other.use(
        async (two) => {
          expect(one.model.layoutFingerprint).toBe(two.model.layoutFingerprint)
          expect(one.model.fingerprint).not.toBe(two.model.fingerprint)
          for (const bench of [one, two]) {
            await bench.feed(tokens('s', 500))
            await bench.settle()
          }
          const [mine, theirs] = [await heldBy(one, 's'), await heldBy(two, 's')]
          const hashes = new Set(mine.map(({ hash }) => hash))
          expect(theirs.filter(({ hash }) => hashes.has(hash))).toEqual([])
          expect(blobsIn(blobStore)).toHaveLength(mine.length + theirs.length)
          // A blob of the one in place of the same block of the other is another blob.
          const block = (all: readonly Held[]) => all.find(({ what }) => what === 'archived block 7')!
          const pathOf = ({ hash, place }: Held): string =>
            blobsIn(blobStore).find((path) => path.endsWith(`${hash}.${place}`))!
          copyFileSync(pathOf(block(mine)), pathOf(block(theirs)))
          expect(await repaired(one)).toMatchObject([{ wrong: 0, left: null }])
          expect(await repaired(two)).toMatchObject([{ wrong: 1, repaired: 1, left: null }])
          for (const bench of [one, two]) {
            const { log, names } = bench
            const { store } = await collectPartition({ log, names, dry: false }, 0)
            expect(store!.removed.blobs).toBe(0)
            await bench.feed(event('s', { type: 'retrieve', blocks: [7] }), tokens('s', 50, 3))
            await bench.settle()
            await verified(bench)
          }
          const refused = await one.start({ log: two.log, names: two.names })
          await eventually(async () => expect(refused.worker.refused.size).toBe(1))
          expect([...refused.worker.refused.values()].map(String).join()).toMatch(/was written by model/)
          await refused.worker.stop()
        },
        { blobStore },
      ),
    { blobStore },
  )
})

test('a blob that is several blocks is one that is wrong', () => {
  const store = freshFolder()
  return rings.use(
    async (bench) => {
      // Of eight blocks of the ring seven have no position yet.
      await bench.feed(read('s', textOf(100)))
      await bench.settle()
      const damage = inFolder(store)
      const [blob, ...others] = await heldBy(bench, 's')
      expect(others.length).toBeLessThan(2)
      await damage.remove!(bench, blob!)
      expect(await repaired(bench)).toEqual([
        expect.objectContaining({ blobs: 1 + others.length, wrong: 1, repaired: 1, anew: false, left: null }),
      ])
      await expectWhole(bench, 's')
    },
    { blobStore: store },
  )
})

test('a blob of which another copy is whole is copied, also where nothing could compute it', () => {
  const store = freshFolder()
  return growing.use(
    async (bench) => {
      const damage = inFolder(store)
      await bench.feed(read('s', textOf(600)))
      await bench.settle()
      const [victim] = await heldBy(bench, 's')
      await damage.flip(bench, victim!)
      // Another session with the same tokens, in a worker that knows nothing of the first, has a copy of its own.
      await bench.feed(read('t', textOf(600)))
      await bench.settle()
      expect(blobsIn(store)).toHaveLength(4)
      await bench.log.trim(bench.names.chunks, 0, 2)
      expect(await repaired(bench)).toEqual([
        expect.objectContaining({ session: 's', wrong: 1, repaired: 1, anew: false, left: null }),
        expect.objectContaining({ session: 't', wrong: 0, left: null }),
      ])
    },
    { blobStore: store },
  )
})

test(
  'it goes on from an older snapshot that has not the block yet, where the first events are gone',
  { tags: 'slow' },
  () =>
    wide.use(async (bench) => {
      await bench.feed(tokens('s', 400))
      await bench.settle({ compactFloor: 1 << 30 })
      await bench.feed(tokens('s', 100, 9))
      await bench.settle({ compactFloor: 1 << 30 })
      await bench.log.trim(bench.names.chunks, 0, 1)
      const find = async (what: string) => (await heldBy(bench, 's')).find((each) => each.what === what)!
      const warnings: string[] = []
      // 100 tokens left the window with the first event, 100 with the second.
      await inTopic.flip(bench, await find('archived block 30'))
      expect(await repaired(bench, (message) => warnings.push(message))).toMatchObject([
        { wrong: 1, repaired: 1, anew: true, left: null },
      ])
      expect(warnings).toEqual([])
      // What was archived with the first event nothing can compute any more.
      await inTopic.flip(bench, await find('archived block 3'))
      const [seen] = await repaired(bench)
      expect(seen).toMatchObject({ wrong: 1, repaired: 0, anew: false })
      expect(seen!.left).toMatch(/^It cannot be computed again: .*those events are gone/)
    }),
)

test('a snapshot that cannot be read ends nothing: it is written anew, and the others are looked at', () =>
  growing.use(async (bench) => {
    await bench.feed(read('a', textOf(600)), read('b', textOf(600, 2)))
    await bench.settle()
    const heads = await bench.heads()
    flipRecord(bench, bench.names.snapshots, heads.get('a')!.snapshot!.first)
    await inTopic.flip(bench, (await heldBy(bench, 'b'))[0]!)
    const seen = await repaired(bench)
    expect(seen).toMatchObject([
      { session: 'a', blobs: 0, wrong: 0, anew: true, left: null },
      { session: 'b', blobs: 2, wrong: 1, repaired: 1, anew: true, left: null },
    ])
    expect(seen[0]!.reason).toMatch(/checksum/)
    await expectMended(bench, 'a')
  }))

test('a session that came from another log is said to be one, where no older snapshot of it is left', () =>
  growing.use(async (bench) => {
    await bench.feed(read('s', textOf(600)))
    await bench.settle()
    const { blobs } = (await bench.heads()).get('s')!.snapshot!
    await plantFile(bench, 's', [await fileOf(bench, 's')], blobs, (head) => ({ ...head, born: -1 }))
    await inTopic.flip(bench, (await heldBy(bench, 's'))[0]!)
    const [seen] = await repaired(bench)
    expect(seen).toMatchObject({ wrong: 1, repaired: 0, anew: false })
    expect(seen!.left).toBe(
      'It cannot be computed again: Session "s" came from another log (continuo import), and no snapshot of it from before these blocks is left. Import its file again.',
    )
  }))

test('a page that names a block which is gone too is not guessed: the snapshot is written anew', {
  tags: 'slow',
}, () => {
  const store = freshFolder()
  return wide.use(
    async (bench) => {
      await bench.feed(tokens('s', PAGED))
      await bench.settle()
      const damage = inFolder(store)
      const all = await heldBy(bench, 's')
      const count = blobsIn(store).length
      await damage.remove!(bench, all.find(({ what }) => what.startsWith('page'))!)
      await damage.remove!(bench, all.find(({ what }) => what === 'archived block 9')!)
      expect(await repaired(bench)).toMatchObject([{ wrong: 1, repaired: 1, anew: true, left: null }])
      expect(blobsIn(store).length).toBeGreaterThanOrEqual(count)
      await expectWhole(bench, 's')
    },
    { blobStore: store },
  )
})

test('while a worker runs the log is left as it is, and the sentence says so', () =>
  growing.use(async (bench) => {
    await bench.feed(read('s', textOf(600)))
    const running = await bench.start()
    await running.idle()
    await running.worker.stop()
    const again = await bench.start()
    await again.idle()
    await inTopic.flip(bench, (await heldBy(bench, 's'))[0]!)
    const { end } = await bench.log.bounds(bench.names.state, 0)
    const [seen] = await repaired(bench)
    expect(seen).toMatchObject({ wrong: 1, repaired: 0, anew: false })
    expect(seen!.left).toMatch(
      /^Its snapshot must be written anew\. A worker of group "test" reads continuo\.chunks .* Stop the workers/,
    )
    expect((await bench.log.bounds(bench.names.state, 0)).end).toBe(end)
    await again.worker.stop()
    expect(await repaired(bench)).toMatchObject([{ wrong: 1, repaired: 1, anew: true, left: null }])
    await verified(bench)
  }))
