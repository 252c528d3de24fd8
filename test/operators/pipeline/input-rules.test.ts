/** Topics that others feed: sessions stay one, text asks to continue, and what was chosen once is kept. */
import { describe, expect, test } from 'vitest'
import { type Verification, verifyLog } from '../../../src/operators/verify/verify.ts'
import { readPartitionState } from '../../../src/operators/worker/partition-state.ts'
import { seal } from '../../../src/state/head.ts'
import type { EventLog, RecordIn } from '../../../src/streams/log.ts'
import { homeOf } from '../../../src/streams/partitioner.ts'
import type { InputRules } from '../../../topics/input.ts'
import { generateRule } from '../../../topics/input.ts'
import { eventually } from '../../streams/helpers.ts'
import { type Bench, benches, event, onBothLogsWith } from '../harness.ts'

const { use } = benches()

const verify = ({ log, names, model, tokenizer }: Bench, format: 'json' | 'text'): Promise<Verification> =>
  verifyLog({ log, names, model, tokenizer, format })
const cursorOf = async ({ log, names }: Bench, partition = 0) =>
  (await readPartitionState(log, names, partition, 1 << 30)).cursor!
const letters = async (bench: Bench): Promise<readonly string[]> =>
  (await bench.records('deadletters')).map(({ headers }) =>
    Buffer.from(headers.find(([name]) => name === 'continuo-reason')![1]).toString(),
  )
/** Why the task of a partition refuses to run. */
const refusalOf = async (bench: Bench, options: Parameters<Bench['start']>[0], partition = 0): Promise<string> => {
  const { worker } = await bench.start(options)
  await eventually(() => expect(worker.refused.has(partition)).toBe(true))
  await worker.stop()
  return (worker.refused.get(partition) as Error).message
}
/** A name whose partition of two is `murmur2` by the one, and the other one by the other. */
const torn = (murmur2: number, after = ''): string => {
  for (let n = 0, found = after === ''; ; n += 1) {
    const name = `k${n}`
    if (homeOf('murmur2', name, 2) !== murmur2 || homeOf('crc32', name, 2) === murmur2) continue
    if (found) return name
    found = name === after
  }
}
const hello = { type: 'text', text: 'Hello' } as const

onBothLogsWith({ tags: 'slow' })((fresh) => {
  test('a key that two clients send to two partitions has one memory: the other one gets a dead letter that says why', () =>
    use(
      async (bench) => {
        const session = torn(0)
        for (const partition of [0, 1]) await bench.log.append(bench.names.chunks, [event(session, hello)], partition)
        await bench.settle()
        expect((await bench.heads()).get(session)!.cursor.partition).toBe(0)
        expect((await readPartitionState(bench.log, bench.names, 1, 1 << 30)).heads.size).toBe(0)
        expect(await letters(bench)).toEqual([
          expect.stringMatching(
            new RegExp(
              `Session "${session}" belongs to partition 0 by the murmur2 .*partition 1: .*partitioner=murmur2_random`,
            ),
          ),
        ])
        expect((await verify(bench, 'json')).findings).toEqual([])
        // The rule stands in the log: a worker that is told another one is refused, and one that is told the same goes
        // on.
        expect(await refusalOf(bench, { input: { partitioner: 'crc32' } })).toMatch(
          /was read with --key-partitioner murmur2 .* and now with --key-partitioner crc32 /,
        )
        await bench.settle({ input: { partitioner: 'murmur2' } })
      },
      2,
      fresh(),
    ))

  test('with the partitioner of librdkafka it is the other way about', () =>
    use(
      async (bench) => {
        const session = torn(0)
        for (const partition of [0, 1]) await bench.log.append(bench.names.chunks, [event(session, hello)], partition)
        await bench.settle({ input: { partitioner: 'crc32' } })
        expect((await bench.heads()).get(session)!.cursor.partition).toBe(1)
        expect(await letters(bench)).toEqual([expect.stringContaining('partitioner=consistent_random')])
        expect((await verify(bench, 'json')).findings).toEqual([])
      },
      2,
      fresh(),
    ))

  test("a worker that began with the wrong input and read nothing is in nobody's way; one that is still there is", () =>
    use(
      async (bench) => {
        const wrong = { ...bench.names, chunks: bench.names.blobs }
        const idle = await bench.start({ names: wrong })
        await eventually(() => expect([...idle.worker.tasks.values()].map(({ state }) => state)).toEqual(['running']))
        await bench.feed(event('s', hello))
        expect(await refusalOf(bench, {})).toMatch(
          /belongs to group "test" reading .*blobs.*; this worker is group "test" reading/,
        )
        await idle.worker.stop()
        const warnings: string[] = []
        await bench.settle({ warn: (message) => warnings.push(message) })
        // Once more where the broker's answer to the new cursor was lost.
        expect(new Set(warnings)).toEqual(
          new Set([
            expect.stringMatching(/belonged to group "test" reading .*blobs, which had done nothing: taken over/),
          ]),
        )
        expect((await bench.heads()).get('s')!.totals.tokens).toBe(5)
        expect((await verify(bench, 'json')).findings).toEqual([])
        expect(await refusalOf(bench, { names: wrong })).toMatch(/belongs to group "test" reading/)
      },
      1,
      fresh(),
    ))
})

