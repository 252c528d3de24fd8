/**
 * Dead letters sent again: as they were, each once, whoever was killed on the way and however many replay at a time.
 */
import { expect, test } from 'vitest'
import { deadLettersOf } from '../../src/client/letters.ts'
import { REPLAY_HEADER, type Replayed, type ReplayOptions, replayDeadLetters } from '../../src/client/replay.ts'
import { codeOf } from '../../src/errors.ts'
import type { RecordIn, StoredRecord } from '../../src/streams/log.ts'
import { recordsOf, start, temporary, withLog } from '../cli/helpers.ts'
import { type Bench, benches, event, onBothLogs, verified } from '../operators/harness.ts'
import { eventually } from '../streams/helpers.ts'

const shared = benches()

const replay = async (
  { log, names }: Bench,
  options: Partial<ReplayOptions>,
): Promise<{ readonly all: readonly Replayed[]; readonly counts: object }> => {
  const all: Replayed[] = []
  const onLetter = (done: Replayed): void => void all.push(done)
  const counts = await replayDeadLetters(log, { names, partitions: 1, onLetter, ...options })
  // Kafka answers a commit before its readers see it.
  const last = Math.max(-1, ...all.map((done) => ('offset' in done ? done.offset : -1)))
  await expect.poll(async () => (await log.bounds(names.chunks, 0)).end).toBeGreaterThan(last)
  return { all, counts }
}

const replayHeaders = ({ headers }: StoredRecord): string[] =>
  headers.filter(([name]) => name === REPLAY_HEADER).map(([, value]) => Buffer.from(value).toString())

/** Longer than the records of a topic of dead letters are: its letter comes in parts. */
const LONG = 'It was high water at nine. '.repeat(36_000)
/** More headers than a letter carries beside its value: its letter is an envelope. */
const MANY: RecordIn['headers'] = Array.from({ length: 9000 }, (_, at) => [`h${at % 7}`, Buffer.from([at % 256])])

const refusals = (): RecordIn[] => [
  event('early', { type: 'generate', requestId: 'r', maxTokens: 4, temperature: 0 }),
  event('wide', `{"type":"nope","text":${JSON.stringify(LONG)}}`),
  { ...event('many', '{"type":"nope"}'), headers: MANY! },
  { key: null, value: Buffer.from('{"type":"close"}') },
  { ...event('typo', '{"type":"texxt"}'), headers: [['trace', Buffer.from('t-1')]], timestamp: 1_700_000_000_000 },
]

onBothLogs((fresh) => {
  test('a letter is its record again, and works once what it lacked is there', async () => {
    await shared.use(
      async (bench) => {
        const sent = refusals()
        const offsets = await bench.feed(...sent)
        await bench.settle()
        // Kafka answers a commit before its readers see it.
        const letters = await eventually(async () => {
          const all = []
          for await (const letter of deadLettersOf(bench.log, bench.names.deadletters, 0)) all.push(letter)
          expect(all.map(({ at }) => at.offset).sort((a, b) => a - b)).toEqual(offsets)
          return all
        })
        for (const { at, key, value, headers, fault } of letters) {
          const { key: k, value: v, headers: h = [] } = sent[offsets.indexOf(at.offset)]!
          expect(fault).toBeNull()
          expect([key, value].map((bytes) => bytes && Buffer.from(bytes))).toEqual([k, v])
          expect(headers.map(([name, content]) => [name, Buffer.from(content)])).toEqual(h)
        }

        await bench.feed(event('early', { type: 'text', text: 'The harbour ' }))
        const first = await replay(bench, { session: 'early' })
        expect(first.counts).toEqual({ replayed: 1, before: 0, refused: 0 })
        await bench.settle()
        const [generated] = await bench.generated('early')
        expect(generated).toMatchObject({ requestId: 'r', ids: expect.arrayContaining([expect.any(Number)]) })
        const input = await bench.records('chunks')
        const again = input.at(-1)!
        expect(again.value).toEqual(input[0]!.value)
        expect(replayHeaders(again)).toEqual([`${bench.names.chunks}/0/${offsets[0]}`])

        const rest = await replay(bench, {})
        expect(rest.counts).toEqual({ replayed: 3, before: 1, refused: 1 })
        expect(rest.all.find(({ outcome }) => outcome === 'refused')).toMatchObject({
          why: 'It has no key, so it would be refused again. Send its bytes with a key.',
        })
        expect(rest.all.find(({ outcome }) => outcome === 'before')).toMatchObject({
          why: `It was replayed before, at offset ${again.offset}. --again replays it once more.`,
        })
        const typo = (await bench.records('chunks')).findLast(
          ({ key }) => Buffer.from(key ?? []).toString() === 'typo',
        )!
        expect(typo.timestamp).toBe(1_700_000_000_000)
        expect(typo.headers.map(([name, content]) => [name, Buffer.from(content).toString()])).toEqual([
          ['trace', 't-1'],
          [REPLAY_HEADER, `${bench.names.chunks}/0/${offsets[4]}`],
        ])
        await bench.settle()

        // Refused again: a letter of its own, whose replay names the record that it was and nothing before it.
        const more = await replay(bench, { reason: 'texxt' })
        expect(more.counts).toEqual({ replayed: 1, before: 1, refused: 0 })
        expect(replayHeaders((await bench.records('chunks')).at(-1)!)).toEqual([
          `${bench.names.chunks}/0/${typo.offset}`,
        ])
        expect((await replay(bench, { offset: offsets[4]!, again: true })).counts).toEqual({
          replayed: 1,
          before: 0,
          refused: 0,
        })
        await bench.settle()
        await verified(bench)
      },
      1,
      fresh(),
    )
  })

  test('two replays at a time send each letter once', async () => {
    await shared.use(
      async (bench) => {
        await bench.feed(...Array.from({ length: 700 }, (_, at) => event(`s${at % 5}`, `{"type":"x${at}"}`)))
        await bench.settle()
        const outcomes = await Promise.allSettled([replay(bench, {}), replay(bench, {}), replay(bench, {})])
        for (const outcome of outcomes) if (outcome.status === 'rejected') expect(codeOf(outcome.reason)).toBe('FENCED')
        await replay(bench, {})
        const seen = (await bench.records('chunks')).flatMap(replayHeaders)
        expect(new Set(seen).size).toBe(700)
        expect(seen).toHaveLength(700)
      },
      1,
      fresh(),
    )
  })
})

