/**
 * Asks the boards of workers again and again: in this process by a call, elsewhere over HTTP. A board that comes over
 * HTTP is checked by its schema.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { type BoardEvent, type BoardReport, type BoardView, boardSchema } from '../../observe/board.ts'

/** Between two looks, ms. */
const LOOK = 250
/** How long a worker may take to answer, ms. */
const PATIENCE = 2000
/** Bytes of an answer. */
const MOST_BYTES = 16 << 20

/** Numbers of the last report and event that the reader has. */
interface After {
  readonly report: number
  readonly event: number
}

/** A worker that can be asked; null: it is not there yet. Rejects where it does not answer. */
export interface BoardSource {
  /** null: in this process. */
  readonly url: string | null
  read(after: After, signal: AbortSignal): BoardView | null | Promise<BoardView | null>
}

const ask = async (url: string, after: After, signal: AbortSignal): Promise<BoardView> => {
  const response = await fetch(`${url}/board?report=${after.report}&event=${after.event}`, {
    signal: AbortSignal.any([signal, AbortSignal.timeout(PATIENCE)]),
    redirect: 'error',
  })
  if (!response.ok) throw new Error(`${url} answered ${response.status}`)
  const pieces: Uint8Array[] = []
  let bytes = 0
  for await (const piece of response.body!) {
    bytes += piece.length
    if (bytes > MOST_BYTES) throw new Error(`${url} sent more than ${MOST_BYTES} bytes`)
    pieces.push(piece)
  }
  return boardSchema.parse(JSON.parse(Buffer.concat(pieces).toString()))
}

/** The board of a worker with --metrics-port, at this address. */
export const boardAt = (url: string): BoardSource => ({ url, read: (after, signal) => ask(url, after, signal) })

/** A worker as the gateway knows it. */
export interface Seen {
  readonly url: string | null
  readonly reachable: boolean
  /** The last that it said; null: nothing yet. */
  readonly view: BoardView | null
}

export interface BoardWatcher {
  report(report: BoardReport): void
  /** It answered. */
  alive(worker: Seen): void
  event(event: BoardEvent, worker: Seen): void
  /** It does not answer any more, or answers again. */
  reach(worker: Seen): void
}

export interface Boards {
  readonly workers: readonly Seen[]
  close(): Promise<void>
}

export const watchBoards = (sources: readonly BoardSource[], watcher: BoardWatcher): Boards => {
  const over = new AbortController()
  const workers: Seen[] = sources.map(({ url }) => ({ url, reachable: false, view: null }))

  const look = async (source: BoardSource, at: number): Promise<void> => {
    let after = { report: 0, event: 0 }
    while (!over.signal.aborted) {
      const before = workers[at]!
      const known = before.view?.instance
      try {
        let view = await source.read(after, over.signal)
        // Another life counts from 1 again.
        if (view !== null && known !== undefined && view.instance !== known) {
          after = { report: 0, event: 0 }
          view = await source.read(after, over.signal)
        }
        if (view !== null) {
          workers[at] = { url: source.url, reachable: true, view }
          if (!before.reachable) watcher.reach(workers[at])
          for (const report of view.reports) watcher.report(report)
          for (const event of view.events) watcher.event(event, workers[at])
          watcher.alive(workers[at])
          after = { report: view.reports.at(-1)?.seq ?? after.report, event: view.events.at(-1)?.seq ?? after.event }
        }
      } catch {
        if (over.signal.aborted) return
        workers[at] = { ...before, reachable: false }
        if (before.reachable) watcher.reach(workers[at])
      }
      await delay(LOOK, null, { signal: over.signal }).catch(() => undefined)
    }
  }
  const looking = sources.map(look)
  return {
    workers,
    async close() {
      over.abort()
      await Promise.all(looking)
    },
  }
}
