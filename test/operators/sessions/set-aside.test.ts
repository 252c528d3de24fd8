/** A session that cannot go on stops alone: it says so, its partition goes on, and a reset brings it back. */
import { readFileSync } from 'node:fs'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect, test } from 'vitest'
import type { Head } from '../../../src/state/head.ts'
import { textOf } from '../../../src/text.ts'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import { eventually } from '../../streams/helpers.ts'
import { type Bench, type BenchOptions, benches, event, onBothLogsWith, verified } from '../harness.ts'
import { enormous, plant } from '../planting.ts'

const document = readFileSync(new URL('../../../docs/demo/harbour-log.txt', import.meta.url), 'utf8')
const { use } = benches()

const read = (session: string, text: string) => event(session, { type: 'text', text })
const asked = (session: string, requestId: string, maxTokens = 20) =>
  event(session, { type: 'generate', requestId, maxTokens, seed: 3 })
const reset = (session: string) => event(session, { type: 'boundary', reset: true })

/** Reasons of the dead letters, and at which of them a session was set aside. */
const letters = async (bench: Bench): Promise<{ reason: string; stopped: string | null }[]> =>
  (await bench.records('deadletters')).map(({ headers }) => {
    const header = (name: string): string | null => {
      const found = headers.findLast(([each]) => each === name)
      return found ? textOf(found[1]) : null
    }
    return { reason: header(DEAD_LETTER_HEADERS.reason) ?? '', stopped: header(DEAD_LETTER_HEADERS.stopped) }
  })

/** Two sessions that have read, with a snapshot each. */
const begun = async (bench: Bench): Promise<void> => {
  await bench.feed(read('lost', document.slice(0, 600)), read('well', document.slice(600, 1200)))
  await bench.settle()
}

/**
 * Session "lost" becomes one whose next token leaves no finite number; its events before are gone, so that its state is
 * the truth.
 */
const doomed = async (bench: Bench): Promise<Head> => {
  await begun(bench)
  await plant(bench, 'lost', { state: enormous })
  await bench.log.trim(bench.names.chunks, 0, 1)
  return (await bench.heads()).get('lost')!
}

/** Feeds the session that is set aside, brings it back, and sees it answer, across restarts. */
const comesBack = async (bench: Bench, stopped: Head): Promise<void> => {
  await bench.feed(reset('lost'), read('lost', 'The harbour '), asked('lost', 'again'), asked('well', 'well'))
  const { worker } = await bench.settle()
  expect([...worker.refused]).toEqual([])
  const head = (await bench.heads()).get('lost')!
  expect(head.status).toBe('open')
  expect(head.stopped).toBeUndefined()
  expect(head.conductor.origin).toBe(stopped.conductor.globalStep)
  expect((await bench.generated('lost')).at(-1)).toMatchObject({ requestId: 'again', finish: 'length' })
  // And once more from what is stored alone.
  await bench.feed(asked('lost', 'later'))
  const { restored } = await bench.settle()
  expect(restored).toEqual(['lost'])
  expect((await bench.generated('lost')).at(-1)).toMatchObject({ requestId: 'later', finish: 'length' })
  await verified(bench)
}

