import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import type { EventLog } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'
import { createSource, type SourceLimits } from '../../src/streams/source.ts'
import { createWatermark, type Position } from '../../src/streams/watermark.ts'
import { record } from './helpers.ts'

const roomy: SourceLimits = { places: 100, readAhead: 1 << 20, ranges: 100 }
let folder: string
let log: EventLog
let stop: AbortController

beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), 'continuo-source-'))
  log = await openLog(`file:${join(folder, 'log.db')}`)
  await log.createTopics([{ name: 'in', partitions: 1, config: {} }])
  await log.append(
    'in',
    Array.from({ length: 10 }, (_, n) => record('x'.repeat(100), `${n}`)),
    0,
  )
  stop = new AbortController()
})
afterEach(async () => {
  stop.abort()
  await log.close()
  rmSync(folder, { recursive: true, force: true })
})

const open = (limits: Partial<SourceLimits>, position: Position = { offset: 0, done: [] }) => {
  const watermark = createWatermark(position)
  const waiting = { places: 0 }
  const told: (keyof SourceLimits | null)[] = []
  const source = createSource(log, {
    topic: 'in',
    partition: 0,
    from: position.offset,
    watermark,
    stopping: stop.signal,
    places: () => waiting.places,
    limits: { ...roomy, ...limits },
    onFull: (limit) => told.push(limit),
  })
  return { watermark, source, waiting, told, next: source.records[Symbol.asyncIterator]() }
}

/**
 * Takes three records, then asks for the fourth: all lie in the batch in hand, so it comes at once unless held back.
 */
const fourth = async ({ next }: ReturnType<typeof open>) => {
  for (let n = 0; n < 3; n += 1) await next.next()
  let came = false
  const coming = next.next().then(({ value }) => {
    came = true
    return value.offset
  })
  const held = async (): Promise<boolean> => {
    await new Promise(setImmediate)
    return !came
  }
  return { coming, held }
}

describe('source', () => {
  test('with room, everything comes at once', async () => {
    const { held } = await fourth(open({}))
    expect(await held()).toBe(false)
  })

  test('waits while too many records wait in the log, says so, and goes on when fewer do', async () => {
    const opened = open({ places: 3 })
    opened.waiting.places = 2
    await opened.next.next()
    opened.waiting.places = 3
    const coming = opened.next.next()
    await new Promise(setImmediate)
    expect(opened.told).toEqual(['places'])
    opened.waiting.places = 2
    opened.source.released()
    expect((await coming).value.offset).toBe(1)
    expect(opened.told).toEqual(['places', null])
  })

  test('waits before a restart would read more again than it may, until the first record is finished', async () => {
    const opened = open({ readAhead: 303 })
    const { coming, held } = await fourth(opened)
    expect(await held()).toBe(true)
    opened.watermark.finish(1)
    opened.source.released()
    expect(await held()).toBe(true)
    expect(opened.told).toEqual(['readAhead'])
    for (const offset of [0, 2]) opened.watermark.finish(offset)
    opened.source.released()
    expect(await coming).toBe(3)
  })

  test('waits while the cursor would have to remember too many ranges', async () => {
    const opened = open({ ranges: 2 })
    for (let n = 0; n < 5; n += 1) await opened.next.next()
    opened.watermark.finish(1)
    opened.watermark.finish(3)
    const coming = opened.next.next()
    await new Promise(setImmediate)
    expect(opened.told).toEqual(['ranges'])
    opened.watermark.finish(2)
    opened.source.released()
    expect((await coming).value.offset).toBe(5)
  })

  test('one record larger than all limits comes alone', async () => {
    await log.append('in', [record('y'.repeat(5000))], 0)
    const { watermark, next } = open({ readAhead: 10 }, { offset: 10, done: [] })
    expect((await next.next()).value.offset).toBe(10)
    expect(watermark.load.records).toBe(1)
  })

  test('what the cursor says is done is not delivered again', async () => {
    const { next } = open(
      {},
      {
        offset: 2,
        done: [
          [3, 5],
          [7, 9],
        ],
      },
    )
    const offsets: number[] = []
    for (let n = 0; n < 4; n += 1) offsets.push((await next.next()).value.offset)
    expect(offsets).toEqual([2, 5, 6, 9])
  })

  test('ends when told to, also while it waits for room', async () => {
    const { next } = open({ readAhead: 1 })
    await next.next()
    const waiting = next.next()
    stop.abort()
    expect(await waiting).toMatchObject({ done: true })
  })
})
