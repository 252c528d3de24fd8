/**
 * What `verify` says of sessions whose beginning is gone because somebody deleted their parents, or trimmed the input:
 * it goes on from what the log holds, names what it could not recompute, and still finds what was lost or altered.
 */
import { expect, test } from 'vitest'
import { type Verification, verifyLog } from '../../../src/operators/verify/verify.ts'
import { readPartitionState } from '../../../src/operators/worker/partition-state.ts'
import { purgePartition } from '../../../src/operators/worker/purge.ts'
import { type Head, seal } from '../../../src/state/head.ts'
import type { StoredRecord } from '../../../src/streams/log.ts'
import { textOf } from '../../../src/text.ts'
import { type Bench, benches, event } from '../harness.ts'

const { use } = benches()

const read = (session: string, text: string) => event(session, { type: 'text', text })
const asked = (session: string, requestId: string) =>
  event(session, { type: 'generate', requestId, maxTokens: 12, seed: 5 })
const forked = (session: string, parent: string) => event(session, { type: 'open', from: { session: parent } })
const closed = (session: string) => event(session, { type: 'close' })
const gone = (session: string) => event(session, { type: 'delete' })

const verification = ({ log, names, model, tokenizer }: Bench): Promise<Verification> =>
  verifyLog({ log, names, model, tokenizer, format: 'json' })
const messages = async (bench: Bench): Promise<readonly string[]> =>
  (await verification(bench)).findings.map(({ message }) => message)

/** Only the newest heads and snapshots are left. */
const purge = ({ log, names }: Bench) => purgePartition(log, names, 0)

/** A newer head in the place of the newest, as its owner would write it. */
const rewrite = async ({ log, names }: Bench, session: string, change: (head: Head) => Head): Promise<void> => {
  const { heads, cursor } = await readPartitionState(log, names, 0, 1 << 30)
  const writer = await log.claim('test', names.chunks, 0)
  const place = { topic: names.state, partition: 0, keys: log.sealKeys }
  const records = [change(heads.get(session)!), cursor!].map((each) => ({ topic: names.state, ...seal(each, place) }))
  await writer.commit(records, cursor!.offset)
  await writer.close()
}

/** Forks of a deleted session: one is closed, one is the fork of that, one is open. */
const family = async (bench: Bench): Promise<void> => {
  await bench.feed(read('parent', 'The harbour froze. '), forked('child', 'parent'), asked('child', 'q'))
  await bench.feed(forked('grandchild', 'child'), closed('child'), forked('living', 'parent'), closed('grandchild'))
  await bench.settle({ commitInterval: 100 })
  await bench.feed(gone('parent'), read('child', 'too late'), forked('late', 'child'), read('living', 'It thawed.'))
  await bench.settle({ commitInterval: 100 })
}

test('closed forks of a session that was deleted are not recomputed, and are no difference; open ones begin at their snapshots', () =>
  use(async (bench) => {
    await family(bench)
    const { findings, partial, notRecomputed, sessions } = await verification(bench)
    expect(findings).toEqual([])
    // Where a snapshot of the child is from before it was forked, the grandchild is recomputed from its first event.
    const left = [...partial, ...notRecomputed].map(({ session }) => session)
    expect(left.filter((session) => session !== 'grandchild').sort()).toEqual(['child', 'living'])
    expect(notRecomputed.every(({ because }) => because === 'parent')).toBe(true)
    expect(partial.map(({ session }) => session)).toContain('living')
    expect(sessions).toBe(3)
  }))

test('what comes to a closed session that is not recomputed is still compared', () =>
  use(async (bench) => {
    await family(bench)
    const { log, names } = bench
    await log.eraser!.erase(names.deadletters, 0, ({ value }) => Buffer.from(value!).includes('too late'))
    expect(await messages(bench)).toEqual([
      expect.stringContaining('The event was rejected ("Session "child" is closed; a "text" event arrived.'),
    ])
  }))

