/**
 * What the gateway tells the page, without a browser: frames, a session's text, dead letters, and the files of the page
 * with their policy.
 */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Frame, Hello, SessionEvent, SessionRow } from '../../src/gateway/console/types.ts'
import { continuo, temporary } from '../cli/helpers.ts'
import { ask, eventsOf, type Refused, type Serving, servingAll } from '../gateway/helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
beforeAll(async () => {
  gateway = await servingAll(
    (end) => ends.push(end),
    '--partitions',
    '2',
    '--snapshot-every',
    '128',
    '--rate-limit',
    '0',
  )
})
afterAll(() => Promise.all(ends.map((end) => end())))

const at = (path: string): string => `${gateway.url}${path}`
const post = (id: string, events: unknown) => ask(at(`/v1/sessions/${encodeURIComponent(id)}/chunks`), events)

/** Values of a stream, one after the other, until `enough` says so of one of them. */
const taken = async <T>(path: string, enough: (value: T, name: string) => boolean): Promise<T[]> => {
  const leaving = new AbortController()
  const response = await fetch(at(path), { signal: leaving.signal })
  const all: T[] = []
  for await (const { event, data } of eventsOf(response)) {
    all.push(JSON.parse(data) as T)
    if (enough(all.at(-1)!, event)) break
  }
  leaving.abort()
  return all
}

describe('frames', () => {
  test('begin with who tells them, then have everything, then what changes', async () => {
    await post('first', { type: 'text', text: 'The harbour master' })
    const rows = new Map<string, SessionRow>()
    let asked = false
    const seen = await taken<Hello | Frame>('/v1/console/events', (value) => {
      if ('instance' in value) return false
      for (const row of value.sessions) rows.set(row.id, row)
      if (rows.get('first')?.pulse === 18 && !asked) {
        asked = true
        void post('first', { type: 'generate', maxTokens: 300, seed: 1 })
      }
      const row = rows.get('first')
      return row?.pulse === 318 && row.complete
    })
    expect(seen[0]).toMatchObject({ partitions: 2, model: { id: 'demo', type: 'rwkv7', text: true }, boards: true })
    const last = seen.at(-1) as Frame
    expect(last.pipeline).toMatchObject({ read: 18, generated: 300, sessions: 1, deadLetters: 0 })
    expect(last.partitions.map(({ pulse }) => pulse).reduce((a, b) => a + b)).toBe(318)
    expect(last.partitions.map(({ worker }) => worker?.state)).toEqual(['running', 'running'])
    expect(rows.get('first')).toMatchObject({ tokens: 18, generated: 300, generating: false, status: 'open' })
    // Commits came one by one, and their pulses add up.
    const marks = seen.slice(1).flatMap((frame) => (frame as Frame).commits)
    expect(marks.map(({ pulses }) => pulses).reduce((a, b) => a + b)).toBe(318)
    expect(marks.some(({ snapshots }) => snapshots === 1)).toBe(true)
  })

  test('have a bounded number of rows each, and all sessions in the end', { tags: 'slow' }, async () => {
    const count = 1203
    for (let from = 0; from < count; from += 400)
      await Promise.all(
        Array.from({ length: Math.min(400, count - from) }, (_, i) => post(`many-${from + i}`, { type: 'open' })),
      )
    await expect
      .poll(async () => (await ask<{ total: number }>(at('/v1/sessions?limit=1'))).body.total, { timeout: 60_000 })
      .toBeGreaterThanOrEqual(count)
    const ids = new Set<string>()
    const frames = await taken<Frame>('/v1/console/events', (frame) => {
      for (const { id } of frame.sessions ?? []) if (id.startsWith('many-')) ids.add(id)
      return ids.size === count
    })
    expect(Math.max(...frames.slice(1).map(({ sessions }) => sessions.length))).toBeLessThanOrEqual(1000)
  })
})

