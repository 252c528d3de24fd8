/**
 * The sessions of a partition as infer and commit share them; neither knows the other. Infer writes what its steps
 * leave: heads, and captures of states. Commit takes from here what a transaction holds, and writes back what the log
 * has. Each side is called when the other has something for it: commit through `wake`, the contexts in memory through
 * `ContextHolder`.
 *
 *   infer ──heads, captures──▶ table ──take──▶ commit
 *         ◀──committed, room── table ◀──note──
 */
import { type Cancelled, type Head, type SnapshotRef, samePlace } from '../../state/head.ts'
import type { PartitionBlobs } from '../blobs/blobs.ts'
import { createBacklog } from '../pipeline/backlog.ts'
import { type Captures, createCaptures } from '../snapshots/captures.ts'
import { createSnapshotRefs, type SnapshotRefs } from '../snapshots/refs.ts'
import type { Step } from '../types.ts'
import type { StateKey } from '../worker/partition-state.ts'
import { createUnsaved, type Unsaved } from './unsaved.ts'

/** Those who hold the contexts of sessions in memory. */
export interface ContextHolder {
  /** These heads were committed; there may be places for captures. Throws what the commit stage is to end with. */
  committed(heads: readonly Head[]): void
  /**
   * Queues a capture of each state that no snapshot holds yet, one after the other; `written` writes it. Only while
   * nothing runs.
   */
  saveRest(written: () => Promise<void>): Promise<void>
}

/** State records of a transaction. */
export interface Touched {
  readonly heads: readonly Head[]
  readonly cancelled: readonly Cancelled[]
  /** Offsets of requests whose cancels are gone with their sessions. */
  readonly forgotten: readonly number[]
}

/** What a step changes in the state. */
type Touching = Pick<Step, 'head'> & Partial<Pick<Step, 'session' | 'cancelled' | 'deleted'>>

export interface SessionTable {
  /** Committed heads. */
  readonly heads: ReadonlyMap<string, Head>
  /** Cancels that took effect, by the offset of the request. */
  readonly cancelled: ReadonlyMap<number, Cancelled>
  /** From where on the input of sessions is not in a snapshot or a capture. */
  readonly unsaved: Unsaved
  readonly captures: Captures

  /** For infer. The newest head of a session, committed or not; undefined for a session that has none yet. */
  newest(session: string): Head | undefined
  /** A step has left this head. */
  stepped(head: Head): void
  /**
   * The next step of the session deletes it. Resolves when that is committed: then it has no head, no snapshot and no
   * unsaved input.
   */
  removed(session: string): Promise<void>
  /** Resolves when there is room for another step; undefined when there is now. */
  room(): Promise<void> | undefined
  /** Who is told what was committed. Before, nobody is. */
  attach(holder: ContextHolder): void

  /** The input offset of the last commit. */
  readonly position: number
  /** For commit. Who is told that there is work; called at any time. */
  onWork(wake: () => void): void
  /** A step waits for its commit. */
  arrived(): void
  /** Steps that wait for their commit. */
  readonly waiting: number
  /** The newest snapshot of a session that is whole in the log, whether a committed head names it or not. */
  snapshotOf(session: string): SnapshotRef | undefined
  /** What those snapshots name in the blob store. */
  readonly living: SnapshotRefs['living']
  /** All parts of a snapshot are in the log: the session's head in the next commit names it. */
  written(session: string, ref: SnapshotRef): void
  /** The snapshot is of no use: the next commit's head names none. */
  forget(session: string): void
  /** The cancelled request at this offset has left the input. */
  forgetCancel(offset: number): void
  /** The record is to be written with the next commit, though no step touched it. */
  touch(key: StateKey): void
  /** Whether the next commit has such records. */
  readonly hasTouched: boolean
  /** The state records of the next transaction, which has these steps. */
  prepare(steps: readonly Touching[]): Touched
  /** They are committed, with `steps` steps, up to this input offset; and with them that these sessions are deleted. */
  committed(heads: readonly Head[], steps: number, position: number, deleted?: readonly string[]): void
  /** There may be places for captures: states that wait to be saved are copied now. */
  makeRoom(): void
  /** As in `ContextHolder`. */
  saveRest(written: () => Promise<void>): Promise<void>
}

/** Whether nothing is lost when the context goes: it is in a snapshot, or no longer needed. */
export const isSaved = ({ status, snapshot, conductor }: Head): boolean =>
  status !== 'open' || snapshot?.pulse === conductor.globalStep

/**
 * A closed session can be recomputed from its events, unless they lie in another log (`born` −1). It names no snapshot.
 */
export const needsNoSnapshot = ({ status, born }: Head): boolean => status === 'closed' && born >= 0