onBothLogsWith({ tags: 'slow' })((fresh: () => BenchOptions) => {
  test('a state that stops being finite sets its session aside, and only it', () =>
    use(
      async (bench) => {
        const before = await doomed(bench)
        const { globalStep } = before.conductor
        await bench.feed(
          read('lost', document.slice(1200, 2000)),
          read('lost', 'more'),
          asked('lost', 'r'),
          read('well', 'and on'),
          event('lost', { type: 'open' }),
        )
        const warnings: string[] = []
        const { worker } = await bench.settle({ warn: (message) => warnings.push(message) })
        expect([...worker.refused]).toEqual([])
        const heads = await bench.heads()
        const head = heads.get('lost')!
        expect(head).toMatchObject({
          status: 'stopped',
          stopped: { cause: 'computation', offset: 2 },
          conductor: before.conductor,
          chain: before.chain,
          totals: before.totals,
          snapshot: { pulse: globalStep },
        })
        expect(head.stopped!.reason).toBe(
          `Session "lost" was set aside: its state stopped being finite with the tokens of pulses ${globalStep} to ${globalStep + 256}. Send a "boundary" with "reset": it begins a new context on the same clock. A "close" ends it.`,
        )
        expect(warnings.join()).toContain(head.stopped!.reason)
        expect(heads.get('well')!.totals.tokens).toBe(606)
        const told = await letters(bench)
        expect(told.map(({ stopped }) => stopped)).toEqual(['computation/0', null, null, null])
        for (const { reason } of told) expect(reason).toContain('Session "lost" was set aside')
        // A worker that comes new finds it as it was left.
        await bench.feed(read('lost', 'still there?'))
        await bench.settle()
        expect((await bench.heads()).get('lost')).toEqual(head)
        await verified(bench)
        await comesBack(bench, head)
      },
      1,
      fresh(),
    ))

  test('a request that its session cannot answer ends as stopped', () =>
    use(
      async (bench) => {
        const { totals } = await doomed(bench)
        await bench.feed(asked('lost', 'r'))
        await bench.settle()
        expect(await bench.generated('lost')).toMatchObject([{ requestId: 'r', index: 0, ids: [], finish: 'stopped' }])
        expect(await letters(bench)).toMatchObject([{ stopped: 'computation/0' }])
        await verified(bench)
        await bench.feed(event('lost', { type: 'close' }), event('lost', { type: 'open' }), read('lost', 'new'))
        await bench.settle()
        expect((await bench.heads()).get('lost')).toMatchObject({
          status: 'open',
          totals: { tokens: totals.tokens + 3 },
        })
        await verified(bench)
      },
      1,
      fresh(),
    ))

  test('a snapshot that is gone is done without where the events are still there', () =>
    use(
      async (bench) => {
        await begun(bench)
        const { chain, conductor } = (await bench.heads()).get('lost')!
        const { end } = await bench.log.bounds(bench.names.snapshots, 0)
        await bench.log.trim(bench.names.snapshots, 0, end)
        await bench.feed(event('lost', { type: 'boundary' }), asked('well', 'r'))
        const warnings: string[] = []
        const { worker } = await bench.settle({ warn: (message) => warnings.push(message) })
        expect([...worker.refused]).toEqual([])
        expect(warnings.join()).toMatch(
          new RegExp(`"lost" at pulse ${conductor.globalStep} is gone.* computed again from its first event`),
        )
        expect((await bench.heads()).get('lost')).toMatchObject({ status: 'open', chain })
        await verified(bench)
      },
      1,
      fresh(),
    ))

  test('where neither snapshot nor events are left, the session is set aside, and only it', () =>
    use(
      async (bench) => {
        await begun(bench)
        const before = (await bench.heads()).get('lost')!
        await bench.log.trim(bench.names.snapshots, 0, before.snapshot!.last + 1)
        await bench.log.trim(bench.names.chunks, 0, 1)
        await bench.feed(read('lost', 'more'), asked('lost', 'r'), read('well', 'and on'))
        const warnings: string[] = []
        const { worker } = await bench.settle({ warn: (message) => warnings.push(message) })
        expect([...worker.refused]).toEqual([])
        const heads = await bench.heads()
        const head = heads.get('lost')!
        expect(head).toMatchObject({
          status: 'stopped',
          stopped: { cause: 'storage', offset: 2 },
          conductor: before.conductor,
          chain: before.chain,
        })
        expect(head.stopped!.reason).toMatch(/^Session "lost" was set aside: The snapshot of session "lost" .* is gone/)
        expect(warnings.join()).toContain(head.stopped!.reason)
        expect(heads.get('well')!.totals.tokens).toBe(606)
        expect((await letters(bench)).map(({ stopped }) => stopped)).toEqual(['storage/0', null])
        await comesBack(bench, head)
        // The same through a close: nothing leads through what is lost.
        await bench.log.trim(bench.names.snapshots, 0, (await bench.heads()).get('lost')!.snapshot!.last + 1)
        await bench.log.trim(bench.names.chunks, 0, (await bench.log.bounds(bench.names.chunks, 0)).end)
        await bench.feed(
          read('lost', 'gone'),
          event('lost', { type: 'close' }),
          event('lost', { type: 'open' }),
          read('lost', 'a'),
        )
        await bench.settle()
        expect((await bench.heads()).get('lost')).toMatchObject({
          status: 'open',
          snapshot: { pulse: expect.any(Number) },
        })
        await bench.feed(asked('lost', 'last'))
        expect((await bench.settle()).restored).toEqual(['lost'])
        expect((await bench.generated('lost')).at(-1)).toMatchObject({ requestId: 'last', finish: 'length' })
      },
      1,
      fresh(),
    ))
})

