/**
 * Statistics of memories as workers report them, for the sessions that a page shows; the newest, within a bound over
 * all sessions.
 */
import type { BoardReport } from '../../observe/board.ts'

/** Norms that are kept, of all reports together; a report without any counts as one. */
const MOST_NORMS = 65_536
const weightOf = ({ norms }: BoardReport): number => Math.max(1, norms.length)

export interface Reports {
  add(report: BoardReport): void
  /** The reports of the session that are kept, and those to come, until the signal fires. */
  of(session: string, signal: AbortSignal): AsyncGenerator<BoardReport>
}

export const createReports = (): Reports => {
  let kept: BoardReport[] = []
  let norms = 0
  const readers = new Map<string, Set<(report: BoardReport) => void>>()
  return {
    add(report) {
      kept.push(report)
      norms += weightOf(report)
      let drop = 0
      for (; norms > MOST_NORMS && drop < kept.length - 1; drop += 1) norms -= weightOf(kept[drop]!)
      if (drop > 0) kept = kept.slice(drop)
      for (const take of readers.get(report.session) ?? []) take(report)
    },
    async *of(session, signal) {
      const queue = kept.filter((report) => report.session === session)
      let woken = (): void => undefined
      const take = (report: BoardReport): void => {
        queue.push(report)
        // One that is not taken in time gives way: what counts is how the memory is now.
        while (queue.length > 256) queue.shift()
        woken()
      }
      const leave = (): void => woken()
      const own = readers.get(session) ?? new Set()
      readers.set(session, own.add(take))
      signal.addEventListener('abort', leave)
      try {
        while (!signal.aborted) {
          for (let report = queue.shift(); report !== undefined; report = queue.shift()) yield report
          await new Promise<void>((resolve) => {
            woken = resolve
            if (signal.aborted || queue.length > 0) resolve()
          })
        }
      } finally {
        signal.removeEventListener('abort', leave)
        own.delete(take)
        if (own.size === 0 && readers.get(session) === own) readers.delete(session)
      }
    },
  }
}
