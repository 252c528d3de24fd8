/**
 * fair: how many calls of sessions that have worked much lately go to the engine at a time. All calls in the engine share its steps, so a session that
 * asks for little would wait for a step with the rows of hundreds of others. While such sessions come, those others go a few at a time, in turn; and when
 * none came for a moment, as many as fill the engine's steps. No bit depends on it.
 *
 * What a session has worked is counted in tokens, and half of it is forgotten every few seconds. Forks count together with the session that they began as.
 */

/** Tokens from which on a session has worked much. */
const MUCH = 512
/** Half of what a session has worked is forgotten in this time, ms. */
const HALF_LIFE = 5000
/** How long a call of a session that has worked little counts, ms. */
const MOMENT = 1000
/** Calls of sessions that have worked much, in the engine at a time, beside others and without. The engine's steps have 128 rows. */
const FEW = 16
const MANY = 192

/** What some contexts have worked together. */
interface Worked {
  tokens: number
  at: number
}

export interface Fair {
  /** Runs a call once it has its turn. `group`: the contexts that it counts with; `tokens`: what it asks for at most. */
  run<T>(group: WeakKey, tokens: number, call: () => Promise<T>): Promise<T>
}

export const createFair = (now: () => number = () => performance.now()): Fair => {
  const all = new WeakMap<WeakKey, Worked>()
  const waiting: (() => void)[] = []
  let running = 0
  let seen = Number.NEGATIVE_INFINITY

  const workedBy = (group: WeakKey): Worked => {
    const at = now()
    const known = all.get(group)
    if (known === undefined) {
      const fresh = { tokens: 0, at }
      all.set(group, fresh)
      return fresh
    }
    known.tokens *= 2 ** ((known.at - at) / HALF_LIFE)
    known.at = at
    return known
  }
  const isRoom = (): boolean => running < (now() - seen < MOMENT ? FEW : MANY)

  return {
    async run(group, tokens, call) {
      const worked = workedBy(group)
      const isMuch = worked.tokens > MUCH
      worked.tokens += tokens
      if (!isMuch) {
        seen = now()
        return call()
      }
      // Those that wait go first.
      if (waiting.length > 0 || !isRoom()) await new Promise<void>((resolve) => waiting.push(resolve))
      else running += 1
      try {
        return await call()
      } finally {
        running -= 1
        while (waiting.length > 0 && isRoom()) {
          running += 1
          waiting.shift()!()
        }
      }
    },
  }
}
