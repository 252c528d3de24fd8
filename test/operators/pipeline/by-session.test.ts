import fc from 'fast-check'
import { from, lastValueFrom, Observable, of, Subject, toArray } from 'rxjs'
import { describe, expect, test } from 'vitest'
import { bySession, type Places } from '../../../src/operators/pipeline/by-session.ts'

interface Item {
  readonly key: string
  readonly n: number
}

describe('bySession', () => {
  test('keeps the order within a session and does not let one session wait for another', async () => {
    const gates = new Map<string, Subject<string>>()
    const source = new Subject<Item>()
    const seen: string[] = []
    const done = lastValueFrom(
      source.pipe(
        bySession(
          ({ key }) => [key],
          ({ key, n }) =>
            new Observable<string>((subscriber) => {
              const gate = new Subject<string>()
              gates.set(`${key}${n}`, gate)
              return gate.subscribe(subscriber)
            }),
        ),
        toArray(),
      ),
    )
    const finish = (name: string): void => {
      seen.push(name)
      gates.get(name)!.next(name)
      gates.get(name)!.complete()
    }
    for (const item of [
      { key: 'a', n: 1 },
      { key: 'a', n: 2 },
      { key: 'b', n: 1 },
    ])
      source.next(item)
    expect([...gates.keys()]).toEqual(['a1', 'b1'])
    finish('b1')
    finish('a1')
    expect([...gates.keys()]).toEqual(['a1', 'b1', 'a2'])
    source.complete()
    finish('a2')
    expect(await done).toEqual(seen)
  })

  test('what belongs to two sessions comes after all before it in both, and before all behind it', async () => {
    const gates = new Map<string, Subject<string>>()
    const source = new Subject<string>()
    const done = lastValueFrom(
      source.pipe(
        bySession(
          // "ab2": the second event of the sessions a and b.
          (name) => name.slice(0, -1).split(''),
          (name) => {
            const gate = new Subject<string>()
            gates.set(name, gate)
            return gate
          },
        ),
        toArray(),
      ),
    )
    const running = (): string => [...gates.keys()].join(' ')
    const finish = (name: string): void => {
      gates.get(name)!.next(name)
      gates.get(name)!.complete()
      gates.delete(name)
    }
    for (const name of ['a1', 'b1', 'ab2', 'a3', 'bc3', 'c4', 'b5']) source.next(name)
    expect(running()).toBe('a1 b1')
    finish('b1')
    expect(running()).toBe('a1')
    finish('a1')
    expect(running()).toBe('ab2')
    finish('ab2')
    expect(running()).toBe('a3 bc3')
    finish('bc3')
    expect(running()).toBe('a3 b5 c4')
    source.complete()
    for (const name of ['c4', 'a3', 'b5']) finish(name)
    expect(await done).toEqual(['b1', 'a1', 'ab2', 'bc3', 'c4', 'a3', 'b5'])
  })

  test('thousands of items that complete at once do not overflow the stack', async () => {
    const gate = new Subject<number>()
    const items = [gate, ...Array.from({ length: 50_000 }, (_, n) => of(n))]
    const done = lastValueFrom(
      from(items).pipe(
        bySession(
          () => ['one'],
          (item) => item,
        ),
        toArray(),
      ),
    )
    gate.complete()
    expect(await done).toHaveLength(50_000)
  })

  test('an error of one session ends the stream, and the others are unsubscribed', async () => {
    let released = false
    const stuck = new Observable<never>(() => () => {
      released = true
    })
    const failing = new Observable<never>((subscriber) => subscriber.error(new Error('broken')))
    const done = lastValueFrom(
      from([
        { key: 'a', what: stuck },
        { key: 'b', what: failing },
      ]).pipe(
        bySession(
          ({ key }) => [key],
          ({ what }) => what,
        ),
      ),
    )
    await expect(done).rejects.toThrow('broken')
    expect(released).toBe(true)
  })
})

