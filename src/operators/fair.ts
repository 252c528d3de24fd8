/**
 * fair: which calls go to the engine. All calls in the engine share its steps, so one that asks for little would wait for a step with the rows of
 * hundreds of others. Calls go in the order of what their groups have had: start-time fair queueing (Goyal, Vin and Cheng 1996). A group is a session,
 * together with its forks. The clock is in tokens; it stands where the last call began. A group that was away comes in at the clock, and not with what
 * it did not use meanwhile; while such groups come, the others go a few at a time. No bit depends on it.
 */

/** So many tokens behind the clock, a group was away. */
const AWAY = 256
/** How long that counts, ms. */
const MOMENT = 1000
/** Calls in the engine at a time, while groups come that were away, and else. The engine's steps have 128 rows. */
const FEW = 16
const MANY = 192

interface Waiting {
  readonly start: number
  readonly wasAway: boolean
  readonly go: () => void
}

export interface Fair {
  /** Runs a call once it has its turn. `group`: whom it counts for; `tokens`: what it asks for at most. */
  run<T>(group: WeakKey, tokens: number, call: () => Promise<T>): Promise<T>
}

export const createFair = (now: () => number = () => performance.now()): Fair => {
  /** The clock at the end of each group's last call. */
  const ends = new WeakMap<WeakKey, number>()
  /** By their start; those with the same in order of arrival. */
  const waiting: Waiting[] = []
  let clock = 0
  let running = 0
  let seen = Number.NEGATIVE_INFINITY

  const isRoom = (wasAway: boolean): boolean => running < (wasAway || now() - seen >= MOMENT ? MANY : FEW)
  const begin = (start: number): void => {
    running += 1
    clock = Math.max(clock, start)
  }
  const placeOf = (start: number): number => {
    let [low, high] = [0, waiting.length]
    while (low < high) {
      const middle = (low + high) >>> 1
      if (waiting[middle]!.start <= start) low = middle + 1
      else high = middle
    }
    return low
  }

  return {
    async run(group, tokens, call) {
      const end = ends.get(group) ?? 0
      const start = Math.max(clock, end)
      const wasAway = clock - end >= AWAY
      ends.set(group, start + tokens)
      if (wasAway) seen = now()
      if (isRoom(wasAway) && (wasAway || waiting.length === 0)) begin(start)
      else await new Promise<void>((go) => waiting.splice(placeOf(start), 0, { start, wasAway, go }))
      try {
        return await call()
      } finally {
        running -= 1
        for (let next = waiting[0]; next !== undefined && isRoom(next.wasAway); next = waiting[0]) {
          waiting.shift()
          begin(next.start)
          next.go()
        }
      }
    },
  }
}
