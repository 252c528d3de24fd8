/**
 * fair: which calls go to the engine. All calls in the engine share its steps, so one that asks for little would wait
 * for a step with the rows of hundreds of others. Calls go in the order of what their groups will have had when they
 * end: fair queueing with start and finish tags, and the clock of start-time fair queueing (Goyal, Vin and Cheng 1996).
 * A group is a session with its forks, or all sessions of a share (shares.ts). The clock is in tokens; it stands where
 * the last call began. A group that was away comes back at the clock, without credit for what it did not use meanwhile.
 *
 * While several groups have work, each has a few calls in the engine at a time: one that calls for hundreds of sessions
 * takes as many rows of a step as one with a few. They are fewer while one group alone calls for many sessions, since a
 * session that asks for a token or two beside it then waits for short steps only. Two groups that both call for many
 * would lose half of the speed of the engine in this way. No bit depends on any of this.
 */
import { search } from '../../search.ts'

/** Calls of a group in the engine at a time while another group calls, and none of the others for more than so many. */
const FEW = 4
/** The same while another group calls for more than that. */
const SOME = 8
/** For how long a group counts that has called, ms. */
const MOMENT = 1000
/** Calls in the engine at a time. The engine's steps have 128 rows. */
const MANY = 192

interface Group {
  /** The clock at the end of its last call. */
  end: number
  /** Its calls in the engine. */
  running: number
  /** The calls in the engine and those that wait. */
  calls: number
}

interface Waiting {
  readonly group: Group
  readonly start: number
  readonly finish: number
  readonly go: () => void
}

export interface Fair {
  /** Runs a call once it has its turn. `group`: whom it counts for; `tokens`: what it asks for at most. */
  run<T>(group: WeakKey, tokens: number, call: () => Promise<T>): Promise<T>
}

export const createFair = (now: () => number = () => performance.now()): Fair => {
  const groups = new WeakMap<WeakKey, Group>()
  /** By their finish; those with the same in order of arrival. */
  const waiting: Waiting[] = []
  let clock = 0
  let running = 0
  /** Groups with more than FEW calls. */
  let large = 0
  /** The group that called last, and when any other did. */
  let last: { readonly group: Group | null; readonly at: number } = { group: null, at: Number.NEGATIVE_INFINITY }
  let others = Number.NEGATIVE_INFINITY

  const groupOf = (key: WeakKey): Group => {
    const group = groups.get(key) ?? { end: 0, running: 0, calls: 0 }
    groups.set(key, group)
    return group
  }
  const isAlone = (group: Group, at: number): boolean => at - (last.group === group ? others : last.at) >= MOMENT
  const mostOf = (group: Group): number => (large > (group.calls > FEW ? 1 : 0) ? SOME : FEW)
  const isRoom = (group: Group, at: number): boolean =>
    running < MANY && (group.running < mostOf(group) || isAlone(group, at))
  const count = (group: Group, calls: 1 | -1): void => {
    if (group.calls > FEW) large -= 1
    group.calls += calls
    if (group.calls > FEW) large += 1
  }
  const begin = (group: Group, start: number): void => {
    running += 1
    group.running += 1
    clock = Math.max(clock, start)
  }
  const admit = (): void => {
    const at = now()
    for (let place = 0; place < waiting.length && running < MANY; ) {
      const { group, start, go } = waiting[place]!
      if (!isRoom(group, at)) {
        place += 1
        continue
      }
      waiting.splice(place, 1)
      begin(group, start)
      go()
    }
  }

  return {
    async run(key, tokens, call) {
      const group = groupOf(key)
      const at = now()
      if (last.group !== group) others = last.at
      last = { group, at }
      const start = Math.max(clock, group.end)
      const finish = start + tokens
      group.end = finish
      count(group, 1)
      // A moment may have passed for those that wait.
      admit()
      if (isRoom(group, at)) begin(group, start)
      else
        await new Promise<void>((go) => {
          const place = search(0, waiting.length, (each) => waiting[each]!.finish <= finish)
          waiting.splice(place, 0, { group, start, finish, go })
        })
      try {
        return await call()
      } finally {
        running -= 1
        group.running -= 1
        count(group, -1)
        admit()
      }
    },
  }
}
