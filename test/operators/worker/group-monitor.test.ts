/**
 * What a worker knows of what surrounds it: whether it has work, whether everybody has, and whether the input is what
 * it was.
 */
import { describe, expect, test } from 'vitest'
import { readiness } from '../../../src/observe/readiness.ts'
import { gaps, idleness } from '../../../src/observe/standing.ts'
import type { Standing } from '../../../src/operators/worker/worker.ts'
import type { EventLog } from '../../../src/streams/log.ts'
import { openLog } from '../../../src/streams/open.ts'
import { eventually, refuses } from '../../streams/helpers.ts'
import { benches } from '../harness.ts'

const { use } = benches()

const standing = (given: Partial<Standing>): Standing => ({
  topic: 't',
  group: 'g',
  partitions: 4,
  owned: [],
  service: { members: 5, unserved: [], idle: 1, others: [] },
  ...given,
})

describe('a worker', () => {
  test('beside one that has all partitions is ready and says that it is idle; it takes over, and says no more', async () => {
    await use(async (bench) => {
      const busy = await bench.start({ monitorInterval: 20 })
      await busy.idle()
      const log = await openLog(bench.url)
      const seen: Standing[] = []
      const spare = await bench.start({ log, monitorInterval: 20, onStanding: (each) => seen.push(each) })
      const sentence =
        'idle: 0 of 1 partition of continuo.chunks; 2 members of group "test" read it. Ready to take over.'
      await eventually(() => expect(readiness(spare.worker)).toEqual({ ready: true, idle: sentence, partitions: [] }))
      expect(readiness(busy.worker)).toEqual({ ready: true, partitions: [{ partition: 0, state: 'running' }] })
      await busy.worker.stop()
      await eventually(() =>
        expect(readiness(spare.worker)).toEqual({ ready: true, partitions: [{ partition: 0, state: 'running' }] }),
      )
      await eventually(() => expect(seen.at(-1)).toMatchObject({ owned: [0], service: { members: 1, idle: 0 } }))
      await spare.worker.stop()
      await log.close()
    })
  })

  test('whose input has another number of partitions than the state does not begin, and one that runs ends', async () => {
    await use(async (bench) => {
      const counts = { now: 1 }
      const log: EventLog = {
        ...bench.log,
        partitions: async (topic) => (topic === bench.names.chunks ? counts.now : bench.log.partitions(topic)),
      }
      const running = await bench.start({ log, monitorInterval: 20 })
      await running.idle()
      counts.now = 3
      await refuses(running.worker.over, 'REFUSED', 'has 3 partitions', 'began with 1', 'partitions were added')
      expect(readiness(running.worker)).toMatchObject({ ready: false, reason: running.worker.halted?.message })
      await running.worker.stop()
      expect(running.states.map(({ state }) => state)).toEqual([
        'claiming',
        'restoring',
        'running',
        'draining',
        'closed',
      ])
      await refuses(bench.start({ log }), 'REFUSED', 'continuo.chunks has 3 partitions', 'was written with 1')
      await bench.settle()
    })
  })
})

describe('what is said of a group', () => {
  test('is nothing where this worker has work and every partition is served, or nothing is known yet', () => {
    for (const quiet of [standing({ owned: [1] }), standing({ owned: null }), standing({ service: null })]) {
      expect(idleness(quiet)).toBeNull()
      expect(gaps(quiet)).toBeNull()
    }
  })

  test('names what nobody serves, but not a thousand of them', () => {
    const unserved = Array.from({ length: 1000 }, (_, partition) => partition)
    const service = { members: 1, unserved, idle: 1, others: ['other'] }
    const told = gaps(standing({ partitions: 1000, service }))
    expect(told).toContain('Partitions 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 990 more of t are served by nobody')
    expect(told).toContain('some of whom read other')
    expect(gaps(standing({ service: { ...service, unserved: [2] } }))).toContain('Partition 2 of t is served by nobody')
  })
})
