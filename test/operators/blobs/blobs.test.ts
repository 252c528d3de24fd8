/** Snapshots in blocks: what is written, shared, removed, missed and computed again. */
import { copyFileSync, cpSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import { openLog } from '../../../src/streams/open.ts'
import { eventually } from '../../streams/helpers.ts'
import { BLOCK_BYTES, blobsIn, expectSameAnywhere, freshFolder, growingBenches, read, textOf } from '../block-bench.ts'
import { type Bench, event, verified } from '../harness.ts'

const benches = growingBenches()

const snapshotOf = async (bench: Bench, session: string) => (await bench.heads()).get(session)!.snapshot!

test('a snapshot writes only the blocks that are new, and its own file holds only the rest', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('s', textOf(700)))
      await bench.settle()
      expect((await snapshotOf(bench, 's')).blobs).toEqual({ count: 2, bytes: 2 * BLOCK_BYTES })
      const before = blobsIn(blobStore)
      expect(before).toHaveLength(2)
      await bench.feed(read('s', textOf(1000, 2)))
      const running = await bench.settle()
      expect(running.restored).toEqual(['s'])
      const after = blobsIn(blobStore)
      expect(after).toHaveLength(6)
      expect(after).toEqual(expect.arrayContaining([...before]))
      const { bytes, blobs } = await snapshotOf(bench, 's')
      expect(blobs!.count).toBe(6)
      expect(bytes).toBeLessThan(BLOCK_BYTES + 4096)
      await verified(bench)
    },
    { blobStore },
  )
})

test(
  'a session in blocks has the head and the state of one without a store, at any place of the snapshots',
  () => expectSameAnywhere(benches),
  60_000,
)

test('sessions that begin with the same tokens share their blocks', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      const prompt = textOf(520)
      await bench.feed(read('a', prompt))
      await bench.settle()
      await bench.feed(read('a', 'and on'), read('b', prompt), read('c', prompt))
      await bench.settle()
      expect(blobsIn(blobStore)).toHaveLength(2)
      await verified(bench)
    },
    { blobStore },
  )
})

test('blocks of sessions that were reset or closed are removed, those that another session names stay', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('a', textOf(1300)), read('b', textOf(1300)), read('c', textOf(1300, 5)))
      await bench.settle({ compactFloor: 8 })
      expect(blobsIn(blobStore)).toHaveLength(10)
      await bench.feed(event('a', { type: 'close' }), event('c', { type: 'boundary', reset: true }), read('c', 'new'))
      const running = await bench.start({ compactFloor: 8, snapshotRecords: 1 })
      await running.idle()
      // A few events more: the reset of c is in a snapshot of its own, and each commit is a moment to remove.
      for (let round = 0; round < 3; round += 1) {
        await bench.feed(read('c', 'more'))
        await running.idle()
      }
      await eventually(async () => expect(blobsIn(blobStore)).toHaveLength(5))
      await running.worker.stop()
      await verified(bench)
      await bench.feed(event('b', { type: 'close' }))
      const last = await bench.start({ compactFloor: 8 })
      await last.idle()
      await eventually(async () => expect(blobsIn(blobStore)).toHaveLength(0))
      await last.worker.stop()
      await verified(bench)
    },
    { blobStore },
  )
}, 60_000)

test("what a crash left between a blob and the commit that names it is removed; what is another partition's or log's stays", () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('s', textOf(600)))
      await bench.settle()
      const [own] = blobsIn(blobStore)
      const folder = dirname(own!)
      const garbage = Array.from({ length: 6 }, (_, i) => `${'ab'.repeat(32)}.${String(i).padStart(16, '0')}`)
      for (const name of garbage) copyFileSync(own!, join(folder, name))
      const others = [join(folder, '..', '7'), join(blobStore, 'f'.repeat(32), '0')]
      for (const other of others) {
        mkdirSync(other, { recursive: true })
        copyFileSync(own!, join(other, garbage[0]!))
      }
      const running = await bench.start({ compactFloor: 8 })
      await eventually(async () => expect(blobsIn(folder)).toHaveLength(2))
      for (const other of others) expect(blobsIn(other)).toHaveLength(1)
      await running.worker.stop()
      await verified(bench)
    },
    { blobStore },
  )
})

test('what a crash left is removed, too, beside many forks that name the same blobs', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('prompt', textOf(1300)))
      for (let at = 0; at < 8; at += 1)
        await bench.feed(
          event(`fork-${at}`, { type: 'open', from: { session: 'prompt' } }),
          read(`fork-${at}`, 'and on'),
        )
      await bench.settle()
      const heads = [...(await bench.heads()).values()]
      expect(heads.reduce((sum, { snapshot }) => sum + snapshot!.blobs!.count, 0)).toBe(9 * 5)
      const [own] = blobsIn(blobStore)
      const garbage = Array.from({ length: 3 }, (_, i) =>
        join(dirname(own!), `${'ab'.repeat(32)}.${String(i).padStart(16, '0')}`),
      )
      for (const path of garbage) copyFileSync(own!, path)
      expect(blobsIn(blobStore)).toHaveLength(5 + 3)
      const running = await bench.start({ compactFloor: 8 })
      await eventually(async () => expect(blobsIn(blobStore)).toHaveLength(5))
      await running.worker.stop()
      await verified(bench)
    },
    { blobStore },
  )
})

