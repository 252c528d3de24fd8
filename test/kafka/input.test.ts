/**
 * What becomes of a worker whose input is deleted, in part or as a whole, or made anew under the same name.
 *
 * @module-tag slow
 */
import { type Admin, ConfigResourceTypes } from 'kafkajs'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { keepsRecords } from '../../src/operators/pipeline/input-life.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { topicNames } from '../../topics/index.ts'
import { continuo, type Done, json, MODEL, type Running, start } from '../cli/helpers.ts'
import { eventually, readAll, refuses } from '../streams/helpers.ts'
import { freshPrefix, ownBroker } from './broker.ts'
import { plainKafka } from './helpers.ts'

const { kafka: broker, missing } = await ownBroker()
if (broker === undefined) console.warn(`Tests on a broker are skipped: ${missing}`)

describe.skipIf(broker === undefined)('an input topic', { timeout: 480_000 }, () => {
  let admin: Admin
  const logs: EventLog[] = []
  const workers: Running[] = []
  beforeAll(async () => {
    admin = plainKafka(broker!.brokers).admin()
    await admin.connect()
  })
  afterAll(async () => {
    for (const { child } of workers) child.kill('SIGKILL')
    await Promise.all(logs.map((log) => log.close()))
    await admin.disconnect()
    await broker!.stop()
  })

  const open = async () => {
    const prefix = freshPrefix()
    const url = `kafka://${broker!.brokers}/${prefix}`
    const names = topicNames(prefix)
    const log = await openLog(url)
    logs.push(log)
    expect((await continuo(['topics', 'apply', '--log', url])).code).toBe(0)
    // A group of its own: members for another input would be given its partitions.
    const args = ['run', '--log', url, '--model', MODEL, '--group', prefix, '--log-level', 'warn'] as const
    const run = (): Promise<Done> => continuo([...args, '--until-idle', '50'])
    const begin = (): Running => {
      const worker = start([...args, '--snapshot-every', '1000000', '--commit-interval', '10'])
      workers.push(worker)
      return worker
    }
    /** Text events of two sessions, by turns. */
    const feed = (count: number, what: string): Promise<unknown> =>
      log.append(
        names.chunks,
        Array.from({ length: count }, (_, n) => ({
          key: Buffer.from(`s${n % 2}`),
          value: Buffer.from(JSON.stringify({ type: 'text', text: `${what} ${n}. `, id: `${what}-${n}` })),
        })),
        0,
      )
    const observed = async (): Promise<string[]> =>
      (await readAll(log, names.observations))
        .map(
          ({ value }) => JSON.parse(Buffer.from(value!).toString()) as { type: string; cause: { id: string | null } },
        )
        .flatMap(({ type, cause }) => (type === 'observed' ? [cause.id!] : []))
    const deleteBelow = (offset: number): Promise<void> => log.trim(names.chunks, 0, offset)
    const deleteTopic = () => admin.deleteTopics({ topics: [names.chunks] })
    /** A topic can be made again a moment after it was deleted. */
    const makeAnew = (): Promise<void> =>
      eventually(async () => {
        await admin.createTopics({ topics: [{ topic: names.chunks, numPartitions: 1 }] })
        expect((await admin.fetchTopicMetadata({ topics: [names.chunks] })).topics[0]!.partitions.length).toBe(1)
      }, 120_000)
    return { url, names, log, run, begin, feed, observed, deleteBelow, deleteTopic, makeAnew }
  }
  /** What all sessions were, in no order. */
  const chains = async (url: string): Promise<string[]> =>
    (await json<{ session: string; chain: string }>('sessions', '--log', url))
      .map(({ session, chain }) => `${session} ${chain}`)
      .sort()

  test('whose finished records are deleted is read on; a session that needs them again is set aside, and it says what was missing', async () => {
    const { url, names, log, run, begin, feed, observed, deleteBelow } = await open()
    await feed(20, 'early')
    const worker = begin()
    await eventually(async () => expect((await observed()).length).toBe(20), 120_000)
    await deleteBelow(10)
    await feed(4, 'later')
    await eventually(async () => expect((await observed()).length).toBe(24), 120_000)
    // No snapshot was taken: the next life needs what is gone.
    worker.child.kill('SIGKILL')
    await worker.done
    await feed(2, 'last')
    const before = await chains(url)
    const { code, err } = await run()
    expect(code, err).toBe(0)
    for (const session of ['s0', 's1']) {
      // The log's lines are JSON: quotes stand escaped in them.
      expect(err.replaceAll('\\"', '"')).toMatch(
        new RegExp(
          `Session "${session}" must be replayed from offset [01] of .*, partition 0, and those events are gone`,
        ),
      )
    }
    expect(err).toContain(`${names.chunks}[0] does not exist: the log holds 10 to 26`)
    expect(await chains(url)).toEqual(before)
    expect((await observed()).length).toBe(24)
    expect(await json('sessions', '--log', url)).toMatchObject([{ status: 'stopped' }, { status: 'stopped' }])
    expect((await readAll(log, names.deadletters)).length).toBe(2)
  })

  test('keeps its records as long as no setting removes any and none was deleted', async () => {
    const { log, names, feed } = await open()
    await feed(2, 'Entry')
    const keeps = (): Promise<boolean> => keepsRecords(log, names.chunks, 0)
    const set = (name: string, value: string): Promise<unknown> =>
      admin.alterConfigs({
        validateOnly: false,
        resources: [{ type: ConfigResourceTypes.TOPIC, name: names.chunks, configEntries: [{ name, value }] }],
      })
    expect(await keeps()).toBe(true)
    await set('retention.bytes', '-1')
    // The other setting is the broker's then, a week.
    await eventually(async () => expect(await keeps()).toBe(false))
    await set('retention.ms', '-1')
    await eventually(async () => expect(await keeps()).toBe(true))
    await log.trim(names.chunks, 0, 1)
    await eventually(async () => expect(await keeps()).toBe(false))
  })

  test('whose unread records are deleted is refused by name, and nothing is invented', async () => {
    const { url, names, run, feed, observed, deleteBelow } = await open()
    await feed(10, 'read')
    expect((await run()).code).toBe(0)
    await feed(10, 'unread')
    await deleteBelow(15)
    const before = [await chains(url), await observed()]
    const { code, err } = await run()
    expect(code, err).toBe(3)
    expect(err).toContain(`Position 10 of ${names.chunks}[0] does not exist: the log holds 15 to 20`)
    expect([await chains(url), await observed()]).toEqual(before)
  })

  test.each([
    ['with fewer records', 4],
    ['with as many', 10],
    ['with more', 30],
  ])('that was made anew %s is not taken for the old one', async (_, count) => {
    const { names, log, run, feed, observed, deleteTopic, makeAnew } = await open()
    const old = await log.topicId(names.chunks)
    expect(old).toMatch(/^[0-9a-f]{32}$/)
    await feed(10, 'old')
    expect((await run()).code).toBe(0)
    await deleteTopic()
    await makeAnew()
    await feed(count, 'new')
    const before = await observed()
    const { code, err } = await run()
    expect(code, err).toBe(3)
    expect(err).toContain(`The input topic ${names.chunks} was deleted and made anew`)
    expect(err).toContain(old)
    expect(err).toContain((await log.topicId(names.chunks))!)
    expect(await observed()).toEqual(before)
  })

  test('that is made anew under a running worker is not taken for the old one', async () => {
    const { names, run, begin, feed, observed, deleteTopic, makeAnew } = await open()
    await feed(10, 'old')
    const worker = begin()
    await eventually(async () => expect((await observed()).length).toBe(10), 120_000)
    // The next fetch finds enough records in the new topic to go on at the old position.
    await deleteTopic()
    await makeAnew()
    await feed(30, 'new')
    const { code, err } = await worker.done
    expect(code, err).toBe(3)
    expect(err).toMatch(/was deleted and made anew|There is no topic|does not exist|Kafka refused the request/)
    // Each is a session of its own, and sessions do not wait for each other.
    expect((await observed()).toSorted()).toEqual(Array.from({ length: 10 }, (_, n) => `old-${n}`))
    const again = await run()
    expect(again.code, again.err).toBe(3)
    expect(again.err).toContain(`The input topic ${names.chunks} was deleted and made anew`)
  })

  test('that is made anew between two reads of one reader is refused by it', async () => {
    const { names, log, feed, deleteTopic, makeAnew } = await open()
    await feed(10, 'old')
    const topicId = (await log.topicId(names.chunks))!
    const iterator = log.read(names.chunks, 0, 0, { follow: true, topicId })[Symbol.asyncIterator]()
    expect((await iterator.next()).value.next).toBe(10)
    const refused = refuses(iterator.next(), ['REFUSED', 'INVALID'], names.chunks)
    await deleteTopic()
    await makeAnew()
    await feed(30, 'new')
    await refused
  })
})
