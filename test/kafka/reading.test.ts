/**
 * Readers and what they leave behind, and what a broker's disk or a quiet hour does to them.
 *
 * @module-tag slow
 */
import { mkdtemp, open, readFile, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { messageOf } from '../../src/errors.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { eventually, readAll, record, refuses, valuesOf } from '../streams/helpers.ts'
import { freshPrefix, ownBroker } from './broker.ts'

const connections = (): number => process.getActiveResourcesInfo().filter((name) => name === 'TCPSocketWrap').length

const shared = inject('kafka')
test.skipIf(shared.brokers === null)(
  'of many readers at once each has its own connection, and few of them are kept',
  async () => {
    const prefix = freshPrefix()
    const log = await openLog(`kafka://${shared.brokers}/${prefix}`)
    const topic = `${prefix}.t`
    await log.createTopics([{ name: topic, partitions: 1, config: {} }])
    const before = connections()
    const stop = new AbortController()
    const readers = Array.from({ length: 50 }, async () => {
      for await (const _ of log.read(topic, 0, 0, { follow: true, signal: stop.signal })) break
    })
    await eventually(() => expect(connections()).toBeGreaterThanOrEqual(before + 50))
    stop.abort()
    await Promise.all(readers)
    await eventually(() => expect(connections()).toBeLessThanOrEqual(before + 8))
    await log.close()
    await eventually(() => expect(connections()).toBe(0))
  },
)

const dir = await mkdtemp(join(tmpdir(), 'continuo-reading-'))
const { kafka: broker, missing } = await ownBroker({ dir, config: { 'connections.max.idle.ms': '1000' } })
if (broker === undefined) console.warn(`Tests on a broker are skipped: ${missing}`)
afterAll(async () => {
  await broker?.stop()
  await rm(dir, { recursive: true, force: true })
})

describe.skipIf(broker === undefined)('a reader', { timeout: 60_000 }, () => {
  const prefix = freshPrefix()
  let log: EventLog
  let count = 0
  beforeAll(async () => {
    log = await openLog(`kafka://${broker!.brokers}/${prefix}`)
  })
  afterAll(() => log.close())

  /** One batch a record. */
  const freshTopic = async (...values: string[]): Promise<string> => {
    const name = `${prefix}.t${count++}`
    await log.createTopics([{ name, partitions: 1, config: {} }])
    for (const value of values) await log.append(name, [record(value)], 0)
    return name
  }

  test('does not notice that the broker closed the connections it does not use', async () => {
    const topic = await freshTopic('one', 'two')
    expect(valuesOf(await readAll(log, topic))).toEqual(['one', 'two'])
    await eventually(() => expect(connections()).toBe(0))
    expect(valuesOf(await readAll(log, topic))).toEqual(['one', 'two'])
  })

  /** Changes the second batch of a partition where the broker keeps it. */
  const damage = async (topic: string, change: (batch: Buffer) => void): Promise<void> => {
    const path = join(dir, 'data', `${topic}-0`, '00000000000000000000.log')
    const data = await readFile(path)
    const at = 12 + data.readInt32BE(8)
    change(data.subarray(at))
    const file = await open(path, 'r+')
    await file.write(data, at, data.length - at, at)
    await file.close()
  }
  const WHAT_TO_DO = ['Nothing was changed', 'replica', 'restore']

  test('refuses a batch whose bits changed on the disk, and goes on behind it', async () => {
    const topic = await freshTopic('one', 'good', 'three')
    await damage(topic, (batch) => {
      const at = batch.indexOf('good')
      batch[at] = batch[at]! ^ 1
    })
    const parts = [`${topic}[0]`, 'offset 1', 'checksum', 'header', ...WHAT_TO_DO]
    await refuses(readAll(log, topic), 'REFUSED', ...parts)
    await refuses(readAll(log, topic, 0, { from: 1 }), 'REFUSED', ...parts)
    expect(valuesOf(await readAll(log, topic, 0, { from: 2 }))).toEqual(['three'])
    expect(valuesOf(await readAll(log, topic, 0, { from: 0, maxBytes: 1, until: 1 }))).toEqual(['one'])
  })

  test('says so where the broker itself does not find its way in its file', async () => {
    const topic = await freshTopic('one', 'two', 'three')
    await damage(topic, (batch) => batch.writeInt32BE(-5, 8))
    const call = readAll(log, topic, 0, { from: 1 })
    await refuses(call, 'REFUSED', `${topic}[0]`, 'offset 1', 'corrupt', ...WHAT_TO_DO)
    await call.catch((error) => expect(messageOf(error)).not.toContain('try again'))
  })
})
