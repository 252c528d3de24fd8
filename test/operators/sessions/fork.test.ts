/** Forks on the stream: what a child is, when it is made, what it needs afterwards, and what is refused. */
import { expect, test } from 'vitest'
import { openPackage } from '../../../src/models/open.ts'
import { wholeFile } from '../../../src/operators/snapshots/manifests.ts'
import { readSnapshot } from '../../../src/operators/snapshots/snapshots.ts'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import type { Head } from '../../../src/state/head.ts'
import { decodeSnapshot } from '../../../src/state/snapshot.ts'
import { partitionOfKey } from '../../../src/streams/murmur2.ts'
import { textOf as decoded } from '../../../src/text.ts'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { FAMILIES, openFamily } from '../../families.ts'
import { blobsIn, freshFolder, growingBenches, textOf } from '../block-bench.ts'
import { type Bench, type BenchOptions, benches, createBench, event, onBothLogsWith, verified } from '../harness.ts'
import { plant } from '../planting.ts'

const { use, model } = benches()
const growing = growingBenches()

const read = (session: string, text: string) => event(session, { type: 'text', text })
const asked = (session: string, requestId: string, maxTokens = 40) =>
  event(session, { type: 'generate', requestId, maxTokens, temperature: 0.9, topP: 0.95, seed: 5 })
const forked = (session: string, parent: string) => event(session, { type: 'open', from: { session: parent } })
const closed = (session: string) => event(session, { type: 'close' })

const told = async (bench: Bench, session: string) =>
  (await bench.generated(session)).map(({ ids, text, fromPulse }) => ({ ids, text, fromPulse }))
const reasons = async (bench: Bench): Promise<{ reason: string; stopped: string | null }[]> =>
  (await bench.records('deadletters')).map(({ headers }) => {
    const header = (name: string): string | null => {
      const found = headers.findLast(([each]) => each === name)
      return found ? decoded(found[1]) : null
    }
    return { reason: header(DEAD_LETTER_HEADERS.reason) ?? '', stopped: header(DEAD_LETTER_HEADERS.stopped) }
  })
/** What two sessions with the same past have in common. */
const past = ({ chain, conductor, totals, cursor }: Head) => ({ chain, conductor, totals, held: cursor.held })

