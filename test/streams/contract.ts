/**
 * What both logs promise. The claims are of the port (src/streams/log.ts), so nothing here knows SQLite or Kafka:
 * offsets only grow (Kafka's have gaps), and what was committed becomes visible soon, not at once.
 */
import { type ChildProcess, fork } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import type { EventLog, OutRecord, RecordIn } from '../../src/streams/log.ts'
import type { OpenLogOptions } from '../../src/streams/open.ts'
import { bytes, eventually, readAll, record, refuses, take, text, valuesOf, watch } from './helpers.ts'

/** One log's place: a file, or a prefix of topics and groups that nobody else uses. */
export interface Store {
  readonly url: string
  /** Another instance at the same store. */
  open(options?: OpenLogOptions): Promise<EventLog>
  /** Checks the store itself after a crash; throws what is wrong. */
  inspect?(): void
}

export interface Harness {
  newStore(): Promise<Store>
  /** Restarts whatever keeps the stores. All logs are closed before. */
  restart(): Promise<void>
  stop(): Promise<void>
  /** The shortest session time-out that the log allows, ms. */
  readonly sessionTimeout: number
  /** How often a committing process is killed. */
  readonly kills: number
}

interface Message {
  readonly committed?: number
  readonly assignment?: { readonly generation: number; readonly partitions: readonly number[] }
  readonly done?: object
  readonly code?: string
}

const LIMIT = 1_048_576
const TIMEOUT = 120_000

