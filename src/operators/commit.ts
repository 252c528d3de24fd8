/**
 * commit: steps become one transaction: outputs, heads, the partition cursor, and the input offset with them.
 *
 * Three verbs in order: *prepare* puts the records together, *commit* hands them to the log as one atom, *note* tells the
 * rest of the worker that it happened. Between two commits, and never in their way, go the snapshots: parts are written
 * ahead, and the next commit's head names them. Last, state that is dead gives its space back (see state/index.ts).
 */
import { Observable, type OperatorFunction } from 'rxjs'
import type { TopicNames } from '../../topics/index.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import { type Fingerprints, type Head, type PartitionCursor, type SnapshotRef, seal } from '../state/head.ts'
import { type LiveIndex, recordBytes } from '../state/live-index.ts'
import { type MemoryReport, type ModelMemory, memoryStats } from '../state/memory-stats.ts'
import { encodeSnapshot } from '../state/snapshot.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../streams/log.ts'
import type { Watermark } from '../streams/watermark.ts'
import type { EmittedStep } from './emit.ts'
import type { Sessions } from './sessions.ts'
import { readSnapshot, type SnapshotWriting, writeSnapshot } from './snapshots.ts'
import type { Capture } from './types.ts'
import type { InputFormat } from './validate.ts'

export interface CommitDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly group: string
  readonly partition: number
  /** Of the input, where the log has one. */
  readonly topicId?: string | undefined
  readonly writer: PartitionWriter
  readonly watermark: Watermark
  readonly sessions: Sessions
  readonly model: Fingerprints & ModelMemory
  readonly stateIndex: LiveIndex
  readonly snapshotIndex: LiveIndex
  /** Sessions whose head carries a former seal. */
  readonly resealing: readonly string[]
  /** Bytes of a snapshot in one record at most. */
  readonly partBytes: number
  /** How the input is read; goes into the cursor, because read another way its records are other events. */
  readonly format: InputFormat
  /** Time between the beginnings of two commits, ms. */
  readonly interval: number
  /** Told after each commit, so that waiting sessions can go on. */
  readonly backlog: Backlog
  /** Background trouble that the next round may mend (a trim that failed). */
  readonly warn: (message: string) => void
  /** Each state that becomes a snapshot. */
  readonly onSnapshot?: (capture: Capture, seen: MemoryReport) => void
}

/** Heads that one commit writes anew because of their seal. */
const RESEAL_HEADS = 256

/** How much is waiting to be committed; sessions wait while it is too much. */
export interface Backlog {
  add(records: number): void
  release(records: number): void
  room(): Promise<void> | undefined
}

export const createBacklog = (limit: number): Backlog => {
  const waiting: (() => void)[] = []
  let records = 0
  return {
    add(more) {
      records += more
    },
    release(fewer) {
      records -= fewer
      if (records >= limit) return
      for (const go of waiting.splice(0)) go()
    },
    room: () => (records < limit ? undefined : new Promise((resolve) => waiting.push(resolve))),
  }
}

/** A commit as the rest of the worker sees it. */
export interface Commit {
  readonly partition: number
  readonly offset: number
  readonly records: number
  readonly sessions: number
  readonly steps: readonly EmittedStep[]
  /** Time the transaction took, ms. */
  readonly ms: number
}

/** Steps of one transaction at most, and the backlog at which a commit does not wait for its time. */
const BUDGET_STEPS = 2048
const BUDGET_BYTES = 4 * 1024 * 1024
/** Bytes of heads and of snapshots compacted with one commit. */
const COMPACT_BYTES = 512 * 1024
/** States taken only to make room, waiting to be written. */
const MAX_CAPTURES = 8

