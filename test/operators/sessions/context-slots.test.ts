/** What keeps sessions in order without looking at all of them: the queue, the unsaved input, the slots. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { createQueue } from '../../../src/operators/pipeline/queue.ts'
import { createContextSlots } from '../../../src/operators/sessions/context-slots.ts'
import { createUnsaved } from '../../../src/operators/sessions/unsaved.ts'

describe('the queue', () => {
  test('is a list that holds each member once, whatever is added and removed', () => {
    const act = fc.tuple(fc.constantFrom('add', 'delete', 'shift'), fc.nat(8))
    fc.assert(
      fc.property(fc.array(act, { maxLength: 200 }), (acts) => {
        const queue = createQueue<number>()
        let list: number[] = []
        for (const [kind, value] of acts) {
          if (kind === 'add') {
            queue.add(value)
            if (!list.includes(value)) list.push(value)
          } else {
            const gone = kind === 'delete' ? value : list[0]
            if (gone !== undefined) expect(queue.delete(gone)).toBe(list.includes(gone))
            list = list.filter((each) => each !== gone)
          }
          expect(queue.first).toBe(list[0])
          expect(queue.size).toBe(list.length)
          expect(queue.has(value)).toBe(list.includes(value))
        }
      }),
    )
  })
})

describe('unsaved input', () => {
  test('comes up oldest first, from where it began, and not where it was saved meanwhile', () => {
    const act = fc.tuple(fc.constantFrom('begin', 'end', 'take'), fc.nat(6), fc.nat(100))
    fc.assert(
      fc.property(fc.array(act, { maxLength: 200 }), (acts) => {
        const unsaved = createUnsaved()
        const begins = new Map<string, number>()
        for (const [kind, n, offset] of acts) {
          const session = `s${n}`
          if (kind === 'begin') {
            unsaved.begin(session, offset)
            if (!begins.has(session)) begins.set(session, offset)
          } else if (kind === 'end') {
            unsaved.end(session)
            begins.delete(session)
          } else {
            const oldest = Math.min(...begins.values())
            const taken = unsaved.takeUpTo(offset)
            if (oldest > offset) expect(taken).toBeUndefined()
            else expect(begins.get(taken!)).toBe(oldest)
            if (taken !== undefined) begins.delete(taken)
          }
        }
      }),
    )
  })
})

describe('slots', () => {
  /** ContextSlots for `max` contexts, in which sessions live until `leave` says otherwise. */
  const opened = (max: number, maxRestores: number) => {
    const entered: string[] = []
    let alive = 0
    let free = 0
    let pressed = 0
    const slots = createContextSlots({
      max,
      maxRestores,
      alive: () => alive,
      giveBackOne() {
        if (free === 0) return false
        free -= 1
        alive -= 1
        return true
      },
      onPressure: () => {
        pressed += 1
      },
    })
    const come = async (name: string, restores = false, share?: string): Promise<void> => {
      entered.push(`${name}${(await slots.enter(restores, share)) ? '' : ' refused'}`)
    }
    return {
      slots,
      entered,
      come,
      settle(restores = false) {
        alive += 1
        slots.settled(restores)
      },
      leave(count = 1, share?: string) {
        free += count
        for (let left = count; left > 0; left -= 1) slots.left(share)
        slots.admit()
      },
      get pressed() {
        return pressed
      },
    }
  }
  const turn = (): Promise<void> => new Promise((resolve) => setImmediate(resolve))

  test('let in as many as there is room for, in the order in which they came', async () => {
    const { slots, entered, come, settle, leave } = opened(2, 4)
    for (const name of ['a', 'b', 'c', 'd', 'e']) void come(name)
    await turn()
    expect(entered).toEqual(['a', 'b'])
    settle()
    settle()
    expect(slots.wanted).toBe(3)
    leave(2)
    await turn()
    expect(entered).toEqual(['a', 'b', 'c', 'd'])
    expect(slots.wanted).toBe(1)
  })

  test('who comes when a place is free and others wait stands behind them', async () => {
    const { entered, come, settle, leave } = opened(1, 4)
    void come('a')
    settle()
    void come('b')
    leave()
    void come('c')
    settle()
    leave()
    await turn()
    expect(entered).toEqual(['a', 'b', 'c'])
  })

  test('the newborn pass those that wait for a rebuild to end, and nobody else', async () => {
    const { entered, come, settle, leave } = opened(2, 1)
    void come('r1', true)
    void come('r2', true)
    void come('n1')
    await turn()
    expect(entered).toEqual(['r1', 'n1'])
    settle()
    void come('n2')
    settle(true)
    leave()
    await turn()
    expect(entered).toEqual(['r1', 'n1', 'r2'])
    settle(true)
    leave()
    await turn()
    expect(entered).toEqual(['r1', 'n1', 'r2', 'n2'])
  })

  test('tell of pressure only where room would help', async () => {
    const bench = opened(2, 1)
    void bench.come('r1', true)
    void bench.come('r2', true)
    expect(bench.pressed).toBe(0)
    void bench.come('n1')
    void bench.come('n2')
    expect(bench.pressed).toBe(1)
  })

  test('are given to shares in turn, whoever came first', async () => {
    const { entered, come, settle, leave } = opened(2, 4)
    for (const name of ['a1', 'a2', 'a3', 'a4']) void come(name, false, 'a')
    for (const name of ['b1', 'b2']) void come(name, false, 'b')
    void come('own')
    await turn()
    for (let at = 0; at < 2; at += 1) settle()
    for (const share of ['a', 'a', 'b', undefined, 'a']) {
      leave(1, share)
      await turn()
      settle()
    }
    expect(entered).toEqual(['a1', 'a2', 'b1', 'a3', 'own', 'b2', 'a4'])
  })

  test('a share does not have all of them, and who waits is told whose sessions are to make room', async () => {
    const { slots, entered, come, settle, leave } = opened(32, 4)
    for (let at = 0; at < 40; at += 1) void come(`a${at}`, false, 'a')
    await turn()
    for (let at = 0; at < 30; at += 1) settle()
    expect(entered).toHaveLength(30)
    expect(slots.wanted).toBe(0)
    expect(slots.crowded()).toEqual([{ share: 'a', count: 10, own: true }])
    for (const name of ['b', 'c']) void come(name)
    await turn()
    expect(entered.slice(30)).toEqual(['b', 'c'])
    for (let at = 0; at < 2; at += 1) settle()
    void come('d')
    expect(slots.wanted).toBe(1)
    expect(slots.crowded()).toContainEqual({ share: 'a', count: 1, own: false })
    leave(1, 'a')
    await turn()
    expect(entered.slice(32)).toEqual(['d'])
  })

  test('that are closed let nobody in, neither those that wait nor those that come', async () => {
    const { slots, entered, come, settle } = opened(1, 4)
    void come('a')
    settle()
    void come('b')
    slots.close()
    void come('c')
    await turn()
    expect(entered.sort()).toEqual(['a', 'b refused', 'c refused'])
  })
})
