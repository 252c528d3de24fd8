/**
 * Snapshots in blocks without a blob store: the topic of the partition has them, on either log.
 *
 * @module-tag slow
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { wholeFile } from '../../../src/operators/snapshots/manifests.ts'
import { readSnapshot } from '../../../src/operators/snapshots/snapshots.ts'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import { decodeSnapshot, readSnapshotFile } from '../../../src/state/snapshot.ts'
import { openLog } from '../../../src/streams/open.ts'
import { blobs as contract } from '../../../topics/blobs.ts'
import { eventually } from '../../streams/helpers.ts'
import { BLOCK_BYTES, blobsIn, freshFolder, growingBenches, textOf } from '../block-bench.ts'
import { type Bench, benches, event, onBothLogsWith, verified } from '../harness.ts'
import { plant } from '../planting.ts'

const growing = growingBenches()
const plain = benches()

const read = (session: string, text: string) => event(session, { type: 'text', text })
const snapshotOf = async (bench: Bench, session: string) => (await bench.heads()).get(session)!.snapshot!
const bytesIn = async (bench: Bench): Promise<number> =>
  (await bench.records('blobs')).reduce((sum, { value }) => sum + value!.length, 0)

/** What verify finds. */
const faults = async ({ log, names, model, tokenizer }: Bench): Promise<string> =>
  (await verifyLog({ log, names, model, tokenizer, format: 'json', blobs: true })).findings
    .map(({ message }) => message)
    .join('\n')

