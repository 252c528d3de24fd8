/** A stream of bytes as events to read: cut at characters, bounded, nothing lost. */
import { isUtf8 } from 'node:buffer'
import { isDeepStrictEqual } from 'node:util'
import type { z } from 'zod'
import { type ChunkInput, generate } from '../../topics/chunks.ts'
import type { RecordIn } from '../streams/log.ts'

/** Bytes of one event at most: base64 and the envelope stay below a topic's 1 MiB. */
export const MAX_CHUNK_BYTES = 700_000
/** Bytes appended at once: what a broker takes as one batch. */
const BATCH_BYTES = 900_000

/** How many bytes at the end begin a character that is not finished (0 to 3). */
export const unfinishedTail = (bytes: Uint8Array): number => {
  for (let back = 1; back <= Math.min(3, bytes.length); back += 1) {
    const byte = bytes[bytes.length - back]!
    if ((byte & 0xc0) === 0x80) continue
    const length = byte < 0xc2 ? 1 : byte < 0xe0 ? 2 : byte < 0xf0 ? 3 : byte < 0xf5 ? 4 : 1
    return length > back ? back : 0
  }
  return 0
}

/** Text where it is UTF-8, else base64. Text that JSON would blow up (control characters) goes as base64, too. */
export const textEvent = (piece: Buffer): ChunkInput => {
  if (isUtf8(piece)) {
    const event = { type: 'text', text: piece.toString('utf8') } as const
    if (Buffer.byteLength(JSON.stringify(event)) <= MAX_CHUNK_BYTES * 1.4) return event
  }
  return { type: 'text', bytes: piece.toString('base64') }
}

/**
 * Fields that workers of older versions refuse as unknown. A default of one changes nothing, so it is left out of what
 * is sent.
 */
const LATER = [
  ...(['minP', 'repetitionPenalty', 'presencePenalty', 'frequencyPenalty', 'penaltyLast', 'logitBias'] as const),
  ...(['topLogprobs', 'stopTokens', 'ignoreEnd'] as const),
]

/** The event as it is sent: a request that asks for nothing new is one that workers of older versions take. */
export const generateEvent = (event: z.input<typeof generate>): ChunkInput => {
  const idle = LATER.filter((name) => isDeepStrictEqual(event[name], generate.shape[name].parse(undefined)))
  return Object.fromEntries(
    Object.entries(event).filter(([name]) => !idle.some((each) => each === name)),
  ) as unknown as ChunkInput
}

export interface Piece {
  readonly event: ChunkInput
  readonly bytes: number
}

/**
 * Events of about `size` bytes each; the characters between them whole. A null of the source says that it pauses: what
 * came so far goes out, but for a character that is not finished, and the null after it.
 */
export async function* textEvents(
  source: AsyncIterable<Uint8Array | null>,
  size: number,
): AsyncGenerator<Piece | null> {
  let held: Buffer = Buffer.alloc(0)
  for await (const bytes of source) {
    if (bytes === null) {
      const whole = held.length - unfinishedTail(held)
      if (whole > 0) yield { event: textEvent(held.subarray(0, whole)), bytes: whole }
      held = held.subarray(whole)
      yield null
      continue
    }
    held = held.length === 0 ? Buffer.from(bytes) : Buffer.concat([held, bytes])
    while (held.length > size) {
      const cut = Math.max(1, size - unfinishedTail(held.subarray(0, size)))
      yield { event: textEvent(held.subarray(0, cut)), bytes: cut }
      held = held.subarray(cut)
    }
  }
  if (held.length > 0) yield { event: textEvent(held), bytes: held.length }
}

export const chunkRecord = (session: string, event: ChunkInput): RecordIn => ({
  key: Buffer.from(session),
  value: Buffer.from(JSON.stringify(event)),
})

/** Batches of records, none larger than what a log takes at once. A null ends a batch: more may be long in coming. */
export async function* batched(records: AsyncIterable<RecordIn | null>): AsyncGenerator<RecordIn[]> {
  let batch: RecordIn[] = []
  let size = 0
  for await (const record of records) {
    if (record === null) {
      if (batch.length > 0) yield batch
      batch = []
      size = 0
      continue
    }
    const beside = (record.headers ?? []).reduce((sum, [name, content]) => sum + name.length + content.length, 0)
    const bytes = (record.key?.length ?? 0) + (record.value?.length ?? 0) + beside + 100
    if (batch.length > 0 && size + bytes > BATCH_BYTES) {
      yield batch
      batch = []
      size = 0
    }
    batch.push(record)
    size += bytes
  }
  if (batch.length > 0) yield batch
}

/** Ids of one event of `idEvents`. */
const MOST_IDS = 65_536

/** Ids as events, in pieces that a record takes. */
export const idEvents = (ids: ArrayLike<number>): ChunkInput[] => {
  const events: ChunkInput[] = []
  for (let at = 0; at < ids.length; at += MOST_IDS)
    events.push({
      type: 'tokens',
      tokens: Array.from({ length: Math.min(MOST_IDS, ids.length - at) }, (_, i) => ids[at + i]!),
    })
  return events
}
