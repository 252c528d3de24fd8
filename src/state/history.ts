/**
 * What is kept of a session beside its model's state.
 *
 * The token ids that its context was fed last, read or generated. Penalties count these ids, and a request with
 * penalties or a grammar finds the ids that it generated so far among them. The ids are no part of the model's state:
 * they are kept beside the context, and in a snapshot in the field `recent` of the snapshot's head. Heads in the log
 * have no such field; a replay from the snapshot to the head adds the ids again.
 *
 * The judge of its lines (src/novelty/lines.ts), where the session asks for `novelty`: kept in a snapshot in the field
 * `judged`, and replayed likewise.
 */
import { MAX_GENERATE_TOKENS, MAX_PENALTY_LAST } from '../../topics/chunks.ts'
import type { Head, PartitionCursor, SnapshotHead } from '../../topics/state.ts'
import { ContinuoError } from '../errors.ts'
import { Unreadable } from '../novelty/bytes.ts'
import { createLineJudge, type LineJudge } from '../novelty/lines.ts'

/**
 * The last MAX_PENALTY_LAST ids of the context. While a request with penalties or a grammar runs, the ids that the
 * request generated are kept in addition, so that MAX_PENALTY_LAST ids from before the request remain.
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
  /** What judges its lines; from the first call on it is kept. */
  lines(): LineJudge
  /** Lines are judged no longer. */
  forgetLines(): void
  /** One that goes on by itself. */
  copy(): History
  /** As a snapshot has it. */
  kept(): Kept
}

/** What a snapshot's head says of it: base64 of both; empty where there is none. */
export interface Kept {
  readonly recent: string
  readonly judged: string
}

const EMPTY = new Int32Array(0)

/** The ids are copied. */
export const createHistory = (from: Int32Array = EMPTY, judged: LineJudge | null = null): History => {
  let judge = judged
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
      judge = null
      counts = null
      ids = EMPTY
      begin = 0
      end = 0
    },
    lines() {
      judge ??= createLineJudge()
      return judge
    },
    forgetLines() {
      judge = null
    },
    copy: () => createHistory(last(end - begin), judge?.copy()),
    kept() {
      const all = last(end - begin)
      return {
        recent: Buffer.from(all.buffer, all.byteOffset, all.byteLength).toString('base64'),
        judged: judge === null ? '' : Buffer.from(judge.state()).toString('base64'),
      }
    },
  }
}

/**
 * From which record of a partition on histories know what was read; none where no version wrote its cursor that keeps
 * them.
 */
export const historyFrom = (cursor: PartitionCursor | null): number => cursor?.history ?? Number.POSITIVE_INFINITY

/** The head as a snapshot holds it. */
export const withHistory = (head: Head, { recent, judged }: Kept): SnapshotHead =>
  recent === '' && judged === ''
    ? head
    : { ...head, ...(recent !== '' && { recent }), ...(judged !== '' && { judged }) }

/** What a snapshot's head has beside the head. */
export const keptIn = ({ recent = '', judged = '' }: SnapshotHead): Kept => ({ recent, judged })

/** The head as the log holds it. */
export const withoutHistory = ({ recent: _, judged: __, ...head }: SnapshotHead): Head => head

/**
 * What a snapshot's head says of the ids and lines before it. Throws REFUSED for what no context of this vocabulary was
 * fed.
 */
export const historyIn = (head: SnapshotHead, vocabSize: number): History => {
  const { session, conductor } = head
  const { recent, judged } = keptIn(head)
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
  try {
    return createHistory(ids, judged === '' ? null : createLineJudge(Buffer.from(judged, 'base64')))
  } catch (error) {
    if (!(error instanceof Unreadable)) throw error
    return refuse(`has a memory of lines that ${error.message}`)
  }
}
