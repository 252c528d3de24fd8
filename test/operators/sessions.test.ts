/** Contexts in memory: how many, who waits, and what a stop does to those who wait or rebuild. */
import { describe, expect, test } from 'vitest'
import type { Context, Model } from '../../src/engine/types.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { eventually } from '../streams/helpers.ts'
import { type Bench, benches, event, verified } from './harness.ts'

const { use } = benches()

/** The model, telling how many of its contexts are open and were at most. */
const counted = (model: Model): { readonly model: Model; open: number; most: number } => {
  const count = {
    open: 0,
    most: 0,
    model: {
      ...model,
      createContext: (): Context => {
        const context = model.createContext()
        count.open += 1
        count.most = Math.max(count.most, count.open)
        const close = context.close.bind(context)
        context.close = () => {
          close()
          count.open -= 1
        }
        return context
      },
    },
  }
  return count
}

describe('contexts', () => {
  test('never more than asked for, though 100 sessions have work at once; all of them get their turn, twice', async () => {
    await use(async (bench) => {
      for (const text of ['Once upon ', 'a time.'])
        for (let n = 0; n < 100; n += 1) await bench.feed(event(`s${n}`, { type: 'text', text }))
      const count = counted(bench.model)
      await bench.settle({ model: count.model, maxContexts: 4 })
      expect(count.most).toBe(4)
      expect(count.open).toBe(0)
      const heads = [...(await bench.heads()).values()]
      expect(heads.map(({ totals }) => totals.tokens)).toEqual(new Array(100).fill(17))
      expect(new Set(heads.map(({ chain }) => chain)).size).toBe(1)
      await verified(bench)
    })
  })

  test('a session that comes when all contexts are idle and in no snapshot is not left waiting', async () => {
    await use(async (bench) => {
      const running = await bench.start({ maxContexts: 2, snapshotEvery: 1_000_000 })
      for (const session of ['a', 'b', 'c', 'a', 'd']) {
        await bench.feed(event(session, { type: 'text', text: 'Hello. ' }))
        await running.idle()
      }
      await running.worker.stop()
      expect((await bench.heads()).get('a')!.totals.tokens).toBe(14)
      await verified(bench)
    })
  })

  test.each([
    ['open', { type: 'open' }],
    ['empty text', { type: 'text', text: '' }],
    ['half a character', { type: 'text', text: '\ud83d' }],
    ['a boundary', { type: 'boundary' }],
  ] as const)('a session that has read nothing yet (%s) makes room like any other', async (_, chunk) => {
    await use(async (bench) => {
      const running = await bench.start({ maxContexts: 1 })
      await bench.feed(event('a', chunk))
      await running.idle()
      await bench.feed(event('b', { type: 'text', text: 'My turn?' }), event('c', { type: 'text', text: 'And mine?' }))
      await running.idle()
      await bench.feed(event('a', { type: 'text', text: 'Now I read.' }))
      await running.idle()
      await running.worker.stop()
      await verified(bench)
    })
  })

  test('a stop ends the waiting: what had no turn is there for the next worker', async () => {
    await use(async (bench) => {
      await bench.feed(event('long', { type: 'text', text: 'x' }))
      await bench.feed(event('long', { type: 'generate', requestId: 'r', maxTokens: 1_000_000 }))
      await bench.feed(event('short', { type: 'text', text: 'Me too.' }))
      const running = await bench.start({ maxContexts: 1 })
      await eventually(() => expect(running.commits.length).toBeGreaterThan(3))
      await running.worker.stop()
      expect((await bench.heads()).has('short')).toBe(false)
      await bench.feed(event('short', { type: 'close' }))
      const next = await bench.start({ maxContexts: 2 })
      await eventually(async () => expect((await bench.heads()).get('short')?.status).toBe('closed'))
      await next.worker.stop()
    })
  })
})

