/**
 * Two ways in which work on a real broker could stand still without a word: another log whose workers use the same
 * group, and partitions that somebody adds to the input.
 *
 * @module-tag slow
 */
import { join } from 'node:path'
import { afterEach, describe, expect, inject, it } from 'vitest'
import { partitionOfKey } from '../../src/streams/murmur2.ts'
import { topicNames } from '../../topics/index.ts'
import { freshPrefix } from '../kafka/broker.ts'
import { plainKafka } from '../kafka/helpers.ts'
import {
  continuo,
  eventually,
  json,
  MODEL,
  type Running,
  runUntilIdle,
  type SessionRow,
  start,
  temporary,
  withLog,
} from './helpers.ts'

const { brokers, missing } = inject('kafka')
const newLog = (): string => `kafka://${brokers}/${freshPrefix()}`
const GROUP = `group-${freshPrefix()}`
/** No two tests of this file share a group. */
let groups = 0

const workers: Running[] = []
afterEach(async () => {
  for (const { child } of workers) child.kill('SIGKILL')
  await Promise.all(workers.splice(0).map(({ done }) => done))
})

const worker = async (log: string, group: string): Promise<Running & { readonly url: string }> => {
  const running = start(['run', '--log', log, '--model', MODEL, '--group', group, '--metrics-port', '0', '--json'])
  workers.push(running)
  const [, url] = await running.saw(/"metrics":"(http:[^"]+)"/)
  return { ...running, url: url! }
}

/** A session that belongs to this partition of so many. */
const sessionIn = (partition: number, partitions: number, word: string): string => {
  for (let n = 0; ; n += 1) {
    const name = `${word}-${partition}-${n}`
    if (partitionOfKey(Buffer.from(name), partitions) === partition) return name
  }
}

/** One event into each partition, of sessions named after it. */
const ask = (log: string, partitions: number, word: string): Promise<void> =>
  withLog(log, async (open) => {
    for (let partition = 0; partition < partitions; partition++)
      await open.append(
        topicNames(open.prefix).chunks,
        [
          {
            key: Buffer.from(sessionIn(partition, partitions, word)),
            value: Buffer.from('{"type":"text","text":"are you there"}'),
          },
        ],
        partition,
      )
  })

const observed = (log: string, partitions: number): Promise<string[]> =>
  withLog(log, async (open) => {
    const { observations } = topicNames(open.prefix)
    const sessions = new Set<string>()
    for (let partition = 0; partition < partitions; partition++) {
      const { begin, end } = await open.bounds(observations, partition)
      for await (const { records } of open.read(observations, partition, begin, { until: end }))
        for (const { key } of records) sessions.add(String(key === null ? null : Buffer.from(key)))
    }
    return [...sessions].sort()
  })

const answered = (log: string, partitions: number, word: string): Promise<void> =>
  eventually(async () => {
    const seen = await observed(log, partitions)
    for (let partition = 0; partition < partitions; partition++)
      expect(seen).toContain(sessionIn(partition, partitions, word))
  }, 60_000)

const ready = async (url: string): Promise<{ status: number; body: Record<string, unknown> }> => {
  const answer = await fetch(`${url}/readyz`)
  return { status: answer.status, body: (await answer.json()) as Record<string, unknown> }
}

