/**
 * Rooms: how many contexts a partition has in memory, and which session gets the next place. Sessions wait in order of arrival;
 * a new session may pass those that have to be rebuilt, while as many rebuilds as allowed are going on.
 *
 *   enter ──▶ waiting ──▶ arriving ──settled──▶ alive ──▶ given back
 *                 └─close─▶ false
 *
 * As many are let in as there is room for, each in O(1): nothing here looks at those that live or at those that go on waiting.
 */
import { createQueue } from './queue.ts'

export interface RoomsOptions {
  /** Contexts in memory at most. */
  readonly max: number
  /** Rebuilds at the same time at most. */
  readonly maxRestores: number
  /** Contexts that are alive. */
  readonly alive: () => number
  /** Gives one back that may go; false when there is none. */
  readonly giveBackOne: () => boolean
  /** Called when a session waits and no context may go. */
  readonly onPressure: () => void
}

export interface Rooms {
  /** Waits for room for one more context; false when the rooms are closed before there is any. */
  enter(restores: boolean): Promise<boolean>
  /** A session that was admitted is alive now, or failed to arrive. */
  settled(restores: boolean): void
  /** Admits waiting sessions while there is room; to be called when a context may go. */
  admit(): void
  /** Contexts that would have to go so that no session waits. */
  readonly wanted: number
  /** No session is admitted any more. */
  close(): void
}

interface Waiting {
  readonly ticket: number
  readonly restores: boolean
  readonly go: (admitted: boolean) => void
}

export const createRooms = ({ max, maxRestores, alive, giveBackOne, onPressure }: RoomsOptions): Rooms => {
  const fresh = createQueue<Waiting>()
  const rebuilt = createQueue<Waiting>()
  let tickets = 0
  /** Contexts being made, and among them those being rebuilt. */
  let arriving = 0
  let restoring = 0
  let closed = false

  /** The first in order of arrival that lacks nothing but room. */
  const next = (): Waiting | undefined => {
    const one = fresh.first
    const other = restoring < maxRestores ? rebuilt.first : undefined
    if (one === undefined || other === undefined) return one ?? other
    return one.ticket < other.ticket ? one : other
  }

  const admit = (): void => {
    for (let session = next(); session !== undefined; session = next()) {
      if (alive() + arriving >= max && !giveBackOne()) return
      ;(session.restores ? rebuilt : fresh).delete(session)
      arriving += 1
      if (session.restores) restoring += 1
      session.go(true)
    }
  }

  return {
    async enter(restores) {
      if (closed) return false
      return new Promise((go) => {
        const session = { ticket: tickets++, restores, go }
        const queue = restores ? rebuilt : fresh
        queue.add(session)
        admit()
        if (queue.has(session) && next() !== undefined) onPressure()
      })
    },
    settled(restores) {
      arriving -= 1
      if (restores) restoring -= 1
      admit()
    },
    admit,
    get wanted() {
      return Math.max(0, alive() + arriving + fresh.size + rebuilt.size - max)
    },
    close() {
      closed = true
      for (const queue of [fresh, rebuilt]) {
        for (let session = queue.first; session !== undefined; session = queue.first) {
          queue.delete(session)
          session.go(false)
        }
      }
    },
  }
}
