/**
 * Sessions of a model with a window: their rings lie in blocks, of which a snapshot writes those that a new lap wrote.
 *
 * @module-tag slow
 */
import { readFileSync, rmSync, writeFileSync } from 'node:fs'
import { expect, test, vi } from 'vitest'
import type { Context } from '../../../src/engine/context.ts'
import { type ContextStore, createContextStore } from '../../../src/operators/sessions/context-store.ts'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import { encodeManifest, namedIn, readManifest } from '../../../src/state/manifest.ts'
import { readSnapshotFile } from '../../../src/state/snapshot.ts'
import { cutParts } from '../../engine/cut-parts.ts'
import { feed, sameBytes } from '../../engine/helpers.ts'
import { safetensors, writePackage } from '../../engine/packages.ts'
import { randomDecoder, windowedGemma3 } from '../../models/decoders.ts'
import { ids } from '../../sessions/helpers.ts'
import { eventually } from '../../streams/helpers.ts'
import {
  BLOCK_BYTES,
  blobsIn,
  expectSameAnywhere,
  exported,
  fileOf,
  freshFolder,
  growingBenches,
  read,
  textOf,
} from '../block-bench.ts'
import { type Bench, createBench, event, verified } from '../harness.ts'
import { plantFile } from '../planting.ts'

/** Four blocks; the last one has 132 places. */
const WINDOW = 900
const BLOCKS = 4
const SHORT_BYTES = (BLOCK_BYTES * 132) / 256
const benches = growingBenches(WINDOW)
/** Four blocks of the same size. */
const even = growingBenches(1024)

const tokens = (count: number): number[] => ids(7, count, 250)
const fed = (store: ContextStore, context: Context, given: readonly number[]) =>
  store.submit({ context, tokens: Int32Array.from(given), nats: false })

/** The runs that the newest snapshot names. */
const runsIn = async (bench: Bench, session: string) => {
  const { names } = readManifest(await readSnapshotFile(await fileOf(bench, session)))!
  return names.flat().map(({ run }) => run)
}

test('a snapshot writes only the runs that are new, and its own file holds only the block that is being written', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      let fed = 0
      const feed = async (length: number): Promise<number> => {
        const before = blobsIn(blobStore).length
        await bench.feed(read('s', textOf(length, fed)))
        fed += length
        await bench.settle({ snapshotEvery: 10_000 })
        const { bytes, blobs } = (await bench.heads()).get('s')!.snapshot!
        // Beside the block: head, names, and the ids that were fed last.
        expect(bytes).toBeLessThan(BLOCK_BYTES + 10_000)
        expect(blobs!.bytes).toBeLessThanOrEqual(BLOCKS * BLOCK_BYTES)
        return blobsIn(blobStore).length - before
      }
      // Places that no token reached: one blob for all blocks but the short one, and one for that.
      expect(await feed(100)).toBe(2)
      expect(await runsIn(bench, 's')).toEqual([1, 2, 3])
      expect((await bench.heads()).get('s')!.snapshot!.blobs).toEqual({ count: 2, bytes: BLOCK_BYTES + SHORT_BYTES })
      // Positions 0 … 255.
      expect(await feed(300)).toBe(1)
      expect(await runsIn(bench, 's')).toEqual([2, 3, 4])
      expect(await feed(100)).toBe(0)
      // 512 … 899, and 900 … 1155 in the places of the first block. The second one is being written.
      expect(await feed(700)).toBe(3)
      expect(await runsIn(bench, 's')).toEqual([6, 7, 8])
      expect(await feed(10)).toBe(0)
      // More than a lap: all that stands is new.
      expect(await feed(1500)).toBe(3)
      await verified(bench)
    },
    { blobStore },
  )
})

test('a session has the same head and state wherever its snapshots fall', () => expectSameAnywhere(benches, 4))

test('blocks with the same bytes in other runs keep their own numbers', () =>
  even.use(
    async (bench) => {
      // Two blocks that no token reached, named by a session that comes back from its snapshot.
      await bench.feed(read('long', textOf(300)))
      await bench.settle()
      await bench.feed(read('long', textOf(1, 2)), read('short', textOf(100, 3)))
      await bench.settle()
      expect(await runsIn(bench, 'long')).toEqual([2, 3, 4])
      expect(await runsIn(bench, 'short')).toEqual([1, 2, 3])
      await bench.feed(read('short', textOf(5, 4)))
      await bench.settle()
      await verified(bench)
    },
    { blobStore: freshFolder() },
  ))

test('after a reset no run of the context before is named; a fork names those of its parent', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('s', textOf(1000)))
      await bench.settle()
      const before = blobsIn(blobStore)
      await bench.feed(event('fork', { type: 'open', from: { session: 's' } }), read('fork', textOf(300, 3)))
      const running = await bench.start()
      await running.idle()
      // A reset and as many tokens again, in one life: the numbers of the runs come again, with other bytes.
      await bench.feed(event('s', { type: 'boundary', reset: true }), read('s', textOf(1000, 5)))
      await running.idle()
      await running.worker.stop()
      expect(await runsIn(bench, 's')).toEqual([5, 6, 7])
      const shared = async (session: string): Promise<number> => {
        const { names } = readManifest(await readSnapshotFile(await fileOf(bench, session)))!
        return names.flat().filter(({ hash }) => before.some((path) => path.includes(hash))).length
      }
      expect(await shared('s')).toBe(0)
      expect(await shared('fork')).toBe(2)
      await verified(bench)
    },
    { blobStore },
  )
})