export const contract = (name: string, start: () => Promise<Harness>): void => {
  describe(`the ${name} log`, { timeout: TIMEOUT }, () => {
    let harness: Harness
    const logs: EventLog[] = []
    const children: ChildProcess[] = []

    beforeAll(async () => {
      harness = await start()
    }, TIMEOUT)
    afterEach(async () => {
      for (const child of children.splice(0)) child.kill('SIGKILL')
      await Promise.all(logs.splice(0).map((log) => log.close()))
    }, TIMEOUT)
    afterAll(() => harness?.stop(), TIMEOUT)

    const openAt = async (store: Store, options?: OpenLogOptions): Promise<EventLog> => {
      const log = await store.open(options)
      logs.push(log)
      return log
    }

    /** A new store with topics in, a and b. */
    const fresh = async (partitions = 1) => {
      const store = await harness.newStore()
      const log = await openAt(store)
      const topic = (last: string): string => `${log.prefix}.${last}`
      const config = { 'max.message.bytes': String(LIMIT) }
      await log.createTopics(['in', 'a', 'b'].map((last) => ({ name: topic(last), partitions, config })))
      const names = { input: topic('in'), a: topic('a'), b: topic('b'), group: `${log.prefix}-group` }
      return { store, log, topic, ...names }
    }

    const startChild = (role: string, store: Store, group: string, prefix: string) => {
      const script = fileURLToPath(new URL('./child.ts', import.meta.url))
      const child = fork(script, [role, store.url, group, prefix, String(harness.sessionTimeout)], { execArgv: [] })
      children.push(child)
      const messages: Message[] = []
      child.on('message', (message) => messages.push(message as Message))
      const exited = new Promise<void>((resolve) => child.on('exit', () => resolve()))
      return { child, messages, exited }
    }

    describe('keeps records', () => {
      test('as they were: bytes, keys, headers, timestamps', async () => {
        const { log, a } = await fresh()
        const everyByte = Uint8Array.from({ length: 256 }, (_, i) => i)
        const records: RecordIn[] = [
          { key: bytes('k'), value: everyByte, timestamp: Date.now() - 5000 },
          { key: null, value: null, timestamp: 0 },
          { key: new Uint8Array(), value: new Uint8Array(), timestamp: Date.now() },
          { key: everyByte, value: everyByte.subarray(100, 200), headers: [] },
          {
            key: null,
            value: bytes('with headers'),
            headers: [
              ['trace', bytes('1')],
              ['grün', everyByte],
              ['trace', bytes('2')],
              ['empty', new Uint8Array()],
            ],
          },
        ]
        const before = Date.now()
        const placed = await log.append(a, records, 0)
        const after = Date.now()
        const stored = await take(log, a, 0, records.length)
        expect(stored.map(({ offset }) => offset)).toEqual(placed.map(({ offset }) => offset))
        const plain = (part: Uint8Array | null | undefined): number[] | null => (part ? [...part] : null)
        /** kafkajs groups headers by name. */
        const grouped = (headers: RecordIn['headers'] = []): Record<string, unknown> =>
          Object.groupBy(
            headers.map(([header, value]) => [header, plain(value)] as const),
            ([header]) => header,
          )
        for (const [i, { key, value, headers, timestamp }] of records.entries()) {
          const found = stored[i]!
          expect(found).toMatchObject({ topic: a, partition: 0 })
          expect(plain(found.key)).toEqual(plain(key))
          expect(plain(found.value)).toEqual(plain(value))
          expect(grouped(found.headers)).toEqual(grouped(headers))
          if (timestamp !== undefined) expect(found.timestamp).toBe(timestamp)
          else {
            expect(found.timestamp).toBeGreaterThanOrEqual(before)
            expect(found.timestamp).toBeLessThanOrEqual(after)
          }
        }
      })

      test('of 900 kB, several in one call', async () => {
        const { log, a } = await fresh()
        const big = Uint8Array.from({ length: 900_000 }, (_, i) => (i * 31) & 255)
        await log.append(
          a,
          [0, 1, 2].map(() => ({ key: null, value: big })),
          0,
        )
        for (const { value } of await take(log, a, 0, 3)) expect(Buffer.compare(value!, big)).toBe(0)
      })

      test('in order, with growing offsets', async () => {
        const { log, a } = await fresh()
        const values = Array.from({ length: 500 }, (_, i) => String(i))
        for (let i = 0; i < values.length; i += 50)
          await log.append(
            a,
            values.slice(i, i + 50).map((value) => record(value)),
            0,
          )
        const stored = await take(log, a, 0, values.length)
        expect(valuesOf(stored)).toEqual(values)
        for (let i = 1; i < stored.length; i++) expect(stored[i]!.offset).toBeGreaterThan(stored[i - 1]!.offset)
      })

      test("in the partition of the key's hash, which is Kafka's murmur2", async () => {
        const { log, a } = await fresh(7)
        // Hashes from Kafka's own UtilsTest, positive, modulo 7.
        const known: [string, number][] = [
          ['21', -973932308],
          ['foobar', -790332482],
          ['a-little-bit-long-string', -985981536],
          ['a-little-bit-longer-string', -1486304829],
          ['lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8', -58897971],
        ]
        for (const [key, hash] of known) {
          const partition = (hash & 0x7fffffff) % 7
          expect(await log.partitionOf(a, bytes(key))).toBe(partition)
          const [placed] = await log.append(a, [record('v', key)])
          expect(placed!.partition).toBe(partition)
        }
      })

      test('without a key in some partition, and says in which', async () => {
        const { log, a } = await fresh(3)
        const placed = await log.append(a, [record('x'), record('y')])
        for (const [i, { partition, offset }] of placed.entries()) {
          const stored = await eventually(async () => {
            const found = (await readAll(log, a, partition)).find((other) => other.offset === offset)
            expect(found).toBeDefined()
            return found!
          })
          expect(text(stored.value)).toBe(['x', 'y'][i])
        }
      })

      test('apart by partition', async () => {
        const { log, a } = await fresh(3)
        for (const partition of [0, 1, 2]) await log.append(a, [record(`p${partition}`)], partition)
        for (const partition of [0, 1, 2]) expect(valuesOf(await take(log, a, partition, 1))).toEqual([`p${partition}`])
      })

      test('across a restart, with offsets, epochs and bounds', async () => {
        const { store, log, input, a, group } = await fresh()
        await log.append(a, [record('trimmed'), record('kept')], 0)
        const [, kept] = await take(log, a, 0, 2)
        await log.trim(a, 0, kept!.offset)
        const writer = await log.claim(group, input, 0)
        await writer.commit([{ topic: a, ...record('committed') }], 42)
        await take(log, a, 0, 2)
        const bounds = await log.bounds(a, 0)
        await writer.close()
        await log.close()
        await harness.restart()
        const again = await openAt(store)
        expect(await again.bounds(a, 0)).toEqual(bounds)
        expect(valuesOf(await take(again, a, 0, 2))).toEqual(['kept', 'committed'])
        const heir = await again.claim(group, input, 0)
        expect(heir.epoch).toBeGreaterThan(writer.epoch)
        expect(await again.committed(group, input, 0)).toBe(42)
        const [offset] = await heir.commit([{ topic: a, ...record('after') }], 43)
        expect(offset).toBeGreaterThan(kept!.offset)
        expect(valuesOf(await take(again, a, 0, 3))).toEqual(['kept', 'committed', 'after'])
      })
    })

    describe('has topics', () => {
      test('that are created once, whoever asks, and listed with their settings', async () => {
        const store = await harness.newStore()
        const [one, two] = await Promise.all([openAt(store), openAt(store)])
        const config = { 'max.message.bytes': '2000000' }
        const spec = { name: `${one.prefix}.t`, partitions: 3, config }
        await Promise.all([one.createTopics([spec]), two.createTopics([spec])])
        await two.createTopics([spec, { ...spec, name: `${one.prefix}.u` }])
        const listed = await one.topics()
        expect(listed.map((topic) => topic.name).sort()).toEqual([`${one.prefix}.t`, `${one.prefix}.u`])
        for (const topic of listed) expect(topic).toMatchObject({ partitions: 3, config })
      })

      test('listed below the prefix, and others by name if they exist', async () => {
        const { log, input, a, b } = await fresh()
        const elsewhere = `${log.prefix}-elsewhere`
        await log.createTopics([{ name: elsewhere, partitions: 1, config: {} }])
        expect((await log.topics()).map((topic) => topic.name).sort()).toEqual([a, b, input].sort())
        const named = await log.topics([elsewhere, `${log.prefix}-missing`, a])
        expect(named.map((topic) => topic.name).sort()).toEqual([a, b, input, elsewhere].sort())
      })

      test('whose number of partitions does not change: INVALID names both', async () => {
        const { log, topic } = await fresh()
        await log.createTopics([{ name: topic('t'), partitions: 3, config: {} }])
        await refuses(log.createTopics([{ name: topic('t'), partitions: 5, config: {} }]), 'INVALID', topic('t'), 3, 5)
      })

      test('with names and sizes that Kafka allows: INVALID otherwise', async () => {
        const { log, topic } = await fresh()
        await refuses(log.createTopics([{ name: 'no spaces', partitions: 1, config: {} }]), 'INVALID', 'no spaces')
        await refuses(log.createTopics([{ name: topic('none'), partitions: 0, config: {} }]), 'INVALID', topic('none'))
      })

      test('and no others: every use of a missing topic or partition is INVALID and names it', async () => {
        const { log, topic, input, a, group } = await fresh(2)
        const missing = topic('missing')
        await refuses(log.append(missing, [record('x')], 0), 'INVALID', missing)
        await refuses(log.partitionOf(missing, bytes('k')), 'INVALID', missing)
        await refuses(log.bounds(missing, 0), 'INVALID', missing)
        await refuses(readAll(log, missing, 0, { from: 0 }), 'INVALID', missing)
        await refuses(log.join(group, missing), 'INVALID', missing)
        await refuses(log.claim(group, missing, 0), 'INVALID', missing)
        await refuses(log.trim(missing, 0, 0), 'INVALID', missing)
        await refuses(log.append(a, [record('x')], 2), 'INVALID', a, 2)
        await refuses(log.bounds(a, 2), 'INVALID', a, 2)
        await refuses(readAll(log, a, 2, { from: 0 }), 'INVALID', a, 2)
        await refuses(log.claim(group, input, 2), 'INVALID', input, 2)
        const writer = await log.claim(group, input, 0)
        await refuses(writer.commit([{ topic: missing, ...record('x') }], 1), 'INVALID', missing)
      })

      test('that take records up to their limit: a larger one is INVALID, names both sizes, and nothing is written', async () => {
        const { log, input, a, b, group } = await fresh()
        const big: RecordIn = { key: null, value: new Uint8Array(LIMIT + 1000) }
        const namesBoth = async (call: Promise<unknown>): Promise<void> => {
          const message: string = await call.then(
            () => expect.fail('an oversize record was taken'),
            (error: Error) => error.message,
          )
          const numbers = message
            .replaceAll(/(?<=\d)[,_\u202f](?=\d)/g, '')
            .match(/\d+/g)!
            .map(Number)
          expect(numbers).toContain(LIMIT)
          expect(numbers.some((size) => size >= big.value!.length && size < big.value!.length + 500)).toBe(true)
        }
        await refuses(log.append(a, [record('small'), big], 0), 'INVALID', a)
        await namesBoth(log.append(a, [big], 0))
        const writer = await log.claim(group, input, 0)
        const outs: OutRecord[] = [
          { topic: b, ...record('small') },
          { topic: a, ...big },
        ]
        await refuses(writer.commit(outs, 1), 'INVALID', a)
        await namesBoth(writer.append(outs))
        await writer.commit([{ topic: a, ...record('goes on') }], 2)
        expect(valuesOf(await take(log, a, 0, 1))).toEqual(['goes on'])
        expect(await readAll(log, b)).toEqual([])
      })
    })

    describe('is read', () => {
      test('within its bounds, which tell begin and end', async () => {
        const { log, a } = await fresh()
        const empty = await log.bounds(a, 0)
        expect(empty.end).toBe(empty.begin)
        await log.append(a, [record('x'), record('y')], 0)
        const stored = await take(log, a, 0, 2)
        const { begin, end } = await log.bounds(a, 0)
        expect(begin).toBe(stored[0]!.offset)
        expect(end).toBeGreaterThan(stored[1]!.offset)
        expect(await readAll(log, a, 0, { from: end })).toEqual([])
        expect(valuesOf(await readAll(log, a, 0, { from: stored[1]!.offset }))).toEqual(['y'])
      })

      test('at no position outside them: POSITION names the numbers', async () => {
        const { log, a } = await fresh()
        await log.append(a, [record('x'), record('y'), record('z')], 0)
        const [first, second] = await take(log, a, 0, 3)
        const { end } = await log.bounds(a, 0)
        await refuses(readAll(log, a, 0, { from: end + 7 }), 'POSITION', end + 7, end)
        await refuses(readAll(log, a, 0, { from: end + 7, follow: true }), 'POSITION', end + 7, end)
        await log.trim(a, 0, second!.offset)
        await refuses(readAll(log, a, 0, { from: first!.offset }), 'POSITION', first!.offset, second!.offset)
      })

      test('up to an offset, following or not', async () => {
        const { log, a } = await fresh()
        const values = Array.from({ length: 20 }, (_, i) => String(i))
        await log.append(
          a,
          values.map((value) => record(value)),
          0,
        )
        const stored = await take(log, a, 0, 20)
        const until = stored[12]!.offset
        expect(valuesOf(await readAll(log, a, 0, { until }))).toEqual(values.slice(0, 12))
        expect(valuesOf(await readAll(log, a, 0, { until, follow: true }))).toEqual(values.slice(0, 12))
        expect(await readAll(log, a, 0, { until: stored[0]!.offset })).toEqual([])
        expect(await readAll(log, a, 0, { from: stored[5]!.offset, until: stored[3]!.offset, follow: true })).toEqual(
          [],
        )
      })

      test('in batches whose next is the position after them', async () => {
        const { log, a } = await fresh()
        for (let i = 0; i < 10; i++) await log.append(a, [record(String(i))], 0)
        await take(log, a, 0, 10)
        const { begin, end } = await log.bounds(a, 0)
        let position = begin
        const values: (string | null)[] = []
        for await (const batch of log.read(a, 0, begin, { maxBytes: 1 })) {
          for (const { offset } of batch.records) {
            expect(offset).toBeGreaterThanOrEqual(position)
            expect(offset).toBeLessThan(batch.next)
          }
          position = batch.next
          values.push(...valuesOf(batch.records))
          // Any batch's next is a position to go on from.
          const rest = await readAll(log, a, 0, { from: position })
          expect([...values, ...valuesOf(rest)]).toEqual(Array.from({ length: 10 }, (_, i) => String(i)))
        }
        expect(values.length).toBe(10)
        expect(position).toBeLessThanOrEqual(end)
      })

      test('as it grows: a follower sees what other instances append, in order', async () => {
        const { store, log, a } = await fresh()
        const other = await openAt(store)
        const { begin } = await log.bounds(a, 0)
        const reader = log.read(a, 0, begin, { follow: true })[Symbol.asyncIterator]()
        const seen: (string | null)[] = []
        for (let i = 0; i < 5; i++) {
          const pulled = i % 2 === 0 ? reader.next() : null // Waiting before the append, or coming after it.
          await (i < 3 ? other : log).append(a, [record(String(i))], 0)
          while (seen.length <= i) {
            const { value, done } = await (seen.length === i && pulled !== null ? pulled : reader.next())
            expect(done).toBeFalsy()
            seen.push(...valuesOf(value!.records))
            if (seen.length <= i && pulled !== null) seen.push(...valuesOf((await reader.next()).value!.records))
          }
        }
        expect(seen).toEqual(['0', '1', '2', '3', '4'])
        await reader.return?.()
      })

      test('as it grows by appends and commits of the same instance', async () => {
        const { log, input, a, group } = await fresh()
        const writer = await log.claim(group, input, 0)
        const { begin } = await log.bounds(a, 0)
        const reader = log.read(a, 0, begin, { follow: true })[Symbol.asyncIterator]()
        for (let i = 0; i < 6; i++) {
          const seen: (string | null)[] = []
          const pulled = (async () => {
            while (seen.length === 0) seen.push(...valuesOf((await reader.next()).value!.records))
          })()
          await eventually(() => log.ping()) // Lets the follower settle down to waiting.
          if (i % 2 === 0) await log.append(a, [record(String(i))], 0)
          else await writer.commit([{ topic: a, ...record(String(i)) }], i)
          await pulled
          expect(seen).toEqual([String(i)])
        }
        await reader.return?.()
      })

      test('leaving the event loop its turns', async () => {
        const { log, a } = await fresh()
        for (let i = 0; i < 60; i++) await log.append(a, [record('x'.repeat(1000))], 0)
        await take(log, a, 0, 60)
        const { begin } = await log.bounds(a, 0)
        let batches = 0
        let turns = 0
        const turn = (): void => {
          turns++
          again = setImmediate(turn)
        }
        let again = setImmediate(turn)
        for await (const _ of log.read(a, 0, begin, { maxBytes: 1000 })) batches++
        clearImmediate(again)
        expect(turns).toBeGreaterThanOrEqual(batches - 1)
      })

      test('by many followers at once', async () => {
        const { store, log, a } = await fresh()
        const other = await openAt(store)
        const followers = Array.from({ length: 12 }, () => take(log, a, 0, 3))
        for (const value of ['x', 'y', 'z']) await other.append(a, [record(value)], 0)
        for (const stored of await Promise.all(followers)) expect(valuesOf(stored)).toEqual(['x', 'y', 'z'])
      })

      test('until a signal fires, without an error', async () => {
        const { log, a } = await fresh()
        await log.append(a, [record('x')], 0)
        const stop = new AbortController()
        const reading = readAll(log, a, 0, { follow: true, signal: stop.signal })
        await take(log, a, 0, 1)
        stop.abort()
        expect((await reading).length).toBeLessThanOrEqual(1)
        expect(await readAll(log, a, 0, { follow: true, signal: AbortSignal.abort() })).toEqual([])
      })

      test('no faster than it is pulled: a reader who does not pull fills no memory', async () => {
        const { log, a, b } = await fresh()
        const count = 96
        const size = 250_000
        for (let i = 0; i < count; i += 4)
          await log.append(
            a,
            [0, 1, 2, 3].map((j) => ({ key: bytes(String(i + j)), value: new Uint8Array(size).fill(i + j) })),
            0,
          )
        const { begin } = await log.bounds(a, 0)
        const reader = log.read(a, 0, begin, { maxBytes: size })[Symbol.asyncIterator]()
        const seen: (string | null)[] = []
        const pull = async (): Promise<boolean> => {
          const { value, done } = await reader.next()
          if (done) return false
          expect(value.records.length).toBeLessThanOrEqual(8) // "rough", yet not all
          seen.push(...value.records.map(({ key }) => text(key)))
          return true
        }
        await pull()
        const { setFlagsFromString } = await import('node:v8')
        setFlagsFromString('--expose-gc')
        const gc: () => void = (await import('node:vm')).runInNewContext('gc')
        gc()
        const before = process.memoryUsage().arrayBuffers
        // Time in which an eager reader would read on.
        for (let i = 0; i < 20; i++) await log.append(b, [record('elsewhere')], 0)
        await take(log, b, 0, 20)
        gc()
        expect(process.memoryUsage().arrayBuffers - before).toBeLessThan((count * size) / 4)
        while (await pull());
        expect(seen).toEqual(Array.from({ length: count }, (_, i) => String(i)))
      })
    })

    describe('commits', () => {
      test('records of several topics and the offset, and returns the offsets in order', async () => {
        const { store, log, input, a, b, group } = await fresh(2)
        expect(await log.committed(group, input, 1)).toBeNull()
        const writer = await log.claim(group, input, 1)
        expect(writer.partition).toBe(1)
        const outs: OutRecord[] = [
          { topic: a, key: bytes('k'), value: bytes('1'), headers: [['h', bytes('v')]], timestamp: 12345 },
          { topic: b, ...record('2') },
          { topic: a, ...record('3') },
          { topic: input, ...record('4') },
        ]
        const offsets = await writer.commit(outs, 17)
        const other = await openAt(store)
        const inA = await take(other, a, 1, 2)
        const inB = await take(other, b, 1, 1)
        const inInput = await take(other, input, 1, 1)
        expect(valuesOf([...inA, ...inB, ...inInput])).toEqual(['1', '3', '2', '4'])
        expect(offsets).toEqual([inA[0], inB[0], inA[1], inInput[0]].map((stored) => stored!.offset))
        expect(inA[0]).toMatchObject({ timestamp: 12345, partition: 1 })
        expect(text(inA[0]!.headers[0]![1])).toBe('v')
        await eventually(async () => expect(await other.committed(group, input, 1)).toBe(17))
        expect(await other.committed(group, input, 0)).toBeNull()
        expect(await other.committed(`${group}-2`, input, 1)).toBeNull()
        expect(await readAll(other, a, 0)).toEqual([])
      })

      test('an offset alone, and nothing at all', async () => {
        const { log, input, a, group } = await fresh()
        const writer = await log.claim(group, input, 0)
        expect(await writer.commit([], 5)).toEqual([])
        expect(await writer.append([])).toEqual([])
        await eventually(async () => expect(await log.committed(group, input, 0)).toBe(5))
        expect(await readAll(log, a)).toEqual([])
      })

      test('bulk ahead, without an offset', async () => {
        const { log, input, a, group } = await fresh()
        const writer = await log.claim(group, input, 0)
        const part = new Uint8Array(900_000).fill(7)
        const offsets = await writer.append([0, 1, 2].map(() => ({ topic: a, key: null, value: part })))
        expect((await take(log, a, 0, 3)).map(({ offset }) => offset)).toEqual(offsets)
        expect(await log.committed(group, input, 0)).toBeNull()
      })

      test('more than a megabyte as one atom', async () => {
        const { log, input, a, b, group } = await fresh()
        const writer = await log.claim(group, input, 0)
        const part = { key: null, value: new Uint8Array(700_000) }
        await writer.commit(
          [a, b, a, b, a].map((topic) => ({ topic, ...part })),
          1,
        )
        expect((await take(log, a, 0, 3)).length + (await take(log, b, 0, 2)).length).toBe(5)
      })

      test('thousands of small records', async () => {
        const { log, input, a, group } = await fresh()
        const writer = await log.claim(group, input, 0)
        const values = Array.from({ length: 5000 }, (_, i) => String(i))
        const offsets = await writer.commit(
          values.map((value) => ({ topic: a, ...record(value) })),
          1,
        )
        expect(offsets.length).toBe(5000)
        expect(valuesOf(await take(log, a, 0, 5000))).toEqual(values)
      })

      test('such that no reader ever sees a part of a transaction', async () => {
        const { store, log, input, a, group } = await fresh()
        const reader = await openAt(store)
        const writer = await log.claim(group, input, 0)
        const size = 40
        const commits = 25
        let committing = true
        const committed = (async () => {
          for (let n = 1; n <= commits; n++)
            await writer.commit(
              Array.from({ length: size }, () => ({ topic: a, ...record(`${n}`) })),
              n,
            )
        })().finally(() => {
          committing = false
        })
        while (committing) expect((await readAll(reader, a)).length % size).toBe(0)
        await committed
        await take(reader, a, 0, size * commits)
      })

      test('side by side in several partitions', async () => {
        const { log, input, a, group } = await fresh(4)
        const partitions = [0, 1, 2, 3]
        await Promise.all(
          partitions.map(async (partition) => {
            const writer = await log.claim(group, input, partition)
            for (let n = 1; n <= 10; n++) await writer.commit([{ topic: a, ...record(`${partition}:${n}`) }], n)
            await writer.close()
          }),
        )
        for (const partition of partitions) {
          expect(valuesOf(await take(log, a, partition, 10))).toEqual(
            Array.from({ length: 10 }, (_, i) => `${partition}:${i + 1}`),
          )
          expect(await log.committed(group, input, partition)).toBe(10)
        }
      })

      test('whole transactions only, though the committing process is killed again and again', async () => {
        const { store, log, input, a, b, group } = await fresh()
        let acknowledged = 0
        for (let kill = 0; kill < harness.kills; kill++) {
          const { child, messages, exited } = startChild('committer', store, group, log.prefix)
          const last = (): number => messages.at(-1)?.committed ?? 0
          const target = acknowledged + 1 + Math.floor(Math.random() * 8)
          await eventually(() => expect(last()).toBeGreaterThanOrEqual(target))
          child.kill('SIGKILL')
          await exited
          const heir = await log.claim(group, input, 0) // Resolves what the dead left open.
          const committed = (await log.committed(group, input, 0))!
          expect(committed).toBeGreaterThanOrEqual(last())
          acknowledged = committed
          const expected = Array.from({ length: committed * 20 }, (_, i) => 1 + Math.floor(i / 20))
          for (const topic of [a, b]) {
            const stored = await take(log, topic, 0, expected.length)
            expect(stored.map(({ value }) => Number.parseInt(text(value)!, 10))).toEqual(expected)
            expect((await readAll(log, topic)).length).toBe(expected.length)
          }
          await heir.close()
          store.inspect?.()
        }
      })
    })

    describe('has one writer a partition', () => {
      test('who is fenced by the next claim: nothing of the stale one becomes visible', async () => {
        const { store, log, input, a, b, group } = await fresh()
        const other = await openAt(store)
        const stale = await log.claim(group, input, 0)
        await stale.commit([{ topic: a, ...record('before') }], 1)
        const heir = await other.claim(group, input, 0)
        expect(heir.epoch).toBeGreaterThan(stale.epoch)
        const outs = [a, b].map((topic) => ({ topic, ...record('stale') }))
        await refuses(stale.commit(outs, 2), 'FENCED', group, input)
        await refuses(stale.append(outs), ['FENCED', 'MISUSE'])
        await heir.commit([{ topic: a, ...record('after') }], 3)
        expect(valuesOf(await take(log, a, 0, 2))).toEqual(['before', 'after'])
        expect(await readAll(log, b)).toEqual([])
        expect(await log.committed(group, input, 0)).toBe(3)
        await stale.close()
        await heir.commit([{ topic: a, ...record('still') }], 4)
        expect(valuesOf(await take(log, a, 0, 3))).toEqual(['before', 'after', 'still'])
      })

      test('also for bulk: a stale append is FENCED', async () => {
        const { log, input, a, group } = await fresh()
        const stale = await log.claim(group, input, 0)
        const heir = await log.claim(group, input, 0)
        await refuses(stale.append([{ topic: a, ...record('stale') }]), 'FENCED')
        await heir.append([{ topic: a, ...record('x') }])
        expect(valuesOf(await take(log, a, 0, 1))).toEqual(['x'])
      })

      test('when claims race, too: one of them wins', async () => {
        const { store, log, input, a, group } = await fresh()
        const instances = [log, await openAt(store), await openAt(store)]
        for (let round = 1; round <= 3; round++) {
          const claims = await Promise.allSettled(instances.map((instance) => instance.claim(group, input, 0)))
          const writers = claims.flatMap((claim) => (claim.status === 'fulfilled' ? [claim.value] : []))
          const commits = await Promise.allSettled(
            writers.map((writer, i) => writer.commit([{ topic: a, ...record(`${round}:${i}`) }], round)),
          )
          const winners = commits.flatMap(({ status }, i) => (status === 'fulfilled' ? [`${round}:${i}`] : []))
          expect(winners.length).toBe(1)
          for (const commit of commits) if (commit.status === 'rejected') expect(commit.reason.code).toBe('FENCED')
          expect(valuesOf(await take(log, a, 0, round)).slice(-1)).toEqual(winners)
          await Promise.all(writers.map((writer) => writer.close()))
        }
      })

      test('but other partitions and groups have their own', async () => {
        const { log, input, a, group } = await fresh(2)
        const writers = [
          await log.claim(group, input, 0),
          await log.claim(group, input, 1),
          await log.claim(`${group}-2`, input, 0),
        ]
        for (const [i, writer] of writers.entries()) await writer.commit([{ topic: a, ...record(String(i)) }], i)
        expect(valuesOf(await take(log, a, 0, 2))).toEqual(['0', '2'])
        expect(valuesOf(await take(log, a, 1, 1))).toEqual(['1'])
        expect(await log.committed(`${group}-2`, input, 0)).toBe(2)
      })

      test('who takes one call at a time: a second one is MISUSE, and the first goes through', async () => {
        const { log, input, a, group } = await fresh()
        const writer = await log.claim(group, input, 0)
        const first = writer.commit([{ topic: a, ...record('first') }], 1)
        const second = writer.commit([{ topic: a, ...record('second') }], 2)
        const third = writer.append([{ topic: a, ...record('third') }])
        await Promise.all([refuses(second, 'MISUSE'), refuses(third, 'MISUSE')])
        await first
        await writer.commit([{ topic: a, ...record('fourth') }], 4)
        expect(valuesOf(await take(log, a, 0, 2))).toEqual(['first', 'fourth'])
      })

      test('who is of no use when closed: MISUSE; closing again does nothing', async () => {
        const { log, input, a, group } = await fresh()
        const writer = await log.claim(group, input, 0)
        await writer.commit([{ topic: a, ...record('x') }], 1)
        await writer.close()
        await writer.close()
        await refuses(writer.commit([{ topic: a, ...record('y') }], 2), 'MISUSE')
        await refuses(writer.append([{ topic: a, ...record('y') }]), 'MISUSE')
        expect(valuesOf(await take(log, a, 0, 1))).toEqual(['x'])
      })
    })

    describe('is trimmed', () => {
      test('below an offset: begin moves, the rest stays, new records go on', async () => {
        const { log, a } = await fresh()
        await log.append(
          a,
          Array.from({ length: 10 }, (_, i) => record(String(i))),
          0,
        )
        const stored = await take(log, a, 0, 10)
        const sixth = stored[5]!.offset
        await log.trim(a, 0, sixth)
        expect((await log.bounds(a, 0)).begin).toBe(sixth)
        expect(valuesOf(await readAll(log, a))).toEqual(['5', '6', '7', '8', '9'])
        await log.trim(a, 0, stored[2]!.offset) // Already gone.
        expect((await log.bounds(a, 0)).begin).toBe(sixth)
        const [placed] = await log.append(a, [record('10')], 0)
        expect(placed!.offset).toBeGreaterThan(stored[9]!.offset)
        expect(valuesOf(await take(log, a, 0, 6))).toEqual(['5', '6', '7', '8', '9', '10'])
      })

      test('to its end: an empty log that still knows where it stands', async () => {
        const { store, log, a } = await fresh()
        await log.append(a, [record('x'), record('y')], 0)
        await take(log, a, 0, 2)
        const { end } = await log.bounds(a, 0)
        await log.trim(a, 0, end)
        const other = await openAt(store)
        expect(await other.bounds(a, 0)).toEqual({ begin: end, end })
        expect(await readAll(other, a, 0, { from: end })).toEqual([])
        await other.append(a, [record('z')], 0)
        expect((await take(log, a, 0, 1))[0]!.offset).toBeGreaterThanOrEqual(end)
      })

      test('no further than its end: POSITION, and nothing is lost', async () => {
        const { log, a } = await fresh()
        await log.append(a, [record('x')], 0)
        await take(log, a, 0, 1)
        const { end } = await log.bounds(a, 0)
        await refuses(log.trim(a, 0, end + 1), 'POSITION', end, end + 1)
        expect(valuesOf(await readAll(log, a))).toEqual(['x'])
      })

      test('under a reader: it gets POSITION, never a silent jump', async () => {
        const { log, a } = await fresh()
        const count = 12
        for (let i = 0; i < count; i++)
          await log.append(a, [{ key: bytes(String(i)), value: new Uint8Array(300_000) }], 0)
        const stored = await take(log, a, 0, count)
        const seen: number[] = []
        const reading = (async () => {
          for await (const batch of log.read(a, 0, stored[0]!.offset, { maxBytes: 300_000, follow: true })) {
            for (const { key } of batch.records) seen.push(Number(text(key)))
            if (seen.length === batch.records.length) await log.trim(a, 0, stored[count - 1]!.offset)
          }
        })()
        await refuses(reading, 'POSITION', stored[count - 1]!.offset)
        expect(seen).toEqual(seen.map((_, i) => i))
        expect(seen.length).toBeLessThan(count)
      })
    })

    describe('has groups', () => {
      const shared = (lists: readonly (readonly number[])[]): number[] => lists.flat().sort((x, y) => x - y)

      test('whose members share the partitions, evenly, and hand over at once when they leave', async () => {
        const { store, log, input, group } = await fresh(4)
        const other = await openAt(store)
        const one = await log.join(group, input)
        const seenByOne = watch(one)
        await eventually(() => expect(seenByOne.now()).toEqual([0, 1, 2, 3]))
        const two = await other.join(group, input)
        const seenByTwo = watch(two)
        await eventually(() => {
          expect(seenByOne.now().length).toBe(2)
          expect(seenByTwo.now().length).toBe(2)
          expect(shared([seenByOne.now(), seenByTwo.now()])).toEqual([0, 1, 2, 3])
        })
        // Well within the session time-out of 10 s: nobody waited for it.
        await one.leave()
        await eventually(() => expect(seenByTwo.now()).toEqual([0, 1, 2, 3]), 8000)
        for (const { history } of [seenByOne, seenByTwo])
          for (let i = 1; i < history.length; i++)
            expect(history[i]!.generation).toBeGreaterThan(history[i - 1]!.generation)
        await two.leave()
        await two.leave()
      })

      test('with more members than partitions: somebody waits, and takes over', async () => {
        const { store, log, input, group } = await fresh(1)
        const other = await openAt(store)
        const one = await log.join(group, input)
        const seenByOne = watch(one)
        await eventually(() => expect(seenByOne.now()).toEqual([0]))
        const two = await other.join(group, input)
        const seenByTwo = watch(two)
        await eventually(() => {
          expect(seenByTwo.history.length).toBeGreaterThan(0)
          expect(shared([seenByOne.now(), seenByTwo.now()])).toEqual([0])
        })
        const [owner, waiter] = seenByOne.now().length === 1 ? [one, seenByTwo] : [two, seenByOne]
        await owner.leave()
        await eventually(() => expect(waiter.now()).toEqual([0]))
      })

      test('that know nothing of each other', async () => {
        const { log, input, group } = await fresh(2)
        const one = watch(await log.join(group, input))
        const two = watch(await log.join(`${group}-2`, input))
        await eventually(() => {
          expect(one.now()).toEqual([0, 1])
          expect(two.now()).toEqual([0, 1])
        })
      })

      test('that a stalled worker loses its partitions to; it is fenced when it wakes, and joins anew', async () => {
        const { store, log, input, a, group } = await fresh(2)
        const { child, messages } = startChild('member', store, group, log.prefix)
        const assignments = () => messages.flatMap(({ assignment }) => (assignment === undefined ? [] : [assignment]))
        const outcome = async (message: object): Promise<string> => {
          const count = messages.filter(({ done }) => done !== undefined).length
          child.send(message)
          return eventually(() => {
            const done = messages.filter((reply) => reply.done !== undefined)[count]
            expect(done).toBeDefined()
            return done!.code!
          })
        }
        await eventually(() => expect(assignments().at(-1)?.partitions).toEqual([0, 1]))
        for (const partition of [0, 1]) expect(await outcome({ claim: partition })).toBe('OK')
        expect(await outcome({ commit: 0 })).toBe('OK')
        expect(await outcome({ commit: 1 })).toBe('OK')

        child.kill('SIGSTOP')
        const mine = await openAt(store, { sessionTimeout: harness.sessionTimeout })
        // Kafka lets nobody in before the stalled member's session ends.
        const membership = await mine.join(group, input)
        const seen = watch(membership)
        await eventually(() => expect(seen.now()).toEqual([0, 1]), 60_000)
        const writer = await mine.claim(group, input, 0)
        const generation = assignments().at(-1)!.generation
        child.kill('SIGCONT')
        expect(await outcome({ commit: 0 })).toBe('FENCED')
        await writer.commit([{ topic: a, ...record('from the heir') }], 2)
        expect(valuesOf(await take(mine, a, 0, 2))).toEqual(['from the child', 'from the heir'])
        await eventually(() => {
          expect(assignments().at(-1)!.generation).toBeGreaterThan(generation)
          expect(shared([seen.now(), assignments().at(-1)!.partitions])).toEqual([0, 1])
          expect(seen.now().length).toBe(1)
        }, 60_000)
      })
    })

    describe('as a whole', () => {
      test('answers a ping, and says what it is', async () => {
        const { log } = await fresh()
        await log.ping()
        expect(log.kind).toMatch(/^(embedded|kafka)$/)
        expect(log.url).toContain(log.prefix)
      })

      test('is of no use when closed: MISUSE; closing again does nothing', async () => {
        const { log, input, a, group } = await fresh()
        const waiting = readAll(log, a, 0, { follow: true })
        await log.bounds(a, 0)
        await Promise.all([log.close(), refuses(waiting, 'MISUSE')])
        await log.close()
        await refuses(log.append(a, [record('x')], 0), 'MISUSE')
        await refuses(log.bounds(a, 0), 'MISUSE')
        await refuses(readAll(log, a, 0, { from: 0 }), 'MISUSE')
        await refuses(log.claim(group, input, 0), 'MISUSE')
        await refuses(log.join(group, input), 'MISUSE')
        await refuses(log.ping(), 'MISUSE')
      })
    })
  })
}