test('a letter whose parts are gone, or of which it is not known whether it was replayed, is not replayed', async () => {
  await shared.use(async (bench) => {
    const { log, names } = bench
    await bench.feed(event('wide', `{"type":"nope","text":${JSON.stringify(LONG)}}`), event('a', '{"type":"nope"}'))
    await bench.feed(event('b', '{"type":"nope"}'))
    await bench.settle()
    await log.trim(names.deadletters, 0, 1)
    await log.trim(names.chunks, 0, 3)
    const { all, counts } = await replay(bench, {})
    expect(counts).toEqual({ replayed: 1, before: 0, refused: 2 })
    const whys = all.map((done) => ('why' in done ? done.why : ''))
    expect(whys[0]).toBe(`The record cannot be put together: 1 of its 2 parts are gone from ${names.deadletters}.`)
    expect(whys[1]).toBe(
      'Whether it was replayed is not known: the input begins at offset 3, and a replay before that is gone. --again replays it.',
    )
    expect((await replay(bench, { session: 'a', again: true })).counts).toMatchObject({ replayed: 1 })
  })
})

test('continuo deadletters that is killed as it replays, again and again, sends each letter once', {
  tags: 'slow',
}, async () => {
  const url = `file:${temporary()}/log.db`
  const letters = 3000
  await withLog(url, async (log) => {
    const names = (name: string) => `${log.prefix}.${name}`
    const config = {}
    await log.createTopics(
      ['chunks', 'tokens', 'observations', 'state', 'snapshots', 'blobs', 'deadletters'].map((name) => ({
        ...{ name: names(name), partitions: 1, config },
      })),
    )
    const text = (value: string) => Buffer.from(value)
    const refused = { key: text('s'), value: text('{"type":"x"}') }
    await log.append(
      names('chunks'),
      Array.from({ length: letters }, () => refused),
    )
    await log.append(
      names('deadletters'),
      Array.from({ length: letters }, (_, at) => ({
        ...refused,
        headers: [
          ['continuo-reason', text('Expected an event type.')],
          ['continuo-topic', text(names('chunks'))],
          ['continuo-partition', text('0')],
          ['continuo-offset', text(String(at))],
          ['continuo-timestamp', text('1')],
        ] as const,
      })),
    )
  })
  for (const seen of [1, 2]) {
    const running = start(['deadletters', 'replay', '--log', url, '--all'])
    await running.saw(new RegExp(`(replayed at offset[^]*){${seen * 10}}`))
    running.child.kill('SIGKILL')
    await running.done
  }
  const last = await start(['deadletters', 'replay', '--log', url, '--all']).done
  expect(last.code).toBe(0)
  const seen = (await recordsOf(url, 'continuo.chunks')).flatMap(replayHeaders)
  expect(new Set(seen).size).toBe(letters)
  expect(seen).toHaveLength(letters)
  const listed = await start(['deadletters', '--log', url, '--offset', '7', '--json']).done
  expect(JSON.parse(listed.out)).toMatchObject({ session: 's', offset: 7, letter: 7, fault: null })
  const idle = await start(['deadletters', 'replay', '--log', url]).done
  expect(idle).toMatchObject({ code: 2, err: expect.stringContaining('needs to know which') })
})
