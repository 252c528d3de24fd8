/** continuo watch: what stands out of a stream of lines. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, test } from 'vitest'
import { topicNames } from '../../topics/index.ts'
import { continuo, json, start, temporary, withLog } from './helpers.ts'

const folder = temporary()
const path = join(folder, 'app.log')
const usual = Array.from(
  { length: 600 },
  (_, i) =>
    `${['accepted', 'sent', 'closed'][i % 3]} connection ${1000 + i} of peer north-${i % 5} after ${20 + ((i * 7) % 30)} ms`,
)
/** Where the last of the heartbeats stands, which come every twelve lines. */
const LAST_BEAT = 289
const odd = [
  ...usual.slice(0, 400).map((line, i) => (i % 12 === 0 && i < LAST_BEAT ? `clock ${i} still ticks` : line)),
  'ledger balance is off by one crown, refusing to settle',
  ...usual.slice(400, 500),
  'sent connection 1501 of peer north-1 after 47000 ms',
  ...usual.slice(500),
]

interface Shown {
  readonly line: number
  readonly standsOut: readonly string[]
  readonly pattern: string
  readonly silence: {
    readonly kinds: readonly {
      readonly pattern: string
      readonly every: number
      readonly lines: number
      readonly last: number
    }[]
  }
  readonly text: string
}

beforeAll(() => writeFileSync(path, odd.map((line) => `${line}\n`).join('')))

/** A session of a log whose worker writes alerts; what `watch` and the topic of alerts have of it. */
const alerted = async (log: string, failpoints: readonly string[]) => {
  await continuo(['feed', path, '--log', log, '--session', 'app', '--novelty', '--chunk-bytes', '700'])
  const run = [
    'run',
    '--log',
    log,
    '--model',
    'models/watch',
    '--alerts',
    '0.005',
    '--until-idle',
    '50',
    '--log-level',
    'warn',
  ]
  const often = ['--commit-interval', '0', '--snapshot-every', '3000']
  for (const failpoint of failpoints) {
    const killed = await continuo([...run, ...often], { env: { CONTINUO_FAILPOINT: failpoint } })
    expect(killed.signal, failpoint).toBe('SIGKILL')
  }
  expect(await continuo(run)).toMatchObject({ code: 0 })
  const ends = ['--from-beginning', '--until-idle', '50']
  const shown = await json<Shown>('watch', '--log', log, '--session', 'app', ...ends)
  const alerts = await json<{ value: { line: { line: number } } }>('tail', '--log', log, '--topic', 'alerts', ...ends)
  expect(await continuo(['verify', '--log', log, '--model', 'models/watch'])).toMatchObject({ code: 0 })
  return { shown: shown.map(({ line }) => line), alerts: alerts.map(({ value }) => value.line.line) }
}

describe('a stream of lines in a log', () => {
  test('is shown as its worker commits it, and gives an alert for each line that stands out', async () => {
    const { shown, alerts } = await alerted(`file:${join(folder, 'alerts.db')}`, [])
    expect(shown).toEqual(expect.arrayContaining([401, 502]))
    expect(shown.some((line) => line > LAST_BEAT && line < 400)).toBe(true)
    expect(alerts).toEqual(shown)
  })

  test('gives each alert once, whenever its worker is killed', { tags: 'slow' }, async () => {
    const whole = await alerted(`file:${join(folder, 'whole.db')}`, [])
    const killed = await alerted(`file:${join(folder, 'killed.db')}`, [
      'claim.done',
      'commit.prepared@3',
      'commit.sent@4',
      'commit.ended@5',
      'commit.noted@3',
      'snapshot.written',
      'restore.replay',
      'commit.prepared@2',
      'commit.ended@2',
    ])
    expect(killed).toEqual(whole)
  })
})

