/** Contexts in memory: how many, who waits, and what a stop does to those who wait or rebuild. */
import { describe, expect, test } from 'vitest'
import type { EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import { SHORT_PULSES, SHORT_RECORDS } from '../../../src/operators/sessions/idle-sessions.ts'
import type { Head } from '../../../src/state/head.ts'
import type { EventLog } from '../../../src/streams/log.ts'
import { eventually } from '../../streams/helpers.ts'
import { type Bench, benches, event, verified } from '../harness.ts'

const { use } = benches()

/** The model, telling how many of its contexts are open and were at most. */
const counted = (model: Model): { readonly model: Model; open: number; most: number } => {
  const watched = (context: EngineContext): EngineContext => {
    count.open += 1
    count.most = Math.max(count.most, count.open)
    const close = context.close.bind(context)
    context.close = () => {
      close()
      count.open -= 1
    }
    return context
  }
  const count = {
    open: 0,
    most: 0,
    model: {
      ...model,
      createContext: () => watched(model.createContext()),
      openContext: async (...given: Parameters<Model['openContext']>) => watched(await model.openContext(...given)),
    },
  }
  return count
}

describe('contexts', () => {
  test('never more than asked for, though 100 sessions have work at once; all of them get their turn, twice', {
    tags: 'slow',
  }, async () => {
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
      const running = await bench.start({ maxContexts: 1, roomTurn: Number.POSITIVE_INFINITY })
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

describe('more sessions with endless work than contexts', () => {
  const LONG = 160
  const feed = async (bench: Bench): Promise<void> => {
    for (let n = 0; n < 4; n += 1) {
      await bench.feed(event(`long-${n}`, { type: 'text', text: `Number ${n} ` }))
      const request = { requestId: 'r', maxTokens: LONG, ignoreEnd: true, seed: n, presencePenalty: 0.1 } as const
      await bench.feed(event(`long-${n}`, { type: 'generate', ...request }))
    }
    await bench.feed(event('short', { type: 'text', text: 'Me too.' }))
    await bench.feed(event('short', { type: 'generate', requestId: 's', maxTokens: 2, ignoreEnd: true, seed: 1 }))
  }
  const outcome = async (bench: Bench) => {
    const heads = [...(await bench.heads()).values()].map(({ session, chain, totals }) => [session, chain, totals])
    return heads.toSorted(([one], [other]) => String(one).localeCompare(String(other)))
  }

  test('one after the other they make room, and each goes on where it was', { tags: 'slow' }, async () => {
    let undisturbed: unknown
    await use(async (bench) => {
      await feed(bench)
      await bench.settle()
      undisturbed = await outcome(bench)
    })
    await use(async (bench) => {
      await feed(bench)
      const count = counted(bench.model)
      const running = await bench.start({ model: count.model, maxContexts: 2, roomTurn: 0, commitInterval: 5 })
      // It came last, and has not waited for the ends of those before it.
      await eventually(async () => expect((await bench.heads()).get('short')?.totals.generated).toBe(2))
      const heads = await bench.heads()
      expect([...heads.values()].filter(({ totals }) => totals.generated === LONG).length).toBeLessThan(4)
      await running.idle()
      await running.worker.stop()
      expect(count.most).toBe(2)
      expect(await outcome(bench)).toEqual(undisturbed)
      await verified(bench)
    })
  })

  test('a stop while they take turns loses nothing', { tags: 'slow' }, async () => {
    await use(async (bench) => {
      await feed(bench)
      const { end } = await bench.log.bounds(bench.names.chunks, 0)
      for (let start = 0; start < 3; start += 1) {
        const running = await bench.start({ maxContexts: 2, roomTurn: 0, commitInterval: 5 })
        // On a busy machine a commit carries many steps, and the third worker may find little to do.
        await eventually(() => {
          const over = (running.worker.tasks.get(0)?.offset ?? 0) >= end
          expect(running.commits.length > 3 || over).toBe(true)
        })
        await running.worker.stop()
      }
      await bench.settle({ maxContexts: 2, roomTurn: 0 })
      const heads = [...(await bench.heads()).values()]
      expect(heads.map(({ totals }) => totals.generated).toSorted((a, b) => a - b)).toEqual([2, ...Array(4).fill(LONG)])
      await verified(bench)
    })
  })
})

/** How often heads are looked up, by session, until all of `count` new ones with one event each are finished. */
const lookUps = async (count: number, text: string): Promise<number> => {
  let looks = 0
  await use(async (bench) => {
    const running = await bench.start({ maxContexts: 4 })
    await running.idle()
    const heads = running.worker.tasks.get(0)!.sessions as Map<string, Head>
    const get = heads.get.bind(heads)
    heads.get = (id) => {
      looks += 1
      return get(id)
    }
    await bench.feed(...Array.from({ length: count }, (_, n) => event(`s${n}`, { type: 'text', text })))
    await running.idle()
    await running.worker.stop()
  })
  return looks / count
}

describe('a backlog of new sessions', () => {
  test.each([
    ['whose past is short', 'Hello.'],
    ['that need a snapshot to make room', 'All the winter long the harbour slept. '.repeat(4)],
  ])('%s: what one of them costs does not grow with how many wait', { tags: 'slow' }, async (_, text) => {
    const few = await lookUps(25, text)
    const many = await lookUps(100, text)
    expect(few).toBeGreaterThan(1)
    expect(many).toBeLessThan(1.5 * few)
  })

  test('with a short past: they make room without a snapshot, and come back by reading their own records', async () => {
    await use(async (bench) => {
      const lengths: number[] = []
      const log: EventLog = {
        ...bench.log,
        read: (topic, partition, from, options) => {
          if (topic === bench.names.chunks && options?.follow !== true) lengths.push(options!.until! - from)
          return bench.log.read(topic, partition, from, options)
        },
      }
      const running = await bench.start({ log, maxContexts: 4 })
      for (let n = 0; n < 40; n += 1) await bench.feed(event(`s${n}`, { type: 'text', text: 'Once upon ' }))
      await running.idle()
      expect(await bench.records('snapshots')).toEqual([])
      for (let n = 0; n < 40; n += 1) await bench.feed(event(`s${n}`, { type: 'text', text: 'a time.' }))
      await running.idle()
      await running.worker.stop()
      const back = running.restored.length
      expect(back).toBeGreaterThanOrEqual(36)
      expect(lengths).toEqual(new Array(back).fill(1))
      const heads = [...(await bench.heads()).values()]
      expect(heads.map(({ totals }) => totals.tokens)).toEqual(new Array(40).fill(17))
      await verified(bench)
    })
  })

  test('with a past of more pulses, or of records far apart, they are saved before they go', async () => {
    await use(async (bench) => {
      const running = await bench.start({ maxContexts: 1 })
      const snapshotOf = async (id: string) => (await bench.heads()).get(id)?.snapshot?.pulse ?? null
      await bench.feed(event('long', { type: 'text', text: 'x'.repeat(SHORT_PULSES + 1) }))
      await bench.feed(event('short', { type: 'text', text: 'y'.repeat(SHORT_PULSES) }))
      await bench.feed(event('wide', { type: 'text', text: 'z' }))
      await running.idle()
      expect(await snapshotOf('long')).toBe(SHORT_PULSES + 1)
      expect(await snapshotOf('short')).toBeNull()
      const between = Array.from({ length: SHORT_RECORDS }, () => event('other', { type: 'text', text: '' }))
      await bench.feed(
        ...between,
        event('wide', { type: 'text', text: 'z' }),
        event('last', { type: 'text', text: '.' }),
      )
      await running.idle()
      expect(await snapshotOf('wide')).toBe(2)
      await running.worker.stop()
      await verified(bench)
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

  test('goes on for a few sessions at a time, not for all at once', { tags: 'slow' }, async () => {
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
      const text = 'I say little. '.repeat(5)
      await bench.feed(event('quiet', { type: 'text', text }))
      const running = await bench.start({ snapshotEvery: 1_000_000, snapshotRecords: 20 })
      await running.idle()
      expect((await bench.heads()).get('quiet')!.snapshot).toBeNull()
      for (let n = 0; n < 40; n += 1) await bench.feed(event('busy', { type: 'text', text: `Entry ${n}. ` }))
      await eventually(async () => expect((await bench.heads()).get('quiet')!.snapshot?.pulse).toBe(text.length))
      await bench.feed(event('quiet', { type: 'text', text: ' But I do.' }))
      await running.idle()
      await running.worker.stop()
      await verified(bench)
    })
  })

  /** Records that belong to another session, so that the partition moves on. */
  const others = (count: number) =>
    Array.from({ length: count }, (_, n) => event('busy', { type: 'text', text: `Entry ${n}. ` }))

  test.each([
    ['to make room, with a short past, where the input loses its records,', 'Shy.', 1],
    ['by a crash', 'I say little. '.repeat(20), 16],
  ])('goes on for silent sessions, too: who was put out of memory %s is saved before its input is too old', async (_, text, maxContexts) => {
    await use(async (bench) => {
      await bench.feed(event('gone', { type: 'close' }))
      await bench.settle()
      await bench.log.trim(bench.names.chunks, 0, 1)
      await bench.feed(event('quiet', { type: 'text', text }))
      const first = await bench.start({ maxContexts, snapshotEvery: 1_000_000 })
      await bench.feed(event('busy', { type: 'text', text: 'I am busy. ' }))
      await first.idle()
      const heir = await bench.log.claim('test', bench.names.chunks, 0)
      await bench.feed(...others(1))
      await eventually(() => expect(first.states.at(-1)?.state).toBe('migrated'))
      await first.worker.stop()
      await heir.close()
      expect((await bench.heads()).get('quiet')!.snapshot).toBeNull()

      const running = await bench.start({ maxContexts, snapshotEvery: 1_000_000, snapshotRecords: 20 })
      await running.idle()
      expect((await bench.heads()).get('quiet')!.snapshot).toBeNull()
      await bench.feed(...others(30))
      await eventually(async () => expect((await bench.heads()).get('quiet')!.snapshot?.pulse).toBe(text.length))
      await running.worker.stop()
      expect(running.restored).toContain('quiet')
      await verified(bench)
    })
  })

  test('spares the log the snapshots of tiny sessions, however many records come after them, where the input keeps its own', {
    tags: 'slow',
  }, async () => {
    await use(async (bench) => {
      const long = 'I say little. '.repeat(5)
      const tiny = Array.from({ length: 40 }, (_, n) => `tiny-${n}`)
      for (const session of tiny) await bench.feed(event(session, { type: 'text', text: 'Hi' }))
      // Of age after all of them, so saved after those of them that are.
      await bench.feed(event('quiet', { type: 'text', text: long }))
      const running = await bench.start({ maxContexts: 4, snapshotEvery: 1_000_000, snapshotRecords: 20 })
      await bench.feed(...others(100))
      await eventually(async () => expect((await bench.heads()).get('quiet')!.snapshot?.pulse).toBe(long.length))
      await running.idle()
      for (const session of tiny) expect((await bench.heads()).get(session)!.snapshot).toBeNull()
      expect(running.restored.filter((session) => tiny.includes(session))).toEqual([])
      // The input is trimmed for the first time, and not yet so far: now they are to be saved, each within as many
      // records once more.
      await bench.log.trim(bench.names.chunks, 0, 1)
      await bench.feed(...others(80))
      await eventually(async () => {
        const heads = await bench.heads()
        for (const session of tiny.slice(1)) expect(heads.get(session)!.snapshot?.pulse).toBe(2)
      })
      await running.worker.stop()
    })
  })

  test('an event that feeds no token is input like any other: it is saved before it is too old', async () => {
    await use(async (bench) => {
      const running = await bench.start({ maxContexts: 1, snapshotRecords: 20 })
      await bench.feed(event('quiet', { type: 'text', text: 'x'.repeat(SHORT_PULSES + 1) }), ...others(1))
      await running.idle()
      const { first, pulse } = (await bench.heads()).get('quiet')!.snapshot!
      await bench.feed(event('quiet', { type: 'boundary', reset: true }), ...others(40))
      await eventually(async () => {
        const { snapshot } = (await bench.heads()).get('quiet')!
        expect(snapshot!.first).toBeGreaterThan(first)
        expect(snapshot!.pulse).toBe(pulse)
      })
      await running.worker.stop()
      await verified(bench)
    })
  })

  test('that began so that a session can be saved is waited for by its next event', async () => {
    await use(async (bench) => {
      const text = 'I say little. '.repeat(20)
      await bench.feed(event('quiet', { type: 'text', text }))
      const first = await bench.start({ snapshotEvery: 1_000_000 })
      await first.idle()
      const heir = await bench.log.claim('test', bench.names.chunks, 0)
      await bench.feed(...others(1))
      await eventually(() => expect(first.states.at(-1)?.state).toBe('migrated'))
      await first.worker.stop()
      await heir.close()

      let rebuilds = 0
      let goOn = (): void => undefined
      const held = new Promise<void>((resolve) => {
        goOn = resolve
      })
      const log: EventLog = {
        ...bench.log,
        read: async function* (topic, partition, from, options) {
          if (topic === bench.names.chunks && options?.follow !== true) {
            rebuilds += 1
            await held
          }
          yield* bench.log.read(topic, partition, from, options)
        },
      }
      const running = await bench.start({ log, snapshotRecords: 1 })
      await eventually(() => expect(rebuilds).toBe(1))
      await bench.feed(event('quiet', { type: 'text', text: 'But I do.' }), event('after', { type: 'text', text: '!' }))
      // Its event was handed out before that of the session behind it.
      await eventually(async () => expect((await bench.heads()).has('after')).toBe(true))
      goOn()
      await running.idle()
      await running.worker.stop()
      expect(rebuilds).toBe(1)
      expect((await bench.heads()).get('quiet')!.totals.tokens).toBe(text.length + 9)
      await verified(bench)
    })
  })

  test('of a silent session that cannot be done is told, and stops nobody', async () => {
    await use(async (bench) => {
      await bench.feed(event('quiet', { type: 'text', text: 'Shy.' }))
      const first = await bench.start({ maxContexts: 1 })
      await bench.feed(...others(2))
      await first.idle()
      expect((await bench.heads()).get('quiet')!.snapshot).toBeNull()
      await bench.log.trim(bench.names.chunks, 0, 1)
      await first.worker.stop()
      const warnings: string[] = []
      const running = await bench.start({ snapshotRecords: 20, warn: (message) => warnings.push(message) })
      await bench.feed(...others(40))
      await running.idle()
      await eventually(() => expect(warnings.join()).toContain('Session "quiet" could not be rebuilt to be saved'))
      expect(warnings.join()).toContain('must be replayed from offset 0')
      await bench.feed(...others(1))
      await running.idle()
      await running.worker.stop()
      expect(running.worker.refused.size).toBe(0)
    })
  })

  test('does not hold up a stop, and changes nothing when it is cut short', { tags: 'slow' }, async () => {
    await use(async (bench) => {
      await withPast(bench, 1, 20_000)
      const before = (await bench.heads()).get('s0')!
      let tokens = 0
      const running = await bench.start({
        model: {
          ...bench.model,
          submit: async (item) => {
            const result = await bench.model.submit(item)
            tokens += item.tokens.length
            return result
          },
        },
      })
      await eventually(() => expect(tokens).toBeGreaterThan(0))
      await running.worker.stop()
      expect(tokens).toBeLessThan(20_000)
      expect(running.states.at(-1)?.state).toBe('closed')
      expect((await bench.heads()).get('s0')).toEqual(before)
      const { restored } = await bench.settle()
      expect(restored).toEqual(['s0'])
      await verified(bench)
    })
  })

  test('survives that the snapshot it reads is compacted and trimmed meanwhile', async () => {
    await use(async (bench) => {
      await bench.feed(event('s', { type: 'text', text: 'Once. ' }))
      await bench.settle()
      await bench.feed(event('s', { type: 'text', text: 'Twice.' }))
      // Before the snapshot is read for the first time, another session makes so much dead state that it is written
      // anew at the end of its topic, named by a new head, and trimmed where it was.
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
      const running = await bench.start({ log, compactFloor: 20_000, snapshotEvery: 10 })
      await running.idle()
      await running.worker.stop()
      expect([...running.worker.refused.keys()]).toEqual([])
      expect((await bench.heads()).get('s')!.totals.tokens).toBe(12)
    })
  })
})