onBothLogsWith({ tags: 'slow' })((fresh: () => BenchOptions) => {
  test('a child goes on as a session does that read all of it by itself, and its parent does not notice', () =>
    use(
      async (bench) => {
        const start = 'The harbour froze in the first week of '
        // The request takes many commits: the fork waits for its end, and the text behind the fork waits for the fork.
        const before = (id: string) => [read(id, start), asked(id, 'p', 64), read(id, 'Then \ud83d')]
        await bench.feed(
          ...before('parent'),
          forked('child', 'parent'),
          read('parent', '\ude00 in January.'),
          asked('parent', 'q'),
          read('child', '\ude00 in December.'),
          asked('child', 'q'),
          ...before('alone'),
          read('alone', '\ude00 in December.'),
          asked('alone', 'q'),
          ...before('other'),
          read('other', '\ude00 in January.'),
          asked('other', 'q'),
        )
        await bench.settle({ commitInterval: 1 })
        const heads = await bench.heads()
        expect(past(heads.get('child')!)).toEqual(past(heads.get('alone')!))
        expect(past(heads.get('parent')!)).toEqual(past(heads.get('other')!))
        expect(await told(bench, 'child')).toEqual((await told(bench, 'alone')).slice(4))
        expect(await told(bench, 'parent')).toEqual(await told(bench, 'other'))
        const { born, from } = heads.get('child')!
        expect({ born, from }).toEqual({ born: 3, from: { session: 'parent', pulse: 108, chain: expect.any(String) } })
        expect((await bench.observations('child'))[0]).toMatchObject({ type: 'opened', pulse: 108 })
        await verified(bench)
      },
      1,
      fresh(),
    ))

  test('a child needs no parent any more: it is restored from its own snapshot, also from its first moment on', () =>
    use(
      async (bench) => {
        await bench.feed(read('parent', 'Once upon a time'), forked('child', 'parent'))
        await bench.settle({ snapshotEvery: 1_000_000 })
        const { snapshot, conductor } = (await bench.heads()).get('child')!
        expect(snapshot!.pulse).toBe(conductor.globalStep)
        await bench.feed(closed('parent'), read('child', ' there was'), read('alone', 'Once upon a time there was'))
        const { restored } = await bench.settle()
        expect(restored.sort()).toEqual(['child', 'parent'])
        const heads = await bench.heads()
        expect(heads.get('child')!.chain).toBe(heads.get('alone')!.chain)
        await verified(bench)
      },
      1,
      fresh(),
    ))

  test('what cannot be forked is a dead letter that says so, and changes nothing', () =>
    use(
      async (bench) => {
        const home = partitionOfKey(Buffer.from('parent'), 2)
        const ids = (at: number, name: string): string =>
          Array.from({ length: 64 }, (_, n) => `${name}${n}`).find((id) => partitionOfKey(Buffer.from(id), 2) === at)!
        const [taken, gone, child, unknown] = ['taken', 'gone', 'child', 'unknown'].map((name) => ids(home, name))
        const far = ids(1 - home, 'far')
        await bench.feed(
          read('parent', 'One.'),
          read(taken!, 'Two.'),
          read(gone!, 'Three.'),
          closed(gone!),
          forked('parent', 'parent'),
          forked(taken!, 'parent'),
          forked(child!, gone!),
          forked(child!, unknown!),
          forked(far, 'parent'),
          event(child!, '{"type":"open","from":"parent"}'),
          event(child!, '{"type":"open","from":{"session":""}}'),
        )
        await bench.settle()
        const heads = await bench.heads()
        expect([...heads.keys()].sort()).toEqual(['parent', taken!, gone!].sort())
        expect(heads.get(taken!)!.totals.tokens).toBe(4)
        const said = (await reasons(bench)).map(({ reason }) => reason)
        expect(said).toHaveLength(7)
        const expected = [
          'Session "parent" cannot begin as a fork of session "parent": that is the session itself',
          `Session "${taken}" cannot begin as a fork of session "parent": expected a session that is new or closed, and it is open, at pulse 4. Send "close" first`,
          `Session "${child}" cannot begin as a fork of session "${gone}": expected one that is open, and it is closed`,
          `Session "${child}" cannot begin as a fork of session "${unknown}": partition ${home} has no such session before this record`,
          `this record is in partition ${1 - home}, while records with the key "parent" belong to partition ${home}`,
          'A "open" event has the fields type, id, once, surprisal, novelty, join, memory, perspectives, embedding, from. Field "from":',
          'A "open" event has the fields type, id, once, surprisal, novelty, join, memory, perspectives, embedding, from. Field "from.session":',
        ]
        for (const text of expected) expect(said.filter((each) => each.includes(text))).toHaveLength(1)
        await verified(bench)
        // A refused fork leaves the id free.
        await bench.feed(forked(child!, 'parent'), read(child!, 'More.'))
        await bench.settle()
        expect((await bench.heads()).get(child!)!.totals.tokens).toBe(9)
        await verified(bench)
      },
      2,
      fresh(),
    ))
})

test('a fork that says where its parent must stand begins there alone', () =>
  use(async (bench) => {
    const at = (child: string, pulse: number) => event(child, { type: 'open', from: { session: 'parent', pulse } })
    await bench.feed(read('parent', 'Once'), at('early', 3), at('there', 4), read('parent', ' upon'), at('late', 4))
    await bench.settle()
    const heads = await bench.heads()
    expect([...heads.keys()].sort()).toEqual(['parent', 'there'])
    expect(heads.get('there')!.from).toMatchObject({ session: 'parent', pulse: 4 })
    const said = (await reasons(bench)).map(({ reason }) => reason)
    expect(said).toHaveLength(2)
    expect(said[0]).toContain('expected it at pulse 3, as the event says, and it stands at 4. Fork a session')
    expect(said[1]).toContain('expected it at pulse 4, as the event says, and it stands at 9.')
    await verified(bench)
  }))

