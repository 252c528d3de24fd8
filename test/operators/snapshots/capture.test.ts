/**
 * Captures of sessions whose blocks are all new, to a log or a blob store that has none of them: by pieces, so that
 * their memory has a bound.
 */
import { expect, test } from 'vitest'
import { openBlobs } from '../../../src/operators/blobs/blobs.ts'
import { captureOf } from '../../../src/operators/snapshots/capture.ts'
import { storedState } from '../../../src/operators/snapshots/stored-state.ts'
import { inTurns } from '../../../src/operators/snapshots/turns.ts'
import { copiedBytes } from '../../../src/operators/types.ts'
import { openState } from '../../../src/operators/worker/partition-state.ts'
import { createHistory } from '../../../src/state/history.ts'
import { openLog } from '../../../src/streams/open.ts'
import { eventually } from '../../streams/helpers.ts'
import { BLOCK_BYTES, blobsIn, exported, fileOf, freshFolder, growingBenches, read, textOf } from '../block-bench.ts'
import { type Bench, event, verified } from '../harness.ts'

const growing = growingBenches()
const rings = growingBenches(2000)

test.each([
  ['tables that grow', growing],
  ['rings', rings],
])('of %s hold the blocks of one piece at most, and have the same names', (_, benches) => {
  const folder = freshFolder()
  return benches.use(
    async (bench) => {
      await bench.feed(read('s', textOf(3000)))
      await bench.settle()
      const head = (await bench.heads()).get('s')!
      const { model, log, names } = bench
      const { state } = await storedState(log, await fileOf(bench, 's'), model.layout)
      const context = await model.openContext(state, { pulse: 3000n, origin: 0n, chain: head.chain })
      const writer = inTurns(await log.claim('test', names.chunks, 0))
      const found = await openState(writer, { log, names, group: 'test', model, warn: () => undefined }, 0, 8)
      const claimed = { log, names, model, partition: 0, writer, partBytes: 900_000 }
      const { blobs } = await openBlobs(claimed, found.cursor, found.heads)
      const taken: number[] = []
      const watched = {
        ...context,
        gates: context.gates,
        capture: async (known: Parameters<typeof context.capture>[0]) => {
          const parts = await context.capture(known)
          taken.push(parts.fresh.flat().reduce((sum, { bytes }) => sum + bytes.length, 0))
          return parts
        },
      }
      const before = blobsIn(folder).length
      const capture = await captureOf({ head, context: watched, history: createHistory() }, blobs, 3 * BLOCK_BYTES)
      expect(taken.length).toBeGreaterThan(2)
      expect(Math.max(...taken)).toBeLessThanOrEqual(3 * BLOCK_BYTES)
      expect(copiedBytes(capture)).toBeLessThan(5 * BLOCK_BYTES)
      const written = (await blobs!.write(capture))!
      context.close()
      await writer.close()
      // The same bytes as those that the worker wrote at once.
      const hashes = written.names.flat().map(({ hash }) => hash)
      const { blocks } = await storedState(log, await fileOf(bench, 's'), model.layout)
      expect(hashes).toEqual(blocks!.names.flat().map(({ hash }) => hash))
      expect(blobsIn(folder).length).toBe(before + new Set(hashes).size)
    },
    { blobStore: folder },
  )
})

/** A session in the topic, which goes on in a folder by pieces of a block; garbage is looked for all the time. */
const moved = async (bench: Bench, folder: string): Promise<void> => {
  await bench.feed(read('s', textOf(3000)), read('t', textOf(3000)))
  await bench.settle()
  const log = await openLog(bench.url, { blobStore: folder })
  const running = await bench.start({ log, captureBytes: BLOCK_BYTES, compactFloor: 8, snapshotEvery: 100 })
  const rounds = 12
  for (let round = 0; round < rounds; round += 1) {
    const short = `short-${round}`
    await bench.feed(
      read('s', textOf(40, round)),
      read(short, textOf(3000, round + 5)),
      event(short, { type: 'close' }),
    )
    await running.idle()
  }
  // Of twelve sessions with eleven blobs each most are gone; what was written ahead of the snapshots of s stays.
  await eventually(async () => {
    await bench.feed(read('s', 'x'))
    await running.idle()
    expect(blobsIn(folder).length).toBeLessThan(13 + 5 * 11)
  })
  await running.worker.stop()
  const whole = await exported({ ...bench, log }, 's')
  expect(whole.head.conductor.globalStep).toBeGreaterThanOrEqual(3000 + 40 * rounds)
  await verified({ ...bench, log })
  await log.close()
}

test('a session goes from the log to a store by pieces, beside the removal of what is dead', { tags: 'slow' }, () => {
  const folder = freshFolder()
  return growing.use((bench) => moved(bench, folder))
})

test('a session without a snapshot goes to the topic by pieces, beside its trims', () =>
  growing.use(async (bench) => {
    const running = await bench.start({
      captureBytes: BLOCK_BYTES,
      compactFloor: 8,
      snapshotEvery: 3000,
      maxContexts: 2,
    })
    for (let round = 0; round < 3; round += 1) {
      await bench.feed(
        read('u', textOf(600, round)),
        event('u', { type: 'close' }),
        read('s', textOf(1100, round)),
        read('t', textOf(900, round)),
      )
      await running.idle()
    }
    await running.worker.stop()
    expect(running.states.every(({ error }) => error === undefined)).toBe(true)
    for (const id of ['s', 't']) expect((await bench.heads()).get(id)!.snapshot!.blobs!.count).toBeGreaterThan(9)
    await verified(bench)
  }))
