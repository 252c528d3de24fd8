import { describe, expect, test } from 'vitest'
import { readAll, record, refuses, take, valuesOf } from '../helpers.ts'
import type { Fixture } from './fixture.ts'

export const hasOneWriter = ({ fresh, openAt }: Fixture): void => {
  describe('has one writer a partition', () => {
    test('who is fenced by the next claim: nothing of the stale one becomes visible', async () => {
      const { store, log, input, a, b, group } = await fresh()
      const other = await openAt(store)
      const stale = await log.claim(group, input, 0)
      await stale.commit([{ topic: a, ...record('before') }], 1)
      const heir = await other.claim(group, input, 0)
      expect(heir.epoch).toBeGreaterThan(stale.epoch)
      const outs = [a, b].map((topic) => ({ topic, ...record('stale') }))
      await refuses(stale.commit(outs, 2), 'FENCED', group, input)
      await refuses(stale.append(outs), ['FENCED', 'MISUSE'])
      await heir.commit([{ topic: a, ...record('after') }], 3)
      expect(valuesOf(await take(log, a, 0, 2))).toEqual(['before', 'after'])
      expect(await readAll(log, b)).toEqual([])
      expect(await log.committed(group, input, 0)).toBe(3)
      await stale.close()
      await heir.commit([{ topic: a, ...record('still') }], 4)
      expect(valuesOf(await take(log, a, 0, 3))).toEqual(['before', 'after', 'still'])
    })

    test('who can ask whether he still is; a stale one hears it, before and after its first call, and nothing is written', async () => {
      const { store, log, input, a, group } = await fresh()
      const other = await openAt(store)
      const fresher = await log.claim(group, input, 0)
      await fresher.confirm()
      await fresher.commit([{ topic: a, ...record('one') }], 1)
      await fresher.confirm()
      await fresher.append([{ topic: a, ...record('two') }])
      const running = fresher.commit([{ topic: a, ...record('three') }], 3)
      await Promise.all([fresher.confirm(), running])
      const heir = await other.claim(group, input, 0)
      await refuses(fresher.confirm(), 'FENCED', group, input)
      await refuses(fresher.commit([{ topic: a, ...record('stale') }], 4), 'FENCED')
      await refuses(fresher.confirm(), 'FENCED')
      await heir.confirm()
      await heir.commit([{ topic: a, ...record('four') }], 4)
      expect(valuesOf(await take(log, a, 0, 4))).toEqual(['one', 'two', 'three', 'four'])
    })

    test('also for bulk: a stale append is FENCED', async () => {
      const { log, input, a, group } = await fresh()
      const stale = await log.claim(group, input, 0)
      const heir = await log.claim(group, input, 0)
      await refuses(stale.append([{ topic: a, ...record('stale') }]), 'FENCED')
      await heir.append([{ topic: a, ...record('x') }])
      expect(valuesOf(await take(log, a, 0, 1))).toEqual(['x'])
    })

    test('when claims race, too: one of them wins', async () => {
      const { store, log, input, a, group } = await fresh()
      const instances = [log, await openAt(store), await openAt(store)]
      for (let round = 1; round <= 3; round++) {
        const claims = await Promise.allSettled(instances.map((instance) => instance.claim(group, input, 0)))
        const writers = claims.flatMap((claim) => (claim.status === 'fulfilled' ? [claim.value] : []))
        const commits = await Promise.allSettled(
          writers.map((writer, i) => writer.commit([{ topic: a, ...record(`${round}:${i}`) }], round)),
        )
        const winners = commits.flatMap(({ status }, i) => (status === 'fulfilled' ? [`${round}:${i}`] : []))
        expect(winners.length).toBe(1)
        for (const commit of commits) if (commit.status === 'rejected') expect(commit.reason.code).toBe('FENCED')
        expect(valuesOf(await take(log, a, 0, round)).slice(-1)).toEqual(winners)
        await Promise.all(writers.map((writer) => writer.close()))
      }
    })

    test('but other partitions and groups have their own', async () => {
      const { log, input, a, group } = await fresh(2)
      const writers = [
        await log.claim(group, input, 0),
        await log.claim(group, input, 1),
        await log.claim(`${group}-2`, input, 0),
      ]
      for (const [i, writer] of writers.entries()) await writer.commit([{ topic: a, ...record(String(i)) }], i)
      expect(valuesOf(await take(log, a, 0, 2))).toEqual(['0', '2'])
      expect(valuesOf(await take(log, a, 1, 1))).toEqual(['1'])
      expect(await log.committed(`${group}-2`, input, 0)).toBe(2)
    })

    test('who takes one call at a time: a second one is MISUSE, and the first goes through', async () => {
      const { log, input, a, group } = await fresh()
      const writer = await log.claim(group, input, 0)
      const first = writer.commit([{ topic: a, ...record('first') }], 1)
      const second = writer.commit([{ topic: a, ...record('second') }], 2)
      const third = writer.append([{ topic: a, ...record('third') }])
      await Promise.all([refuses(second, 'MISUSE'), refuses(third, 'MISUSE')])
      await first
      await writer.commit([{ topic: a, ...record('fourth') }], 4)
      expect(valuesOf(await take(log, a, 0, 2))).toEqual(['first', 'fourth'])
    })

    test('who is of no use when closed: MISUSE; closing again does nothing', async () => {
      const { log, input, a, group } = await fresh()
      const writer = await log.claim(group, input, 0)
      await writer.commit([{ topic: a, ...record('x') }], 1)
      await writer.close()
      await writer.close()
      await refuses(writer.commit([{ topic: a, ...record('y') }], 2), 'MISUSE')
      await refuses(writer.append([{ topic: a, ...record('y') }]), 'MISUSE')
      expect(valuesOf(await take(log, a, 0, 1))).toEqual(['x'])
    })
  })
}
