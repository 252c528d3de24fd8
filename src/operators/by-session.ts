/**
 * bySession: order within a session, none between sessions. Each session's events are projected one after the other; the
 * sessions run beside each other. A session that is idle costs nothing here.
 */
import { from, Observable, type ObservableInput, type OperatorFunction, type Subscription } from 'rxjs'

export const bySession =
  <T, R>(keyOf: (item: T) => string | null, project: (item: T) => ObservableInput<R>): OperatorFunction<T, R> =>
  (source) =>
    new Observable<R>((subscriber) => {
      const queues = new Map<string | null, T[]>()
      const running = new Set<Subscription>()
      let ended = false

      const finishIfIdle = (): void => {
        if (ended && queues.size === 0) subscriber.complete()
      }
      // A loop, not recursion: thousands of rejected events in a row complete at once and must not eat the stack.
      const drain = (key: string | null, queue: T[]): void => {
        for (let item = queue.shift(); item !== undefined; item = queue.shift()) {
          let over = false
          let inLoop = true
          const task: Subscription = from(project(item)).subscribe({
            next: (result) => subscriber.next(result),
            error: (error) => subscriber.error(error),
            complete: () => {
              over = true
              if (inLoop) return
              running.delete(task)
              drain(key, queue)
            },
          })
          inLoop = false
          if (!over) {
            running.add(task)
            return
          }
        }
        queues.delete(key)
        finishIfIdle()
      }
      const upstream = source.subscribe({
        next: (item) => {
          const key = keyOf(item)
          const queue = queues.get(key)
          if (queue !== undefined) {
            queue.push(item)
            return
          }
          const fresh = [item]
          queues.set(key, fresh)
          drain(key, fresh)
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
