/** feed: events and text for one session, appended to the input topic in order. */
import { setImmediate } from 'node:timers/promises'
import type { ChunkInput } from '../../topics/chunks.ts'
import type { EventLog, RecordIn } from '../streams/log.ts'
import { batched, chunkRecord, textEvents } from './chunks.ts'

/** Bytes of the pieces that a text is sent in. */
export const CHUNK_BYTES = 65_536

/** What is fed, and to which session. */
export interface FeedOptions {
  /** The input topic. */
  readonly topic: string
  /** The session: 1 to 512 characters. It is the key of the records. */
  readonly session: string
  /** Events before the text. */
  readonly before?: readonly ChunkInput[]
  /** The text; a null says that the source pauses, and what came so far is sent. */
  readonly text?: AsyncIterable<Uint8Array | null>
  /** Default: `CHUNK_BYTES`. How a text is cut does not change what the model reads. */
  readonly chunkBytes?: number
  /** Events after the text; none of them is sent once `signal` has fired. */
  readonly after?: readonly ChunkInput[]
  /** Says that the text was cut short; its source ends soon after it fires. */
  readonly signal?: AbortSignal
  /** Called after each batch with what is in the log so far: when `feed` rejects, that much was sent. */
  readonly onSent?: (fed: Fed) => void
}

/** The result of feeding: events that were appended. */
export interface Fed {
  /** Bytes of text. */
  readonly bytes: number
  /** Events in the log, pieces of the text among them. */
  readonly events: number
  /** Where the events are; null while there are none. */
  readonly place: { readonly partition: number; readonly first: number; readonly last: number } | null
  /** The signal fired before the events after the text were sent. */
  readonly interrupted: boolean
}

/** Rejects with what the log rejects with, or the source of the text. */
export const feed = async (log: EventLog, options: FeedOptions): Promise<Fed> => {
  const { topic, session, before = [], text, chunkBytes = CHUNK_BYTES, after = [], signal, onSent } = options
  let fed: Fed = { bytes: 0, events: 0, place: null, interrupted: false }
  let bytes = 0
  let interrupted = false
  async function* records(): AsyncGenerator<RecordIn | null> {
    for (const event of before) yield chunkRecord(session, event)
    if (text !== undefined) {
      for await (const piece of textEvents(text, chunkBytes)) {
        bytes += piece?.bytes ?? 0
        yield piece === null ? null : chunkRecord(session, piece.event)
      }
    }
    // Ctrl-C goes to a whole pipeline, and the end of the text that it makes may be seen before it.
    if (signal !== undefined) for (let turn = 0; turn < 2; turn += 1) await setImmediate()
    interrupted = signal?.aborted === true
    if (!interrupted) for (const event of after) yield chunkRecord(session, event)
  }
  for await (const batch of batched(records())) {
    const placed = await log.append(topic, batch)
    const { partition, offset } = placed[0]!
    const first = fed.place?.first ?? offset
    fed = {
      bytes,
      events: fed.events + batch.length,
      place: { partition: fed.place?.partition ?? partition, first, last: placed.at(-1)!.offset },
      interrupted: false,
    }
    onSent?.(fed)
  }
  return { ...fed, bytes, interrupted }
}
