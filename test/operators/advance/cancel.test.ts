/**
 * `cancel`: when it takes effect, what is left of its request, and that whoever computes the session again obeys the
 * record of it.
 */
import { describe, expect, test } from 'vitest'
import { restoreSession } from '../../../src/operators/snapshots/restore.ts'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import { readPartitionState } from '../../../src/operators/worker/partition-state.ts'
import { purgePartition } from '../../../src/operators/worker/purge.ts'
import { type Cancelled, seal } from '../../../src/state/head.ts'
import { textOf } from '../../../src/text.ts'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { eventually } from '../../streams/helpers.ts'
import { type Bench, benches, event, onBothLogs, verified } from '../harness.ts'

const { use, open } = benches()

const MANY = 1_000_000
const read = (session: string, text: string) => event(session, { type: 'text', text })
const asked = (session: string, requestId: string, maxTokens: number, run = 16) =>
  event(session, { type: 'generate', requestId, maxTokens, temperature: 0.9, seed: 5, run })
const cancel = (session: string, requestId: string) =>
  event(session, { type: 'cancel', requestId, id: `no-${requestId}` })

/** Tokens of a request, and how it ended. */
const answer = async (bench: Bench, session: string, requestId: string) => {
  const runs = (await bench.generated(session)).filter((run) => run.requestId === requestId)
  return { ids: runs.flatMap(({ ids }) => ids), text: runs.map(({ text }) => text).join(''), last: runs.at(-1) }
}
const begun = (bench: Bench, session: string, requestId: string): Promise<Generated> =>
  eventually(async () => {
    const { last } = await answer(bench, session, requestId)
    if (last === undefined) throw new Error(`no token of ${requestId} yet`)
    return last
  })
const over = (bench: Bench, session: string, requestId: string): Promise<Generated> =>
  eventually(async () => {
    const { last } = await answer(bench, session, requestId)
    if (last?.finish == null) throw new Error(`${requestId} goes on`)
    return last
  })
const letters = async (bench: Bench) =>
  (await bench.records('deadletters')).map(({ headers, value }) => {
    const header = (name: string): string => textOf(headers.findLast(([each]) => each === name)![1])
    return {
      offset: Number(header(DEAD_LETTER_HEADERS.offset)),
      reason: header(DEAD_LETTER_HEADERS.reason),
      event: JSON.parse(textOf(value!)),
    }
  })
const decided = async ({ log, names }: Bench): Promise<readonly Cancelled[]> => [
  ...(await readPartitionState(log, names, 0, 1 << 30)).cancelled.values(),
]

/** The session computed again from its first event alone. */
const fromTheBeginning = async ({ log, names, model, tokenizer, heads }: Bench, session: string) => {
  const head = (await heads()).get(session)!
  const validate = { format: 'json', vocabSize: model.vocabSize, readsText: true } as const
  const { cancelled } = await readPartitionState(log, names, 0, 1 << 30)
  const engine = { model, tokenizer, submit: model.submit }
  const deps = { log, names, model, engine, validate, cancelled }
  const { context } = await restoreSession(deps, 0, { ...head, snapshot: null })
  const { chain } = context
  context.close()
  return { chain, expected: head.chain }
}
const findings = async ({ log, names, model, tokenizer }: Bench) =>
  (await verifyLog({ log, names, model, tokenizer, format: 'json' })).findings

