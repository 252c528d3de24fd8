/**
 * bySession: order within a session, none between sessions. Each session's events are projected one after the other;
 * the sessions run beside each other. A session that is idle costs nothing here.
 *
 * An event may belong to several sessions (a fork: to the child and to its parent). It stands in the queue of each, and
 * is projected when it is the first of all of them: after all earlier events of these sessions, before all later ones.
 * Events join their queues in the order of the partition, all queues at once, so of those that wait the earliest is the
 * first of all its queues: none waits for ever.
 *
 * With `places`, a session holds its share of waiting events and no more. Of one beyond it only the place in the log
 * waits, and the event is read again when its turn comes near. So a session with many events fills no memory, and the
 * events of others are read past them.
 */
import { from, Observable, type ObservableInput, type OperatorFunction, type Subscription } from 'rxjs'
import { createLine, type Line } from './line.ts'

export interface Amount {
  readonly records: number
  readonly bytes: number
}

/** Where an event waits, and for whom. */
export interface Place<K> {
  readonly offset: number
  readonly keys: readonly K[]
}

/** The session with the most events that wait in the log. */
export interface MostWaiting<K> {
  readonly key: K
  readonly events: number
}

/** How events wait in the log. */
export interface Places<T, K> {
  /** What a session holds at most, but one event in any case. */
  readonly share: Amount
  /**
   * What all sessions hold together at most, each event until it is finished. The first event of a session that holds
   * none is held up to twice this.
   */
  readonly total: Amount
  /** Where the event is in the log, and what it takes in memory. */
  placeOf(item: T): { readonly offset: number; readonly bytes: number }
  /** The events at these places, ascending, and in their order: the first, and more of them up to so many bytes. */
  read(places: readonly Place<K>[], bytes: number): Promise<readonly T[]>
  /**
   * The offsets of finished events, whose outputs are committed. Without this an event is finished when its projection
   * ends.
   */
  readonly finished?: Observable<readonly number[]>
  /**
   * Called where the number of events that wait in the log is another one; `most` finds the session with the most of
   * them.
   */
  onWaiting?(count: number, most: () => MostWaiting<K> | null): void
}

interface Entry<T, K> extends Place<K> {
  /** null: it is in the log. */
  item: T | null
  bytes: number
  /** Queues in which another entry is before this one. */
  behind: number
  /** It was given to the projection, or is being read. */
  busy: boolean
}

interface Queue<T, K> {
  /** Entries, and offsets of those that wait in the log and belong to this session alone. */
  readonly line: Line<Entry<T, K> | number>
  records: number
  bytes: number
  /** Of the entries, those in the log. */
  places: number
  reading: boolean
}

/** Reads of places at a time. */
const MOST_READS = 2

const NOWHERE = { offset: -1, bytes: 0 }