test('forks of forks, and sessions that are closed and begin anew as forks', { tags: 'slow' }, () =>
  use(async (bench) => {
    await bench.feed(
      read('a', 'one '),
      forked('b', 'a'),
      read('b', 'two '),
      forked('c', 'b'),
      read('c', 'three '),
      closed('a'),
      forked('a', 'c'),
      read('a', 'four '),
      closed('b'),
      event('b', { type: 'open', surprisal: true, from: { session: 'a' } }),
      read('b', 'five '),
      read('alone', 'one two three four five '),
      // An `open` without `from` begins a fork's id anew like any other.
      closed('c'),
      event('c', { type: 'open' }),
      read('c', 'six'),
    )
    await bench.settle()
    const heads = await bench.heads()
    expect(past(heads.get('b')!)).toEqual(past(heads.get('alone')!))
    expect(heads.get('b')!.from!.session).toBe('a')
    expect(heads.get('b')!.settings).toEqual({ surprisal: true })
    expect(heads.get('c')!.conductor).toMatchObject({ globalStep: 17, origin: 14 })
    expect(heads.get('c')!.from!.session).toBe('b')
    await verified(bench)
    for (const session of ['a', 'b', 'c']) {
      const { log, names, model: own, tokenizer } = bench
      const one = await verifyLog({ log, names, model: own, tokenizer, format: 'json', session })
      expect(one).toMatchObject({ sessions: 1, findings: [], partial: [] })
    }
    // A worker that comes new finds all of them.
    await bench.feed(read('a', '.'), read('b', '.'), read('c', '.'))
    await bench.settle()
    await verified(bench)
  }),
)

test('verify finds a head that names another parent, pulse or chain, or none', () =>
  use(async (bench) => {
    await bench.feed(read('parent', 'Once upon'), read('other', 'Once upon'), forked('child', 'parent'))
    await bench.settle()
    const { log, names, tokenizer } = bench
    const findings = async () =>
      (await verifyLog({ log, names, model: model(), tokenizer, format: 'json' })).findings.map(
        ({ message }) => message,
      )
    expect(await findings()).toEqual([])
    const right = (await bench.heads()).get('child')!.from!
    for (const wrong of [
      { ...right, session: 'other' },
      { ...right, pulse: 8 },
      { ...right, chain: 'f'.repeat(32) },
    ]) {
      await plant(bench, 'child', { head: (head) => ({ ...head, from: wrong }) })
      const found = await findings()
      expect(found.length).toBeGreaterThan(0)
      expect(new Set(found.map((message) => message.slice(0, 46)))).toEqual(
        new Set(['The head differs from the recomputation: from:']),
      )
    }
    await plant(bench, 'child', { head: ({ from: _, ...head }) => head })
    expect((await findings()).at(-1)).toContain('from: undefined against {"session":"parent"')
  }))

test('verify finds a fork whose head was removed', () =>
  use(async (bench) => {
    await bench.feed(forked('child', 'parent'), read('parent', 'Once upon'))
    await bench.settle()
    await bench.feed(forked('child', 'parent'))
    await bench.settle()
    const { log, names, tokenizer } = bench
    // The last two records of the state are heads of a later commit and their cursor.
    await bench.feed(read('parent', ' a time'))
    await bench.settle({ snapshotEvery: 1_000_000 })
    const { end } = await log.bounds(names.state, 0)
    await log.trim(names.state, 0, end - 2)
    const { findings } = await verifyLog({ log, names, model: model(), tokenizer, format: 'json' })
    expect(findings.map(({ message }) => message)).toContain(
      'The partition cursor says that offset 2 is finished, but no head of session "child" stands there.',
    )
    expect(findings.filter(({ kind }) => kind === 'deadletter')).toEqual([])
  }))

