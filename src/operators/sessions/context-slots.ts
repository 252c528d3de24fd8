/**
 * Slots: how many contexts a partition has in memory, and which session gets the next one. Sessions of a share
 * (shares.ts) wait in a line of their own, sessions without a share in one line together. The lines take turns; lines
 * of shares that have half of the contexts come behind the others. In a line sessions wait in order of arrival; a new
 * session may pass those that have to be rebuilt, while as many rebuilds as allowed are going on. No share has all
 * contexts: some are left for the sessions of others.
 *
 *   enter ──▶ waiting ──▶ arriving ──settled──▶ alive ──▶ given back, left
 *                 └─close─▶ false
 *
 * As many are let in as there is room for, each in O(1) but for the number of lines: nothing here looks at those that
 * live or at those that go on waiting.
 */
import { createQueue, type Queue } from '../pipeline/queue.ts'

export interface ContextSlotsOptions {
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

/** Sessions that work, of which some are to make room. */
export interface Crowd {
  readonly share: string | undefined
  /** How many sessions wait for that. */
  readonly count: number
  /** They are of the same share. */
  readonly own: boolean
}

export interface ContextSlots {
  /** Waits for room for one more context; false when the slots are closed before there is any. */
  enter(restores: boolean, share?: string): Promise<boolean>
  /** A session that was admitted is alive now, or failed to arrive. */
  settled(restores: boolean): void
  /** The context of a session that was admitted is gone, or failed to arrive. */
  left(share?: string): void
  /** Admits waiting sessions while there is room; to be called when a context may go. */
  admit(): void
  /** Contexts that would have to go so that no session waits that may have a room. */
  readonly wanted: number
  /** Whose sessions are to make room while they work, as nobody rests who could. */
  crowded(): Crowd[]
  /** No session is admitted any more. */
  close(): void
}

interface Waiting {
  readonly ticket: number
  readonly restores: boolean
  readonly go: (admitted: boolean) => void
}

interface Line {
  readonly fresh: Queue<Waiting>
  readonly rebuilt: Queue<Waiting>
  /** Slots that its sessions have. */
  held: number
}

/** Of so many slots one is left to other shares. */
const LEFT = 16

const waitingIn = ({ fresh, rebuilt }: Line): number => fresh.size + rebuilt.size

export const createContextSlots = ({
  max,
  maxRestores,
  alive,
  giveBackOne,
  onPressure,
}: ContextSlotsOptions): ContextSlots => {
  /** The one that has its turn next first. */
  const lines = new Map<string | undefined, Line>()
  const most = max - Math.floor(max / LEFT)
  let tickets = 0
  /** Contexts being made, and among them those being rebuilt. */
  let arriving = 0
  let restoring = 0
  let closed = false

  const lineOf = (share: string | undefined): Line => {
    const line = lines.get(share) ?? { fresh: createQueue(), rebuilt: createQueue(), held: 0 }
    lines.set(share, line)
    return line
  }
  const forget = (share: string | undefined, line: Line): void => {
    if (line.held === 0 && waitingIn(line) === 0) lines.delete(share)
  }
  /** Slots that sessions of this share may still have. */
  const mayHave = (share: string | undefined, { held }: Line): number =>
    share === undefined ? Number.POSITIVE_INFINITY : most - held

  /** The first in order of arrival that lacks nothing but room. */
  const firstIn = ({ fresh, rebuilt }: Line): Waiting | undefined => {
    const one = fresh.first
    const other = restoring < maxRestores ? rebuilt.first : undefined
    if (one === undefined || other === undefined) return one ?? other
    return one.ticket < other.ticket ? one : other
  }
  const next = (): { readonly share: string | undefined; readonly line: Line; readonly first: Waiting } | undefined => {
    for (const bound of [most / 2, most])
      for (const [share, line] of lines) {
        if (share !== undefined && line.held >= bound) continue
        const first = firstIn(line)
        if (first !== undefined) return { share, line, first }
      }
    return undefined
  }
  const hasRoom = (): boolean => alive() + arriving < max

  const admit = (): void => {
    for (let found = next(); found !== undefined; found = next()) {
      if (!hasRoom() && !giveBackOne()) return
      const { share, line, first } = found
      ;(first.restores ? line.rebuilt : line.fresh).delete(first)
      line.held += 1
      lines.delete(share)
      lines.set(share, line)
      arriving += 1
      if (first.restores) restoring += 1
      first.go(true)
    }
  }

  return {
    async enter(restores, share) {
      if (closed) return false
      return new Promise((go) => {
        const line = lineOf(share)
        const session = { ticket: tickets++, restores, go }
        const queue = restores ? line.rebuilt : line.fresh
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
    left(share) {
      const line = lineOf(share)
      line.held -= 1
      forget(share, line)
    },
    admit,
    get wanted() {
      let wanted = 0
      for (const [share, line] of lines) wanted += Math.max(0, Math.min(waitingIn(line), mayHave(share, line)))
      return Math.max(0, alive() + arriving + wanted - max)
    },
    crowded() {
      const crowds: Crowd[] = []
      const [largest] = [...lines].sort(([, one], [, other]) => other.held - one.held)
      for (const [share, line] of lines) {
        const count = waitingIn(line)
        if (count === 0) continue
        if (mayHave(share, line) <= 0) crowds.push({ share, count, own: true })
        else if (!hasRoom()) crowds.push({ share: largest![0], count, own: largest![0] === share })
      }
      return crowds
    },
    close() {
      closed = true
      for (const { fresh, rebuilt } of lines.values())
        for (const queue of [fresh, rebuilt])
          for (let session = queue.first; session !== undefined; session = queue.first) {
            queue.delete(session)
            session.go(false)
          }
    },
  }
}