onBothLogs((fresh) => {
  test(
    'the record goes with its session; the next life of it and other sessions have their own',
    { tags: 'slow' },
    () =>
      use(
        async (bench) => {
          const cancelled = async (...requests: readonly (readonly [session: string, request: string])[]) => {
            await bench.feed(
              ...requests.flatMap(([session, request]) => [read(session, 'Once '), asked(session, request, MANY)]),
            )
            const { worker, idle } = await bench.start()
            for (const request of requests) await begun(bench, ...request)
            await bench.feed(...requests.map((request) => cancel(...request)))
            for (const request of requests) await over(bench, ...request)
            return { worker, idle }
          }
          const first = await cancelled(['a', 'r'], ['b', 'r'])
          await bench.feed(event('a', { type: 'delete' }))
          await first.idle()
          await first.worker.stop()
          expect(await decided(bench)).toMatchObject([{ session: 'b', requestId: 'r' }])
          await verified(bench)
          const second = await cancelled(['a', 'again'])
          await second.idle()
          await second.worker.stop()
          await verified(bench)
          const left = [
            { session: 'b', requestId: 'r' },
            { session: 'a', requestId: 'again' },
          ]
          expect(await decided(bench)).toMatchObject(left)
          await purgePartition(bench.log, bench.names, 0)
          expect(await decided(bench)).toMatchObject(left)
          await verified(bench)
        },
        1,
        fresh(),
      ),
  )

  test('a request of a million tokens ends at once, with the tokens that it would have begun with; other sessions went on meanwhile', () =>
    use(
      async (bench) => {
        await bench.feed(
          read('a', 'Once upon a time '),
          asked('a', 'long', MANY),
          read('a', 'And then. '),
          asked('a', 'next', 5),
        )
        const { worker, idle } = await bench.start()
        await begun(bench, 'a', 'long')
        await bench.feed(read('b', 'Beside it '), asked('b', 'short', 20))
        expect((await over(bench, 'b', 'short')).finish).toBe('length')
        expect((await answer(bench, 'a', 'long')).last?.finish).toBeNull()
        const [at] = await bench.feed(cancel('a', 'long'))
        await idle()
        await worker.stop()
        const { ids, last } = await answer(bench, 'a', 'long')
        expect(last).toMatchObject({ finish: 'cancelled', ids: [], text: '', logprobs: [], cause: { offset: 1 } })
        expect(last!.index).toBe(ids.length)
        expect(ids.length).toBeGreaterThan(0)
        expect(ids.length % 16).toBe(0)
        expect(await letters(bench)).toEqual([])
        const cause = { topic: bench.names.chunks, partition: 0, offset: at, id: 'no-long' }
        const index = ids.length
        expect(await decided(bench)).toEqual([
          { type: 'cancelled', version: 1, session: 'a', requestId: 'long', offset: 1, index, cause },
        ])
        // The same as if so many tokens had been asked for.
        await bench.feed(
          read('c', 'Once upon a time '),
          asked('c', 'long', index),
          read('c', 'And then. '),
          asked('c', 'next', 5),
        )
        await bench.settle()
        expect((await answer(bench, 'c', 'long')).ids).toEqual(ids)
        expect((await answer(bench, 'c', 'next')).ids).toEqual((await answer(bench, 'a', 'next')).ids)
        const heads = await bench.heads()
        expect(heads.get('a')!.chain).toBe(heads.get('c')!.chain)
        expect(heads.get('a')!.totals).toEqual(heads.get('c')!.totals)
        const { chain, expected } = await fromTheBeginning(bench, 'a')
        expect(chain).toBe(expected)
        await verified(bench)
      },
      1,
      fresh(),
    ))

  test('a request that waits behind another one ends at its turn without a token; what follows it is not touched', () =>
    use(
      async (bench) => {
        const { worker, idle } = await bench.start()
        await bench.feed(
          read('a', 'It was '),
          asked('a', 'first', MANY),
          asked('a', 'second', 50),
          asked('a', 'third', 5),
        )
        await bench.feed(cancel('a', 'second'))
        await begun(bench, 'a', 'first')
        await bench.feed(cancel('a', 'first'))
        await idle()
        await worker.stop()
        expect((await answer(bench, 'a', 'first')).last).toMatchObject({ finish: 'cancelled' })
        const second = await answer(bench, 'a', 'second')
        expect(second.last).toMatchObject({ finish: 'cancelled', index: 0, ids: [] })
        expect((await answer(bench, 'a', 'third')).last).toMatchObject({ finish: 'length', index: 0 })
        expect((await decided(bench)).map(({ requestId, offset }) => ({ requestId, offset }))).toEqual([
          { requestId: 'first', offset: 1 },
          { requestId: 'second', offset: 2 },
        ])
        await verified(bench)
      },
      1,
      fresh(),
    ))

  test('one that comes too late, twice, or for nobody is a dead letter, and changes nothing', { tags: 'slow' }, () =>
    use(
      async (bench) => {
        await bench.feed(read('a', 'It was '), asked('a', 'short', 5))
        await bench.settle()
        // A worker that ends may have saved the session meanwhile.
        const heads = async () => [...(await bench.heads()).values()].map((head) => ({ ...head, snapshot: null }))
        const before = await heads()
        await bench.feed(cancel('a', 'short'), cancel('a', 'other'), cancel('nobody', 'short'))
        await bench.settle()
        expect(await heads()).toEqual(before)
        expect(await bench.observations('nobody')).toEqual([])
        const running = await bench.start()
        const [at] = await bench.feed(asked('a', 'long', MANY))
        await begun(bench, 'a', 'long')
        // Both before the first takes effect, or one behind it.
        await bench.feed(cancel('a', 'long'), cancel('a', 'long'))
        await running.idle()
        await running.worker.stop()
        expect(await over(bench, 'a', 'long')).toMatchObject({ finish: 'cancelled', cause: { offset: at } })
        const found = await letters(bench)
        expect(found.map(({ offset }) => offset)).toEqual([2, 3, 4, at! + 2])
        expect(found[0]!.reason).toBe(
          'A "cancel" event names request "short" of session "a", and no such request was waiting or being generated before it: it was over already, was cancelled before, or has another id.',
        )
        expect(found[3]!.event).toEqual({ type: 'cancel', requestId: 'long', id: 'no-long' })
        await verified(bench)
      },
      1,
      fresh(),
    ),
  )
})

test('a request that its session refuses takes its cancel with it', () =>
  use(async (bench) => {
    await bench.feed(
      read('a', 'It was '),
      asked('a', 'first', MANY),
      event('a', { type: 'close' }),
      asked('a', 'refused', 5),
    )
    const { worker, idle } = await bench.start()
    await bench.feed(cancel('a', 'refused'))
    await begun(bench, 'a', 'first')
    await bench.feed(cancel('a', 'first'))
    await idle()
    await worker.stop()
    expect((await letters(bench)).map(({ offset }) => offset)).toEqual([3, 4])
    expect((await bench.heads()).get('a')!.status).toBe('closed')
    await verified(bench)
  }))