/** The state of the commit stage; the loop in `commit` drives it. */
const createCommitter = (deps: CommitDeps) => {
  const { log, names, partition, writer, watermark, sessions, model, stateIndex, snapshotIndex } = deps
  /** Sessions whose head must be written although no step touched them: a new snapshot, or compaction. */
  const touched = new Set<string>()
  const refs = new Map<string, SnapshotRef>()
  /** States that wait to be written, by session: a newer one takes the place of an older. */
  const captures = new Map<string, Capture>()
  let writing: SnapshotWriting | null = null
  /** The input offset of the last commit. */
  let committedTo = watermark.position().offset
  for (const [id, { snapshot }] of sessions.heads) if (snapshot !== null) refs.set(id, snapshot)
  const statePlace = { topic: names.state, partition, keys: log.sealKeys }
  const resealing = [...deps.resealing]
  /** Some heads a commit, so that a rotated key holds up nobody for long. */
  const reseal = (): void => {
    for (const id of resealing.splice(0, RESEAL_HEADS)) touched.add(id)
  }
  reseal()

  /** A closed session can be recomputed from its events, unless they lie in another log (`born` −1). */
  const forgets = (head: Head): boolean => head.status === 'closed' && head.born >= 0
  const withRef = (head: Head): Head => ({
    ...head,
    snapshot: forgets(head) ? null : (refs.get(head.session) ?? null),
  })

  const cursorRecord = (): PartitionCursor => {
    const { offset, done } = watermark.position()
    return {
      type: 'cursor',
      version: 1,
      group: deps.group,
      topic: names.chunks,
      ...(deps.topicId !== undefined && { topicId: deps.topicId }),
      partition,
      offset,
      done: done.map(([from, to]) => [from, to]),
      model: model.fingerprint,
      layout: model.layoutFingerprint,
      format: deps.format,
    }
  }

  const capture = (taken: Capture): void => {
    captures.delete(taken.head.session)
    captures.set(taken.head.session, taken)
  }

  /** Lets contexts go that others wait for. What waits to be written is held in memory, so it is limited. */
  const relieve = (): void => {
    const limit = Math.max(0, MAX_CAPTURES - captures.size)
    for (const taken of sessions.relieve(limit, committedTo)) capture(taken)
  }

  const commit = async (steps: readonly EmittedStep[]): Promise<Commit> => {
    const changed = new Map<string, Head>()
    const records: OutRecord[] = []
    for (const step of steps) {
      records.push(...step.records)
      if (step.head !== null) changed.set(step.head.session, step.head)
      if (step.capture !== undefined && !step.needsSnapshot) capture(step.capture)
      if (step.done) watermark.finish(step.record.offset)
    }
    for (const id of touched) {
      const head = changed.get(id) ?? sessions.heads.get(id)
      if (head !== undefined) changed.set(id, head)
    }
    touched.clear()
    reseal()
    const heads = [...changed.values()].map(withRef)
    const cursor = cursorRecord()
    const stateAt = records.length
    for (const record of [...heads, cursor]) records.push({ topic: names.state, ...seal(record, statePlace) })
    failpoint('commit.prepared')
    const started = performance.now()
    const offsets = await writer.commit(records, cursor.offset)
    const ms = performance.now() - started
    failpoint('commit.ended')
    committedTo = cursor.offset

    heads.forEach((head, index) => {
      const at = stateAt + index
      sessions.committed(head)
      stateIndex.put(head.session, { offset: offsets[at]!, bytes: recordBytes(records[at]!) })
      if (forgets(head)) {
        refs.delete(head.session)
        snapshotIndex.drop(head.session)
      }
    })
    const last = records.length - 1
    stateIndex.put('', { offset: offsets[last]!, bytes: recordBytes(records[last]!) })
    relieve()
    failpoint('commit.noted')
    return { partition, offset: cursor.offset, records: records.length, sessions: heads.length, steps, ms }
  }

  /** A snapshot is whole in the log; the next commit's head names it. */
  const written = (session: string, ref: SnapshotRef): void => {
    refs.set(session, ref)
    touched.add(session)
    snapshotIndex.put(session, { offset: ref.first, bytes: ref.bytes })
  }

  /** One small piece of snapshot work. Returns whether there may be more. */
  const snapshotStep = async (): Promise<boolean> => {
    if (writing === null) {
      const [next] = captures.values()
      if (next === undefined) return false
      const { head, state } = next
      captures.delete(head.session)
      const seen = memoryStats(model, head.conductor, state, next.gates)
      deps.onSnapshot?.(next, seen)
      const file = encodeSnapshot(head, state, model.layout, seen.stats)
      writing = writeSnapshot(names.snapshots, head.session, head.conductor.globalStep, file, deps.partBytes)
    }
    const ref = await writing.step(writer)
    if (ref !== null) {
      written(writing.session, ref)
      writing = null
      // The next ones at once, so that one commit names all that were written since the last.
      relieve()
    }
    return true
  }

  /** Writes the oldest living state again when the dead outweigh the living. */
  const compact = async (): Promise<void> => {
    // While a trim could free the space, writing more would only add to it.
    if (!worthTrimming(stateIndex)) {
      for (const id of stateIndex.toCompact(COMPACT_BYTES)) if (id !== '') touched.add(id)
    }
    if (worthTrimming(snapshotIndex)) return
    // The index stands in the order of offsets: a snapshot half written must be in it before others are written behind it.
    while (writing !== null) await snapshotStep()
    for (const id of snapshotIndex.toCompact(COMPACT_BYTES)) {
      const head = sessions.heads.get(id)
      if (head === undefined || head.snapshot === null || refs.get(id)?.first !== head.snapshot.first) continue
      const file = await readSnapshot(log, names.snapshots, partition, head).catch((error: unknown) => {
        if (codeOf(error) !== 'REFUSED') throw error
        // Who needs it will find the same and ask the events instead; the other sessions are not to suffer for it.
        deps.warn(`${messageOf(error)} It is forgotten.`)
        refs.delete(id)
        snapshotIndex.drop(id)
        touched.add(id)
        return null
      })
      if (file === null) continue
      const again = writeSnapshot(names.snapshots, id, head.snapshot.pulse, file, deps.partBytes)
      let ref: SnapshotRef | null = null
      while (ref === null) ref = await again.step(writer)
      written(id, ref)
    }
  }

  const worthTrimming = (index: LiveIndex): boolean =>
    index.total - index.live > index.floor && index.reclaimable().bytes >= index.floor / 2

  /** Trims what lies behind the living, once it is worth a call. */
  const trim = async (): Promise<void> => {
    // A new reference counts only once a committed head names it.
    if (touched.size > 0) return
    const both = [
      [names.state, stateIndex],
      [names.snapshots, snapshotIndex],
    ] as const
    for (const [topic, index] of both) {
      if (!worthTrimming(index)) continue
      const { before } = index.reclaimable()
      if (before === 0) continue
      failpoint('forward.written')
      try {
        await log.trim(topic, partition, before)
        index.trimmed(before)
        failpoint('forward.trimmed')
      } catch (error) {
        deps.warn(
          `Trimming ${topic}, partition ${partition}, below ${before} failed and will be tried again: ${String(error)}`,
        )
      }
    }
  }

  return {
    commit,
    snapshotStep,
    compact,
    trim,
    capture,
    relieve,
    get hasTouched() {
      return touched.size > 0
    },
    get hasSnapshotWork() {
      return writing !== null || captures.size > 0
    },
  }
}

