/**
 * Random histories against a model of arrays and maps; two instances at one file, which is opened anew now and then.
 */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { codeOf } from '../../src/errors.ts'
import { openEmbeddedLog } from '../../src/streams/embedded/log.ts'
import type { EventLog, PartitionWriter, RecordIn } from '../../src/streams/log.ts'
import { inBothTiers } from '../rounds.ts'
import { readAll } from './helpers.ts'

const PARTITIONS = 2
const TOPICS = ['p.x', 'p.y'] as const
const LIMIT = 400

const instance = fc.nat({ max: 1 })
const partition = fc.nat({ max: PARTITIONS - 1 })
const topic = fc.constantFrom(...TOPICS)
const part = fc.option(fc.uint8Array({ maxLength: 60 }), { nil: null })
/** Some are too large. */
const value = fc.oneof({ weight: 20, arbitrary: part }, { weight: 1, arbitrary: fc.constant(new Uint8Array(LIMIT)) })
const headers = fc.array(fc.tuple(fc.string({ unit: 'grapheme', maxLength: 5 }), fc.uint8Array({ maxLength: 5 })), {
  maxLength: 3,
})
const timestamp = fc.nat({ max: 2 ** 41 })
const recordIn = fc.record({ key: part, value, headers, timestamp })
const out = fc.record({ topic, key: part, value, headers, timestamp })

const step = fc.oneof(
  fc.record({ do: fc.constant('append' as const), instance, topic, partition, records: fc.array(recordIn) }),
  fc.record({ do: fc.constant('claim' as const), instance, partition }),
  fc.record({
    do: fc.constant('commit' as const),
    writer: fc.nat(),
    outs: fc.array(out),
    offset: fc.option(fc.nat(), { nil: null }),
  }),
  fc.record({ do: fc.constant('trim' as const), instance, topic, partition, before: fc.nat({ max: 30 }) }),
  fc.record({ do: fc.constant('reopen' as const), instance }),
)

interface Line {
  begin: number
  readonly all: RecordIn[]
}

/** What the port promises, in a page. */
const newModel = () => {
  const lines = new Map<string, Line>()
  const epochs = Array.from({ length: PARTITIONS }, () => 0)
  const offsets: (number | null)[] = Array.from({ length: PARTITIONS }, () => null)
  for (const name of TOPICS) for (let p = 0; p < PARTITIONS; p++) lines.set(`${name}/${p}`, { begin: 0, all: [] })
  const line = (name: string, p: number): Line => lines.get(`${name}/${p}`)!
  const fits = (record: RecordIn): boolean => record.value === null || record.value.length < LIMIT
  const put = (name: string, p: number, record: RecordIn): number => line(name, p).all.push(record) - 1
  return { lines, line, epochs, offsets, fits, put }
}

const outcome = <T>(call: Promise<T>): Promise<T | string> => call.catch((error: unknown) => codeOf(error))

describe('the embedded log', { timeout: 120_000 }, () => {
  let folder = ''
  let runs = 0
  beforeAll(() => {
    folder = mkdtempSync(join(tmpdir(), 'continuo-model-'))
  })
  afterAll(() => rmSync(folder, { recursive: true }))

  for (const { rounds, says, options } of inBothTiers(80))
    test(`behaves like arrays and maps, whatever is done in whatever order, ${says}`, options, async () => {
      await fc.assert(
        fc.asyncProperty(fc.array(step, { maxLength: 40, size: 'max' }), async (steps) => {
          const url = `file:${join(folder, `${++runs}.db`)}?prefix=p`
          const logs = [await openEmbeddedLog(url), await openEmbeddedLog(url)]
          const log = (i: number): EventLog => logs[i]!
          await log(0).createTopics(
            TOPICS.map((name) => ({ name, partitions: PARTITIONS, config: { 'max.message.bytes': String(LIMIT) } })),
          )
          const model = newModel()
          const writers: { writer: PartitionWriter; epoch: number; instance: number; gone: boolean }[] = []
          try {
            for (const todo of steps) {
              switch (todo.do) {
                case 'append': {
                  const expected = todo.records.every(model.fits)
                    ? todo.records.map((record) => ({
                        partition: todo.partition,
                        offset: model.put(todo.topic, todo.partition, record),
                      }))
                    : 'INVALID'
                  expect(await outcome(log(todo.instance).append(todo.topic, todo.records, todo.partition))).toEqual(
                    expected,
                  )
                  break
                }
                case 'claim': {
                  const writer = await log(todo.instance).claim('g', 'p.x', todo.partition)
                  const epoch = ++model.epochs[todo.partition]!
                  expect(writer.epoch).toBe(epoch)
                  writers.push({ writer, epoch, instance: todo.instance, gone: false })
                  break
                }
                case 'commit': {
                  const owner = writers[todo.writer % (writers.length || 1)]
                  if (owner === undefined) break
                  const p = owner.writer.partition
                  let expected: number[] | string
                  if (owner.gone) expected = 'MISUSE'
                  else if (owner.epoch !== model.epochs[p]) expected = 'FENCED'
                  else if (!todo.outs.every(model.fits)) expected = 'INVALID'
                  else {
                    expected = todo.outs.map((record) => model.put(record.topic, p, record))
                    if (todo.offset !== null) model.offsets[p] = todo.offset
                  }
                  const { writer } = owner
                  const call = todo.offset === null ? writer.append(todo.outs) : writer.commit(todo.outs, todo.offset)
                  expect(await outcome(call)).toEqual(expected)
                  break
                }
                case 'trim': {
                  const line = model.line(todo.topic, todo.partition)
                  const expected = todo.before > line.all.length ? 'POSITION' : undefined
                  if (expected === undefined) line.begin = Math.max(line.begin, todo.before)
                  expect(await outcome(log(todo.instance).trim(todo.topic, todo.partition, todo.before))).toBe(expected)
                  break
                }
                case 'reopen':
                  await log(todo.instance).close()
                  logs[todo.instance] = await openEmbeddedLog(url)
                  // A fenced writer keeps its verdict only until its log is closed; both are refusals.
                  for (const owner of writers) if (owner.instance === todo.instance) await owner.writer.close()
                  for (const owner of writers) if (owner.instance === todo.instance) owner.gone = true
              }
            }
            for (const reader of logs) {
              for (const [place, { begin, all }] of model.lines) {
                const [name = '', p] = place.split('/')
                expect(await reader.bounds(name, Number(p))).toEqual({ begin, end: all.length })
                const expected = all.slice(begin).map((record, i) => ({
                  topic: name,
                  partition: Number(p),
                  offset: begin + i,
                  timestamp: record.timestamp,
                  key: record.key,
                  value: record.value,
                  headers: record.headers,
                }))
                expect(await readAll(reader, name, Number(p), { maxBytes: 100 })).toEqual(expected)
              }
              for (let p = 0; p < PARTITIONS; p++) expect(await reader.committed('g', 'p.x', p)).toBe(model.offsets[p])
            }
          } finally {
            await Promise.all(logs.map((each) => each.close()))
          }
        }),
        { numRuns: rounds },
      )
    })
})
