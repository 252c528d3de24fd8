/** The gateway's own routes: sessions, events into them, and streams that go on where a client was. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Generated } from '../../topics/tokens.ts'
import { ask, type Event, eventsOf, messages, type Refused, type Serving, servingAll } from './helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
beforeAll(async () => {
  gateway = await servingAll((end) => ends.push(end), '--partitions', '2')
})
afterAll(() => Promise.all(ends.map((end) => end())))

const at = (path: string): string => `${gateway.url}${path}`
interface Placed {
  readonly partition: number
  readonly offsets: readonly number[]
  readonly requestIds?: readonly string[]
  readonly starting_after: string
  readonly tokens: string
}
const post = (id: string, events: unknown) => ask<Placed>(at(`/v1/sessions/${encodeURIComponent(id)}/chunks`), events)
const runsOf = (events: readonly Event[]): Generated[] => events.map(({ data }) => JSON.parse(data) as Generated)

test('is alive and ready', async () => {
  expect((await ask(at('/healthz'))).body).toEqual({ alive: true })
  await expect.poll(async () => (await ask(at('/readyz'))).body).toEqual({ ready: true })
})

describe('events', () => {
  test('of every kind go into the log, and the head says what became of them', async () => {
    const sent = await post('kinds', [
      { type: 'open', surprisal: true },
      { type: 'text', text: 'It was high water' },
      { type: 'tokens', tokens: [32, 97, 116] },
      { type: 'generate', maxTokens: 5, seed: 1 },
      { type: 'boundary', reset: true },
      { type: 'text', bytes: Buffer.from(' nine').toString('base64') },
      { type: 'close' },
    ])
    expect(sent.status).toBe(202)
    expect(sent.body.offsets).toHaveLength(7)
    expect(sent.body.requestIds).toHaveLength(1)
    await expect
      .poll(async () => (await ask(at('/v1/sessions/kinds'))).body)
      .toMatchObject({
        session: 'kinds',
        status: 'closed',
        tokens: 25,
        generated: 5,
        pulse: 30,
        origin: 25,
        generating: false,
      })
    const observed = await messages(at('/v1/sessions/kinds/observations?from=beginning'), 2)
    expect(observed.map(({ data }) => (JSON.parse(data) as { type: string }).type)).toEqual(['opened', 'observed'])
  })

  test('one alone needs no list', async () => {
    expect((await post('alone', { type: 'text', text: 'x' })).status).toBe(202)
  })

  test.each([
    ['no event', 'x', 'expected a json object'],
    ['no list of events', [], '1 to 1000 events'],
    ['an unknown type', { type: 'cancle' }, 'an event type of'],
    ['an unknown field', { type: 'text', text: 'x', txet: 'y' }, '"text" event has the fields'],
    ['a value out of range', { type: 'generate', maxTokens: 0 }, 'maxtokens'],
    ['an id beyond the vocabulary', { type: 'tokens', tokens: [256] }, '0 to 255'],
    ['a text that no record takes', { type: 'text', text: 'x'.repeat(1_000_000) }, 'cut it into several'],
  ])('that are %s are refused with a sentence, and none is sent', async (_, event, part) => {
    const refused = await ask<Refused>(
      at('/v1/sessions/refused/chunks'),
      Array.isArray(event) ? event : [{ type: 'text', text: 'a' }, event],
    )
    expect(refused.status).toBeGreaterThanOrEqual(400)
    expect(refused.status).toBeLessThan(500)
    expect(refused.body.error.message.toLowerCase()).toContain(part)
    expect((await ask(at('/v1/sessions/refused'))).status).toBe(404)
  })

  test('that the worker refuses are among the dead letters of the session', async () => {
    await post('dead', { type: 'generate', requestId: 'r', maxTokens: 4 })
    const [letter] = await messages(at('/v1/sessions/dead/deadletters?from=beginning'), 1)
    expect(JSON.parse(letter!.data)).toMatchObject({
      session: 'dead',
      reason: expect.stringContaining('nothing to continue'),
    })
  })
})

test('sessions come in pages, in order, and by status', async () => {
  const ids = ['p-1', 'p-2', 'p-3', 'p-4', 'p-5']
  for (const id of ids) await post(id, [{ type: 'text', text: id }, ...(id === 'p-3' ? [{ type: 'close' }] : [])])
  interface Page {
    readonly sessions: readonly { readonly session: string; readonly status: string }[]
    readonly next: string | null
  }
  const page = async (query: string): Promise<Page> => (await ask<Page>(at(`/v1/sessions?${query}`))).body
  await expect.poll(async () => (await page('after=p-')).sessions.length).toBeGreaterThanOrEqual(5)
  const seen: string[] = []
  let pages = 0
  for (let after: string | null = 'p-'; after !== null; pages += 1) {
    const { sessions, next } = await page(`limit=2&after=${after}`)
    seen.push(...sessions.map(({ session }) => session))
    after = next
  }
  expect(seen.filter((id) => id.startsWith('p-'))).toEqual(ids)
  expect(pages).toBeGreaterThanOrEqual(3)
  const closed = (await page('status=closed')).sessions.map(({ session }) => session)
  expect(closed).toContain('p-3')
  expect(closed).not.toContain('p-2')
})

describe('a stream of tokens', () => {
  test('has every token once, in order, for a client that comes again after each one', async () => {
    const sent = await post('again', [
      { type: 'text', text: 'Once' },
      { type: 'generate', maxTokens: 100, seed: 5 },
    ])
    const whole = runsOf(await messages(at(sent.body.tokens), 7))
    expect(whole.flatMap(({ ids }) => ids)).toHaveLength(100)
    expect(whole.map(({ index }) => index)).toEqual([0, 16, 32, 48, 64, 80, 96])
    const pieces: Generated[] = []
    let last = sent.body.starting_after
    for (let turn = 0; turn < 7; turn += 1) {
      const [event] = await messages(at('/v1/sessions/again/tokens'), 1, { 'last-event-id': last })
      pieces.push(...runsOf([event!]))
      last = event!.id!
    }
    expect(pieces).toEqual(whole)
  })

  test('begins with the position, before there is any token', async () => {
    const leaving = new AbortController()
    const response = await fetch(at('/v1/sessions/quiet/tokens'), { signal: leaving.signal })
    const first = await eventsOf(response).next()
    expect(first.value).toMatchObject({ event: 'position', id: expect.stringMatching(/^[01]:-?\d+$/) })
    leaving.abort()
  })

  test('has no token of another session', async () => {
    const generate = (seed: number) => [
      { type: 'text', text: `${seed}` },
      { type: 'generate', maxTokens: 32, seed },
    ]
    await Promise.all([1, 2, 3, 4, 5, 6].map((seed) => post(`mixed-${seed}`, generate(seed))))
    for (const seed of [1, 2, 3, 4, 5, 6]) {
      const runs = runsOf(await messages(at(`/v1/sessions/mixed-${seed}/tokens?from=beginning`), 2))
      expect(runs.every(({ session }) => session === `mixed-${seed}`)).toBe(true)
    }
  })

  test.each([
    ['no position', 'x', 400],
    ['one of another partition', '9:0', 400],
    ['one beyond the end', '0:999999', 400],
  ])('that starts after %s is refused', async (_, position, status) => {
    const session = (await post('zero', { type: 'text', text: 'x' })).body.partition === 0 ? 'zero' : 'p-1'
    const id =
      (await post(session, { type: 'text', text: 'x' })).body.partition === 0 ? position : position.replace(/^0/, '1')
    const refused = await ask<Refused>(at(`/v1/sessions/${session}/tokens`), undefined, { 'last-event-id': id })
    expect(refused.status).toBe(status)
    expect(refused.body.error.param).toBe('last-event-id')
  })
})

test('what is not there is said so', async () => {
  expect(await ask<Refused>(at('/v1/nothing'))).toMatchObject({ status: 404, body: { error: { code: 'not_found' } } })
  expect(await ask<Refused>(at('/v1/sessions/nobody'))).toMatchObject({
    status: 404,
    body: { error: { code: 'session_not_found' } },
  })
  expect((await ask(at(`/v1/sessions/${'x'.repeat(513)}`))).status).toBe(400)
})

describe('a session as a whole', () => {
  const at = (path: string): string => `${gateway.url}/v1/sessions/${path}`
  const remove = async (id: string) => {
    const response = await fetch(at(id), { method: 'DELETE' })
    return { status: response.status, body: (await response.json()) as Record<string, unknown> }
  }

  test('is forked, and the fork goes on from what its parent read', async () => {
    await ask(at('parent/chunks'), { type: 'text', text: 'The harbour master ' })
    const named = await ask(at('parent/fork'), { session: 'child', surprisal: true })
    expect(named.status).toBe(201)
    expect(named.body).toMatchObject({ session: 'child', pulse: 19, from: { session: 'parent', pulse: 19 } })
    expect((await ask(at('child'))).body).toEqual(named.body)
    const made = await ask(at('parent/fork'), {})
    expect(made.body).toMatchObject({ from: { session: 'parent' } })
  })

  test.each([
    ['of a session that is not there', 'nobody/fork', {}, 'no such session'],
    ['that is there already', 'parent/fork', { session: 'child' }, 'it is open'],
    ['with a setting that is none', 'parent/fork', { session: 'y', colour: 1 }, '"colour"'],
    ['that is no object', 'parent/fork', [1], 'a JSON object'],
  ])('cannot be a fork %s', async (_, path, body, said) => {
    const refused = await ask<Refused>(at(path), body)
    expect([refused.status, refused.body.error.message]).toEqual([400, expect.stringContaining(said)])
  })

  test('is deleted, and gone when the answer comes', async () => {
    await ask(at('short/chunks'), { type: 'text', text: 'x' })
    expect(await remove('short')).toEqual({ status: 200, body: { session: 'short', deleted: true } })
    expect((await fetch(at('short'))).status).toBe(404)
    const again = await remove('short')
    expect([again.status, (again.body as unknown as Refused).error.message]).toEqual([
      404,
      expect.stringContaining('has no session "short"'),
    ])
  })
})
