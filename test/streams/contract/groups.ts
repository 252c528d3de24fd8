import { describe, expect, test } from 'vitest'
import { eventually, record, take, valuesOf, watch } from '../helpers.ts'
import type { Fixture } from './fixture.ts'

export const hasGroups = ({ fresh, openAt, startChild, harness }: Fixture): void => {
  describe('has groups', () => {
    const shared = (lists: readonly (readonly number[])[]): number[] => lists.flat().sort((x, y) => x - y)

    test('whose members share the partitions, evenly, and hand over at once when they leave', async () => {
      const { store, log, input, group } = await fresh(4)
      const other = await openAt(store)
      const one = await log.join(group, input)
      const seenByOne = watch(one)
      await eventually(() => expect(seenByOne.now()).toEqual([0, 1, 2, 3]))
      const two = await other.join(group, input)
      const seenByTwo = watch(two)
      await eventually(() => {
        expect(seenByOne.now().length).toBe(2)
        expect(seenByTwo.now().length).toBe(2)
        expect(shared([seenByOne.now(), seenByTwo.now()])).toEqual([0, 1, 2, 3])
      })
      // Anybody can ask who has what, also of a group that nobody is in.
      await eventually(async () => {
        const members = await other.members(group)
        expect(members?.map((member) => member.topic)).toEqual([input, input])
        const shares = (lists: readonly (readonly number[])[]) => lists.map((list) => shared([list]).join()).sort()
        expect(shares(members!.map((member) => member.partitions))).toEqual(shares([seenByOne.now(), seenByTwo.now()]))
      })
      expect(await other.members(`${group}-none`)).toEqual([])
      // Well within the session time-out of 10 s: nobody waited for it.
      await one.leave()
      await eventually(() => expect(seenByTwo.now()).toEqual([0, 1, 2, 3]), 8000)
      for (const { history } of [seenByOne, seenByTwo])
        for (let i = 1; i < history.length; i++)
          expect(history[i]!.generation).toBeGreaterThan(history[i - 1]!.generation)
      await two.leave()
      await two.leave()
    })

    test('with more members than partitions: somebody waits, and takes over', async () => {
      const { store, log, input, group } = await fresh(1)
      const other = await openAt(store)
      const one = await log.join(group, input)
      const seenByOne = watch(one)
      await eventually(() => expect(seenByOne.now()).toEqual([0]))
      const two = await other.join(group, input)
      const seenByTwo = watch(two)
      await eventually(() => {
        expect(seenByTwo.history.length).toBeGreaterThan(0)
        expect(shared([seenByOne.now(), seenByTwo.now()])).toEqual([0])
      })
      const [owner, waiter] = seenByOne.now().length === 1 ? [one, seenByTwo] : [two, seenByOne]
      await owner.leave()
      await eventually(() => expect(waiter.now()).toEqual([0]))
    })

    test('that know nothing of each other', async () => {
      const { log, input, group } = await fresh(2)
      const one = watch(await log.join(group, input))
      const two = watch(await log.join(`${group}-2`, input))
      await eventually(() => {
        expect(one.now()).toEqual([0, 1])
        expect(two.now()).toEqual([0, 1])
      })
    })

    test('that a stalled worker loses its partitions to; it is fenced when it wakes, and joins anew', {
      tags: 'slow',
    }, async () => {
      const { store, log, input, a, group } = await fresh(2)
      const { child, messages } = startChild('member', store, group, log.prefix)
      const assignments = () => messages.flatMap(({ assignment }) => (assignment === undefined ? [] : [assignment]))
      const outcome = async (message: object): Promise<string> => {
        const count = messages.filter(({ done }) => done !== undefined).length
        child.send(message)
        return eventually(() => {
          const done = messages.filter((reply) => reply.done !== undefined)[count]
          expect(done).toBeDefined()
          return done!.code!
        })
      }
      await eventually(() => expect(assignments().at(-1)?.partitions).toEqual([0, 1]))
      for (const partition of [0, 1]) expect(await outcome({ claim: partition })).toBe('OK')
      expect(await outcome({ commit: 0 })).toBe('OK')
      expect(await outcome({ commit: 1 })).toBe('OK')

      child.kill('SIGSTOP')
      const mine = await openAt(store, { sessionTimeout: harness().sessionTimeout })
      // Kafka lets nobody in before the stalled member's session ends.
      const membership = await mine.join(group, input)
      const seen = watch(membership)
      await eventually(() => expect(seen.now()).toEqual([0, 1]), 60_000)
      const writer = await mine.claim(group, input, 0)
      const generation = assignments().at(-1)!.generation
      child.kill('SIGCONT')
      expect(await outcome({ commit: 0 })).toBe('FENCED')
      await writer.commit([{ topic: a, ...record('from the heir') }], 2)
      expect(valuesOf(await take(mine, a, 0, 2))).toEqual(['from the child', 'from the heir'])
      await eventually(() => {
        expect(assignments().at(-1)!.generation).toBeGreaterThan(generation)
        expect(shared([seen.now(), assignments().at(-1)!.partitions])).toEqual([0, 1])
        expect(seen.now().length).toBe(1)
      }, 60_000)
    })
  })
}
