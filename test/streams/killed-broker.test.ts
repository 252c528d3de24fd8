/**
 * What only a broker of one's own is for: it ends and comes again, or dies in the middle of a commit.
 *
 * @module-tag slow
 */
import { afterAll, describe, expect, test } from 'vitest'
import { codeOf } from '../../src/errors.ts'
import type { EventLog, PartitionWriter } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { freshPrefix, ownBroker } from '../kafka/broker.ts'
import { setUp, storeOn } from './contract/fixture.ts'
import { keepsRecords } from './contract/records.ts'
import { bytes, eventually, readAll, record, text, valuesOf, watch } from './helpers.ts'

const { kafka: mortal } = await ownBroker()
afterAll(() => mortal?.stop())

describe.skipIf(mortal === undefined)('a log whose broker is killed', { timeout: 120_000 }, () => {
  const prefix = freshPrefix()
  const logs: EventLog[] = []
  const open = async (): Promise<EventLog> => {
    const log = await openLog(`kafka://${mortal!.brokers}/${prefix}`, { sessionTimeout: 2000 })
    logs.push(log)
    return log
  }
  afterAll(async () => {
    await Promise.all(logs.map((log) => log.close()))
  })
  let count = 0
  const topics = async (log: EventLog, partitions: number): Promise<readonly [string, string, string]> => {
    const names = ['in', 'a', 'b'].map((last) => `${prefix}.${last}${count}`) as [string, string, string]
    count++
    await log.createTopics(names.map((name) => ({ name, partitions, config: {} })))
    return names
  }

  test('keeps whole transactions only: two workers commit to several partitions while it dies again and again', async () => {
    const workers = await Promise.all([open(), open()])
    const [input, a, b] = await topics(workers[0]!, 4)
    const group = `${prefix}-workers`
    const outs = (n: number) =>
      Array.from({ length: 30 }, () =>
        [a, b].map((topic) => ({ topic, key: bytes(`${n}`), value: new Uint8Array(500) })),
      ).flat()

    let stopping = false
    const kinds = new Set<string>()
    let commits = 0
    /** What a task does: claim, read the cursor, go on; after any failure claim again. */
    const work = async (log: EventLog, partition: number): Promise<void> => {
      let writer: PartitionWriter | undefined
      while (!stopping)
        try {
          writer = await log.claim(group, input, partition)
          for (let n = ((await log.committed(group, input, partition)) ?? 0) + 1; !stopping; n++) {
            await writer.commit(outs(n), n)
            commits++
          }
        } catch (error) {
          kinds.add(codeOf(error))
          await writer?.close()
        }
      await writer?.close()
    }
    const running = [0, 1, 2, 3].map((partition) => work(workers[partition % 2]!, partition))
    for (let death = 0; death < 4; death++) {
      const before = commits
      const some = 5 + Math.floor(Math.random() * 30)
      await eventually(() => expect(commits).toBeGreaterThan(before + some), 60_000)
      await mortal!.kill()
      await mortal!.restart()
    }
    const before = commits
    await eventually(() => expect(commits).toBeGreaterThan(before + 20), 60_000)
    stopping = true
    await Promise.all(running)

    for (const kind of kinds) expect(['UNAVAILABLE', 'FENCED']).toContain(kind)
    const log = await open()
    for (const partition of [0, 1, 2, 3]) {
      await (await log.claim(group, input, partition)).close()
      const last = (await log.committed(group, input, partition))!
      const expected = Array.from({ length: last * 30 }, (_, i) => String(1 + Math.floor(i / 30)))
      for (const topic of [a, b])
        expect((await readAll(log, topic, partition)).map(({ key }) => text(key))).toEqual(expected)
    }
  })

  test('goes on for its followers, feeders and members: every record once, in order', async () => {
    const log = await open()
    const [input] = await topics(log, 1)
    const stop = new AbortController()
    const seen: (string | null)[] = []
    const following = (async () => {
      for await (const batch of log.read(input, 0, 0, { follow: true, signal: stop.signal }))
        seen.push(...valuesOf(batch.records))
    })()
    const member = watch(await log.join(`${prefix}-members`, input))
    await eventually(() => expect(member.now()).toEqual([0]))

    const values = Array.from({ length: 200 }, (_, i) => String(i))
    const feeding = (async () => {
      for (const value of values) await log.append(input, [record(value)], 0)
    })()
    await eventually(() => expect(seen.length).toBeGreaterThan(50))
    await mortal!.kill()
    await mortal!.restart()
    await feeding
    await eventually(() => expect(seen.length).toBeGreaterThanOrEqual(values.length))
    stop.abort()
    await following
    expect(seen).toEqual(values)

    const other = watch(await (await open()).join(`${prefix}-members`, input))
    await eventually(() => {
      expect(other.history.length).toBeGreaterThan(0)
      expect([...member.now(), ...other.now()]).toEqual([0])
    })
  })
})

describe.skipIf(mortal === undefined)('a log whose broker is restarted', { timeout: 120_000 }, () => {
  keepsRecords(
    setUp(async () => ({
      newStore: () => storeOn(mortal!.brokers),
      restart: () => mortal!.restart(),
      stop: async () => {},
      sessionTimeout: 2000,
      kills: 0,
    })),
  )
})