/** `keysOf`: the sessions of an event, each once. Where the source ends, events that wait in the log stay there. */
export const bySession =
  <T, R, K>(
    keysOf: (item: T) => readonly K[],
    project: (item: T) => ObservableInput<R>,
    places?: Places<T, K>,
  ): OperatorFunction<T, R> =>
  (source) =>
    new Observable<R>((subscriber) => {
      const queues = new Map<K, Queue<T, K>>()
      const running = new Set<Subscription>()
      /** Sessions whose first event is in the log, and those whose next ones are. */
      const starving = new Set<K>()
      const hungry = new Set<K>()
      const held = { records: 0, bytes: 0 }
      /** What each of those takes, by its offset; some had their turn and are not finished. */
      const sizes = new Map<number, number>()
      let inQueues = 0
      let waiting = 0
      let reads = 0
      let ended = false

      const longest = (): MostWaiting<K> | null => {
        let most: MostWaiting<K> | null = null
        for (const [key, { places: events }] of queues) if (events > (most?.events ?? 0)) most = { key, events }
        return most
      }
      const count = (more: number): void => {
        waiting += more
        places?.onWaiting?.(waiting, longest)
      }
      const finishIfIdle = (): void => {
        if (ended && queues.size === 0) subscriber.complete()
      }
      const queueOf = (key: K): Queue<T, K> => {
        const known = queues.get(key)
        if (known !== undefined) return known
        const queue = { line: createLine<Entry<T, K> | number>(), records: 0, bytes: 0, places: 0, reading: false }
        queues.set(key, queue)
        return queue
      }

      /** The event is finished, perhaps before its projection ends. */
      const release = (offset: number): void => {
        const bytes = sizes.get(offset)
        if (bytes === undefined) return
        sizes.delete(offset)
        held.records -= 1
        held.bytes -= bytes
      }
      /** The entry is in its queues from now on, or no more. */
      const hold = ({ keys, offset, bytes }: Entry<T, K>, sign: 1 | -1): void => {
        if (keys.length === 0) return
        inQueues += sign
        if (sign === 1) {
          sizes.set(offset, bytes)
          held.records += 1
          held.bytes += bytes
        } else if (places?.finished === undefined) release(offset)
        for (const key of keys) {
          const queue = queues.get(key)!
          queue.records += sign
          queue.bytes += sign * bytes
        }
      }
      const isRoom = (
        queue: { readonly records: number; readonly bytes: number },
        most: Amount,
        bytes = 0,
        times = 1,
      ) => queue.records < times * most.records && queue.bytes + bytes <= times * most.bytes
      const fits = (of: readonly Queue<T, K>[], bytes: number): boolean => {
        if (places === undefined) return true
        const { share, total } = places
        if (of.every(({ line }) => line.length === 0)) return held.records === 0 || isRoom(held, total, bytes, 2)
        return isRoom(held, total, bytes) && of.every((queue) => queue.places === 0 && isRoom(queue, share, bytes))
      }

      /** Notes whether the session's next events have to be read. */
      const look = (key: K, queue: Queue<T, K>): void => {
        if (places === undefined || queue.places === 0 || queue.reading || ended) return
        const first = queue.line.at(0)
        const isThere = typeof first === 'object' && (first.item !== null || first.busy)
        if (!isThere) starving.add(key)
        else if (queue.records * 2 <= places.share.records && queue.bytes * 2 <= places.share.bytes) hungry.add(key)
      }
      const chosen = (): readonly [K, Queue<T, K>] | null => {
        for (const keys of [starving, hungry])
          for (const key of keys) {
            keys.delete(key)
            const queue = queues.get(key)
            if (queue !== undefined && queue.places > 0 && !queue.reading) return [key, queue]
          }
        return null
      }
      /** The first of the queue that are in the log, as entries: they are being read. */
      const toRead = (key: K, { line }: Queue<T, K>, most: number): Entry<T, K>[] => {
        const wanted: Entry<T, K>[] = []
        for (let at = 0; at < line.length && wanted.length < most; at += 1) {
          const one = line.at(at)!
          if (typeof one === 'number') {
            const entry = { item: null, offset: one, bytes: 0, keys: [key], behind: at === 0 ? 0 : 1, busy: true }
            line.replace(at, entry)
            wanted.push(entry)
          } else if (one.item === null && !one.busy) {
            one.busy = true
            wanted.push(one)
          }
        }
        return wanted
      }
      const readMore = (): void => {
        if (places === undefined || ended) return
        const { share, total } = places
        while (reads < MOST_READS) {
          // Where nothing runs, all that is held may stand behind something that is not.
          const goesOn = running.size > 0 || held.records > inQueues
          if (starving.size > 0 ? goesOn && !isRoom(held, total, 0, 2) : !isRoom(held, total)) return
          const found = chosen()
          if (found === null) return
          const [key, queue] = found
          const room = Math.min(share.records - queue.records, total.records - held.records)
          const entries = toRead(key, queue, Math.max(1, room))
          if (entries.length === 0) continue
          queue.reading = true
          reads += 1
          const bytes = Math.min(share.bytes - queue.bytes, total.bytes - held.bytes)
          places.read(entries, bytes).then(
            (items) => {
              reads -= 1
              queue.reading = false
              if (ended) {
                leaveRest()
                return
              }
              drain(arrived(entries, items))
              look(key, queue)
              readMore()
            },
            (error: unknown) => subscriber.error(error),
          )
        }
      }
      /** Notes what was read. Returns those whose turn has come. */
      const arrived = (entries: readonly Entry<T, K>[], items: readonly T[]): Entry<T, K>[] => {
        const ready: Entry<T, K>[] = []
        for (const [at, entry] of entries.entries()) {
          entry.busy = false
          const item = items[at]
          if (item === undefined) continue
          entry.item = item
          entry.bytes = places!.placeOf(item).bytes
          hold(entry, 1)
          for (const key of entry.keys) queues.get(key)!.places -= 1
          count(-1)
          if (entry.behind === 0) ready.push(entry)
        }
        return ready.reverse()
      }

      /**
       * Takes an entry that is over out of its queues. Returns those that were only behind it, the one to begin with
       * last.
       */
      const leave = (entry: Entry<T, K>): Entry<T, K>[] => {
        hold(entry, -1)
        const next: Entry<T, K>[] = []
        for (const key of entry.keys) {
          const queue = queues.get(key)!
          const { line } = queue
          line.shift()
          const first = line.at(0)
          if (first === undefined) queues.delete(key)
          else if (typeof first === 'object') {
            first.behind -= 1
            if (first.behind === 0 && first.item !== null) next.unshift(first)
          }
          look(key, queue)
        }
        return next
      }
      // A loop, not recursion: thousands of rejected events in a row complete at once and must not eat the stack.
      const drain = (ready: Entry<T, K>[]): void => {
        for (let entry = ready.pop(); entry !== undefined; entry = ready.pop()) {
          const current = entry
          let over = false
          let inLoop = true
          current.busy = true
          const task: Subscription = from(project(current.item!)).subscribe({
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
        readMore()
        finishIfIdle()
      }
      /** What waits in the log stays there. Those that are held have their turn, whatever was before them. */
      const leaveRest = (): void => {
        for (const [key, queue] of queues) {
          queue.line.keep((one) => typeof one === 'object' && one.item !== null)
          queue.places = 0
          if (queue.line.length === 0) queues.delete(key)
        }
        count(-waiting)
        const ready: Entry<T, K>[] = []
        const entries = new Set([...queues.values()].flatMap(({ line }) => line.at(0) ?? []))
        for (const entry of entries) {
          if (typeof entry === 'number' || entry.busy) continue
          entry.behind = entry.keys.filter((key) => queues.get(key)!.line.at(0) !== entry).length
          if (entry.behind === 0) ready.push(entry)
        }
        drain(ready)
      }
      const finishing = places?.finished?.subscribe((offsets) => {
        for (const offset of offsets) release(offset)
        readMore()
      })
      const upstream = source.subscribe({
        next: (item) => {
          const keys = keysOf(item)
          const { offset, bytes } = places?.placeOf(item) ?? NOWHERE
          const of = keys.map(queueOf)
          const isHeld = keys.length === 0 || fits(of, bytes)
          const entry: Entry<T, K> = { item: isHeld ? item : null, offset, bytes, keys, behind: 0, busy: false }
          for (const { line } of of) {
            if (line.length > 0) entry.behind += 1
            line.push(isHeld || keys.length > 1 ? entry : offset)
          }
          if (isHeld) {
            hold(entry, 1)
            if (entry.behind === 0) drain([entry])
            return
          }
          entry.bytes = 0
          for (const [at, queue] of of.entries()) {
            queue.places += 1
            look(keys[at]!, queue)
          }
          count(1)
          readMore()
        },
        error: (error) => subscriber.error(error),
        complete: () => {
          ended = true
          if (waiting > 0) leaveRest()
          finishIfIdle()
        },
      })
      return () => {
        upstream.unsubscribe()
        finishing?.unsubscribe()
        for (const task of running) task.unsubscribe()
      }
    })
