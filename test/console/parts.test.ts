/** The parts of the feed that count: trails, and what the time line says of a resume. */
import { describe, expect, test } from 'vitest'
import { createReports } from '../../src/gateway/console/reports.ts'
import { createPieces } from '../../src/gateway/console/text.ts'
import { createTimeline } from '../../src/gateway/console/timeline.ts'
import { beginTrail, extendTrail } from '../../src/gateway/console/trail.ts'
import type { BoardReport, BoardView } from '../../src/observe/board.ts'
import type { Head } from '../../src/state/head.ts'

const headAt = (pulse: number, nats: number, predictions = pulse - 1): Head =>
  ({
    conductor: { globalStep: pulse, phase: 'stream', origin: 0 },
    totals: { tokens: pulse, generated: 0, nats, predictions },
  }) as Head

describe('a trail', () => {
  test('has bits per token of stretches of 64 pulses or more, back to 2,000 pulses', () => {
    const trail = beginTrail(headAt(65, 64 * Math.LN2))
    for (let pulse = 75; pulse <= 5065; pulse += 10)
      extendTrail(trail, headAt(pulse, (64 + 2 * (pulse - 65)) * Math.LN2))
    expect(trail.stretches[0]!.pulse).toBeGreaterThanOrEqual(3065)
    expect(trail.stretches.at(-1)!.bits).toBe(2000)
    expect(trail.stretches.length).toBeLessThanOrEqual(2000 / 64 + 1)
  })
  test('begins with what it can know, where the first head that is seen is not the first', () => {
    const trail = beginTrail({ ...headAt(900, 500), from: { session: 'p', pulse: 800, chain: '' } })
    expect(trail.stretches).toEqual([])
    extendTrail(trail, headAt(1000, 500 + 100 * Math.LN2))
    expect(trail.stretches.map(({ bits }) => bits)).toEqual([1000])
  })
  test('leaves out stretches in which nothing was predicted', () => {
    const trail = beginTrail(headAt(100, 0, 0))
    expect(trail.stretches).toEqual([])
  })
})

describe('pieces of text', () => {
  const tokenizer = { bytesOf: (id: number) => Uint8Array.of(id) }
  test('keep a character whole over calls, and leave out the end of one that began before', () => {
    const pieces = createPieces(tokenizer)
    const [a, b] = Buffer.from('ü')
    expect(pieces([0x9c, 0xbc, 65, a!])).toEqual(['', '', 'A', ''])
    expect(pieces([b!, 66])).toEqual(['ü', 'B'])
  })
  test('are numbers where the model has no text', () => expect(createPieces(null)([7])).toEqual([' #7']))
})

describe('the time line', () => {
  const life = (pulses: { now: number }) => {
    const line = createTimeline(
      () => pulses.now,
      () => undefined,
    )
    const worker = {
      url: 'http://w',
      reachable: true,
      view: { partitions: [{ partition: 0, state: 'running' }] } as unknown as BoardView,
    }
    const commit = (to: number): void => {
      pulses.now = to
      line.committed(0)
    }
    const resume = (pulse: number): void =>
      line.boardEvent({ seq: 1, at: 1, partition: 0, state: 'running', offset: 1, sessions: 1, pulse }, worker)
    const last = () => line.after(0).at(-1)!
    return { line, worker, commit, resume, last }
  }

  test('says that nothing is lost where the worker goes on at a commit of the log', () => {
    const { line, worker, commit, resume, last } = life({ now: 0 })
    commit(100)
    line.alive(worker)
    commit(150)
    line.reach({ ...worker, reachable: false })
    expect(last()).toMatchObject({ kind: 'lost', tone: 'bad', text: expect.stringContaining('pulse 150') })
    resume(150)
    expect(last()).toMatchObject({
      kind: 'resumed',
      tone: 'good',
      text: 'Partition 0 resumed at pulse 150, nothing lost.',
    })
  })
  test('says what is lost where the worker goes on before what was committed', () => {
    const { line, worker, commit, resume, last } = life({ now: 0 })
    commit(100)
    commit(150)
    line.alive(worker)
    line.reach({ ...worker, reachable: false })
    resume(100)
    expect(last()).toMatchObject({
      kind: 'resumed',
      tone: 'bad',
      text: expect.stringContaining('pulse 150 was committed'),
    })
  })
  test('does not say so of pulses that no commit left', () => {
    const { commit, resume, last } = life({ now: 0 })
    commit(100)
    commit(150)
    resume(120)
    expect(last()).toMatchObject({ kind: 'resumed', tone: 'bad', text: expect.stringContaining('other numbers') })
  })
  test('waits with the sentence until the gateway has read so far', () => {
    const { line, commit, resume, last } = life({ now: 0 })
    commit(100)
    resume(150)
    expect(line.after(0)).toEqual([])
    commit(150)
    expect(last()).toMatchObject({ kind: 'resumed', tone: 'good' })
  })
  test('does not call it whole where a session went back', () => {
    const { line, commit, resume, last } = life({ now: 0 })
    commit(100)
    line.wentBack(0, 's', 100, 90)
    resume(100)
    expect(last().tone).toBe('bad')
  })
  test('keeps a bounded number of lines', () => {
    const { line } = life({ now: 0 })
    for (let at = 0; at < 1000; at += 1) line.wentBack(0, 's', 2, 1)
    expect(line.after(0)).toHaveLength(256)
    expect(line.after(990)).toHaveLength(10)
  })
})

test('reports of memories are kept within a bound, and told to those who look at their session', async () => {
  const reports = createReports()
  const norms = Array.from({ length: 512 }, (_, layer) => ({ name: 'S', layer, level: null, norm: 1, max: 1 }))
  const report = (pulse: number, session = 's'): BoardReport => ({
    seq: pulse,
    session,
    pulse,
    norms,
    window: null,
    levels: [],
  })
  for (let pulse = 1; pulse <= 1000; pulse += 1) reports.add(report(pulse))
  const leaving = new AbortController()
  const seen: number[] = []
  const reading = (async () => {
    for await (const { pulse } of reports.of('s', leaving.signal)) {
      seen.push(pulse)
      if (pulse === 2000) leaving.abort()
    }
  })()
  reports.add(report(1500, 'other'))
  reports.add(report(2000))
  await reading
  expect(seen.at(-1)).toBe(2000)
  expect(seen).not.toContain(1500)
  expect(seen.length).toBeLessThanOrEqual(65_536 / 512 + 1)
})
