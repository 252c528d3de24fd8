/**
 * bySession: order within a session, none between sessions. Each session's events are projected one after the other; the
 * sessions run beside each other. A session that is idle costs nothing here.
 *
 * An event may belong to several sessions (a fork: to the child and to its parent). It stands in the queue of each, and is projected when it
 * is the first of all of them: after all earlier events of these sessions, before all later ones. Events join their queues in the order of the
 * partition, all queues at once, so of those that wait the earliest is the first of all its queues: none waits for ever.
 */
import { from, Observable, type ObservableInput, type OperatorFunction, type Subscription } from 'rxjs'

interface Entry<T, K> {
  readonly item: T
  readonly keys: readonly K[]
  /** Queues in which another entry is before this one. */
  behind: number
}

/** `keysOf`: the sessions of an event, each once. */
export const bySession =
  <T, R, K>(keysOf: (item: T) => readonly K[], project: (item: T) => ObservableInput<R>): OperatorFunction<T, R> =>
  (source) =>
    new Observable<R>((subscriber) => {
      const queues = new Map<K, Entry<T, K>[]>()
      const running = new Set<Subscription>()
      let ended = false

      const finishIfIdle = (): void => {
        if (ended && queues.size === 0) subscriber.complete()
      }
      /** Takes an entry that is over out of its queues. Returns those that were only behind it, the one to begin with last. */
      const leave = ({ keys }: Entry<T, K>): Entry<T, K>[] => {
        const next: Entry<T, K>[] = []
        for (const key of keys) {
          const queue = queues.get(key)!
          queue.shift()
          const [first] = queue
          if (first === undefined) queues.delete(key)
          else {
            first.behind -= 1
            if (first.behind === 0) next.unshift(first)
          }
        }
        return next
      }
      // A loop, not recursion: thousands of rejected events in a row complete at once and must not eat the stack.
      const drain = (ready: Entry<T, K>[]): void => {
        for (let entry = ready.pop(); entry !== undefined; entry = ready.pop()) {
          const current = entry
          let over = false
          let inLoop = true
          const task: Subscription = from(project(current.item)).subscribe({
            next: (result) => subscriber.next(result),
            error: (error) => subscriber.error(error),
            complete: () => {
              over = true
              if (inLoop) return
              running.delete(task)
              drain(leave(current))
            },
          })
          inLoop = false
          if (over) ready.push(...leave(current))
          else running.add(task)
        }
        finishIfIdle()
      }
      const upstream = source.subscribe({
        next: (item) => {
          const entry = { item, keys: keysOf(item), behind: 0 }
          for (const key of entry.keys) {
            const queue = queues.get(key)
            if (queue === undefined) queues.set(key, [entry])
            else {
              queue.push(entry)
              entry.behind += 1
            }
          }
          if (entry.behind === 0) drain([entry])
        },
        error: (error) => subscriber.error(error),
        complete: () => {
          ended = true
          finishIfIdle()
        },
      })
      return () => {
        upstream.unsubscribe()
        for (const task of running) task.unsubscribe()
      }
    })
