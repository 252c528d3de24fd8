/**
 * commit: steps become transactions: outputs, heads, the partition cursor, and the input offset with them. Here is when: every so
 * often, or earlier over budget; snapshots are written between two transactions and never in their way. committer.ts has what is in a
 * transaction, snapshot-writer.ts what goes ahead of it, compaction.ts what is removed behind it.
 */
import { Observable, type OperatorFunction } from 'rxjs'
import { ContinuoError } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import { recordBytes } from '../state/live-index.ts'
import { type Commit, type CommitterDeps, createCommitter } from './committer.ts'
import { type CompactionDeps, createCompaction } from './compaction.ts'
import type { EmittedStep } from './emit.ts'
import { createSnapshotWriter, type SnapshotWriterDeps } from './snapshot-writer.ts'

export type { Commit } from './committer.ts'

export interface CommitDeps
  extends Omit<CommitterDeps, 'model'>,
    Omit<SnapshotWriterDeps, 'model' | 'wake' | 'isGarbageDue'>,
    Omit<CompactionDeps, 'wake' | 'snapshots'> {
  readonly model: CommitterDeps['model'] & SnapshotWriterDeps['model']
  /** Time between the beginnings of two commits, ms; less where somebody waits for tokens. */
  readonly interval: number
}

/** Steps of one transaction at most, and the backlog at which a commit does not wait for its time. */
const BUDGET_STEPS = 2048
const BUDGET_BYTES = 4 * 1024 * 1024
/** Bytes of snapshots that one transaction waits for: those of many forks go over several, so that others need not wait for all. */
const BUDGET_REQUIRED = 1024 * 1024
/** Where somebody waits for tokens, a commit begins once the last one is over for so many times its own duration. */
const REST = 1

/** The sessions whose order a step stands in: its own, and that which its first step forked it from. */
const ordersOf = ({ session, head, record }: EmittedStep): readonly string[] => {
  if (session === null) return []
  return head?.from !== undefined && head.born === record.offset ? [session, head.from.session] : [session]
}

export const commit =
  (deps: CommitDeps): OperatorFunction<EmittedStep, Commit> =>
  (source) =>
    new Observable<Commit>((subscriber) => {
      const pending: EmittedStep[] = []
      let pendingBytes = 0
      /** Of the pending steps, those with tokens that somebody waits for. */
      let waited = 0
      /** Steps stayed behind in the last round. */
      let hasLeft = false
      let ended = false
      let cancelled = false
      let endWait: (() => void) | null = null
      const wake = (): void => {
        endWait?.()
        endWait = null
      }
      const { table } = deps
      const commitOne = createCommitter(deps)
      const snapshots = createSnapshotWriter({ ...deps, wake, isGarbageDue: () => compaction.isGarbageDue })
      const compaction = createCompaction({ ...deps, wake, snapshots })

      /** Waits for the next round: at once over budget or at the end, else when the interval has passed. */
      const due = async (lastStart: number, lastTook: number): Promise<void> => {
        while (!cancelled && !ended) {
          const work = pending.length > 0 || table.hasTouched
          const pause = waited > 0 ? Math.min(deps.interval, (1 + REST) * lastTook) : deps.interval
          const left = lastStart + pause - performance.now()
          if (work && (left <= 0 || hasLeft || pending.length >= BUDGET_STEPS || pendingBytes >= BUDGET_BYTES)) return
          if (snapshots.hasWork) {
            await snapshots.step()
            continue
          }
          if (compaction.hasGarbageWork) {
            await compaction.garbageStep()
            continue
          }
          await new Promise<void>((resolve) => {
            const timer = work ? setTimeout(wake, left) : undefined
            endWait = () => {
              clearTimeout(timer)
              resolve()
            }
          })
        }
      }

      /** The next steps in their order; past those whose snapshots would take too long, steps of other sessions. */
      const take = (): EmittedStep[] => {
        let bytes = 0
        let required = 0
        /** Sessions of which a step stays: what is later in their order stays too. */
        const staying = new Set<string>()
        const taken: EmittedStep[] = []
        const left: EmittedStep[] = []
        let at = 0
        for (; at < pending.length && taken.length < BUDGET_STEPS && bytes < BUDGET_BYTES; at += 1) {
          const step = pending[at]!
          const sessions = ordersOf(step)
          const needs = step.head === null ? 0 : table.captures.required(step.head)
          if (sessions.some((each) => staying.has(each)) || (needs > 0 && required >= BUDGET_REQUIRED)) {
            for (const each of sessions) staying.add(each)
            left.push(step)
            continue
          }
          required += needs
          for (const record of step.records) bytes += recordBytes(record)
          taken.push(step)
        }
        pending.splice(0, at, ...left)
        pendingBytes -= bytes
        waited -= taken.filter(({ awaited }) => awaited === true).length
        hasLeft = left.length > 0
        return taken
      }

      const round = async (): Promise<void> => {
        const steps = take()
        // No snapshot of a deleted session may be on its way: a session that begins under its id would take it for its own.
        if (steps.some(({ deleted }) => deleted === true)) await snapshots.finish()
        for (const { head } of steps) {
          if (head === null || table.captures.required(head) === 0) continue
          table.captures.due(head)
          await snapshots.finish()
        }
        const done = await commitOne(steps)
        subscriber.next(done)
      }

      const loop = async (): Promise<void> => {
        let lastStart = Number.NEGATIVE_INFINITY
        let lastTook = 0
        for (;;) {
          await due(lastStart, lastTook)
          if (cancelled) return
          if (ended && pending.length === 0) break
          lastStart = performance.now()
          await round()
          lastTook = performance.now() - lastStart
          await compaction.trim()
          await compaction.compact()
          // Also when commits follow each other without a pause, snapshots make way.
          await snapshots.step()
          await compaction.garbageStep()
        }
        // Farewell: what no snapshot holds yet is saved, so that the next start replays nothing.
        failpoint('stop.drained')
        await snapshots.finish()
        await table.saveRest(snapshots.finish)
        if (table.hasTouched) await round()
        subscriber.complete()
      }

      const fail = (error: unknown): void => {
        cancelled = true
        wake()
        const wrapped =
          error instanceof ContinuoError
            ? error
            : new ContinuoError('INTERNAL', `Commit failed: ${String(error)}`, { cause: error })
        subscriber.error(wrapped)
      }
      table.onWork(wake)
      const upstream = source.subscribe({
        next: (step) => {
          pending.push(step)
          for (const record of step.records) pendingBytes += recordBytes(record)
          table.arrived()
          if (step.awaited === true) waited += 1
          if (
            pending.length === 1 ||
            (waited === 1 && step.awaited === true) ||
            pending.length >= BUDGET_STEPS ||
            pendingBytes >= BUDGET_BYTES
          )
            wake()
        },
        error: (error) => {
          cancelled = true
          wake()
          subscriber.error(error)
        },
        complete: () => {
          ended = true
          wake()
        },
      })
      loop().catch(fail)
      return () => {
        cancelled = true
        upstream.unsubscribe()
        compaction.stop()
        wake()
      }
    })
