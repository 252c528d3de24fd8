import { describe, expect, test } from 'vitest'
import type { OutRecord, RecordIn } from '../../../src/streams/log.ts'
import { bytes, readAll, record, refuses, take, valuesOf } from '../helpers.ts'
import { type Fixture, LIMIT } from './fixture.ts'

export const hasTopics = ({ fresh, openAt, harness }: Fixture): void => {
  describe('has topics', () => {
    test('that are created once, whoever asks, and listed with their settings', async () => {
      const store = await harness().newStore()
      const [one, two] = await Promise.all([openAt(store), openAt(store)])
      const config = { 'max.message.bytes': '2000000' }
      const spec = { name: `${one.prefix}.t`, partitions: 3, config }
      await Promise.all([one.createTopics([spec]), two.createTopics([spec])])
      await two.createTopics([spec, { ...spec, name: `${one.prefix}.u` }])
      const listed = await one.topics()
      expect(listed.map((topic) => topic.name).sort()).toEqual([`${one.prefix}.t`, `${one.prefix}.u`])
      for (const topic of listed) expect(topic).toMatchObject({ partitions: 3, config })
    })

    test('listed below the prefix, and others by name if they exist', async () => {
      const { log, input, a, b } = await fresh()
      const elsewhere = `${log.prefix}-elsewhere`
      await log.createTopics([{ name: elsewhere, partitions: 1, config: {} }])
      expect((await log.topics()).map((topic) => topic.name).sort()).toEqual([a, b, input].sort())
      const named = await log.topics([elsewhere, `${log.prefix}-missing`, a])
      expect(named.map((topic) => topic.name).sort()).toEqual([a, b, input, elsewhere].sort())
    })

    test('whose number of partitions does not change: INVALID names both', async () => {
      const { log, topic } = await fresh()
      await log.createTopics([{ name: topic('t'), partitions: 3, config: {} }])
      await refuses(log.createTopics([{ name: topic('t'), partitions: 5, config: {} }]), 'INVALID', topic('t'), 3, 5)
      expect(await log.partitions(topic('t'))).toBe(3)
      await refuses(log.partitions(topic('u')), 'INVALID', topic('u'))
    })

    test('with names and sizes that Kafka allows: INVALID otherwise', async () => {
      const { log, topic } = await fresh()
      await refuses(log.createTopics([{ name: 'no spaces', partitions: 1, config: {} }]), 'INVALID', 'no spaces')
      await refuses(log.createTopics([{ name: topic('none'), partitions: 0, config: {} }]), 'INVALID', topic('none'))
    })

    test('and no others: every use of a missing topic or partition is INVALID and names it', async () => {
      const { log, topic, input, a, group } = await fresh(2)
      const missing = topic('missing')
      await refuses(log.append(missing, [record('x')], 0), 'INVALID', missing)
      await refuses(log.partitionOf(missing, bytes('k')), 'INVALID', missing)
      await refuses(log.bounds(missing, 0), 'INVALID', missing)
      await refuses(readAll(log, missing, 0, { from: 0 }), 'INVALID', missing)
      await refuses(log.join(group, missing), 'INVALID', missing)
      await refuses(log.claim(group, missing, 0), 'INVALID', missing)
      await refuses(log.trim(missing, 0, 0), 'INVALID', missing)
      await refuses(log.append(a, [record('x')], 2), 'INVALID', a, 2)
      await refuses(log.bounds(a, 2), 'INVALID', a, 2)
      await refuses(readAll(log, a, 2, { from: 0 }), 'INVALID', a, 2)
      await refuses(log.claim(group, input, 2), 'INVALID', input, 2)
      const writer = await log.claim(group, input, 0)
      await refuses(writer.commit([{ topic: missing, ...record('x') }], 1), 'INVALID', missing)
    })

    test('that take records up to their limit: a larger one is INVALID, names both sizes, and nothing is written', async () => {
      const { log, input, a, b, group } = await fresh()
      const big: RecordIn = { key: null, value: new Uint8Array(LIMIT + 1000) }
      const namesBoth = async (call: Promise<unknown>): Promise<void> => {
        const message: string = await call.then(
          () => expect.fail('an oversize record was taken'),
          (error: Error) => error.message,
        )
        const numbers = message
          .replaceAll(/(?<=\d)[,_\u202f](?=\d)/g, '')
          .match(/\d+/g)!
          .map(Number)
        expect(numbers).toContain(LIMIT)
        expect(numbers.some((size) => size >= big.value!.length && size < big.value!.length + 500)).toBe(true)
      }
      await refuses(log.append(a, [record('small'), big], 0), 'INVALID', a)
      await namesBoth(log.append(a, [big], 0))
      const writer = await log.claim(group, input, 0)
      const outs: OutRecord[] = [
        { topic: b, ...record('small') },
        { topic: a, ...big },
      ]
      await refuses(writer.commit(outs, 1), 'INVALID', a)
      await namesBoth(writer.append(outs))
      await writer.commit([{ topic: a, ...record('goes on') }], 2)
      expect(valuesOf(await take(log, a, 0, 1))).toEqual(['goes on'])
      expect(await readAll(log, b)).toEqual([])
    })
  })
}
