/**
 * Events that wait in the log (by-session.ts): they are read again when their turn comes near. What the log no longer
 * has by then becomes a dead letter that says so.
 */
import { codeOf } from '../../errors.ts'
import type { EventLog, StoredRecord } from '../../streams/log.ts'
import { sizeOf } from '../../streams/source.ts'
import type { Rejected, Valid } from '../types.ts'
import type { Amount, Place, Places } from './by-session.ts'
import { type ValidateOptions, validateRecord } from './validate.ts'

type Item = Valid | Rejected

/** What a session holds of its waiting events, where no setting says otherwise, and the bytes for each of them. */
export const SESSION_SHARE = 64
const SHARE_BYTES = 4096
/** What all sessions of a partition hold. */
const TOTAL: Amount = { records: 8192, bytes: 8 * 1024 * 1024 }

export interface PlacesOptions {
  readonly log: EventLog
  readonly topic: string
  readonly partition: number
  readonly topicId?: string | undefined
  readonly validation: ValidateOptions
  /** Events of a session that are held. */
  readonly share: number
  /** Nothing is read after it fires. */
  readonly stopping: AbortSignal
}

/** Places that are so near to each other are read in one go, with what lies between them. */
const NEAR = 64
/**
 * What lay between is kept up to so many bytes: where several sessions are behind, each needs what another has come
 * past.
 */
const KEPT_BYTES = 8 * 1024 * 1024
/** Bytes asked for at a time: for a few records not a whole megabyte of those behind them, which Kafka would send. */
const MAX_BYTES = 1 << 20
const RECORD_BYTES = 4096

/** Ascending offsets as runs without wide gaps. */
const runsOf = <K>(places: readonly Place<K>[]): readonly Place<K>[][] => {
  const runs: Place<K>[][] = []
  for (const place of places) {
    const last = runs.at(-1)
    if (last !== undefined && place.offset - last.at(-1)!.offset <= NEAR) last.push(place)
    else runs.push([place])
  }
  return runs
}

/** Records that were read beside those that were wanted, the oldest of them going first. */
const createKept = () => {
  const records = new Map<number, StoredRecord>()
  let bytes = 0
  const take = (offset: number): StoredRecord | undefined => {
    const record = records.get(offset)
    if (record === undefined) return undefined
    records.delete(offset)
    bytes -= sizeOf(record)
    return record
  }
  return {
    take,
    put(record: StoredRecord): void {
      take(record.offset)
      records.set(record.offset, record)
      bytes += sizeOf(record)
      for (const offset of records.keys()) {
        if (bytes <= KEPT_BYTES) return
        take(offset)
      }
    },
  }
}

export const createPlaces = (
  options: PlacesOptions,
): Pick<Places<Item, string | null>, 'share' | 'total' | 'placeOf' | 'read'> => {
  const { log, topic, partition, topicId, validation, stopping } = options
  const kept = createKept()
  const reading = { undecodable: true, signal: stopping, ...(topicId !== undefined && { topicId }) } as const

  const gone = ({ offset, keys: [session = null] }: Place<string | null>, begin: number): Rejected => {
    const key = session === null ? null : Buffer.from(session)
    const record = { topic, partition, offset, timestamp: Date.now(), key, value: null, headers: [] }
    const reason = `The record at offset ${offset} of ${topic}[${partition}] was read, waited for its turn in its session, and is gone: the log holds what is at ${begin} and later. Nothing of it took effect. Keep the input longer (retention.ms), or send less at a time to one session.`
    return { kind: 'rejected', record, session, reason }
  }

  /** The records of a run, and on the way those between them. */
  async function* recordsOf(run: readonly Place<string | null>[]): AsyncGenerator<StoredRecord> {
    let known = 0
    for (; known < run.length; known += 1) {
      const record = kept.take(run[known]!.offset)
      if (record === undefined) break
      yield record
    }
    yield* readFrom(run.slice(known))
  }
  async function* readFrom(run: readonly Place<string | null>[]): AsyncGenerator<StoredRecord> {
    if (run.length === 0) return
    const [from, until] = [run[0]!.offset, run.at(-1)!.offset + 1]
    const maxBytes = Math.min(MAX_BYTES, RECORD_BYTES * (until - from))
    for await (const { records } of log.read(topic, partition, from, { ...reading, until, maxBytes })) yield* records
  }

  const readRun = async (run: readonly Place<string | null>[], room: number): Promise<readonly Item[]> => {
    const found = new Map<number, Item>()
    let bytes = 0
    let last = run.at(-1)!.offset
    const wanted = new Set(run.map(({ offset }) => offset))
    const find = async (some: readonly Place<string | null>[]): Promise<void> => {
      for await (const record of recordsOf(some)) {
        if (!wanted.has(record.offset)) {
          kept.put(record)
          continue
        }
        bytes += sizeOf(record)
        if (found.size > 0 && bytes > room) {
          last = record.offset - 1
          kept.put(record)
          return
        }
        found.set(record.offset, validateRecord(record, validation))
      }
    }
    for (let left = run; ; ) {
      try {
        await find(left)
        break
      } catch (error) {
        if (codeOf(error) !== 'POSITION') throw error
        // The first of them were trimmed; those behind the trim are still there.
        const { begin } = await log.bounds(topic, partition)
        left = left.filter(({ offset }) => offset >= begin && !found.has(offset))
      }
    }
    if (stopping.aborted) return []
    const read = run.filter(({ offset }) => offset <= last)
    if (found.size === read.length) return [...found.values()]
    const { begin } = await log.bounds(topic, partition)
    return read.map((place) => found.get(place.offset) ?? gone(place, begin))
  }

  return {
    share: { records: options.share, bytes: options.share * SHARE_BYTES },
    total: TOTAL,
    placeOf: ({ record }) => ({ offset: record.offset, bytes: sizeOf(record) }),
    async read(places, bytes) {
      const items: Item[] = []
      let left = bytes
      for (const run of runsOf(places)) {
        const some = await readRun(run, left)
        // The task ends; the next one reads from its position on.
        if (stopping.aborted) return new Promise(() => undefined)
        items.push(...some)
        for (const { record } of some) left -= sizeOf(record)
        if (some.length < run.length || left <= 0) break
      }
      return items
    },
  }
}