test('a worker that comes back while its state is taken over is seen', () =>
  use(async (bench) => {
    const wrong = { ...bench.names, chunks: bench.names.blobs }
    const first = await bench.start({ names: wrong })
    await eventually(() => expect(first.worker.tasks.get(0)?.state).toBe('running'))
    await first.worker.stop()
    const { end } = await bench.log.bounds(bench.names.state, 0)
    const log: EventLog = {
      ...bench.log,
      // Joined between the two looks, before which the new cursor is written.
      async members() {
        const isTaken = (await bench.log.bounds(bench.names.state, 0)).end > end
        return isTaken ? [{ member: 'm', topic: wrong.chunks, partitions: [0] }] : []
      },
    }
    expect(await refusalOf(bench, { log })).toMatch(/of which a worker has come back\. Stop that one and start again/)
  }))

test('untouched state takes other rules of the same group; state that was used does not', () =>
  use(async (bench) => {
    const first = await bench.start({ format: 'text' })
    await eventually(() => expect(first.worker.tasks.get(0)?.state).toBe('running'))
    await first.worker.stop()
    await bench.feed(event('s', hello))
    await bench.settle({ input: { unknownFields: 'ignore' } })
    expect(await cursorOf(bench)).toMatchObject({ format: 'json', input: { unknownFields: 'ignore', since: 0 } })
    expect(await refusalOf(bench, {})).toMatch(
      /was read with .*--unknown-fields ignore, and now with .*--unknown-fields refuse/,
    )
  }))

test('a log of an older version keeps the sessions that it has, wherever they are, and takes no new ones like that', () =>
  use(async (bench) => {
    const { log, names } = bench
    const old = torn(0)
    const late = torn(0, old)
    await log.append(names.chunks, [event(old, hello)], 1)
    await bench.settle({ input: { partitioner: 'any' } })
    // Older versions kept no rules.
    const { input: _, ...cursor } = await cursorOf(bench, 1)
    const writer = await log.claim('test', names.chunks, 1)
    await writer.commit([{ topic: names.state, ...seal(cursor, { topic: names.state, partition: 1 }) }], cursor.offset)
    await writer.close()
    await log.append(names.chunks, [event(old, hello)], 1)
    await log.append(names.chunks, [event(late, hello)], 1)
    await bench.settle()
    const { heads, cursor: kept } = await readPartitionState(log, names, 1, 1 << 30)
    expect([...heads].map(([id, { totals }]) => [id, totals.tokens])).toEqual([[old, 10]])
    expect(kept!.input).toEqual({ since: cursor.offset })
    expect(await letters(bench)).toEqual([expect.stringContaining(`Session "${late}" belongs to partition 0`)])
    expect((await verify(bench, 'json')).findings).toEqual([])
  }, 2))