describe('a stream of lines', () => {
  test('shows a kind that was not there before, and a number that does not fit', async () => {
    const shown = await json<Shown>('watch', path)
    const found = (line: number) => shown.find((each) => each.line === line)
    expect(found(401)).toMatchObject({ standsOut: ['structure'], text: odd[400] })
    expect(found(502)).toMatchObject({ standsOut: ['values'], text: odd[501] })
    expect(found(502)!.pattern).toBe('sent connection <*> of peer <*> after <*> ms')
    const missed = shown.filter(({ standsOut }) => standsOut.includes('silence'))
    expect(missed).toMatchObject([
      { silence: { kinds: [{ pattern: 'clock <*> still ticks', every: 12, last: LAST_BEAT }] } },
    ])
    expect(missed[0]!.line - LAST_BEAT).toBe(missed[0]!.silence.kinds[0]!.lines)
    expect(shown.length).toBeLessThan(12)
  })

  test('says the same of a stream that comes in pieces, and sums up', async () => {
    const { code, out, err } = await continuo(['watch', path])
    expect(code).toBe(0)
    expect(out).toContain(
      '401  structure 1.000\n           ledger balance is off by one crown, refusing to settle\n           new in it: ',
    )
    expect(out).toMatch(
      /^ +3\d\d {2}silence \d\.\d{3}\n {11}none for \d\d lines, where one came every 12: clock <\*> still ticks$/m,
    )
    expect(err).toMatch(/^602 lines, [\d.]+ kB, 0\.\d{3} bits per byte; \d+ stood out/)
    const running = start(['watch'], { live: true })
    for (let at = 0; at < odd.length; at += 37)
      running.child.stdin!.write(
        odd
          .slice(at, at + 37)
          .map((line) => `${line}\n`)
          .join(''),
      )
    running.child.stdin!.end()
    expect(await running.done).toMatchObject({ code: 0, out, err })
  })

  test('of several lines a record is one', async () => {
    const trace = join(folder, 'trace.log')
    const text = usual.map((line, i) => `${line}\n${i === 450 ? '  at ledger.settle (ledger.js:17)\n  at main\n' : ''}`)
    writeFileSync(trace, text.join(''))
    const shown = await json<Shown>('watch', trace, '--join', '^\\w')
    expect(shown.find(({ line }) => line === 451)?.text).toBe(
      `${usual[450]}\n  at ledger.settle (ledger.js:17)\n  at main`,
    )
  })
})

describe('of several sources', () => {
  const mixed = join(folder, 'mixed.log')
  // What host-2 says all the time is new to host-1.
  const lines = usual.flatMap((line, i) => [
    `host-1 ${line}`,
    `host-2 disk ${i % 4} is at ${40 + ((i * 7) % 30)} percent`,
    ...(i === 450 ? ['host-1 disk 3 is at 61 percent'] : []),
  ])
  beforeAll(() => writeFileSync(mixed, lines.map((line) => `${line}\n`).join('')))

  test('each has a session, and is judged among its own lines', { tags: 'slow' }, async () => {
    const at = lines.indexOf('host-1 disk 3 is at 61 percent', 900) + 1
    const shown = await json<Shown & { session: string }>('watch', mixed, '--sessions', '1')
    expect(shown.find(({ line }) => line === at)).toMatchObject({ session: 'host-1', standsOut: ['structure'] })
    const together = await json<Shown>('watch', mixed)
    expect(together.find(({ line }) => line === at)).toBeUndefined()
    const { err, out } = await continuo(['watch', mixed, '--sessions', '1'])
    expect(err).toMatch(/^1,201 lines of 2 sessions, /)
    expect(out).toContain(`structure 1.000  host-1\n           host-1 disk 3 is at 61 percent\n`)
  })

  test('the nearest earlier line is told, too', async () => {
    const shown = await json<Shown & { nearest: { line: number; text: string } }>('watch', path, '--explain')
    expect(shown.find(({ line }) => line === 502)!.nearest.text).toMatch(
      /^sent connection \d+ of peer north-\d after \d+ ms$/,
    )
    const { out } = await continuo(['watch', path, '--explain'])
    expect(out).toMatch(/47000 ms\n(.*\n)? +nearest: 5\d\d {2}sent connection /)
    expect(await continuo(['watch', '--log', 'file:none.db', '--explain'])).toMatchObject({
      code: 2,
      err: expect.stringContaining('leave out --explain'),
    })
  })
})