test('a child whose snapshot is gone is computed again with its parents, where they went on', () =>
  use(async (bench) => {
    await bench.feed(
      read('a', 'one '),
      forked('b', 'a'),
      read('a', 'and on. '),
      read('b', 'two '),
      forked('c', 'b'),
      closed('a'),
      forked('a', 'b'),
      asked('b', 'r'),
      read('c', 'three '),
    )
    await bench.settle()
    const before = await bench.heads()
    await bench.log.trim(bench.names.snapshots, 0, (await bench.log.bounds(bench.names.snapshots, 0)).end)
    await bench.feed(read('c', 'four'), read('a', 'four'), read('b', 'four'), read('alone', 'one two three four'))
    const warnings: string[] = []
    const { restored } = await bench.settle({ warn: (message) => warnings.push(message) })
    expect(restored.sort()).toEqual(['a', 'b', 'c'])
    expect(warnings.join()).toContain('Session "c" is computed again from its first event')
    const heads = await bench.heads()
    expect(heads.get('c')!.chain).toBe(heads.get('alone')!.chain)
    expect(heads.get('c')!.from).toEqual(before.get('c')!.from)
    // And it is saved once more.
    expect(heads.get('c')!.snapshot!.pulse).toBe(heads.get('c')!.conductor.globalStep)
    await verified(bench)
  }))

test('where neither the snapshot of a child nor its parent can be had, the child is set aside, and only it', () =>
  use(async (bench) => {
    await bench.feed(read('parent', 'one '), forked('child', 'parent'), read('child', 'two '))
    await bench.settle()
    await bench.log.trim(bench.names.snapshots, 0, (await bench.log.bounds(bench.names.snapshots, 0)).end)
    await bench.log.trim(bench.names.chunks, 0, 1)
    await bench.feed(read('child', 'more'), read('well', 'and on'))
    const { worker } = await bench.settle()
    expect([...worker.refused]).toEqual([])
    const heads = await bench.heads()
    expect(heads.get('child')).toMatchObject({ status: 'stopped', stopped: { cause: 'storage', offset: 3 } })
    expect(heads.get('well')!.status).toBe('open')
  }))

test('a fork of a session whose stored state is lost is set aside at its birth, and comes back by a reset', () =>
  use(async (bench) => {
    await bench.feed(read('parent', 'one '), read('parent', 'two '))
    await bench.settle()
    const lost = (await bench.heads()).get('parent')!
    await bench.log.trim(bench.names.snapshots, 0, lost.snapshot!.last + 1)
    await bench.log.trim(bench.names.chunks, 0, 1)
    await bench.feed(forked('child', 'parent'), read('child', 'refused'), forked('next', 'child'))
    await bench.settle()
    const head = (await bench.heads()).get('child')!
    expect(head).toMatchObject({
      status: 'stopped',
      stopped: { cause: 'storage', offset: 2 },
      conductor: lost.conductor,
      chain: lost.chain,
      from: { session: 'parent', pulse: 8, chain: lost.chain },
    })
    const said = await reasons(bench)
    expect(said.map(({ stopped }) => stopped).sort()).toEqual([null, null, 'storage/0'].sort())
    for (const { reason } of said)
      expect(reason).toContain('Session "child" was set aside: The snapshot of session "parent"')
    await bench.feed(event('child', { type: 'boundary', reset: true }), read('child', 'again'))
    await bench.settle()
    expect((await bench.heads()).get('child')).toMatchObject({ status: 'open', totals: { tokens: 13 } })
    await bench.feed(read('child', '.'))
    expect((await bench.settle()).restored).toEqual(['child'])
  }))

test('where the input before a fork was trimmed, verify begins with the child at its own snapshot', () =>
  use(async (bench) => {
    await bench.feed(read('parent', 'one '))
    await bench.settle()
    await bench.feed(
      read('parent', 'two '),
      forked('child', 'parent'),
      read('child', 'three '),
      read('parent', 'four '),
    )
    // The first snapshot of the parent is of a time after the fork.
    await bench.settle()
    await bench.log.trim(bench.names.chunks, 0, 2)
    const { log, names, tokenizer } = bench
    const { findings, partial } = await verifyLog({ log, names, model: model(), tokenizer, format: 'json' })
    expect(findings).toEqual([])
    expect(partial.map(({ session, fromPulse }) => [session, fromPulse]).sort()).toEqual([
      ['child', 8],
      ['parent', 13],
    ])
  }))