describe('plain text', () => {
  const line = (text: string, headers: RecordIn['headers'] = []): RecordIn => ({
    key: null,
    value: Buffer.from(text),
    headers,
  })
  const input: InputRules = {
    session: { is: 'partition' },
    generate: generateRule.parse({ every: 3, header: 'ask', request: { maxTokens: 4, temperature: 0 } }),
  }
  const options = { format: 'text', input } as const

  test('without keys has a session for each partition, which asks every so many records and where a header does', () =>
    use(async (bench) => {
      const { log, names } = bench
      const asking = [['ask', Buffer.from('{"maxTokens":2,"requestId":"mine"}')] as const]
      const lines = ['One. ', 'Two. ', 'Three. ', 'Four. ']
      await log.append(
        names.chunks,
        lines.map((text) => line(text)),
        0,
      )
      await log.append(
        names.chunks,
        [line('', asking), line('Five. '), line('Six. ', asking), line(''), line('Seven. ')],
        1,
      )
      await bench.settle(options)
      const said = async (session: string) =>
        (await bench.generated(session)).map(({ requestId, ids, cause }) => [requestId, ids.length, cause.offset])
      expect(await said('partition-0')).toEqual([['0/2', 4, 2]])
      // Its first request has nothing to continue; an empty line counts; a request by a header begins the count anew.
      expect(await said('partition-1')).toEqual([['mine', 2, 2]])
      expect(await letters(bench)).toEqual([expect.stringContaining('nothing to continue')])
      const heads = await bench.heads()
      expect([heads.get('partition-0')!.unanswered, heads.get('partition-1')!.unanswered]).toEqual([1, 2])
      await log.append(names.chunks, [line('Eight. ')], 1)
      await bench.settle(options)
      expect(await said('partition-1')).toEqual([
        ['mine', 2, 2],
        ['1/5', 4, 5],
      ])
      const { findings, tokensCompared } = await verify(bench, 'text')
      expect(findings).toEqual([])
      expect(tokensCompared).toBe(10)
    }, 2))

  test('read in one record with its request gives what two events give', () =>
    use(async (bench) => {
      await bench.feed(
        event('apart', { type: 'text', text: 'The harbour ' }),
        event('apart', { type: 'generate', requestId: 'r', maxTokens: 20, temperature: 0 }),
      )
      await bench.settle()
      const apart = (await bench.heads()).get('apart')!
      await use(async (plain) => {
        const asking = [['ask', Buffer.from('{"requestId":"r","maxTokens":20,"temperature":0}')] as const]
        await plain.log.append(plain.names.chunks, [{ ...line('The harbour ', asking), key: Buffer.from('apart') }])
        await plain.settle({ format: 'text', input: { generate: { header: 'ask' } } })
        expect((await plain.heads()).get('apart')).toMatchObject({ chain: apart.chain, totals: apart.totals })
        const told = async (of: Bench) => (await of.generated()).map(({ cause: _, ...rest }) => rest)
        expect(await told(plain)).toEqual(await told(bench))
        expect((await verify(plain, 'text')).findings).toEqual([])
      })
    }))

  test('asks the same wherever its worker was stopped', { tags: 'slow' }, () =>
    use(async (bench) => {
      const long = generateRule.parse({ after: '\n', request: { maxTokens: 48, temperature: 0, run: 4 } })
      const rules = { format: 'text', input: { generate: long }, commitInterval: 0 } as const
      await bench.feed(...['The sea\n', 'is wide. ', 'It is\n'].map((text) => event('s', text)))
      let stops = 0
      for (;;) {
        const running = await bench.start(rules)
        const before = running.commits.length
        await eventually(() => expect(running.commits.length).toBeGreaterThan(before))
        await running.worker.stop()
        if ((await bench.heads()).get('s')?.cursor.offset === 2 && (await bench.heads()).get('s')!.cursor.complete)
          break
        stops += 1
      }
      expect(stops).toBeGreaterThan(0)
      const tokens = await bench.generated('s')
      expect(tokens.map(({ ids }) => ids.length).reduce((a, b) => a + b, 0)).toBe(96)
      expect((await verify(bench, 'text')).findings).toEqual([])
    }),
  )

  test('in one session for all needs one partition', () =>
    use(async (bench) => {
      const constant = { session: { is: 'constant', name: 'all' } } as const
      await expect(bench.start({ format: 'text', input: constant })).rejects.toThrow(/this one has 2 partitions/)
      await use(async (one) => {
        await one.log.append(one.names.chunks, [line('a'), { ...line('b'), key: Buffer.from('k') }])
        await one.settle({ format: 'text', input: constant })
        expect([...(await one.heads())].map(([id, { totals }]) => [id, totals.tokens])).toEqual([['all', 2]])
        expect((await verify(one, 'text')).findings).toEqual([])
      })
    }, 2))
})
