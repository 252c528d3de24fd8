/**
 * What other clients write: every codec from those who made it, and batches that nobody can read.
 *
 * @module-tag slow
 */
import { execFile } from 'node:child_process'
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { CompressionTypes } from 'kafkajs'
import { afterAll, beforeAll, describe, expect, inject, test } from 'vitest'
import { messageOf } from '../../src/errors.ts'
import { restoreSession } from '../../src/operators/snapshots/restore.ts'
import type { EventLog, StoredRecord } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { DEAD_LETTER_HEADERS } from '../../topics/deadletters.ts'
import { benches, event, verified } from '../operators/harness.ts'
import { readAll, refuses, text, valuesOf } from '../streams/helpers.ts'
import { freshPrefix } from './broker.ts'
import { plainKafka } from './helpers.ts'

const { brokers, missing } = inject('kafka')
if (brokers === null) console.warn(`Tests on a broker are skipped: ${missing}`)

const run = promisify(execFile)
const CODECS = ['gzip', 'snappy', 'lz4', 'zstd'] as const
const root = join(import.meta.dirname, '..', '..')
const lib = join(root, 'tools', 'kafka', 'lib')

/** Java's own producer needs the client's jars and a Java that compiles; a runtime alone does not. */
const javaMissing = async (): Promise<string | null> => {
  if (!existsSync(lib)) return 'the jars of Kafka are not here'
  const has = await run('java', ['--list-modules']).then(
    ({ stdout }) => stdout.includes('jdk.compiler@'),
    () => false,
  )
  return has ? null : 'this Java has no compiler: a JDK is needed'
}
const noJava = await javaMissing()
if (noJava !== null) console.warn(`Tests with Java's producer are skipped: ${noJava}`)

const { open } = benches()

