/**
 * A flipped bit in any blob, in any store, and what repair makes of it: the session's events give the blob again, and its sha256 proves that it is
 * the one.
 */
import { expect, test } from 'vitest'
import { temporaryFolder } from '../engine/packages.ts'
import { blobsIn, fileOf, freshFolder, growingBenches, read, textOf } from './block-bench.ts'
import { type Bench, verified } from './harness.ts'
import { flipRecord, heldBy, inFolder, inTopic, PAGED, repaired, tokens, wideBenches } from './memory-bench.ts'
import { plantFile } from './planting.ts'

const wide = wideBenches()
const rings = growingBenches(2000)
const growing = growingBenches()

const folder = temporaryFolder()
const stores = [
  ['the topic', inTopic, {}],
  ['a folder', inFolder(folder), { blobStore: folder }],
] as const

const KINDS = {
  'an archived block': /^archived block 7$/,
  'the last archived block': /^archived block 25[6-9]$/,
  'rows of the index': /^rows 0 to 255 of the index$/,
  'a block of the window': /^places \d+ to \d+ of the window$/,
  'a page of names': /^page 0 of the names of archived blocks$/,
}

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

test.each(stores)(
  'a flipped bit in each kind of blob in %s is named and mended',
  (_, damage, options) =>
    wide.use(async (bench) => {
      await bench.feed(tokens('s', PAGED))
      await bench.settle()
      const isTopic = damage === inTopic
      for (const [kind, what] of Object.entries(KINDS)) {
        const all = await heldBy(bench, 's')
        const victim = all.find((each) => what.test(each.what))
        expect(victim, kind).toBeDefined()
        await damage.flip(bench, victim!)
        const [seen, ...others] = await repaired(bench)
        expect(others).toEqual([])
        // What a page names is not looked at where the page itself cannot be put back.
        const blobs = isTopic && kind === 'a page of names' ? 1 : all.length
        expect(seen, kind).toMatchObject({ session: 's', blobs, wrong: 1, repaired: 1, anew: isTopic, left: null })
        expect(seen!.reason).toContain(
          `The blob with ${victim!.what} of session "s" (sha256 ${victim!.hash.slice(0, 12)}…)`,
        )
        expect(seen!.reason).toMatch(
          isTopic ? /cannot be read from .* where it is damaged/ : /is damaged in the blob store/,
        )
      }
      await expectWhole(bench, 's')
    }, options),
  60_000,
)

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

test('it goes on from an older snapshot that has not the block yet, where the first events are gone', () =>
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
  }))

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

test('a page that names a block which is gone too is not guessed: the snapshot is written anew', () => {
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
