/**
 * A worker whose blocks lie in a folder on a disk that becomes full in the middle of the run: the task waits with a
 * sentence, nothing is half written or half named, and when there is room all that was fed is there.
 *
 * @module-tag slow
 */
import { readFileSync } from 'node:fs'
import { basename, join } from 'node:path'
import { beforeEach, describe, expect, test } from 'vitest'
import { codeOf, messageOf } from '../../src/errors.ts'
import { sha256 } from '../../src/hash.ts'
import { blobsIn, growingBenches, textOf } from '../operators/block-bench.ts'
import { event, verified } from '../operators/harness.ts'
import { smallDisk } from '../small-disk.ts'
import { eventually } from '../streams/helpers.ts'

const disk = smallDisk('8m')
const benches = growingBenches()
const SESSIONS = ['a', 'b', 'c']

/** The blobs below the folder, each of which is whole, under a name that begins with the hash of its bytes. */
const expectWhole = (folder: string): readonly string[] => {
  // A task that tries again writes under another name first.
  const blobs = blobsIn(folder).filter((path) => !path.endsWith('.tmp'))
  for (const path of blobs) {
    const [, hash] = /^([0-9a-f]{64})\.[0-9a-f]{16}$/.exec(basename(path)) ?? []
    expect(sha256(readFileSync(path))).toBe(hash)
  }
  return blobs
}

describe('a disk that is full in the middle of a run', () => {
  beforeEach(disk.need)

  test.each([
    ['goes on by itself', false],
    ['is gone on from by another worker', true],
  ])(
    'is waited for, and the run %s',
    (_, another) => {
      const folder = join(disk.folder, another ? 'another' : 'same')
      return benches.use(
        async (bench) => {
          const options = { snapshotEvery: 256, maxContexts: 1, retryPause: 20 }
          const feed = async (round: number): Promise<void> => {
            for (const session of SESSIONS)
              await bench.feed(event(session, { type: 'text', text: textOf(700, round * 3 + session.charCodeAt(0)) }))
          }
          await feed(0)
          const running = await bench.start(options)
          await running.idle()
          const before = expectWhole(folder)
          expect(before.length).toBeGreaterThan(0)
          disk.fill()
          await feed(1)
          await eventually(() => expect(running.states.some(({ state }) => state === 'lost')).toBe(true), 60_000)
          const { error } = running.states.find(({ state }) => state === 'lost')!
          expect(codeOf(error)).toBe('UNAVAILABLE')
          expect(messageOf(error)).toContain(folder)
          expect(messageOf(error)).toContain('the disk is full; free some space')
          // One more may be there: it was being written, under another name and in room of its own, when the disk
          // became full.
          expect(expectWhole(folder)).toEqual(expect.arrayContaining([...before]))
          if (another) await running.worker.stop()
          disk.makeRoom()
          if (!another) {
            await running.idle()
            await running.worker.stop()
          }
          const again = await bench.settle(options)
          expect(again.worker.refused.size).toBe(0)
          const heads = await bench.heads()
          for (const session of SESSIONS) expect(heads.get(session)).toMatchObject({ totals: { tokens: 1400 } })
          expect(expectWhole(folder).length).toBeGreaterThan(before.length)
          expect(blobsIn(folder)).toEqual(expectWhole(folder))
          // Every session is computed again from the input, and compared.
          await verified(bench)
        },
        { blobStore: folder },
      )
    },
    300_000,
  )
})