onBothLogsWith({ tags: 'slow' })((fresh) => {
  test('a snapshot writes only the blocks that are new, and the next worker goes on from them', () =>
    growing.use(async (bench) => {
      await bench.feed(read('s', textOf(700)))
      await bench.settle()
      expect((await snapshotOf(bench, 's')).blobs).toEqual({ count: 2, bytes: 2 * BLOCK_BYTES, in: 'topic' })
      expect(await bench.records('blobs')).toHaveLength(2)
      await bench.feed(read('s', textOf(1000, 2)), event('s', { type: 'generate', requestId: 'r', maxTokens: 5 }))
      const running = await bench.settle({ partBytes: 20_000 })
      expect(running.restored).toEqual(['s'])
      // Four blocks more, of two parts each.
      expect(await bench.records('blobs')).toHaveLength(10)
      expect(await bytesIn(bench)).toBe(6 * BLOCK_BYTES)
      const { bytes, blobs } = await snapshotOf(bench, 's')
      expect(blobs).toEqual({ count: 6, bytes: 6 * BLOCK_BYTES, in: 'topic' })
      expect(bytes).toBeLessThan(BLOCK_BYTES + 4096)
      await verified(bench)
      const head = (await bench.heads()).get('s')!
      const file = await readSnapshot(bench.log, bench.names.snapshots, 0, head)
      const manifest = (await readSnapshotFile(file)).manifest!
      expect(manifest.store).toBe('topic')
      const whole = await wholeFile(bench.log, await readSnapshot(bench.log, bench.names.snapshots, 0, head))
      expect((await decodeSnapshot(whole, bench.model.layout)).state.length).toBeGreaterThan(6 * BLOCK_BYTES)
    }, fresh()))

  test(
    'what lies before all that lives is trimmed; the living in the way are moved, and old sessions go on from there',
    () =>
      growing.use(async (bench) => {
        await bench.feed(read('old', textOf(1300)), read('older', textOf(520, 2)))
        await bench.settle({ compactFloor: 8 })
        const living = 7 * BLOCK_BYTES
        expect(await bytesIn(bench)).toBe(living)
        // Sessions that live shortly; `old` goes on now and then, `older` never.
        const running = await bench.start({ compactFloor: 8, snapshotEvery: 300 })
        for (let round = 0; round < 8; round += 1) {
          const id = `short-${round}`
          await bench.feed(read(id, textOf(1100, round + 3)))
          await running.idle()
          await bench.feed(event(id, { type: 'close' }), read('old', 'and on'))
          await running.idle()
        }
        // Looking, moving, committing and trimming need a commit each.
        await eventually(async () => {
          await bench.feed(read('other', 'a little'))
          await running.idle()
          expect(await bytesIn(bench)).toBeLessThanOrEqual(4 * living + 4 * BLOCK_BYTES)
          expect((await bench.log.bounds(bench.names.blobs, 0)).begin).toBeGreaterThan(7)
        })
        await running.worker.stop()
        await verified(bench)
        await bench.feed(read('old', 'once more'), read('older', 'and this one'))
        const warnings: string[] = []
        const last = await bench.settle({ warn: (message) => warnings.push(message) })
        expect(last.restored.sort()).toEqual(['old', 'older'])
        expect(warnings).toEqual([])
        await verified(bench)
      }, fresh()),
    120_000,
  )

  test('what a fork wrote before its first head commits is not taken for garbage', () =>
    growing.use(async (bench) => {
      // A commit rests so long that the look for garbage comes between the snapshot of the child and the commit of its
      // head.
      const running = await bench.start({ compactFloor: 8, snapshotEvery: 1000, commitInterval: 700 })
      await bench.feed(read('gone', textOf(1300)))
      await running.idle()
      await bench.feed(
        event('gone', { type: 'close' }),
        read('parent', textOf(700, 2)),
        event('child', { type: 'open', from: { session: 'parent' } }),
        read('other', 'a little'),
      )
      await running.idle()
      // The garbage is gone, the child is not.
      await eventually(async () => {
        await bench.feed(read('other', 'and on'))
        await running.idle()
        expect((await bench.log.bounds(bench.names.blobs, 0)).begin).toBeGreaterThan(0)
      })
      await running.worker.stop()
      expect((await snapshotOf(bench, 'child')).blobs!.count).toBe(2)
      expect(await faults(bench)).toBe('')
    }, fresh()))

  test('a session that was closed and forked anew has the blocks of its new life', () =>
    growing.use(async (bench) => {
      await bench.feed(read('s', textOf(300)), read('parent', textOf(300, 2)))
      await bench.settle()
      await bench.feed(
        event('s', { type: 'close' }),
        event('s', { type: 'open', from: { session: 'parent' } }),
        read('s', 'and on'),
      )
      await bench.settle()
      expect((await snapshotOf(bench, 's')).blobs!.count).toBe(1)
      expect(await faults(bench)).toBe('')
    }, fresh()))

  test(
    'when nothing lives all is trimmed, and a session that begins anew has its blocks behind it',
    () =>
      growing.use(async (bench) => {
        await bench.feed(read('a', textOf(1300)), read('b', textOf(1300, 2)))
        await bench.settle({ compactFloor: 8 })
        await bench.feed(
          event('a', { type: 'boundary', reset: true }),
          event('b', { type: 'close' }),
          read('a', textOf(300, 3)),
        )
        const running = await bench.start({ compactFloor: 8, snapshotRecords: 1 })
        await eventually(async () => {
          await bench.feed(read('a', 'more'))
          await running.idle()
          expect(await bytesIn(bench)).toBeLessThanOrEqual(2 * BLOCK_BYTES)
        })
        await running.worker.stop()
        await verified(bench)
      }, fresh()),
    60_000,
  )
})

/** A session with blocks; `harm` them, then read on, and hand out the warnings. */
const harmed = async (bench: Bench, harm: () => Promise<void>): Promise<readonly string[]> => {
  await bench.feed(read('s', textOf(600)))
  await bench.settle()
  await harm()
  const warnings: string[] = []
  await bench.feed(read('s', 'and more'), event('s', { type: 'generate', requestId: 'r', maxTokens: 5 }))
  await bench.settle({ warn: (message) => warnings.push(message) })
  return warnings
}

test('a session with a block that is gone is computed again from its events and saved anew', () =>
  growing.use(async (bench) => {
    const warnings = await harmed(bench, async () => {
      await bench.log.trim(bench.names.blobs, 0, 1)
      expect(await faults(bench)).toMatch(
        /^The blob with positions \d+ to \d+ of the cache of session "s" .* is not in the blob store continuo\.blobs\[0\]/,
      )
    })
    expect(warnings[0]).toMatch(
      /^The blob with positions \d+ to \d+ of the cache of session "s" \(sha256 [0-9a-f]{12}…\) is not in .* computed again from its first event/,
    )
    await bench.feed(read('s', 'once more'))
    const later: string[] = []
    await bench.settle({ warn: (warning) => later.push(warning) })
    expect(later).toEqual([])
    await verified(bench)
  }))

