import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { MAX_CHUNK_BYTES, textEvent, textEvents } from '../../src/cli/chunks.ts'
import { type ChunkInput, chunk } from '../../topics/chunks.ts'

const bytesOf = (event: ChunkInput): Buffer => {
  if (event.type !== 'text') return expect.fail(`a ${event.type} event`)
  return 'text' in event ? Buffer.from(event.text) : Buffer.from(event.bytes, 'base64')
}

async function* pieces(bytes: Uint8Array, sizes: readonly number[]): AsyncGenerator<Uint8Array> {
  let at = 0
  for (let turn = 0; at < bytes.length; turn += 1) {
    const size = sizes[turn % sizes.length]!
    yield bytes.subarray(at, at + size)
    at += size
  }
}

const eventsOf = async (bytes: Uint8Array, sizes: readonly number[], size: number): Promise<ChunkInput[]> => {
  const events: ChunkInput[] = []
  for await (const { event, bytes: count } of textEvents(pieces(bytes, sizes), size)) {
    expect(count).toBe(bytesOf(event).length)
    events.push(event)
  }
  return events
}

const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 })
const size = fc.integer({ min: 4, max: 30 })
/** Bytes that often look like the beginnings and middles of characters. */
const nasty = fc
  .uint8Array({ maxLength: 200 })
  .map((bytes) => bytes.map((byte) => (byte % 3 === 0 ? byte : byte | 0x80)))

describe('a file as events', () => {
  it('loses no byte, whatever the bytes and however they come', () =>
    fc.assert(
      fc.asyncProperty(nasty, sizes, size, async (bytes, cuts, limit) => {
        const events = await eventsOf(bytes, cuts, limit)
        expect(Buffer.concat(events.map(bytesOf)).equals(bytes)).toBe(true)
        for (const event of events) {
          expect(chunk.safeParse(event).success).toBe(true)
          expect(bytesOf(event).length).toBeLessThanOrEqual(limit)
        }
      }),
    ))

  it('sends text as text: no character is cut, nothing becomes base64', () =>
    fc.assert(
      fc.asyncProperty(fc.string({ unit: 'binary', maxLength: 200 }), sizes, size, async (text, cuts, limit) => {
        const events = await eventsOf(Buffer.from(text), cuts, limit)
        for (const event of events) expect(event).toHaveProperty('text')
        expect(events.map((event) => ('text' in event ? event.text : '')).join('')).toBe(Buffer.from(text).toString())
      }),
    ))

  it('keeps a byte order mark', async () => {
    expect(await eventsOf(Buffer.from('\ufeffabc'), [3], 100)).toEqual([{ type: 'text', text: '\ufeffabc' }])
  })

  it('cuts the same however the bytes arrive', () =>
    fc.assert(
      fc.asyncProperty(nasty, sizes, sizes, size, async (bytes, some, others, limit) => {
        expect(await eventsOf(bytes, some, limit)).toEqual(await eventsOf(bytes, others, limit))
      }),
    ))

  it('stays below 1 MiB an event, even where JSON escapes every byte', () => {
    for (const byte of [0x00, 0x22, 0x61, 0xff]) {
      const event = textEvent(Buffer.alloc(MAX_CHUNK_BYTES, byte))
      expect(JSON.stringify(event).length).toBeLessThan(1_000_000)
      expect(bytesOf(event).equals(Buffer.alloc(MAX_CHUNK_BYTES, byte))).toBe(true)
    }
  })
})
