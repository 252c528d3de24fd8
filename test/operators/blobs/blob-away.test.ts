/**
 * A blob store that is away (a mount that dropped, a folder that was moved) is waited for. No session loses anything by
 * it.
 */
import { existsSync, mkdirSync, readdirSync, renameSync, rmSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { expect, test } from 'vitest'
import { codeOf, messageOf } from '../../../src/errors.ts'
import { eventually } from '../../streams/helpers.ts'
import { blobsIn, freshFolder, growingBenches, read, textOf } from '../block-bench.ts'
import { type Bench, type Running, verified } from '../harness.ts'

const benches = growingBenches()

/**
 * Two sessions in blocks, of which one at a time is in memory. The first event of `b` is gone, so it cannot be computed
 * again: who took a block of it for lost would set it aside for good.
 */
const begun = async (bench: Bench): Promise<void> => {
  await bench.feed(read('b', textOf(700, 2)), read('a', textOf(700)))
  await bench.settle()
  await bench.log.trim(bench.names.chunks, 0, 1)
}

const lostWith = async ({ states }: Running): Promise<unknown> => {
  let error: unknown
  await eventually(async () => {
    error = states.find(({ state }) => state === 'lost')?.error
    expect(error).toBeDefined()
  })
  return error
}

const expectBothWhole = async (bench: Bench): Promise<void> => {
  const heads = await bench.heads()
  for (const id of ['a', 'b']) expect(heads.get(id)).toMatchObject({ status: 'open', totals: { tokens: 1400 } })
  await verified(bench)
}

// A mount that drops leaves the folder in which it was mounted, which is empty.
test.each([
  ['moved', () => undefined],
  ['empty', (folder: string) => void mkdirSync(folder)],
])('in the middle of a run the folder is %s and comes back: the task waits, and every session goes on', (_, leave) => {
  const blobStore = join(freshFolder(), 'store')
  return benches.use(
    async (bench) => {
      await begun(bench)
      const running = await bench.start({ maxContexts: 1, retryPause: 5 })
      await bench.feed(read('a', textOf(100, 3)))
      await running.idle()
      renameSync(blobStore, `${blobStore}.away`)
      leave(blobStore)
      // One session needs its blocks from the store, the other one writes new ones to it.
      await bench.feed(read('b', textOf(700, 4)), read('a', textOf(600, 5)))
      const error = await lostWith(running)
      expect(codeOf(error)).toBe('UNAVAILABLE')
      expect(messageOf(error)).toContain(`The blob store ${blobStore}`)
      // Nothing was written in its place.
      expect(existsSync(blobStore) ? readdirSync(blobStore) : []).toEqual([])
      rmSync(blobStore, { recursive: true, force: true })
      renameSync(`${blobStore}.away`, blobStore)
      await running.idle()
      await running.worker.stop()
      expect(running.states.map(({ state }) => state)).not.toContain('refused')
      await expectBothWhole(bench)
    },
    { blobStore },
  )
})

test('a worker that finds it away waits for it, and says which mark it looked for', () => {
  const blobStore = join(freshFolder(), 'store')
  return benches.use(
    async (bench) => {
      await begun(bench)
      await bench.feed(read('a', textOf(700, 3)), read('b', textOf(700, 4)))
      const folder = dirname(blobsIn(blobStore)[0]!).slice(blobStore.length + 1)
      renameSync(blobStore, `${blobStore}.away`)
      const warnings: string[] = []
      const running = await bench.start({ retryPause: 5, warn: (message) => warnings.push(message) })
      const error = await lostWith(running)
      expect(codeOf(error)).toBe('UNAVAILABLE')
      expect(messageOf(error)).toContain(`it has no ${folder}/log`)
      await eventually(async () =>
        expect(warnings.filter((each) => each.includes('Trying again')).length).toBeGreaterThan(1),
      )
      expect(running.worker.refused.size).toBe(0)
      renameSync(`${blobStore}.away`, blobStore)
      await running.idle()
      await running.worker.stop()
      await expectBothWhole(bench)
    },
    { blobStore },
  )
})