describe('a stream that begins with what a session has read', () => {
  const half = 450
  /** Words that no other line has. */
  const rare = (i: number): string => {
    const letters = Array.from({ length: 24 }, (_, at) => String.fromCharCode(97 + ((i + at * (2 * i + 3)) % 26)))
    return letters.join('').replace(/.{6}/g, '$& ').trim()
  }
  const mixed = odd.flatMap((line, i) => [line, ...(i % 20 === 7 ? [rare(Math.floor(i / 20))] : [])])
  const log = `file:${join(folder, 'yesterday.db')}`
  const yesterday = join(folder, 'yesterday.safetensors')
  const today = join(folder, 'today.log')
  beforeAll(async () => {
    const before = join(folder, 'before.log')
    // Its last line has no end; it is ended all the same.
    writeFileSync(before, mixed.slice(0, half).join('\n'))
    writeFileSync(today, mixed.slice(half).join('\n'))
    await continuo(['feed', before, '--log', log, '--session', 'app', '--novelty'])
    await continuo(['run', '--log', log, '--model', 'models/watch', '--until-idle', '50', '--log-level', 'error'])
    expect(
      await continuo(['export', '--log', log, '--session', 'app', '--model', 'models/watch', yesterday]),
    ).toMatchObject({ code: 0 })
  })
  type Told = Shown & { first: number | null; last: number | null; seen: number }
  const shifted = (whole: readonly Told[]): readonly Told[] =>
    whole
      .filter(({ line }) => line > half)
      .map((told) => {
        const placed = (at: number | null) => (at === null ? null : Math.max(0, at - half))
        return { ...told, line: told.line - half, first: placed(told.first), last: placed(told.last) }
      })

  test('shows what it would show of both texts', async () => {
    const both = join(folder, 'both.log')
    writeFileSync(both, mixed.join('\n'))
    const expected = shifted(await json<Told>('watch', both, '--top', '0.5'))
    expect(expected.length).toBeGreaterThan(5)
    const shown = await json<Told>('watch', today, '--from', yesterday, '--top', '0.5')
    expect(shown).toEqual(expected)
  })

  test('so does each session of a field', async () => {
    const fields = ['--sessions', '1', '--from', yesterday]
    const shown = await json<Told & { session: string }>('watch', today, ...fields, '--top', '0.02')
    expect(shown.find(({ text }) => text.endsWith('47000 ms'))).toMatchObject({ session: 'sent' })
    // Nothing is only learned: each begins with lines.
    const { err } = await continuo(['watch', today, ...fields])
    expect(err).toMatch(/^182 lines of 1\d sessions, /)
  })

  test('a file that is none, or of another model, and seals are refused with a sentence', async () => {
    expect(await continuo(['watch', today, '--from', path])).toMatchObject({
      code: 1,
      err: expect.stringContaining('is not a file that continuo export wrote'),
    })
    expect(await continuo(['watch', today, '--from', yesterday, '--model', 'models/demo'])).toMatchObject({
      code: 3,
      err: expect.stringContaining('Load the model that wrote'),
    })
    expect(await continuo(['watch', today, '--seal-key', path])).toMatchObject({
      code: 2,
      err: expect.stringContaining('--from EXPORT'),
    })
    expect(await continuo(['watch', '--log', log, '--from', yesterday])).toMatchObject({ code: 2 })
  })
})