export const commit =
  (deps: CommitDeps): OperatorFunction<EmittedStep, Commit> =>
  (source) =>
    new Observable<Commit>((subscriber) => {
      const committer = createCommitter(deps)
      const pending: EmittedStep[] = []
      let pendingBytes = 0
      let ended = false
      let cancelled = false
      let wake: (() => void) | null = null
      const rouse = (): void => {
        wake?.()
        wake = null
      }

      /** Waits for the next round: at once over budget or at the end, else when the interval has passed. */
      const due = async (lastStart: number): Promise<void> => {
        while (!cancelled && !ended) {
          const work = pending.length > 0 || committer.hasTouched
          const left = lastStart + deps.interval - performance.now()
          if (work && (left <= 0 || pending.length >= BUDGET_STEPS || pendingBytes >= BUDGET_BYTES)) return
          if (committer.hasSnapshotWork) {
            await committer.snapshotStep()
            continue
          }
          await new Promise<void>((resolve) => {
            const timer = work ? setTimeout(rouse, left) : undefined
            wake = () => {
              clearTimeout(timer)
              resolve()
            }
          })
        }
      }

      const take = (): EmittedStep[] => {
        let bytes = 0
        let count = 0
        while (count < pending.length && count < BUDGET_STEPS && bytes < BUDGET_BYTES) {
          for (const record of pending[count]!.records) bytes += recordBytes(record)
          count += 1
        }
        pendingBytes -= bytes
        return pending.splice(0, count)
      }

      const round = async (): Promise<void> => {
        const steps = take()
        for (const { capture, needsSnapshot } of steps) {
          if (capture === undefined || !needsSnapshot) continue
          committer.capture(capture)
          while (committer.hasSnapshotWork) await committer.snapshotStep()
        }
        const done = await committer.commit(steps)
        deps.backlog.release(steps.length)
        subscriber.next(done)
      }

      const loop = async (): Promise<void> => {
        let lastStart = Number.NEGATIVE_INFINITY
        for (;;) {
          await due(lastStart)
          if (cancelled) return
          if (ended && pending.length === 0) break
          lastStart = performance.now()
          await round()
          await committer.trim()
          await committer.compact()
          // Also when commits follow each other without a pause, snapshots make way.
          await committer.snapshotStep()
        }
        // Farewell: what no snapshot holds yet is saved, so that the next start replays nothing.
        failpoint('stop.drained')
        while (committer.hasSnapshotWork) await committer.snapshotStep()
        for (const capture of deps.sessions.unsaved()) {
          committer.capture(capture)
          while (committer.hasSnapshotWork) await committer.snapshotStep()
        }
        if (committer.hasTouched) await round()
        subscriber.complete()
      }

      const fail = (error: unknown): void => {
        cancelled = true
        rouse()
        const wrapped =
          error instanceof ContinuoError
            ? error
            : new ContinuoError('INTERNAL', `Commit failed: ${String(error)}`, { cause: error })
        subscriber.error(wrapped)
      }
      const pressure = deps.sessions.pressure.subscribe(() => {
        // What is thrown at a Subject ends the process.
        try {
          committer.relieve()
        } catch (error) {
          fail(error)
        }
        rouse()
      })
      const upstream = source.subscribe({
        next: (step) => {
          pending.push(step)
          for (const record of step.records) pendingBytes += recordBytes(record)
          deps.backlog.add(1)
          if (pending.length === 1 || pending.length >= BUDGET_STEPS || pendingBytes >= BUDGET_BYTES) rouse()
        },
        error: (error) => {
          cancelled = true
          rouse()
          subscriber.error(error)
        },
        complete: () => {
          ended = true
          rouse()
        },
      })
      loop().catch(fail)
      return () => {
        cancelled = true
        upstream.unsubscribe()
        pressure.unsubscribe()
        rouse()
      }
    })
