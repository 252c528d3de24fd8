import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { ChunkInput } from '../../topics/chunks.ts'
import { continuo, json, recordsOf, runUntilIdle, sessionRow, temporary, valuesOf } from './helpers.ts'

const folder = temporary()
let logs = 0
const newLog = (): string => `file:${join(folder, `feed-${++logs}.db`)}`
const write = (name: string, bytes: Uint8Array | string): string => {
  const path = join(folder, name)
  writeFileSync(path, bytes)
  return path
}
const eventsIn = async (log: string): Promise<ChunkInput[]> =>
  valuesOf<ChunkInput>(await recordsOf(log, 'continuo.chunks'))
const bytesIn = (events: readonly ChunkInput[]): Buffer =>
  Buffer.concat(
    events.map((event) => {
      if (event.type !== 'text') return Buffer.alloc(0)
      return 'text' in event ? Buffer.from(event.text) : Buffer.from(event.bytes, 'base64')
    }),
  )

describe('continuo feed', () => {
  it('loses no byte of a file that is not UTF-8, cut inside characters', async () => {
    const log = newLog()
    const bytes = Buffer.from('a\u00e9\u20ac\u{1f30a}\0"\n\\'.repeat(40))
    bytes[17] = 0xff
    bytes[200] = 0xc3
    const file = write('broken.bin', bytes)
    const [told] = await json('feed', file, '--log', log, '--session', 's', '--chunk-bytes', '7')
    const events = await eventsIn(log)
    expect(bytesIn(events).equals(bytes)).toBe(true)
    expect(told).toMatchObject({
      session: 's',
      bytes: bytes.length,
      events: events.length,
      firstOffset: 0,
      lastOffset: events.length - 1,
    })
    expect(events.filter((event) => 'bytes' in event).length).toBeLessThan(6)
  })

  it('reads standard input, and sends what the flags ask for after it, in order', async () => {
    const log = newLog()
    const done = await continuo(
      [
        ...['feed', '-', '--log', log, '--session', 'z\u00fc', '--surprisal', '--generate', '3', '--request-id', 'r'],
        ...['--temperature', '0', '--top-k', '5', '--seed', '7', '--stop', 'x', '--stop', 'y', '--reset', '--close'],
      ],
      { input: 'hello' },
    )
    expect(done).toMatchObject({ code: 0 })
    expect(await eventsIn(log)).toEqual([
      { type: 'open', surprisal: true },
      { type: 'text', text: 'hello' },
      { type: 'generate', requestId: 'r', maxTokens: 3, temperature: 0, topK: 5, topP: 1, stop: ['x', 'y'], seed: 7 },
      { type: 'boundary', reset: true },
      { type: 'close' },
    ])
    const [record] = await recordsOf(log, 'continuo.chunks')
    expect(Buffer.from(record!.key!).toString()).toBe('z\u00fc')
  })

  it('takes an empty file for what it is', async () => {
    const log = newLog()
    const [told] = await json('feed', write('empty', ''), '--log', log, '--session', 's')
    expect(told).toMatchObject({ bytes: 0, events: 0, partition: null, firstOffset: null, requestId: null })
    expect(await eventsIn(log)).toEqual([])
  })

  it('says that a file is missing, and creates no log', async () => {
    const log = newLog()
    const done = await continuo(['feed', join(folder, 'nothing'), '--log', log, '--session', 's'])
    expect(done).toMatchObject({ code: 1, out: '' })
    expect(done.err).toContain('cannot be read')
    expect(await continuo(['sessions', '--log', log])).toMatchObject({ code: 1 })
  })

  it('does not let the size of the pieces be seen in the result', async () => {
    const text = 'The tide \u2014 \u00e9bb and flow \u2014 came in.\n'.repeat(30)
    const file = write('text', text)
    const rows = []
    for (const size of ['5', '64', '65536']) {
      const log = newLog()
      await json('feed', file, '--log', log, '--session', 's', '--chunk-bytes', size)
      expect(await runUntilIdle(log)).toMatchObject({ code: 0 })
      rows.push(await sessionRow(log, 's'))
    }
    expect(new Set(rows.map(({ chain }) => chain)).size).toBe(1)
    expect(rows[0]).toMatchObject({ pulse: Buffer.byteLength(text), status: 'open', complete: true })
  })
})
