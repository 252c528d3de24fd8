/**
 * commit: steps become transactions: outputs, heads, the partition cursor, and the input offset with them. This file
 * decides when: every so often, or earlier over budget; snapshots are written between two transactions and never in
 * their way. committer.ts has what is in a transaction, snapshots/writer.ts what goes ahead of it, compaction.ts what
 * is removed behind it.
 */
import { Observable, type OperatorFunction } from 'rxjs'
import { ContinuoError } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import { recordBytes } from '../../state/live-index.ts'
import { type CompactionDeps, createCompaction } from '../snapshots/compaction.ts'
import { createSnapshotWriter, type SnapshotWriterDeps } from '../snapshots/writer.ts'
import { type Commit, type CommitterDeps, createCommitter } from './committer.ts'
import type { EmittedStep } from './emit.ts'

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
/**
 * A transaction that somebody waits for goes without the steps of other sessions, whose turn comes once in an interval:
 * so many of them then, or such a share of those that wait, so that what waits stays bounded while somebody always
 * waits for something.
 */
const BUDGET_BESIDE = 32
const SHARE_BESIDE = 1 / 16
/** Bytes of snapshots that one transaction waits for, where their sessions have heads in the log already. */
const BUDGET_REQUIRED = 1024 * 1024
/**
 * Where somebody waits for tokens, a commit begins once the last one is over for its own duration, or for so long, ms.
 */
const MOST_REST = 2
/** The same of the pieces of snapshots, for so long after somebody waited, ms: a commit may have to wait for one. */
const SNAPSHOT_REST = 2
const MOMENT = 1000

/** Steps; the bytes of their records; and those of them with tokens that somebody waits for. */
interface Count {
  steps: number
  bytes: number
  awaited: number
}

const add = (count: Count, steps: readonly EmittedStep[], sign: 1 | -1): void => {
  for (const { records, awaited } of steps) {
    count.steps += sign
    for (const record of records) count.bytes += sign * recordBytes(record)
    if (awaited === true) count.awaited += sign
  }
}

