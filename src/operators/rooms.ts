/**
 * Rooms: how many contexts a partition has in memory, and who gets the next place. Whoever asks waits in order of arrival;
 * those that have to be rebuilt first may be passed by those that have not, while as many rebuilds as allowed are going on.
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
  /** Somebody waits because nobody may go. */
  readonly onPressure: () => void
}

export interface Rooms {
  /** Waits for room for one more context; false when the rooms are closed before there is any. */
  enter(restores: boolean): Promise<boolean>
  /** Who was let in is alive now, or came to nothing. */
  settled(restores: boolean): void
  /** Lets in whoever has room; to be called when a context may go. */
  admit(): void
  /** Contexts that would have to go so that nobody waits. */
  readonly wanted: number
  /** Nobody is let in any more. */
  close(): void
}

interface Waiting {
  readonly ticket: number
  readonly restores: boolean
  readonly go: (let_in: boolean) => void
}

export const createRooms = ({ max, maxRestores, alive, giveBackOne, onPressure }: RoomsOptions): Rooms => {
  const fresh = createQueue<Waiting>()
  const rebuilt = createQueue<Waiting>()
  let tickets = 0
  /** Contexts being made, and among them those being rebuilt. */
  let arriving = 0
  let restoring = 0
  let closed = false

  /** Who came first of those that lack nothing but room. */
  const next = (): Waiting | undefined => {
    const one = fresh.first
    const other = restoring < maxRestores ? rebuilt.first : undefined
    if (one === undefined || other === undefined) return one ?? other
    return one.ticket < other.ticket ? one : other
  }

  const admit = (): void => {
    for (let who = next(); who !== undefined; who = next()) {
      if (alive() + arriving >= max && !giveBackOne()) return
      ;(who.restores ? rebuilt : fresh).delete(who)
      arriving += 1
      if (who.restores) restoring += 1
      who.go(true)
    }
  }

  return {
    async enter(restores) {
      if (closed) return false
      return new Promise((go) => {
        const who = { ticket: tickets++, restores, go }
        const queue = restores ? rebuilt : fresh
        queue.add(who)
        admit()
        if (queue.has(who) && next() !== undefined) onPressure()
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
        for (let who = queue.first; who !== undefined; who = queue.first) {
          queue.delete(who)
          who.go(false)
        }
      }
    },
  }
}