test('verify obeys what was decided: events that come back from a copy do not undo it', () =>
  use(async (bench) => {
    await bench.feed(read('lost', 'one '), read('lost', document.repeat(3)))
    const running = await bench.start({ commitInterval: 1 })
    await eventually(() => expect(running.commits.length).toBeGreaterThan(5))
    await running.worker.stop()
    const before = (await bench.heads()).get('lost')!
    expect(before.cursor).toMatchObject({ offset: 1, complete: false })
    // The snapshot goes for good, the first event for a while.
    await bench.log.trim(bench.names.snapshots, 0, before.snapshot!.last + 1)
    const db = new DatabaseSync(bench.url.slice('file:'.length))
    const { id } = db.prepare('SELECT id FROM topics WHERE name = ?').get(bench.names.chunks) as { id: number }
    const first = db.prepare('SELECT * FROM records WHERE topic = ? AND "offset" = 0').get(id)!
    await bench.log.trim(bench.names.chunks, 0, 1)
    await bench.settle()
    const head = (await bench.heads()).get('lost')!
    expect(head).toMatchObject({ status: 'stopped', stopped: { cause: 'storage', offset: 1 } })
    expect(await letters(bench)).toMatchObject([{ stopped: `storage/${before.cursor.token}` }])
    const columns = Object.keys(first)
    db.prepare(
      `INSERT INTO records (${columns.map((name) => `"${name}"`).join()}) VALUES (${columns.map(() => '?').join()})`,
    ).run(...Object.values(first))
    db.prepare('UPDATE partitions SET "begin" = 0 WHERE topic = ?').run(id)
    db.close()
    await bench.feed(read('lost', 'more'), reset('lost'), read('lost', 'anew'))
    await bench.settle()
    await verified(bench)
  }))

describe('what an older version or an enemy stored', () => {
  const cases: Readonly<Record<string, (head: Head) => Head>> = {
    'a generation in a finished record': (head) => ({
      ...head,
      generation: { index: 16, unfinished: '', tail: '' },
    }),
    'sums that do not agree with the clock': (head) => ({ ...head, totals: { ...head.totals, tokens: 3 } }),
    'a stream and a model at different pulses': (head) => ({
      ...head,
      cursor: { ...head.cursor, pulse: head.cursor.pulse + 4 },
    }),
  }
  test.each(Object.keys(cases))('%s concerns its session alone, and a reset brings it back', (name) =>
    use(async (bench) => {
      await begun(bench)
      const { globalStep } = (await bench.heads()).get('lost')!.conductor
      await plant(bench, 'lost', { head: cases[name]! })
      await bench.feed(asked('lost', 'r'), read('well', 'and on'))
      const { worker } = await bench.settle()
      expect([...worker.refused]).toEqual([])
      const head = (await bench.heads()).get('lost')!
      expect(head.status).toBe('stopped')
      expect((await letters(bench)).map(({ reason }) => reason)).toEqual([
        `${head.stopped!.reason} A "generate" event arrived.`,
      ])
      if (name.endsWith('pulses'))
        expect(head.stopped!.reason).toContain(
          `Stream/model pulse mismatch: stream at pulse ${globalStep + 4}, model at pulse ${globalStep}.`,
        )
      expect(await bench.generated('lost')).toEqual([])
      await bench.feed(reset('lost'), read('lost', 'The harbour '), asked('lost', 'again'))
      await bench.settle()
      expect((await bench.generated('lost')).at(-1)).toMatchObject({ requestId: 'again', finish: 'length' })
    }))

  test('a clock at its end takes no more tokens, and writes nothing that cannot be read', () =>
    use(async (bench) => {
      await begun(bench)
      const pulse = Number.MAX_SAFE_INTEGER - 3
      await plant(bench, 'lost', {
        head: (head) => ({
          ...head,
          cursor: { ...head.cursor, pulse, rng: pulse },
          conductor: { ...head.conductor, globalStep: pulse },
          totals: { ...head.totals, tokens: pulse },
          span: { ...head.span, fromPulse: pulse },
        }),
      })
      await bench.feed(asked('lost', 'r', 10), read('lost', 'text'), read('well', 'and on'))
      await bench.settle()
      for (const { reason } of await letters(bench)) expect(reason).toContain('The clock of session "lost" stands at')
      await bench.feed(read('well', 'and on'))
      const { worker } = await bench.settle()
      expect([...worker.refused]).toEqual([])
      expect((await bench.heads()).get('well')!.totals.tokens).toBe(612)
    }))
})

test('sessions one after the other whose events do not lead to their heads are no accident: the partition is refused', () =>
  use(async (bench) => {
    const ids = ['a', 'b', 'c', 'd']
    await bench.feed(...ids.map((id) => read(id, document.slice(0, 300))))
    await bench.settle()
    for (const id of ids) await plant(bench, id, { head: (head) => ({ ...head, chain: '0'.repeat(32) }) })
    const { worker } = await bench.start()
    for (const id of ids) {
      await bench.feed(read(id, 'more'))
      await eventually(async () => {
        const stopped = (await bench.heads()).get(id)?.status === 'stopped'
        if (!stopped && !worker.refused.has(0)) throw new Error('not yet')
      })
    }
    await worker.stop()
    expect((worker.refused.get(0) as Error).message).toMatch(/Session "c" .* does not agree with its committed head/)
    const heads = await bench.heads()
    expect(ids.map((id) => heads.get(id)!.status)).toEqual(['stopped', 'stopped', 'open', 'open'])
  }))