describe.skipIf(brokers === null)('batches of others', { timeout: 120_000 }, () => {
  const prefix = freshPrefix()
  let log: EventLog
  let count = 0
  beforeAll(async () => {
    log = await openLog(`kafka://${brokers}/${prefix}`)
  })
  afterAll(() => log?.close())

  const freshTopic = async (config: Record<string, string> = {}): Promise<string> => {
    const name = `${prefix}.t${count++}`
    await log.createTopics([{ name, partitions: 1, config }])
    return name
  }

  test.each(CODECS)('compressed with %s by the broker, as the topic asks, are read', async (codec) => {
    const topic = await freshTopic({ 'compression.type': codec })
    const values = Array.from({ length: 3000 }, (_, i) => `line ${i} of a compressed batch, and the tide comes in`)
    await log.append(
      topic,
      values.map((value) => ({ key: null, value: Buffer.from(value), headers: [['name', Buffer.from('content')]] })),
    )
    const seen = await readAll(log, topic)
    expect(valuesOf(seen)).toEqual(values)
    expect(seen.every(({ headers }) => headers.length === 1 && headers[0]![0] === 'name')).toBe(true)
    // Beginning within a batch.
    expect(valuesOf(await readAll(log, topic, 0, { from: 1234 }))).toEqual(values.slice(1234))
  })

  test.skipIf(noJava !== null)("compressed by Java's producer are read, whatever the codec", async () => {
    const topics = await Promise.all(CODECS.map(() => freshTopic()))
    const source = join(import.meta.dirname, 'Produce.java')
    const pairs = topics.map((topic, i) => `${topic}=${CODECS[i]}`)
    await run('java', ['-cp', join(lib, '*'), source, brokers!, '5000', ...pairs])
    for (const topic of topics) {
      const seen = await readAll(log, topic)
      expect(seen.map(({ key, value }) => `${text(key)}: ${text(value)}`)).toEqual(
        Array.from({ length: 5000 }, (_, i) => `key ${i % 7}: line ${i} of a compressed batch, and the tide comes in`),
      )
    }
  })

  /** A batch of 70 MiB in 70 kB, with an event beside the one that is so large. */
  const sendBomb = async (topic: string): Promise<void> => {
    const producer = plainKafka(brokers!).producer()
    await producer.connect()
    await producer.send({
      topic,
      compression: CompressionTypes.GZIP,
      messages: [
        { key: 'beside', value: '{"type":"text","text":"lost with it"}', partition: 0 },
        { key: 'bomb', value: Buffer.alloc(70 << 20), partition: 0 },
      ],
    })
    await producer.disconnect()
  }

  test('that nobody can decode are refused to whoever does not ask for them, by their offset', async () => {
    const topic = await freshTopic()
    await log.append(topic, [{ key: null, value: Buffer.from('before') }])
    await sendBomb(topic)
    await refuses(readAll(log, topic), 'REFUSED', `${topic}[0]`, 'offset 1', 'unpack to more than 67108864')
  })

  test('that nobody can decode become one dead letter with their bytes; their partition goes on, and verify agrees', async () => {
    const bench = await open(1, { url: `kafka://${brokers}/${freshPrefix()}` })
    const raw = async (): Promise<StoredRecord[]> => {
      const { begin } = await bench.log.bounds(bench.names.chunks, 0)
      return readAll(bench.log, bench.names.chunks, 0, { from: begin, undecodable: true })
    }
    await bench.feed(event('s', { type: 'text', text: 'Before. ' }))
    await sendBomb(bench.names.chunks)
    await bench.feed(event('s', { type: 'text', text: 'After. ' }))
    const [before, batch, after] = await raw()
    expect([before!.offset, batch!.offset, after!.offset]).toEqual([0, 1, 3])
    expect(batch!.undecodable?.next).toBe(3)

    await bench.settle()
    await verified(bench)
    // Again from the beginning: it stays one letter.
    await sendBomb(bench.names.chunks)
    await bench.feed(event('s', { type: 'text', text: 'And on. ' }))
    await bench.settle()
    await verified(bench)
    expect((await bench.observations('s')).filter(({ type }) => type === 'observed')).toHaveLength(3)
    expect(await bench.observations('beside')).toEqual([])

    // A session without a snapshot is rebuilt across what cannot be decoded.
    const { model, tokenizer, names } = bench
    const engine = { model, tokenizer, submit: model.submit }
    const validate = { format: 'json', vocabSize: model.vocabSize, readsText: true } as const
    const head = { ...(await bench.heads()).get('s')!, snapshot: null }
    const rebuilt = await restoreSession(
      { log: bench.log, names, model, engine, validate, cancelled: new Map() },
      0,
      head,
    )
    expect(rebuilt.head.cursor.pulse).toBe(head.cursor.pulse)
    rebuilt.context.close()

    const letters = await bench.records('deadletters')
    const header = ({ headers }: StoredRecord, name: string) =>
      text(headers.find(([each]) => each === name)?.[1] ?? null)
    expect(letters.map((letter) => header(letter, DEAD_LETTER_HEADERS.batch))).toEqual(['1-2', '4-5'])
    expect(letters.map((letter) => header(letter, DEAD_LETTER_HEADERS.offset))).toEqual(['1', '4'])
    expect(header(letters[0]!, DEAD_LETTER_HEADERS.reason)).toContain('offsets 1 to 2 cannot be decoded')
    expect(Buffer.from(letters[0]!.value!).equals(batch!.value!)).toBe(true)
    expect(letters[0]!.key).toBeNull()
    await bench.close()
  })

  test('with ever so many empty headers stop nothing: the bytes are dead letters that the topic takes', async () => {
    const bench = await open(1, { url: `kafka://${brokers}/${freshPrefix()}` })
    const headers = (n: number) => Array.from({ length: n }, () => ['', new Uint8Array()] as const)
    // As large as the topic takes, so that nothing can be added to it; and more than a reader makes anything of.
    await bench.feed({ key: null, value: Buffer.alloc(899_900), headers: headers(74_250) })
    await bench.feed({ ...event('s', { type: 'text', text: 'Much beside. ' }), headers: headers(450_000) })
    await bench.feed(event('s', { type: 'text', text: 'After. ' }))
    const { worker } = await bench.settle()
    expect([...worker.refused.values()].map(messageOf)).toEqual([])
    await verified(bench)
    const letters = await bench.records('deadletters')
    const of = (letter: StoredRecord) => text(letter.headers.find(([name]) => name === DEAD_LETTER_HEADERS.offset)![1])
    expect([...new Set(letters.map(of))]).toEqual(['0', '1'])
    expect((await bench.observations('s')).filter(({ type }) => type === 'observed')).toHaveLength(1)
    await bench.close()
  })
})