describe('rebuilding', () => {
  /** A log of `count` sessions whose next event has a past to be read again: no snapshot holds it. */
  const withPast = async (bench: Bench, count: number, bytes: number): Promise<void> => {
    const text = 'All the winter long. '.repeat(Math.ceil(bytes / 21))
    for (let n = 0; n < count; n += 1) await bench.feed(event(`s${n}`, { type: 'text', text }))
    const running = await bench.start({ snapshotEvery: 1_000_000 })
    await running.idle()
    // No farewell: the next owner takes the partition away, as after a crash.
    const heir = await bench.log.claim('test', bench.names.chunks, 0)
    await bench.feed(...Array.from({ length: count }, (_, n) => event(`s${n}`, { type: 'text', text: 'And then.' })))
    await eventually(() => expect(running.states.at(-1)?.state).toBe('migrated'))
    await running.worker.stop()
    await heir.close()
  }

  test('goes on for a few sessions at a time, not for all at once', async () => {
    await use(async (bench) => {
      await withPast(bench, 40, 300)
      let reading = 0
      let most = 0
      const log: EventLog = {
        ...bench.log,
        read: async function* (topic, partition, from, options) {
          const replay = topic === bench.names.chunks && options?.follow !== true
          reading += replay ? 1 : 0
          most = Math.max(most, reading)
          try {
            yield* bench.log.read(topic, partition, from, options)
          } finally {
            reading -= replay ? 1 : 0
          }
        },
      }
      const { restored } = await bench.settle({ log })
      expect(restored).toHaveLength(40)
      expect(most).toBeGreaterThan(1)
      expect(most).toBeLessThanOrEqual(4)
      await verified(bench)
    })
  })

  test('reads no more of other sessions than --snapshot-records says: who is idle is saved meanwhile', async () => {
    await use(async (bench) => {
      await bench.feed(event('quiet', { type: 'text', text: 'I say little.' }))
      const running = await bench.start({ snapshotEvery: 1_000_000, snapshotRecords: 20 })
      await running.idle()
      expect((await bench.heads()).get('quiet')!.snapshot).toBeNull()
      for (let n = 0; n < 40; n += 1) await bench.feed(event('busy', { type: 'text', text: `Entry ${n}. ` }))
      await eventually(async () => expect((await bench.heads()).get('quiet')!.snapshot?.pulse).toBe(13))
      await bench.feed(event('quiet', { type: 'text', text: ' But I do.' }))
      await running.idle()
      await running.worker.stop()
      await verified(bench)
    })
  })

  test('does not hold up a stop, and changes nothing when it is cut short', async () => {
    await use(async (bench) => {
      await withPast(bench, 1, 40_000)
      const before = (await bench.heads()).get('s0')!
      let tokens = 0
      const running = await bench.start({
        batcher: {
          stats: { batches: 0, items: 0, tokens: 0 },
          process: async (item) => {
            const [result] = await bench.model.process([item])
            tokens += item.tokens.length
            return result!
          },
        },
      })
      await eventually(() => expect(tokens).toBeGreaterThan(0))
      await running.worker.stop()
      expect(tokens).toBeLessThan(40_000)
      expect(running.states.at(-1)?.state).toBe('closed')
      expect((await bench.heads()).get('s0')).toEqual(before)
      const { restored } = await bench.settle()
      expect(restored).toEqual(['s0'])
      await verified(bench)
    })
  })

  test('survives that the snapshot it reads is forwarded and trimmed meanwhile', async () => {
    await use(async (bench) => {
      await bench.feed(event('s', { type: 'text', text: 'Once. ' }))
      await bench.settle()
      await bench.feed(event('s', { type: 'text', text: 'Twice.' }))
      // Before the snapshot is read for the first time, another session makes so much dead state that it is written anew
      // at the end of its topic, named by a new head, and trimmed where it was.
      let first = true
      const log: EventLog = {
        ...bench.log,
        read: async function* (topic, partition, from, options) {
          if (topic === bench.names.snapshots && first) {
            first = false
            await eventually(async () => {
              await bench.feed(event('other', { type: 'text', text: 'And so on, and on. ' }))
              expect((await bench.log.bounds(topic, partition)).begin).toBeGreaterThan(from)
            })
          }
          yield* bench.log.read(topic, partition, from, options)
        },
      }
      const running = await bench.start({ log, forwardFloor: 20_000, snapshotEvery: 10 })
      await running.idle()
      await running.worker.stop()
      expect([...running.worker.refused.keys()]).toEqual([])
      expect((await bench.heads()).get('s')!.totals.tokens).toBe(12)
    })
  })
})