test('a closed session that is not recomputed has the sums that were told at its close', () =>
  use(async (bench) => {
    await family(bench)
    await purge(bench)
    const { findings, notRecomputed } = await verification(bench)
    expect(findings).toEqual([])
    expect(notRecomputed).toEqual([
      { session: 'child', because: 'parent' },
      { session: 'grandchild', because: 'parent' },
    ])
    const { chain } = (await bench.heads()).get('child')!
    await rewrite(bench, 'child', (head) => ({ ...head, chain: 'f'.repeat(32) }))
    await purge(bench)
    expect(await messages(bench)).toEqual([
      `The head of the closed session differs from what was told at its close: pulse 31, chain ${'f'.repeat(32)} against pulse 31, chain ${chain}, or other sums.`,
    ])
    const { log, names } = bench
    const isClose = ({ key, value }: StoredRecord): boolean =>
      textOf(key!) === 'child' && textOf(value!).includes('"type":"closed"')
    await log.eraser!.erase(names.observations, 0, isClose)
    expect(await messages(bench)).toEqual(['continuo.observations lacks that the session was closed at offset 4.'])
  }))

test('an open fork of a deleted session whose snapshot is lost is a finding', () =>
  use(async (bench) => {
    await family(bench)
    const { log, names } = bench
    await log.trim(names.snapshots, 0, (await log.bounds(names.snapshots, 0)).end)
    const found = await messages(bench)
    expect(found).toContainEqual(
      expect.stringMatching(/^Session "living" was forked at offset 5 from a session that cannot/),
    )
    expect(found).toContainEqual(expect.stringMatching(/^The snapshot of session "living"/))
  }))

test('a fork is not believed whose parent nobody ever sent', () =>
  use(async (bench) => {
    await family(bench)
    await bench.feed(forked('orphan', 'nobody'))
    await bench.settle()
    const { log, names } = bench
    await log.eraser!.erase(names.deadletters, 0, ({ key }) => Buffer.from(key ?? '').toString() === 'orphan')
    await rewrite(bench, 'child', (head) => ({
      ...head,
      session: 'orphan',
      born: 11,
      cursor: { ...head.cursor, offset: 11 },
    }))
    expect(await messages(bench)).toContainEqual(
      expect.stringContaining('The event was rejected ("Session "orphan" cannot begin as a fork of session "nobody"'),
    )
  }))

test('where the input was trimmed, sessions at rest are compared as far as they go, and closed ones are not recomputed', () =>
  use(async (bench) => {
    await bench.feed(read('a', 'One.'), read('b', 'Two.'), closed('b'), read('c', 'Three.'))
    await bench.settle()
    const { log, names } = bench
    await log.trim(names.chunks, 0, 4)
    await bench.feed(read('c', 'Four.'), read('b', 'late'))
    await bench.settle()
    const { findings, partial, notRecomputed } = await verification(bench)
    expect(findings).toEqual([])
    expect(partial.toSorted((one, other) => one.session.localeCompare(other.session))).toEqual([
      { session: 'a', fromPulse: 4 },
      { session: 'c', fromPulse: 6 },
    ])
    expect(notRecomputed).toEqual([{ session: 'b', because: 'input' }])
    // An open session whose snapshot is gone is lost all the same.
    await log.trim(names.snapshots, 0, (await log.bounds(names.snapshots, 0)).end)
    expect(await messages(bench)).toContainEqual(expect.stringMatching(/^Session "a" began before offset 4/))
  }))

test('a record of an output topic that is no event is a finding with its place', () =>
  use(async (bench) => {
    await bench.feed(read('a', 'One.'), asked('a', 'q'))
    await bench.settle()
    const { log, names } = bench
    await log.append(names.tokens, [event('a', '{"type":"gener'), event('b', '7')])
    const { findings } = await verification(bench)
    expect(findings.map(({ where, message }) => [where, message.slice(0, 23)])).toEqual([
      ['continuo.tokens, partition 0, offset 1', 'The record is no event:'],
      ['continuo.tokens, partition 0, offset 2', 'The record is no event:'],
    ])
  }))