test('forks, restores without a snapshot and restores of children obey what was decided', () =>
  use(async (bench) => {
    await bench.feed(read('a', 'Once upon a time '), asked('a', 'long', MANY, 3))
    const running = await bench.start({ snapshotEvery: MANY })
    await begun(bench, 'a', 'long')
    await bench.feed(
      cancel('a', 'long'),
      event('child', { type: 'open', from: { session: 'a' } }),
      asked('child', 'more', 7),
    )
    await bench.feed(read('a', 'and on'), read('child', 'and off'))
    await running.idle()
    await running.worker.stop()
    const [{ index }] = (await decided(bench)) as [Cancelled]
    expect(index % 3).toBe(0)
    expect((await bench.heads()).get('child')!.from!.pulse).toBe('Once upon a time '.length + index)
    for (const session of ['a', 'child']) {
      const { chain, expected } = await fromTheBeginning(bench, session)
      expect(chain).toBe(expected)
    }
    await verified(bench)
  }))

test('the records stay while the state topic is compacted and trimmed, as long as their requests are in the input', () =>
  use(async (bench) => {
    const small = { compactFloor: 20_000, commitInterval: 1 }
    const running = await bench.start(small)
    await bench.feed(read('a', 'It was '), asked('a', 'first', MANY))
    await begun(bench, 'a', 'first')
    await bench.feed(cancel('a', 'first'))
    await over(bench, 'a', 'first')
    const [first] = await decided(bench)
    for (let round = 0; (await bench.log.bounds(bench.names.state, 0)).begin < 40; round += 1) {
      const requestId = `r${round}`
      await bench.feed(asked('a', requestId, 64, 1))
      await over(bench, 'a', requestId)
    }
    await running.idle()
    await running.worker.stop()
    expect(await decided(bench)).toEqual([first])
    const { chain, expected } = await fromTheBeginning(bench, 'a')
    expect(chain).toBe(expected)
    await verified(bench)

    await bench.log.trim(bench.names.chunks, 0, first!.cause.offset)
    expect(await decided(bench)).toEqual([])
    await bench.settle(small)
  }))

describe('verify', () => {
  const cancelledLog = async (): Promise<Bench> => {
    const bench = await open()
    await bench.feed(read('a', 'It was '), asked('a', 'long', MANY), asked('a', 'short', 20))
    const running = await bench.start()
    await begun(bench, 'a', 'long')
    await bench.feed(cancel('a', 'long'))
    await running.idle()
    await running.worker.stop()
    await verified(bench)
    return bench
  }
  const forge = async ({ log, names }: Bench, record: Cancelled): Promise<void> => {
    await log.append(names.state, [seal(record)])
  }
  const said = async (bench: Bench): Promise<string> => (await findings(bench)).map(({ message }) => message).join('\n')

  test('finds that the record of a cancel is missing, and compares the rest', async () => {
    const bench = await cancelledLog()
    const { log, names } = bench
    const [{ index }] = (await decided(bench)) as [Cancelled]
    const bare = await open()
    // Everything but that record, as another log.
    for (const name of Object.keys(names) as (keyof typeof names)[]) {
      if (name === 'snapshots' || name === 'blobs') continue
      for (const { key, value, headers, timestamp } of await bench.records(name)) {
        if (headers.some(([each]) => each === 'cancelled')) continue
        await bare.log.append(bare.names[name], [{ key, value, headers, timestamp }])
      }
    }
    const found = (await findings(bare)).filter(({ kind }) => kind !== 'snapshot')
    expect(found.map(({ message }) => message)).toEqual([
      `The tokens topic says that request "long" at offset 1 was cancelled after ${index} tokens, and no record of the state topic does.`,
      expect.stringContaining('no dead letter holds it'),
    ])
    expect(log.kind).toBe('embedded')
    await Promise.all([bench.close(), bare.close()])
  })

  test('finds a record that was forged: for a request that ended by itself, with another index, and for none', {
    tags: 'slow',
  }, async () => {
    const bench = await cancelledLog()
    const [real] = (await decided(bench)) as [Cancelled]
    await forge(bench, { ...real, requestId: 'short', offset: 2, index: 16 })
    const short = await said(bench)
    expect(short).toContain('The event differs from the recomputation')
    expect(short).toContain('cancelled request "short" at offset 2; the input has no such two events')
    await bench.close()

    const other = await cancelledLog()
    const [its] = (await decided(other)) as [Cancelled]
    await forge(other, { ...its, index: its.index + 1 })
    const different = await said(other)
    expect(different).toContain(`that it was cancelled after ${its.index + 1} tokens; the one at`)
    expect(different).toContain(`was cancelled after ${its.index} tokens, and its record says after ${its.index + 1}.`)
    await other.close()

    const third = await cancelledLog()
    await forge(third, { ...real, requestId: 'none', offset: 0 })
    expect(await said(third)).toContain('cancelled request "none" at offset 0; the input has no such two events')
    await third.close()
  })
})
