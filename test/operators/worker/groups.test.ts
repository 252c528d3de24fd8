/** Whose state it is: of one group, and of one owner at a time; who was overtaken does not call it broken. */
import { expect, test } from 'vitest'
import type { EventLog } from '../../../src/streams/log.ts'
import { eventually } from '../../streams/helpers.ts'
import { benches, event, onBothLogs } from '../harness.ts'

const { open } = benches()

onBothLogs((fresh) => {
  test('two groups that find the same empty state: one works, the other is refused by name; every output once', async () => {
    const bench = await open(1, fresh())
    try {
      // Neither writes its first cursor before both have found nothing.
      const both = Promise.withResolvers<void>()
      let arrived = 0
      const together: EventLog = {
        ...bench.log,
        committed: async (...args) => {
          arrived += 1
          if (arrived === 2) both.resolve()
          await both.promise
          return bench.log.committed(...args)
        },
      }
      const workers = await Promise.all(
        ['one', 'two'].map((group) => bench.start({ log: together, group, model: { ...bench.model } })),
      )
      await eventually(() => expect(workers.map(({ worker }) => worker.refused.size).sort()).toEqual([0, 1]))
      const loser = workers.findIndex(({ worker }) => worker.refused.size === 1)
      const [lost, won] = loser === 0 ? ['one', 'two'] : ['two', 'one']
      expect((workers[loser]!.worker.refused.get(0) as Error).message).toMatch(
        new RegExp(`belongs to group "${won}" reading .*; this worker is group "${lost}"`),
      )
      await bench.feed(
        event('s', { type: 'text', text: 'Whose am I?' }),
        event('s', { type: 'generate', requestId: 'r', maxTokens: 20 }),
      )
      await workers[1 - loser]!.idle()
      await Promise.all(workers.map(({ worker }) => worker.stop()))
      expect((await bench.generated()).map(({ index }) => index)).toEqual([0, 16])

      // The loser's cursor stands last until the winner commits again; it counts for nothing.
      const again = await bench.start({ group: lost! })
      await eventually(() => expect(again.worker.refused.size).toBe(1))
      await again.worker.stop()
      await bench.feed(event('s', { type: 'text', text: 'Still yours.' }))
      const winner = await bench.settle({ group: won! })
      expect([...winner.worker.refused]).toEqual([])
      expect((await bench.heads()).get('s')!.totals.tokens).toBe(23)
    } finally {
      await bench.close()
    }
  })

  test('an owner who stood still between two looks at the log and was overtaken is fenced, and refuses nothing', async () => {
    const bench = await open(1, fresh())
    try {
      const stopped = Promise.withResolvers<void>()
      const goOn = Promise.withResolvers<void>()
      // Stands still after it read the state, before it asks for the committed offset.
      const log: EventLog = {
        ...bench.log,
        committed: async (...args) => {
          stopped.resolve()
          await goOn.promise
          return bench.log.committed(...args)
        },
      }
      const still = await bench.start({ log, fencedPause: 3_600_000 })
      await stopped.promise
      const heir = await bench.log.claim('test', bench.names.chunks, 0)
      await heir.commit([], 1)
      goOn.resolve()
      await eventually(() => expect(still.states.map(({ state }) => state)).toContain('migrated'))
      expect([...still.worker.refused]).toEqual([])
      await still.worker.stop()
      await heir.close()
    } finally {
      await bench.close()
    }
  })
})