describe.skipIf(brokers === null)(`workers on Kafka${brokers === null ? ` (none here: ${missing})` : ''}`, () => {
  it('of two logs in one group serve both, and one without work says so where people look', async () => {
    const group = `${GROUP}-${groups++}`
    const [one, two] = [newLog(), newLog()]
    for (const log of [one, two]) await json('topics', 'apply', '--log', log, '--partitions', '2')
    await worker(one, group)
    await ask(one, 2, 'first')
    await answered(one, 2, 'first')
    const other = await worker(two, group)
    for (const log of [one, two]) await ask(log, 2, 'both')
    for (const log of [one, two]) await answered(log, 2, 'both')
    await eventually(async () => expect((await ready(other.url)).status).toBe(200))

    // Two more than the second log has work for: one of its three owns nothing.
    const more = [await worker(two, group), await worker(two, group)]
    const chunks = `${two.split('/').at(-1)}.chunks`
    const idle = `idle: 0 of 2 partitions of ${chunks}; 3 members of group "${group}" read it. Ready to take over.`
    const spare = await eventually(async () => {
      const all = await Promise.all([other, ...more].map(async (each) => ({ each, ...(await ready(each.url)) })))
      expect(all.map(({ status }) => status)).toEqual([200, 200, 200])
      const found = all.find(({ body }) => body.idle === idle)
      expect(found?.body, JSON.stringify(all.map(({ body }) => body))).toEqual({ ready: true, idle, partitions: [] })
      return found!.each
    }, 60_000)
    await spare.saw(/"msg":"idle: 0 of 2 partitions of/)
    const doctor = await continuo(['doctor', '--log', two, '--group', group])
    expect(doctor.out).toContain(`3 workers of group "${group}" read ${chunks}, and 1 of them own no partition`)
    expect(doctor.out).toContain(`other members of the group read ${one.split('/').at(-1)}.chunks`)
    expect(doctor.code).toBe(0)

    // Who has work leaves: the spare one takes over, and says that, too.
    for (const each of [other, ...more]) if (each !== spare) each.child.kill('SIGTERM')
    // Those who leave may do so in two steps.
    await spare.saw(/no longer idle: [12] of 2 partitions/)
    await ask(two, 2, 'last')
    await answered(two, 2, 'last')
  })

  it('whose input is given more partitions refuse at once, by name, and so does every command; the old state is whole', async () => {
    const group = `${GROUP}-${groups++}`
    const log = newLog()
    const chunks = `${log.split('/').at(-1)}.chunks`
    await json('topics', 'apply', '--log', log, '--partitions', '2')
    const running = await worker(log, group)
    await ask(log, 2, 'before')
    await answered(log, 2, 'before')
    // Its hash names another partition among four than it did among two.
    const session = ['a', 'b', 'c', 'd', 'e', 'f'].find((name) => partitionOfKey(Buffer.from(name), 4) > 1)!
    await json('feed', '--log', log, '--session', session, '--boundary')
    await eventually(async () => expect(await observed(log, 2)).toContain(session))
    const admin = plainKafka(brokers!).admin()
    await admin.connect()
    await admin.createPartitions({ topicPartitions: [{ topic: chunks, count: 4 }] })
    await admin.disconnect()

    // No record has to come for it to be noticed.
    const { code, err } = await running.done
    const sentence = `The input topic ${chunks} has 4 partitions, and this worker began with 2: partitions were added`
    expect(err).toMatch(new RegExp(`"level":50,.*"code":"REFUSED".*${sentence}`))
    expect(code, err).toBe(3)

    await ask(log, 4, 'after')
    const says = async (args: readonly string[], code: number) => {
      const done = await continuo(args)
      const said = done.out + done.err
      expect(said).toContain(`The input topic ${chunks} has 4 partitions, and the state in`)
      expect(said).toContain('Begin anew under another prefix: continuo migrate')
      expect(said).not.toContain('Ask for the number it has')
      expect(done.code, said).toBe(code)
      return done
    }
    const model = ['--model', MODEL]
    await says(['run', '--log', log, ...model, '--group', group, '--until-idle', '100'], 3)
    await says(['feed', '--log', log, '--session', 'z', '--boundary'], 3)
    await says(['topics', 'apply', '--log', log, '--partitions', '4'], 3)
    await says(['topics', 'apply', '--log', log], 3)
    await says(['doctor', '--log', log], 1)
    const told = await says(
      ['tail', '--log', log, '--topic', 'observations', '--from-beginning', '--until-idle', '200'],
      0,
    )
    const before = [0, 1].map((partition) => sessionIn(partition, 2, 'before'))
    expect(told.out).toContain(before[1])
    expect(await observed(log, 2)).toEqual([session, ...before].sort())

    // verify has nothing against what was written, but for the input; and the sessions can be taken along.
    const verified = await says(['verify', '--log', log, ...model], 1)
    expect(verified.out).toMatch(/Recomputed 3 sessions .*\n1 finding\.$/m)
    const fresh = newLog()
    const file = join(temporary(), 's.safetensors')
    await says(['export', '--log', log, '--session', session, file, ...model], 0)
    await json('topics', 'apply', '--log', fresh, '--partitions', '4')
    await json('import', '--log', fresh, '--session', session, file, ...model)
    await json('feed', '--log', fresh, '--session', session, '--boundary')
    expect((await runUntilIdle(fresh)).code).toBe(0)
    const [row] = await json<SessionRow>('sessions', '--log', fresh, '--session', session)
    expect(row?.status).toBe('open')
  })
})
