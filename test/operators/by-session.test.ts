import { from, lastValueFrom, Observable, of, Subject, toArray } from 'rxjs'
import { describe, expect, test } from 'vitest'
import { bySession } from '../../src/operators/by-session.ts'

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