export interface TableOptions {
  /** Those that the task begins with. */
  readonly heads: Iterable<Head>
  readonly cancelled?: ReadonlyMap<number, Cancelled>
  readonly position: number
  /** null: snapshots are whole. */
  readonly blobs: PartitionBlobs | null
  /** Steps between infer and the log, from which on sessions wait. */
  readonly maxSteps: number
  /** Bytes of states that their commits wait for, from which on forks wait. */
  readonly maxRequired: number
}

export const createSessionTable = (options: TableOptions): SessionTable => {
  const heads = new Map<string, Head>()
  const decisions = new Map(options.cancelled)
  /** Of sessions that have steps to commit. */
  const ahead = new Map<string, Head>()
  const unsaved = createUnsaved()
  const refs = createSnapshotRefs(options.blobs)
  /** What must be written although no step touched it: heads with a new snapshot, and what is compacted. */
  const touched = new Set<StateKey>()
  const steps = createBacklog(options.maxSteps)
  /** Who waits for the deletion of a session. */
  const leaving = new Map<string, () => void>()
  let { position } = options
  let holder: ContextHolder | null = null
  let wake = (): void => undefined
  const captures = createCaptures(options.maxRequired, () => wake())

  for (const head of options.heads) {
    const { session, snapshot, born, cursor } = head
    heads.set(session, head)
    if (snapshot !== null) refs.set(session, snapshot)
    // What came after an older snapshot came before the head's own record, and where is not known.
    if (!isSaved(head)) unsaved.begin(session, snapshot === null ? born : cursor.offset)
  }

  const noted = (head: Head): void => {
    const { session } = head
    heads.set(session, head)
    const newest = ahead.get(session)
    if (newest !== undefined && samePlace(newest, head)) ahead.delete(session)
    // What a new life of it has read already stays unsaved.
    if (head.status !== 'open' && !ahead.has(session)) unsaved.end(session)
    if (needsNoSnapshot(head)) refs.set(session, undefined)
  }

  return {
    heads,
    cancelled: decisions,
    unsaved,
    captures,
    newest: (session) => ahead.get(session) ?? heads.get(session),
    stepped(head) {
      ahead.set(head.session, head)
      unsaved.begin(head.session, head.cursor.offset)
    },
    removed: (session) => new Promise((resolve) => leaving.set(session, resolve)),
    room: steps.room,
    attach(attached) {
      holder = attached
    },
    get position() {
      return position
    },
    onWork(woken) {
      wake = woken
    },
    arrived: () => steps.add(1),
    get waiting() {
      return steps.size
    },
    snapshotOf: refs.get,
    get living() {
      return refs.living
    },
    written(session, ref) {
      refs.set(session, ref)
      // The first head of a session names it when its own step commits.
      if (heads.has(session)) touched.add(session)
    },
    forget(session) {
      refs.set(session, undefined)
      touched.add(session)
    },
    forgetCancel: (offset) => void decisions.delete(offset),
    touch: (key) => void touched.add(key),
    get hasTouched() {
      return touched.size > 0
    },
    prepare(taken) {
      const changed = new Map<string, Head>()
      const cancelled = new Map<number, Cancelled>()
      const forgotten: number[] = []
      for (const { head, cancelled: decision, session, deleted } of taken) {
        if (decision !== undefined) {
          decisions.set(decision.offset, decision)
          cancelled.set(decision.offset, decision)
        }
        if (deleted === true) {
          changed.delete(session!)
          touched.delete(session!)
          for (const [offset, { session: owner }] of decisions) {
            if (owner !== session) continue
            decisions.delete(offset)
            if (!cancelled.delete(offset)) forgotten.push(offset)
          }
        }
        if (head === null) continue
        changed.set(head.session, head)
        captures.due(head)
      }
      for (const key of touched) {
        if (typeof key === 'number') {
          const decision = decisions.get(key)
          if (decision !== undefined) cancelled.set(key, decision)
          continue
        }
        const head = changed.get(key) ?? heads.get(key)
        if (head !== undefined) changed.set(key, head)
      }
      touched.clear()
      const named = [...changed.values()].map((head) => ({
        ...head,
        snapshot: needsNoSnapshot(head) ? null : (refs.get(head.session) ?? null),
      }))
      return { heads: named, cancelled: [...cancelled.values()], forgotten }
    },
    committed(committed, count, to, deleted = []) {
      position = to
      for (const session of deleted) {
        heads.delete(session)
        ahead.delete(session)
        unsaved.end(session)
        refs.set(session, undefined)
        leaving.get(session)?.()
        leaving.delete(session)
      }
      for (const head of committed) noted(head)
      holder?.committed(committed)
      steps.release(count)
      captures.committed()
    },
    makeRoom: () => holder?.committed([]),
    async saveRest(written) {
      await holder?.saveRest(written)
    },
  }
}
