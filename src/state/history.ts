/**
 * The token ids that a session's context was fed last, read or generated. Penalties count these ids, and a request with penalties or a grammar
 * finds the ids that it generated so far among them. The ids are no part of the model's state: they are kept beside the context, and in a snapshot
 * in the field `recent` of the snapshot's head. Heads in the log have no such field; a replay from the snapshot to the head adds the ids again.
 */
import { MAX_GENERATE_TOKENS, MAX_PENALTY_LAST } from '../../topics/chunks.ts'
import type { Head, PartitionCursor, SnapshotHead } from '../../topics/state.ts'
import { ContinuoError } from '../errors.ts'

/**
 * The last MAX_PENALTY_LAST ids of the context. While a request with penalties or a grammar runs, the ids that the request generated are kept in
 * addition, so that MAX_PENALTY_LAST ids from before the request remain.
 */
export interface History {
  /** The newest `count`, or all, oldest first. Valid until the next call of `fed`. */
  last(count: number): Int32Array
  /** How often each of the newest `count` ids stands there; kept up to date with every `fed` until `end`. */
  tally(count: number): ReadonlyMap<number, number>
  /** The next ids of the context. `own`: how many, with these, belong to the request that follows its own; else 0. */
  fed(ids: ArrayLike<number>, own: number): void
  /** The request is over. */
  end(): void
  /** A context begins. */
  clear(): void
  /** One that goes on by itself. */
  copy(): History
  /** As a snapshot has it; empty where there is none. */
  text(): string
}

const EMPTY = new Int32Array(0)

/** The ids are copied. */
export const createHistory = (from: Int32Array = EMPTY): History => {
  let ids = from.slice()
  let begin = 0
  let end = ids.length
  let counts: Map<number, number> | null = null

  const keep = (count: number): void => {
    begin = Math.max(begin, end - count)
  }
  const last = (count: number): Int32Array => ids.subarray(Math.max(begin, end - count), end)
  const count = (more: ArrayLike<number>): void => {
    for (let i = 0; i < more.length; i += 1) counts!.set(more[i]!, (counts!.get(more[i]!) ?? 0) + 1)
  }
  return {
    last,
    tally(wanted) {
      if (counts === null) {
        counts = new Map()
        count(last(wanted))
      }
      return counts
    },
    fed(more, own) {
      if (end + more.length > ids.length) {
        const kept = last(end - begin)
        // Twice as many as there are: so each id is moved once or twice, however many come.
        const roomy = new Int32Array(2 * (kept.length + more.length))
        roomy.set(kept)
        ids = roomy
        end = kept.length
        begin = 0
      }
      ids.set(more, end)
      end += more.length
      keep(MAX_PENALTY_LAST + own)
      if (counts !== null) count(more)
    },
    end() {
      counts = null
      keep(MAX_PENALTY_LAST)
      // A long request leaves no large array behind.
      if (ids.length > 4 * MAX_PENALTY_LAST) {
        ids = last(MAX_PENALTY_LAST).slice()
        begin = 0
        end = ids.length
      }
    },
    clear() {
      counts = null
      ids = EMPTY
      begin = 0
      end = 0
    },
    copy: () => createHistory(last(end - begin)),
    text() {
      const all = last(end - begin)
      return Buffer.from(all.buffer, all.byteOffset, all.byteLength).toString('base64')
    },
  }
}

/** From which record of a partition on histories know what was read; none where no version wrote its cursor that keeps them. */
export const historyFrom = (cursor: PartitionCursor | null): number => cursor?.history ?? Number.POSITIVE_INFINITY

/** The head as a snapshot holds it. */
export const withHistory = (head: Head, recent: string): SnapshotHead => (recent === '' ? head : { ...head, recent })

/** The head as the log holds it. */
export const withoutHistory = ({ recent: _, ...head }: SnapshotHead): Head => head

/** What a snapshot's head says of the ids before it. Throws REFUSED for what no context of this vocabulary was fed. */
export const historyIn = ({ session, conductor, recent = '' }: SnapshotHead, vocabSize: number): History => {
  const bytes = Buffer.from(recent, 'base64')
  const count = bytes.length / 4
  const refuse = (what: string): never => {
    throw new ContinuoError(
      'REFUSED',
      `The snapshot of session "${session}" ${what}. Nothing was changed; use another copy of it.`,
    )
  }
  const most = Math.min(conductor.globalStep - conductor.origin, MAX_PENALTY_LAST + MAX_GENERATE_TOKENS)
  if (!Number.isInteger(count) || count > most)
    return refuse(`names ${count} ids that its context was fed last, expected at most ${most}`)
  const ids = Int32Array.from({ length: count }, (_, at) => bytes.readInt32LE(4 * at))
  const wrong = ids.find((id) => id < 0 || id >= vocabSize)
  if (wrong !== undefined) return refuse(`says that its context was fed id ${wrong}, expected 0 to ${vocabSize - 1}`)
  return createHistory(ids)
}
