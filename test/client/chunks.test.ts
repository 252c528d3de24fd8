import { isUtf8 } from 'node:buffer'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { MAX_CHUNK_BYTES, textEvent, textEvents, unfinishedTail } from '../../src/client/chunks.ts'
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
  for await (const piece of textEvents(pieces(bytes, sizes), size)) {
    if (piece === null) expect.fail('a pause that the source did not have')
    expect(piece.bytes).toBe(bytesOf(piece.event).length)
    events.push(piece.event)
  }
  return events
}

const sizes = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1 })
const size = fc.integer({ min: 4, max: 30 })
/** Bytes that often look like the beginnings and middles of characters. */
const nasty = fc
  .uint8Array({ maxLength: 200 })
  .map((bytes) => bytes.map((byte) => (byte % 3 === 0 ? byte : byte | 0x80)))

const text = fc.string({ unit: 'binary', maxLength: 100 }).map((written) => new Uint8Array(Buffer.from(written)))

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

  it('at a pause has sent all that came, but for the beginning of a character', () =>
    fc.assert(
      fc.asyncProperty(fc.oneof(nasty, text), sizes, size, async (bytes, cuts, limit) => {
        let came = 0
        let pauses = 0
        async function* source(): AsyncGenerator<Uint8Array | null> {
          for await (const piece of pieces(bytes, cuts)) {
            came += piece.length
            yield piece
            yield null
          }
        }
        const events: ChunkInput[] = []
        const sent = (): Buffer => Buffer.concat(events.map(bytesOf))
        for await (const piece of textEvents(source(), limit)) {
          if (piece !== null) events.push(piece.event)
          else {
            pauses += 1
            const held = bytes.subarray(sent().length, came)
            expect(unfinishedTail(held)).toBe(held.length)
          }
        }
        expect(sent().equals(bytes)).toBe(true)
        if (came > 0) expect(pauses).toBeGreaterThan(0)
        if (isUtf8(bytes)) for (const event of events) expect(event).toHaveProperty('text')
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