test('what no session names is removed, what one names stays', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('a', textOf(2000)), read('b', textOf(950, 9)))
      const running = await bench.start({ compactFloor: 8, snapshotEvery: 200 })
      await running.idle()
      for (let round = 0; round < 4; round += 1) {
        await bench.feed(read('a', textOf(300, round)))
        await running.idle()
      }
      await running.worker.stop()
      const last = await bench.start({ compactFloor: 8 })
      await last.idle()
      await eventually(async () => expect(blobsIn(blobStore).length).toBeLessThanOrEqual(4 * (BLOCKS - 1)))
      await last.worker.stop()
      await verified(bench)
    },
    { blobStore },
  )
})

test('verify names a block that is missing, and one that is damaged; such a session is computed again', () => {
  const blobStore = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('s', textOf(1000)))
      await bench.settle()
      const faults = async (): Promise<string> => {
        const { log, names, model, tokenizer } = bench
        const { findings } = await verifyLog({ log, names, model, tokenizer, format: 'json', blobs: true })
        return findings.map(({ message }) => message).join('\n')
      }
      const [first, second] = blobsIn(blobStore)
      const kept = readFileSync(first!)
      rmSync(first!)
      expect(await faults()).toMatch(
        /^The blob with places \d+ to \d+ of the window of session "s" .* is not in the blob store/,
      )
      writeFileSync(first!, kept)
      await verified(bench)
      const bytes = readFileSync(second!)
      bytes[bytes.length >> 1]! ^= 4
      writeFileSync(second!, bytes)
      expect(await faults()).toMatch(
        /^The blob with places \d+ to \d+ of the window of session "s" .* is damaged in the blob store/,
      )
      await bench.feed(read('s', 'and more'))
      const warnings: string[] = []
      await bench.settle({ warn: (message) => warnings.push(message) })
      expect(warnings[0]).toMatch(
        /^The blob with places \d+ to \d+ of the window of session "s" .* computed again from its first event/,
      )
      await verified(bench)
    },
    { blobStore },
  )
})

/** Layers that see 300 positions beside one that sees all. */
const mixed = (): string => {
  const config = windowedGemma3(300)
  return writePackage(config, safetensors(randomDecoder(8, config)))
}

test('a manifest of a version that kept rings in the file is gone on from, and the next one has their blocks', async () => {
  const blobStore = freshFolder()
  const bench = await createBench(mixed(), 1, { blobStore })
  const { model } = bench
  const tokens = (count: number) => Array.from({ length: count }, (_, at) => (at * 7) % 29)
  const read = (count: number) => event('s', { type: 'tokens', tokens: tokens(count) })
  try {
    await bench.feed(read(700))
    await bench.settle()
    const manifest = readManifest(await readSnapshotFile(await fileOf(bench, 's')))!
    expect(model.layout.growth.map(({ counter, places }) => [counter, places])).toEqual([
      ['pastLen', undefined],
      ['globalStep', 300],
    ])
    // As that version wrote it: without the second growth, whose places are all in the file.
    const { state } = await exported(bench, 's')
    const growth = model.layout.growth.slice(0, 1)
    const layout = { ...model.layout, growth }
    const { hot } = await cutParts(layout, state, { pulse: 700, ends: [] })
    const own = manifest.names.slice(0, 1)
    const file = await encodeManifest(manifest.head, hot, layout, manifest.store, own)
    await plantFile(bench, 's', file, namedIn(layout, own, manifest.store))
    await bench.feed(read(100))
    expect((await bench.settle()).restored).toEqual(['s'])
    const later = readManifest(await readSnapshotFile(await fileOf(bench, 's')))!
    expect(later.names[0]!.slice(0, 2)).toEqual(own[0])
    // Two blocks a lap. Position 799 lies in the first one of lap 2, and the second one has that of lap 1.
    expect(later.names[1]!.map(({ run }) => run)).toEqual([5])
    await verified(bench)
  } finally {
    await bench.close()
  }
})

test('a fork comes back from files while its parent, of whose ring it had the blocks, is in memory', () =>
  benches.use(async ({ model }) => {
    const alone = model.createContext()
    await feed(model, alone, tokens(600))
    const store = createContextStore(model, { maxBytes: 2 * alone.bytes, spillDir: freshFolder() })
    try {
      const parent = store.createContext('parent')
      await fed(store, parent, tokens(600))
      const child = await store.forkContext(parent, 'child')
      await fed(store, child, [1])
      const [one, other] = [store.createContext('one'), store.createContext('other')]
      // All go, one after the other; the parent comes back first.
      for (const context of [one, other, parent]) {
        await fed(store, context, context === parent ? [2] : tokens(600))
        await vi.waitFor(() => expect(store.stats.spilled).toBeGreaterThan(0))
      }
      await fed(store, child, [3])
      await feed(model, alone, [1, 3])
      expect(sameBytes(await child.state(), await alone.state())).toBe(true)
    } finally {
      await store.close()
      alone.close()
    }
  }))
