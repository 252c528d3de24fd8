/**
 * commit: steps become transactions: outputs, heads, the partition cursor, and the input offset with them. Here is when: every so
 * often, or earlier over budget; snapshots are written between two transactions and never in their way. committer.ts has what.
 */
import { Observable, type OperatorFunction } from 'rxjs'
import { ContinuoError } from '../errors.ts'
import { failpoint } from '../failpoint.ts'
import { recordBytes } from '../state/live-index.ts'
import type { Backlog } from './backlog.ts'
import { type Commit, type CommitterDeps, createCommitter } from './committer.ts'
import type { EmittedStep } from './emit.ts'
import type { Sessions } from './sessions.ts'
import { copiedBytes } from './types.ts'

export type { Commit } from './committer.ts'

export interface CommitDeps extends Omit<CommitterDeps, 'wake'> {
  readonly sessions: CommitterDeps['sessions'] & Pick<Sessions, 'unsaved' | 'pressure'>
  /** Time between the beginnings of two commits, ms. */
  readonly interval: number
  /** Released after each commit, so that waiting sessions can go on. */
  readonly backlog: Backlog
  /** The same of bytes: states that steps cannot commit without (`needsSnapshot`). */
  readonly copies: Backlog
}

/** Steps of one transaction at most, and the backlog at which a commit does not wait for its time. */
const BUDGET_STEPS = 2048
const BUDGET_BYTES = 4 * 1024 * 1024

export const commit =
  (deps: CommitDeps): OperatorFunction<EmittedStep, Commit> =>
  (source) =>
    new Observable<Commit>((subscriber) => {
      const pending: EmittedStep[] = []
      let pendingBytes = 0
      let ended = false
      let cancelled = false
      let endWait: (() => void) | null = null
      const wake = (): void => {
        endWait?.()
        endWait = null
      }
      const committer = createCommitter({ ...deps, wake })

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
          if (committer.hasGarbageWork) {
            await committer.garbageStep()
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
        let copied = 0
        for (const { capture, needsSnapshot } of steps) {
          if (capture === undefined || !needsSnapshot) continue
          committer.capture(capture)
          await committer.finishSnapshots()
          copied += copiedBytes(capture)
        }
        const done = await committer.commit(steps)
        deps.backlog.release(steps.length)
        deps.copies.release(copied)
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
          await committer.garbageStep()
        }
        // Farewell: what no snapshot holds yet is saved, so that the next start replays nothing.
        failpoint('stop.drained')
        await committer.finishSnapshots()
        for await (const capture of deps.sessions.unsaved()) {
          committer.capture(capture)
          await committer.finishSnapshots()
        }
        if (committer.hasTouched) await round()
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
      const pressure = deps.sessions.pressure.subscribe(() => {
        // What is thrown at a Subject ends the process.
        try {
          committer.relieve()
        } catch (error) {
          fail(error)
        }
        wake()
      })
      const upstream = source.subscribe({
        next: (step) => {
          pending.push(step)
          for (const record of step.records) pendingBytes += recordBytes(record)
          deps.backlog.add(1)
          if (pending.length === 1 || pending.length >= BUDGET_STEPS || pendingBytes >= BUDGET_BYTES) wake()
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
        pressure.unsubscribe()
        committer.stop()
        wake()
      }
    })