test('records of several lines are one where the session joins them', { tags: 'slow' }, async () => {
  const log = `file:${join(folder, 'joined.db')}`
  const trace = 'Caused by: no oil in the lamp\n\tat harbour.Lamp.light(Lamp.java:42)'
  const lines = [...usual.slice(0, 300), `2026 the lamp went out\n${trace}`, ...usual.slice(300, 400)]
  const file = join(folder, 'joined.log')
  writeFileSync(file, lines.map((line) => `${line.startsWith('2026') ? '' : '2026 '}${line}\n`).join(''))
  const fed = await continuo([
    'feed',
    file,
    '--log',
    log,
    '--session',
    'app',
    '--novelty',
    '--join',
    '^\\d{4} ',
    '--close',
  ])
  expect(fed).toMatchObject({ code: 0 })
  expect(await continuo(['run', '--log', log, '--model', 'models/watch', '--until-idle', '50'])).toMatchObject({
    code: 0,
  })
  const shown = await json<Shown>('watch', '--log', log, '--from-beginning', '--until-idle', '50')
  expect(shown.find(({ line }) => line === 301)).toMatchObject({
    text: `2026 the lamp went out\n${trace.replace('\t', '\ufffd')}`,
  })
  expect(await continuo(['verify', '--log', log, '--model', 'models/watch'])).toMatchObject({ code: 0 })
  expect((await continuo(['feed', file, '--log', log, '--session', 'app', '--novelty', '--join', '('])).err).toContain(
    '--join cannot be used',
  )
  expect((await continuo(['feed', file, '--log', log, '--session', 'app', '--join', 'a'])).err).toContain('--novelty')
})

test('a control sequence in a line does not reach a terminal as one in JSON', async () => {
  const evil = join(folder, 'evil.log')
  writeFileSync(evil, [...usual, '\u001b[2J wiped the screen and everything on it'].join('\n'))
  const { out } = await continuo(['watch', evil, '--json'])
  expect(out).not.toContain('\u001b')
  expect(out).toContain('wiped the screen')
})

test('what cannot be is refused with a sentence', async () => {
  expect(await continuo(['watch', join(folder, 'none')])).toMatchObject({
    code: 1,
    err: expect.stringContaining('none cannot be read'),
  })
  expect(await continuo(['watch', path, '--join', '('])).toMatchObject({
    code: 1,
    err: expect.stringContaining('expected a regular expression'),
  })
  expect(await continuo(['watch', path, '--top', '2'])).toMatchObject({ code: 2 })
})

test.each(['tail', 'watch'])('%s names a record that is no event, and goes on', async (verb) => {
  const log = `file:${join(folder, `${verb}.db`)}`
  await continuo(['feed', path, '--log', log, '--session', 'app', '--novelty'])
  await withLog(log, async (opened) => {
    const names = topicNames(opened.prefix)
    const record = (value: string) => ({ key: Buffer.from('app'), value: Buffer.from(value) })
    for (const value of ['hello', '{"type":"nope"}', '7']) await opened.append(names.observations, [record(value)], 0)
    await opened.append(names.deadletters, [record('hello')], 0)
  })
  await continuo(['run', '--log', log, '--model', 'models/watch', '--until-idle', '50', '--log-level', 'error'])
  const topic = verb === 'tail' ? ['--topic', 'observations'] : []
  const { code, out, err } = await continuo([verb, '--log', log, ...topic, '--from-beginning', '--until-idle', '50'])
  expect(code).toBe(0)
  for (const offset of [0, 1, 2])
    expect(err).toContain(`continuo.observations, partition 0, offset ${offset}: the record is no event of Continuo`)
  expect(out).toContain(verb === 'tail' ? 'app  opened at pulse 0' : 'ledger balance')
  if (verb === 'watch') return
  // A dead letter may hold anything, and says why and from where it came.
  const letters = await continuo([
    'tail',
    '--log',
    log,
    '--topic',
    'deadletters',
    '--from-beginning',
    '--until-idle',
    '50',
  ])
  expect(letters).toMatchObject({ code: 0, out: '' })
  expect(letters.err).toContain('continuo.deadletters, partition 0, offset 0: the record is no event of Continuo')
})
