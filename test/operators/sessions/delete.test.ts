/**
 * A session that is deleted on the stream: gone with one commit, a new session under its id, and what verify says of
 * it.
 */
import { expect, test } from 'vitest'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import type { Head } from '../../../src/state/head.ts'
import { textOf } from '../../../src/text.ts'
import type { Observation } from '../../../topics/observations.ts'
import { type Bench, type BenchOptions, benches, event, onBothLogs, verified } from '../harness.ts'

const { use } = benches()

const read = (session: string, text: string) => event(session, { type: 'text', text })
const asked = (session: string, requestId: string, maxTokens = 40) =>
  event(session, { type: 'generate', requestId, maxTokens, temperature: 0.9, seed: 5 })
const gone = (session: string) => event(session, { type: 'delete', id: 'gone' })

const reasons = async (bench: Bench): Promise<readonly string[]> =>
  (await bench.records('deadletters')).map(({ headers }) =>
    textOf(headers.find(([name]) => name === 'continuo-reason')![1]),
  )
const deletions = async (bench: Bench) => (await bench.observations()).filter(({ type }) => type === 'deleted')
/** What a session is, wherever its records stand. */
const self = ({ chain, conductor, totals, status, settings }: Head) => ({ chain, conductor, totals, status, settings })
const findings = async ({ log, names, model, tokenizer }: Bench) =>
  (await verifyLog({ log, names, model, tokenizer, format: 'json' })).findings.map(({ message }) => message)

onBothLogs((fresh: () => BenchOptions) => {
  test('a later event of its id begins a new session, that of an id that was never used', () =>
    use(
      async (bench) => {
        const second = (id: string) => [
          event(id, { type: 'open', surprisal: true }),
          read(id, 'The harbour froze.'),
          asked(id, 'q', 24),
        ]
        await bench.feed(
          read('tale', 'It was high water at nine. '.repeat(30)),
          asked('tale', 'p', 64),
          gone('tale'),
          ...second('tale'),
          ...second('alone'),
          read('other', 'No ship came in.'),
          gone('nobody'),
          event('shut', { type: 'close' }),
          read('brief', 'Shut it.'),
          event('brief', { type: 'close' }),
          gone('brief'),
          gone('brief'),
        )
        // Snapshots on their way when the event comes.
        const running = await bench.settle({ snapshotEvery: 50 })
        expect(running.worker.refused.size).toBe(0)
        const heads = await bench.heads()
        expect([...heads.keys()].sort()).toEqual(['alone', 'other', 'shut', 'tale'])
        expect(self(heads.get('tale')!)).toEqual(self(heads.get('alone')!))
        expect(heads.get('tale')!.born).toBe(3)
        const told = [...(await deletions(bench))].sort((a, b) => a.cause.offset - b.cause.offset)
        expect(told).toMatchObject([
          { session: 'tale', pulse: 27 * 30 + 64, cause: { offset: 2, id: 'gone' } },
          { session: 'brief', pulse: 8 },
        ])
        expect([...(await reasons(bench))].sort()).toEqual([
          'Partition 0 has no session "brief" before this record, and a "delete" event arrived.',
          'Partition 0 has no session "nobody" before this record, and a "delete" event arrived.',
        ])
        const texts = async (id: string) => (await bench.generated(id)).map(({ text }) => text).slice(-2)
        expect(await texts('tale')).toEqual(await texts('alone'))
        await verified(bench)

        // From what is stored.
        await bench.feed(read('tale', ' And then'), read('alone', ' And then'), gone('other'))
        await bench.settle({ snapshotEvery: 50 })
        const later = await bench.heads()
        expect(self(later.get('tale')!)).toEqual(self(later.get('alone')!))
        expect(later.has('other')).toBe(false)
        await verified(bench)
      },
      1,
      fresh(),
    ))

  test('a fork goes on when its parent is deleted, and so does what verify says of it', { tags: 'slow' }, () =>
    use(
      async (bench) => {
        const forked = (session: string) => event(session, { type: 'open', from: { session: 'parent' } })
        await bench.feed(
          read('parent', 'The harbour froze in the first week of '),
          forked('child'),
          gone('parent'),
          forked('late'),
          asked('child', 'q', 24),
          read('parent', 'anew'),
          forked('second'),
        )
        await bench.settle()
        const heads = await bench.heads()
        expect([...heads.keys()].sort()).toEqual(['child', 'parent', 'second'])
        expect(heads.get('second')).toMatchObject({
          from: { session: 'parent', pulse: 4 },
          chain: heads.get('parent')!.chain,
        })
        expect(await reasons(bench)).toEqual([
          expect.stringMatching(/^Session "late" cannot begin as a fork of session "parent": partition 0 has no such/),
        ])
        await verified(bench)
        await bench.feed(gone('child'), gone('parent'), gone('second'))
        await bench.settle()
        expect((await bench.heads()).size).toBe(0)
        await verified(bench)
      },
      1,
      fresh(),
    ),
  )
})

test('verify finds a deletion that no event asks for, one that is not told, and a head that outlived it', () =>
  use(async (bench) => {
    const [, , at] = await bench.feed(read('a', 'One.'), read('b', 'Two.'), gone('a'))
    await bench.settle()
    await verified(bench)
    const [answer] = (await deletions(bench)) as Extract<Observation, { type: 'deleted' }>[]
    expect(answer!.cause.offset).toBe(at)
    await bench.log.append(bench.names.observations, [
      event('b', JSON.stringify({ ...answer!, session: 'b', cause: { ...answer!.cause, offset: 1 } })),
    ])
    expect(await findings(bench)).toEqual([
      `No "delete" event at offset 1 of ${bench.names.chunks} explains that session "b" was deleted there.`,
      'Session "b" was deleted at offset 1, and its head began before that.',
      expect.stringContaining('the events do not lead there'),
    ])
  }))

test('verify finds that a deletion was not told', () =>
  use(async (bench) => {
    await bench.feed(read('a', 'One.'), gone('a'), read('a', 'Two.'))
    await bench.settle()
    await verified(bench)
    const { log, names } = bench
    await log.eraser!.erase(names.observations, 0, ({ value }) => textOf(value!).startsWith('{"type":"deleted"'))
    expect(await findings(bench)).toContainEqual(
      expect.stringContaining('deletes session "a", and continuo.observations lacks that it did.'),
    )
  }))