const countOf = (steps: readonly EmittedStep[]): Count => {
  const count = { steps: 0, bytes: 0, awaited: 0 }
  add(count, steps, 1)
  return count
}

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
      const all = countOf([])
      /** Of these, the steps that the last round left because the snapshots of their sessions are not written yet. */
      let stuck = countOf([])
      /** The last round left others. */
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
      const onWritten = (): void => {
        stuck = countOf([])
      }
      const isGarbageDue = (): boolean => compaction.isGarbageDue
      const snapshots = createSnapshotWriter({ ...deps, wake, onWritten, isGarbageDue })
      const compaction = createCompaction({ ...deps, wake, snapshots })

      let awaitedAt = Number.NEGATIVE_INFINITY
      /** When steps of sessions that nobody waits for went last. */
      let besideAt = Number.NEGATIVE_INFINITY
      let restUntil = Number.NEGATIVE_INFINITY
      const snapshotStep = async (): Promise<void> => {
        const start = performance.now()
        await snapshots.step()
        const over = performance.now()
        restUntil = over - awaitedAt < MOMENT ? over + SNAPSHOT_REST * (over - start) : over
      }

      /** Waits for the next round: at once over budget or at the end, else when the interval has passed. */
      const due = async (lastStart: number, lastTook: number): Promise<void> => {
        while (!cancelled && !ended) {
          const steps = all.steps - stuck.steps
          const work = steps > 0 || table.hasTouched
          const pause =
            all.awaited > stuck.awaited
              ? Math.min(deps.interval, lastTook + Math.min(lastTook, MOST_REST))
              : deps.interval
          const left = lastStart + pause - performance.now()
          const isOver = steps >= BUDGET_STEPS || all.bytes - stuck.bytes >= BUDGET_BYTES
          if (work && (left <= 0 || hasLeft || isOver)) return
          const rest = snapshots.hasWork ? restUntil - performance.now() : Number.POSITIVE_INFINITY
          if (rest <= 0) {
            await snapshotStep()
            continue
          }
          if (compaction.hasGarbageWork) {
            await compaction.garbageStep()
            continue
          }
          await new Promise<void>((resolve) => {
            const longest = Math.min(rest, work ? left : Number.POSITIVE_INFINITY)
            const timer = longest < Number.POSITIVE_INFINITY ? setTimeout(wake, longest) : undefined
            endWait = () => {
              clearTimeout(timer)
              resolve()
            }
          })
        }
      }

      /**
       * The next steps, those of a session in their order. They go past steps whose snapshots are not written yet, or
       * would take too long; and where somebody waits for tokens, past those of the sessions that nobody waits for but
       * in their turn, so that the transaction is short.
       */
      const take = (): EmittedStep[] => {
        const now = performance.now()
        const mostBeside =
          now - besideAt < deps.interval
            ? 0
            : Math.max(BUDGET_BESIDE, Math.floor((all.steps - stuck.steps) * SHARE_BESIDE))
        const hurries = all.awaited > stuck.awaited
        const hurried = new Set<string>()
        const isHurried = ({ awaited }: EmittedStep, orders: readonly string[]): boolean =>
          awaited === true || orders.some((each) => hurried.has(each))
        // From the newest back: what a step of theirs comes behind is theirs too, a fork of a fork for example.
        if (hurries)
          for (const step of pending.toReversed()) {
            const orders = ordersOf(step)
            if (isHurried(step, orders)) for (const each of orders) hurried.add(each)
          }
        let bytes = 0
        let required = 0
        let beside = 0
        /** Sessions of which a step stays: what is later in their order stays too. True: for a snapshot. */
        const staying = new Map<string, boolean>()
        const going = new Set<string | null>()
        const taken: EmittedStep[] = []
        const left: EmittedStep[] = []
        const waiting: EmittedStep[] = []
        hasLeft = false
        let at = 0
        for (; at < pending.length && taken.length < BUDGET_STEPS && bytes < BUDGET_BYTES; at += 1) {
          const step = pending[at]!
          const { session, head } = step
          const sessions = ordersOf(step)
          const needs = head === null ? 0 : table.captures.required(head)
          const reasons = sessions.flatMap((each) => staying.get(each) ?? [])
          let forSnapshot = reasons.includes(true)
          let stays = reasons.length > 0
          if (!stays && needs > 0 && !table.heads.has(session!) && !going.has(session)) {
            table.captures.begin(head!)
            forSnapshot = true
            stays = true
          } else if (!stays && needs > 0 && required >= BUDGET_REQUIRED) {
            hasLeft = true
            stays = true
          } else if (!stays && hurries && !isHurried(step, sessions)) {
            stays = beside >= mostBeside
            if (!stays) beside += 1
          }
          if (stays) {
            for (const each of sessions) staying.set(each, forSnapshot || staying.get(each) === true)
            left.push(step)
            if (forSnapshot) waiting.push(step)
            continue
          }
          going.add(session)
          required += needs
          for (const record of step.records) bytes += recordBytes(record)
          taken.push(step)
        }
        if (!hurries || beside > 0) besideAt = now
        pending.splice(0, at, ...left)
        add(all, taken, -1)
        stuck = countOf(waiting)
        return taken
      }

      /** Whether it did something. */
      const round = async (): Promise<boolean> => {
        const steps = take()
        if (steps.length === 0 && !table.hasTouched) return false
        // No snapshot of a deleted session may be on its way: a session that begins under its id would take it for its
        // own.
        for (const { deleted, session } of steps) if (deleted === true) await snapshots.finishOf(session!)
        for (const { head } of steps) {
          if (head === null || table.captures.required(head) === 0) continue
          table.captures.due(head)
          await snapshots.finishOf(head.session)
        }
        const done = await commitOne(steps)
        subscriber.next(done)
        return true
      }

      const loop = async (): Promise<void> => {
        let lastStart = Number.NEGATIVE_INFINITY
        let lastTook = 0
        for (;;) {
          await due(lastStart, lastTook)
          if (cancelled) return
          if (ended && pending.length === 0) break
          const start = performance.now()
          if (!(await round())) {
            // All that is left waits for snapshots.
            if (ended) await snapshots.finish()
            continue
          }
          lastStart = start
          lastTook = performance.now() - lastStart
          await compaction.trim()
          await compaction.compact()
          // Also when commits follow each other without a pause, snapshots make way.
          if (performance.now() >= restUntil) await snapshotStep()
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
          add(all, [step], 1)
          if (step.awaited === true) awaitedAt = performance.now()
          table.arrived()
          const isFirst = all.steps === stuck.steps + 1 || (step.awaited === true && all.awaited === stuck.awaited + 1)
          if (isFirst || all.steps - stuck.steps >= BUDGET_STEPS || all.bytes - stuck.bytes >= BUDGET_BYTES) wake()
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