describe('bySession with places', () => {
  /** An event of some sessions, and what it takes. */
  interface Sized {
    readonly offset: number
    readonly keys: readonly string[]
    readonly bytes: number
  }
  const share = { records: 3, bytes: 50 }
  const total = { records: 8, bytes: 120 }

  /** Runs events whose ends and whose reads come when `pick` says so; what happened, and what was held at most. */
  const live = async (events: readonly Sized[], picks: readonly number[], stopAt = Number.POSITIVE_INFINITY) => {
    const source = new Subject<Sized>()
    const running: { readonly event: Sized; readonly end: () => void }[] = []
    const reading: (() => void)[] = []
    const begun: Sized[] = []
    const over: Sized[] = []
    const inMemory = new Set<number>()
    let most = { records: 0, bytes: 0 }
    let waiting = 0
    let failure: unknown
    let complete = false
    const held = (): void => {
      const bytes = [...inMemory].reduce((sum, offset) => sum + events[offset]!.bytes, 0)
      most = { records: Math.max(most.records, inMemory.size), bytes: Math.max(most.bytes, bytes) }
    }
    const places: Places<Sized, string> = {
      share,
      total,
      placeOf: ({ offset, bytes }) => ({ offset, bytes }),
      read: (wanted, bytes) =>
        new Promise((resolve) =>
          reading.push(() => {
            const found: Sized[] = []
            let left = bytes
            for (const { offset } of wanted) {
              const event = events[offset]!
              if (found.length > 0 && event.bytes > left) break
              found.push(event)
              left -= event.bytes
            }
            for (const { offset } of found) inMemory.add(offset)
            held()
            resolve(found)
          }),
        ),
      onWaiting: (count) => {
        waiting = count
      },
    }
    source
      .pipe(
        bySession<Sized, never, string>(
          ({ keys }) => keys,
          (event) =>
            new Observable<never>((subscriber) => {
              if (complete) return subscriber.complete()
              begun.push(event)
              running.push({ event, end: () => subscriber.complete() })
              return undefined
            }),
          places,
        ),
      )
      .subscribe({ error: (error) => (failure = error) })
    let at = 0
    let step = 0
    const moves = (): boolean => at < events.length || running.length > 0 || reading.length > 0
    while (moves() && step < stopAt && failure === undefined) {
      const pick = picks[step++ % picks.length]!
      const kind = pick % 3
      if (kind === 0 && at < events.length) {
        const event = events[at++]!
        const before = waiting
        source.next(event)
        if (waiting === before) inMemory.add(event.offset)
        held()
      } else if (kind === 1 && running.length > 0) {
        const [{ event, end }] = running.splice(pick % running.length, 1) as [(typeof running)[number]]
        over.push(event)
        inMemory.delete(event.offset)
        end()
      } else if (reading.length > 0) reading.splice(pick % reading.length, 1)[0]!()
      // What was read arrives.
      await new Promise(setImmediate)
    }
    complete = true
    source.complete()
    return { begun, over, most, waiting, failure }
  }

  const events = fc
    .array(
      fc.record({
        keys: fc.oneof(
          { weight: 6, arbitrary: fc.constantFrom(['a'], ['a'], ['a'], ['b'], ['c'], ['d']) },
          { weight: 1, arbitrary: fc.constantFrom(['b', 'a'], ['c', 'a'], ['d', 'b']) },
        ),
        bytes: fc.integer({ min: 1, max: 60 }),
      }),
      { maxLength: 60 },
    )
    .map((all) => all.map((one, offset) => ({ ...one, offset })))
  const picks = fc.array(fc.nat(1000), { minLength: 20, maxLength: 60 })

  test('each event has its turn once, in the order of its sessions, and little is held', {
    timeout: 120_000,
  }, async () => {
    await fc.assert(
      fc.asyncProperty(events, picks, async (all, order) => {
        // Without all three kinds of moves the run would not end.
        const { begun, over, most, failure } = await live(all, [...order, 0, 1, 2])
        expect(failure).toBeUndefined()
        expect(over).toHaveLength(all.length)
        for (const key of 'abcd') {
          const of = (some: readonly Sized[]) =>
            some.filter(({ keys }) => keys.includes(key)).map(({ offset }) => offset)
          expect(of(begun)).toEqual(of(all))
        }
        expect(most.records).toBeLessThanOrEqual(2 * total.records + share.records)
        expect(most.bytes).toBeLessThanOrEqual(2 * total.bytes + 2 * share.bytes + 2 * 60)
      }),
      { numRuns: 150 },
    )
  })

  test('a session whose events wait in the log holds up no other', async () => {
    const greedy = Array.from({ length: 500 }, (_, offset) => ({ offset, keys: ['a'], bytes: 10 }))
    const { begun, waiting } = await live([...greedy, { offset: 500, keys: ['b'], bytes: 10 }], [0], 501)
    expect(begun.map(({ offset }) => offset)).toEqual([0, 500])
    // Where the source ends, what waits stays in the log.
    expect(waiting).toBe(0)
  })

  test('what had its turn counts until it is finished', async () => {
    const source = new Subject<Sized>()
    const finished = new Subject<readonly number[]>()
    const ends: (() => void)[] = []
    const read: number[] = []
    const all = ['a', 'b', 'c'].map((key, offset) => ({ offset, keys: [key], bytes: 10 }))
    const places: Places<Sized, string> = {
      share: { records: 1, bytes: 100 },
      total: { records: 1, bytes: 100 },
      placeOf: ({ offset, bytes }) => ({ offset, bytes }),
      read: async (wanted) => wanted.map(({ offset }) => all[offset]!).filter(({ offset }) => read.push(offset) > 0),
      finished,
    }
    const project = () => new Observable<never>((subscriber) => void ends.push(() => subscriber.complete()))
    source.pipe(bySession<Sized, never, string>(({ keys }) => keys, project, places)).subscribe()
    for (const one of all) source.next(one)
    ends[0]!()
    await new Promise(setImmediate)
    expect(read).toEqual([])
    finished.next([0])
    expect(read).toEqual([2])
    // Also where that comes before the projection ends.
    finished.next([1])
    ends[1]!()
    source.next({ offset: 3, keys: ['d'], bytes: 10 })
    await new Promise(setImmediate)
    expect(ends).toHaveLength(4)
  })

  test('when the source ends, what is held ends too, whatever was before it', async () => {
    await fc.assert(
      fc.asyncProperty(events, picks, fc.nat(80), async (all, order, stopAt) => {
        const { begun, failure } = await live(all, [...order, 0, 1, 2], stopAt)
        expect(failure).toBeUndefined()
        expect(new Set(begun).size).toBe(begun.length)
      }),
      { numRuns: 100 },
    )
  })
})