test('where its events are gone too, the session is set aside, and the block is named', () =>
  growing.use(async (bench) => {
    await harmed(bench, async () => {
      for (const topic of ['blobs', 'chunks'] as const)
        await bench.log.trim(bench.names[topic], 0, (await bench.log.bounds(bench.names[topic], 0)).end)
    })
    const { status, stopped } = (await bench.heads()).get('s')!
    expect(status).toBe('stopped')
    expect(stopped!.reason).toMatch(
      /The blob with positions \d+ to \d+ of the cache of session "s" \(sha256 [0-9a-f]{12}…\) is not in the blob store/,
    )
    await bench.feed(event('s', { type: 'boundary', reset: true }), read('s', textOf(600, 2)))
    await bench.settle()
    expect((await bench.heads()).get('s')!.snapshot!.blobs!.count).toBe(2)
  }))

test('what a crash left between a blob and the commit that names it is trimmed', () =>
  growing.use(async (bench) => {
    const writer = await bench.log.claim('test', bench.names.chunks, 0)
    const value = new Uint8Array(BLOCK_BYTES)
    for (let at = 0; at < 6; at += 1)
      await writer.append([{ topic: bench.names.blobs, key: Buffer.from(`${'ab'.repeat(32)}#0`), value }])
    await writer.close()
    await bench.feed(read('s', textOf(600)))
    await bench.settle({ compactFloor: 8 })
    const running = await bench.start({ compactFloor: 8 })
    await eventually(async () => expect(await bytesIn(bench)).toBe(2 * BLOCK_BYTES))
    await running.worker.stop()
    await verified(bench)
  }))

test('a log without the topic, with a whole snapshot, opens, verifies and goes on', async () => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-old-'))
  const url = `file:${join(dir, 'log.db')}`
  try {
    await growing.use(
      async (bench) => {
        const topics = async () => (await bench.log.topics()).filter(({ name }) => name === bench.names.blobs)
        expect(await topics()).toEqual([])
        await verified(bench)
        await bench.feed(read('s', textOf(200)), event('s', { type: 'generate', requestId: 'r', maxTokens: 30 }))
        await bench.settle()
        await plant(bench, 's', {})
        await verified(bench)
        await bench.feed(read('s', textOf(600, 2)))
        await bench.settle()
        expect((await snapshotOf(bench, 's')).blobs!.count).toBe(3)
        expect(await topics()).toMatchObject([{ partitions: 1, config: contract.settings }])
        await verified(bench)
      },
      { url, without: 'blobs' },
    )
  } finally {
    rmSync(dir, { recursive: true, force: true })
  }
})

test('a log that has blobs in the topic goes on in a store, and not back', () =>
  growing.use(async (bench) => {
    await bench.feed(read('a', textOf(600)), read('b', textOf(600, 2)))
    await bench.settle()
    const folder = freshFolder()
    const log = await openLog(bench.url, { blobStore: folder })
    await bench.feed(read('a', textOf(300, 3)))
    await bench.settle({ log })
    expect(blobsIn(folder)).toHaveLength(3)
    await verified({ ...bench, log })
    await bench.feed(read('b', 'more'))
    const running = await bench.start()
    await eventually(() =>
      expect([...running.worker.refused.values()].map(String).join()).toMatch(/in a blob store, and none was given/),
    )
    await running.worker.stop()
    await bench.settle({ log })
    await verified({ ...bench, log })
    await log.close()
  }))

test('a context without a full block writes nothing there', () =>
  growing.use(async (bench) => {
    await bench.feed(read('s', textOf(255)))
    await bench.settle()
    expect((await snapshotOf(bench, 's')).blobs).toBeUndefined()
    expect((await bench.log.bounds(bench.names.blobs, 0)).end).toBe(0)
  }))

test('nor does a model whose state does not grow', () =>
  plain.use(async (bench) => {
    await bench.feed(read('s', textOf(700)))
    await bench.settle()
    expect((await snapshotOf(bench, 's')).blobs).toBeUndefined()
    expect((await bench.log.bounds(bench.names.blobs, 0)).end).toBe(0)
  }))