test('what dies is removed, too, where the first look found nothing that any head names', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('short', textOf(100)))
      await bench.settle()
      const folder = dirname(
        readdirSync(blobStore, { recursive: true })
          .map(String)
          .find((path) => path.endsWith('/log'))!,
      )
      for (let i = 0; i < 3; i += 1)
        writeFileSync(
          join(blobStore, folder, `${'ab'.repeat(32)}.${String(i).padStart(16, '0')}`),
          new Uint8Array(BLOCK_BYTES),
        )
      const running = await bench.start({ compactFloor: 8, snapshotEvery: 600 })
      await eventually(async () => expect(blobsIn(blobStore)).toHaveLength(0))
      for (let round = 0; round < 3; round += 1) {
        await bench.feed(read(`s-${round}`, textOf(1300, round)), event(`s-${round}`, { type: 'close' }))
        await running.idle()
      }
      await eventually(async () => {
        await bench.feed(read('short', 'x'))
        await running.idle()
        expect(blobsIn(blobStore)).toHaveLength(0)
      })
      await running.worker.stop()
    },
    { blobStore },
  )
})

/** A session with blocks; `harm` the store, then read on, and hand out the warnings. */
const harmed = async (
  bench: Bench,
  blobStore: string,
  harm: (block: string) => void,
  before: () => Promise<void> = async () => undefined,
): Promise<readonly string[]> => {
  await bench.feed(read('s', textOf(600)))
  await bench.settle()
  await before()
  harm(blobsIn(blobStore)[1]!)
  const warnings: string[] = []
  await bench.feed(read('s', 'and more'), event('s', { type: 'generate', requestId: 'r', maxTokens: 5 }))
  await bench.settle({ warn: (message) => warnings.push(message) })
  return warnings
}

const flip = (path: string): void => {
  const bytes = readFileSync(path)
  bytes[bytes.length >> 1]! ^= 4
  writeFileSync(path, bytes)
}

test.each([
  [
    'missing',
    (path: string) => rmSync(path),
    /^The blob with positions \d+ to \d+ of the cache of session "s" \(sha256 [0-9a-f]{12}…\) is not in the blob store/,
  ],
  [
    'damaged',
    flip,
    /^The blob with positions \d+ to \d+ of the cache of session "s" \(sha256 [0-9a-f]{12}…\) is damaged in the blob store .* have the sha256/,
  ],
  ['cut', (path: string) => writeFileSync(path, readFileSync(path).subarray(1)), /is damaged .* its 32767 bytes/],
] as const)('a session with a block that is %s is computed again from its events and saved anew', (_what, harm, message) => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      const warnings = await harmed(bench, blobStore, harm)
      expect(warnings[0]).toMatch(message)
      expect(warnings[0]).toMatch(/computed again from its first event/)
      // The next worker finds every block.
      await bench.feed(read('s', 'once more'))
      const later: string[] = []
      await bench.settle({ warn: (warning) => later.push(warning) })
      expect(later).toEqual([])
      await verified(bench)
    },
    { blobStore },
  )
})

test('where its events are gone too, the session is set aside, and the block is named', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      const warnings = await harmed(
        bench,
        blobStore,
        (path) => rmSync(path),
        async () => bench.log.trim(bench.names.chunks, 0, (await bench.log.bounds(bench.names.chunks, 0)).end),
      )
      const { status, stopped } = (await bench.heads()).get('s')!
      expect(status).toBe('stopped')
      expect(stopped!.cause).toBe('storage')
      expect(stopped!.reason).toMatch(
        /The blob with positions \d+ to \d+ of the cache of session "s" \(sha256 [0-9a-f]{12}…\) is not in the blob store/,
      )
      expect(warnings.join('\n')).toContain(stopped!.reason)
      await bench.feed(event('s', { type: 'boundary', reset: true }), read('s', textOf(300)))
      await bench.settle()
      expect((await bench.heads()).get('s')!.status).toBe('open')
    },
    { blobStore },
  )
})

/** What verify finds. */
const faults = async ({ log, names, model, tokenizer }: Bench): Promise<string> =>
  (await verifyLog({ log, names, model, tokenizer, format: 'json', blobs: true })).findings
    .map(({ message }) => message)
    .join('\n')

test('verify names a block that is missing, and one that is damaged', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('s', textOf(600)))
      await bench.settle()
      const [first, second] = blobsIn(blobStore)
      const kept = readFileSync(first!)
      rmSync(first!)
      expect(await faults(bench)).toMatch(
        /^The blob with positions \d+ to \d+ of the cache of session "s" .* is not in the blob store/,
      )
      writeFileSync(first!, kept)
      await verified(bench)
      flip(second!)
      expect(await faults(bench)).toMatch(
        /^The blob with positions \d+ to \d+ of the cache of session "s" .* is damaged in the blob store/,
      )
    },
    { blobStore },
  )
})

test('a worker without the store is refused, one with another store waits, and neither changes anything', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('s', textOf(600)))
      await bench.settle()
      await bench.feed(read('s', 'more'))
      const { end } = await bench.log.bounds(bench.names.state, 0)
      const other = freshFolder()
      for (const [store, state, message] of [
        [undefined, 'refused', /has blocks in a blob store, and none was given/],
        [other, 'lost', /it has no [0-9a-f]{32}\/0\/log, the mark of continuo\.state, partition 0\./],
      ] as const) {
        const log = await openLog(bench.url, store === undefined ? {} : { blobStore: store })
        const running = await bench.start({ log })
        await eventually(() =>
          expect(running.states).toContainEqual(
            expect.objectContaining({
              state,
              error: expect.objectContaining({ message: expect.stringMatching(message) }),
            }),
          ),
        )
        await running.worker.stop()
        await log.close()
      }
      expect((await bench.log.bounds(bench.names.state, 0)).end).toBe(end)
      // The same content in another place is the same store.
      cpSync(blobStore, other, { recursive: true })
      rmSync(blobStore, { recursive: true })
      const log = await openLog(bench.url, { blobStore: other })
      await bench.settle({ log })
      await verified({ ...bench, log })
      await log.close()
    },
    { blobStore },
  )
})