describe('the text of a session', () => {
  const piece = (events: readonly SessionEvent[], type: 'read' | 'written'): string =>
    events.flatMap((event) => (event.type === type ? event.text : [])).join('')

  test('has each token with its surprisal, characters whole, wherever records and runs end', async () => {
    const parts = ['Über ', 'den Ω', ' — fin']
    const bytes = Buffer.from('ü')
    await post('text', [
      { type: 'open', surprisal: true },
      ...parts.map((text) => ({ type: 'text', text })),
      // A character in two records.
      { type: 'text', bytes: bytes.subarray(0, 1).toString('base64') },
      { type: 'text', bytes: bytes.subarray(1).toString('base64') },
      { type: 'generate', requestId: 'r', maxTokens: 40, seed: 2 },
    ])
    // What was read and what was written come from two topics, each in its own time.
    const seen: SessionEvent[] = []
    const events = await taken<SessionEvent>('/v1/console/sessions/text/events', (event) => {
      seen.push(event)
      const ended = seen.some((each) => each.type === 'written' && each.finish !== null)
      return ended && piece(seen, 'read').endsWith('ü')
    })
    const read = events.filter((event) => event.type === 'read')
    expect(piece(events, 'read')).toBe(`${parts.join('')}ü`)
    const nats = read.flatMap((event) => event.nats!)
    expect(nats).toHaveLength(Buffer.byteLength(`${parts.join('')}ü`))
    expect(nats[0]).toBeNull()
    expect(nats.slice(1).every((each) => each !== null && each >= 0)).toBe(true)
    const written = events.filter((event) => event.type === 'written')
    expect(written.flatMap((event) => event.nats)).toHaveLength(40)
    expect(written.map(({ from, to }) => to - from)).toEqual([16, 16, 8])
    // What tokens are to the reader is what the topic has as text.
    const topic = await taken<{ text: string; finish: string | null }>(
      '/v1/sessions/text/tokens?from=beginning',
      (event) => event.finish === 'length',
    )
    expect(piece(events, 'written')).toBe(
      topic
        .slice(1)
        .map(({ text }) => text)
        .join(''),
    )
  })

  test('comes as a whole where the session does not tell its surprisal', async () => {
    await post('untold', { type: 'text', text: 'Nothing is told.' })
    const [, event] = await taken<SessionEvent>('/v1/console/sessions/untold/events', ({ type }) => type === 'read')
    expect(event).toMatchObject({ type: 'read', from: 0, to: 16, text: ['Nothing is told.'], nats: null })
    expect((event as { mean: number }).mean).toBeGreaterThan(0)
  })

  test('brings the norms of the memory once a snapshot was written', async () => {
    await post('norms', { type: 'text', text: 'x'.repeat(300) })
    const events = await taken<SessionEvent>('/v1/console/sessions/norms/events', ({ type }) => type === 'memory')
    const last = events.at(-1) as Extract<SessionEvent, { type: 'memory' }>
    expect(last.pulse).toBeGreaterThanOrEqual(128)
    expect(last.norms.length).toBeGreaterThan(5)
    expect(last.norms.every(({ norm }) => norm !== null && norm > 0)).toBe(true)
  })
})

describe('dead letters', () => {
  interface Letters {
    readonly letters: readonly {
      readonly session: string
      readonly partition: number
      readonly offset: number
      readonly reason: string
      readonly text: string
    }[]
  }
  test('are listed with their reasons, newest first, and one is sent again', async () => {
    await post('dead', { type: 'generate', requestId: 'r', maxTokens: 3 })
    const letters = async () => (await ask<Letters>(at('/v1/console/deadletters'))).body.letters
    await expect.poll(async () => (await letters())[0]?.session, { timeout: 30_000 }).toBe('dead')
    const [letter] = await letters()
    expect(letter).toMatchObject({ reason: expect.stringContaining('nothing to continue') })
    expect(JSON.parse(letter!.text)).toMatchObject({ type: 'generate', requestId: 'r' })
    const { partition, offset } = letter!
    const replayed = await ask(at('/v1/console/deadletters/replay'), { partition, offset })
    expect(replayed).toMatchObject({ status: 202, body: { partition } })
    await expect
      .poll(async () => (await letters()).filter(({ session }) => session === 'dead').length, { timeout: 30_000 })
      .toBe(2)
  })

  test.each([
    ['a partition that is not there', { partition: 9, offset: 0 }],
    ['an offset that is not there', { partition: 0, offset: 99_999 }],
    ['no place', { partition: 0 }],
    ['an unknown member', { partition: 0, offset: 0, all: true }],
  ])('with %s are refused with a sentence', async (_, place) => {
    const refused = await ask<Refused>(at('/v1/console/deadletters/replay'), place)
    expect(refused.status).toBe(400)
    expect(refused.body.error.message).toMatch(/^.*\w.*\.$/)
  })
})

describe('the files of the page', () => {
  test('come with a policy that lets in nothing from elsewhere and nothing inline', async () => {
    const response = await fetch(at('/'))
    expect(response.headers.get('content-type')).toBe('text/html; charset=utf-8')
    const policy = response.headers.get('content-security-policy')!
    expect(policy).toContain("default-src 'none'")
    expect(policy).not.toContain('unsafe')
    const page = await response.text()
    expect(page).not.toMatch(/https?:\/\/|<style|<script>| style=| on\w+=/)
    const files = [...page.matchAll(/(?:src|href)="(\/[^"]+)"/g)].map(([, path]) => path!)
    expect(files).toContain('/console/main.js')
    for (const path of files) expect((await fetch(at(path))).status, path).toBe(200)
    const again = await fetch(at('/console/main.js'), {
      headers: { 'if-none-match': (await fetch(at('/console/main.js'))).headers.get('etag')! },
    })
    expect(again.status).toBe(304)
    expect((await fetch(at('/console/tsconfig.json'))).status).toBe(404)
    expect((await fetch(at('/console/..%2fgateway%2fserver.ts'))).status).toBe(404)
  })

  test('need no key, and what they are told does', { tags: 'slow' }, async () => {
    const keys = `${temporary()}/keys.json`
    const { out } = await continuo(['keys', 'add', 'me', '--keys', keys])
    const [key] = /ck_\S+/.exec(out)!
    const guarded = await servingAll((end) => ends.push(end), '--keys', keys)
    expect((await fetch(`${guarded.url}/`)).status).toBe(200)
    for (const path of ['/v1/console/events', '/v1/console/deadletters', '/v1/console/sessions/s/events'])
      expect((await fetch(`${guarded.url}${path}`)).status, path).toBe(401)
    expect((await ask(`${guarded.url}/v1/console/verify`, {})).status).toBe(401)
    const headers = { authorization: `Bearer ${key}` }
    expect((await fetch(`${guarded.url}/v1/console/deadletters`, { headers })).status).toBe(200)
  })
})