test('forks find room where there is place for one context only, and take it as others do', { tags: 'slow' }, () =>
  use(async (bench) => {
    const names = Array.from({ length: 12 }, (_, n) => `child${n}`)
    await bench.feed(read('parent', 'Once upon a time '))
    for (const [n, name] of names.entries()) await bench.feed(forked(name, 'parent'), read(name, `${n % 10}`))
    await bench.feed(read('alone', 'Once upon a time 3'), forked('last', 'child3'), read('last', '!'))
    const residency = { maxContexts: 1, maxResidentBytes: 300_000, spillDir: temporaryFolder() }
    const { worker } = await bench.settle(residency)
    expect([...worker.refused]).toEqual([])
    const heads = await bench.heads()
    expect(heads.get('child3')!.chain).toBe(heads.get('alone')!.chain)
    for (const name of names) expect(heads.get(name)!.totals.tokens).toBe(18)
    expect(heads.get('last')!.totals.tokens).toBe(19)
    await verified(bench)
  }),
)

test('a child names the blocks of its parent and writes none of them again', () => {
  const blobStore = freshFolder()
  return growing.use(
    async (bench) => {
      await bench.feed(read('parent', textOf(700)))
      await bench.settle()
      const before = blobsIn(blobStore)
      expect(before).toHaveLength(2)
      for (let n = 0; n < 5; n += 1) await bench.feed(forked(`child${n}`, 'parent'))
      await bench.settle()
      expect(blobsIn(blobStore)).toEqual(before)
      const heads = await bench.heads()
      for (let n = 0; n < 5; n += 1) expect(heads.get(`child${n}`)!.snapshot!.blobs!.count).toBe(2)
      await bench.feed(closed('parent'), read('child1', textOf(300, 2)), read('child2', 'x'))
      await bench.settle()
      await bench.feed(read('child1', 'y'))
      await bench.settle()
      expect((await bench.heads()).get('child1')!.totals.tokens).toBe(1001)
      await verified(bench)
    },
    { blobStore },
  )
})

test.each(FAMILIES)('with $name, a child has the state of a session that read the same', async ({ key }) => {
  const { dir, overflow } = await openFamily(key, temporaryFolder())
  const shared = await openPackage(dir, { threads: 2, device: 'cpu', overflow })
  const bench = await createBench(shared, 1, { blobStore: freshFolder() })
  try {
    // Over the window of some of them, and not to the last position of others.
    const before = (id: string) => [read(id, textOf(70)), asked(id, 'p', 20)]
    const after = (id: string) => [read(id, textOf(9, 3)), asked(id, 'q', 10)]
    const child = [...before('parent'), forked('child', 'parent'), read('parent', 'elsewhere'), ...after('child')]
    await bench.feed(...child, ...before('alone'), ...after('alone'))
    await bench.settle({ commitInterval: 1 })
    const heads = await bench.heads()
    expect(past(heads.get('child')!)).toEqual(past(heads.get('alone')!))
    const states = ['child', 'alone'].map(async (id) => {
      const file = await readSnapshot(bench.log, bench.names.snapshots, 0, heads.get(id)!)
      const { state } = await decodeSnapshot(await wholeFile(bench.log, file), shared.model.layout)
      return state
    })
    const [mine, other] = await Promise.all(states)
    expect(Buffer.compare(mine!, other!)).toBe(0)
    // From its snapshot, in a worker that comes new.
    await bench.feed(asked('child', 'r', 5), asked('alone', 'r', 5))
    await bench.settle()
    expect((await told(bench, 'child')).at(-1)).toEqual((await told(bench, 'alone')).at(-1))
    await verified(bench)
  } finally {
    await bench.close()
    shared.model.close()
  }
})
