/**
 * `Idempotency-Key`: what is asked twice is done once and answered twice, whoever is asked, whatever ended meanwhile.
 */
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { Generated } from '../../topics/tokens.ts'
import { continuo, MODEL, type Running, recordsOf, start, temporary, valuesOf } from '../cli/helpers.ts'
import { ask, endWithTest, eventsOf, inSession, logIn, type Refused, type Serving, serving } from './helpers.ts'

const log = logIn(temporary())
let one: Serving
let other: Serving

beforeAll(async () => {
  const flags = ['--model-name', 'm', '--rate-limit', '0']
  one = await serving(log, ...flags, '--with-worker', '--threads', '1', '--commit-interval', '5')
  other = await serving(log, ...flags)
})
afterAll(async () => {
  for (const { child } of [one, other]) child.kill('SIGTERM')
  await Promise.all([one.done, other.done])
  const { out } = await continuo(['verify', '--log', log, '--model', MODEL])
  expect(out).toContain('Everything agrees.')
})

const keyed = (key: string, more: Readonly<Record<string, string>> = {}) => ({ 'idempotency-key': key, ...more })
const prompt = 'The harbour master wrote'
const completion = { model: 'm', prompt, max_tokens: 12, temperature: 1 }
const chat = { model: 'm', messages: [{ role: 'user', content: 'What is new?' }], max_tokens: 12, temperature: 1 }
const response = { model: 'm', input: 'What is new?', max_output_tokens: 12, temperature: 1 }
const message = { model: 'm', messages: [{ role: 'user', content: 'What is new?' }], max_tokens: 12 }

/** Requests in the input topic that a worker took, by their ids. */
const generatedIn = async (): Promise<ReadonlyMap<string, number>> => {
  const counts = new Map<string, number>()
  for (const { requestId, ids } of valuesOf<Generated>(await recordsOf(log, 'continuo.tokens')))
    counts.set(requestId, (counts.get(requestId) ?? 0) + ids.length)
  return counts
}

describe('a request with a key', () => {
  test.each([
    ['/v1/completions', completion],
    ['/v1/chat/completions', chat],
    ['/v1/responses', response],
    ['/v1/responses', { ...response, store: false }],
    ['/v1/messages', message],
  ] as const)('of %s has its first answer again, from any gateway', async (path, body) => {
    const key = keyed(`once-${path}-${JSON.stringify(body).length}`)
    const before = (await generatedIn()).size
    const first = await ask(`${one.url}${path}`, body, key)
    expect([first.status, first.headers.get('idempotency-replayed')]).toEqual([200, null])
    for (const gateway of [one, other, one]) {
      const again = await ask(`${gateway.url}${path}`, body, key)
      expect(again.body).toEqual(first.body)
      expect(again.headers.get('idempotency-replayed')).toBe('true')
      expect(again.headers.get('x-seed')).toBe(first.headers.get('x-seed'))
      expect(again.headers.get('x-session')).toBe(first.headers.get('x-session'))
    }
    expect((await generatedIn()).size).toBe(before + 1)
    // Another key is another request, whose seed is drawn anew.
    const elsewhere = await ask(`${one.url}${path}`, body, keyed(`${key['idempotency-key']}-2`))
    expect(elsewhere.body).not.toEqual(first.body)
  })

  test('that is sent to several gateways at once is answered by one answer', async () => {
    const before = (await generatedIn()).size
    const all = await Promise.all(
      Array.from({ length: 12 }, (_, at) =>
        ask(`${[one, other][at % 2]!.url}/v1/completions`, { ...completion, max_tokens: 40 }, keyed('at once')),
      ),
    )
    expect(new Set(all.map(({ status }) => status))).toEqual(new Set([200]))
    expect(new Set(all.map(({ body }) => JSON.stringify(body))).size).toBe(1)
    expect((await generatedIn()).size).toBe(before + 1)
  })

  test('of a stream has the same events again, and goes on without its client', async () => {
    const body = JSON.stringify({ ...chat, max_tokens: 200, stream: true, stream_options: { include_usage: true } })
    const request = (signal?: AbortSignal) =>
      fetch(`${one.url}/v1/chat/completions`, {
        method: 'POST',
        headers: { 'content-type': 'application/json', ...keyed('a stream') },
        body,
        ...(signal && { signal }),
      })
    const seen: string[] = []
    const leaving = new AbortController()
    try {
      for await (const { data } of eventsOf(await request(leaving.signal))) {
        seen.push(data)
        if (seen.length === 5) leaving.abort()
      }
    } catch {
      // The client has left.
    }
    const whole: string[] = []
    for await (const { data } of eventsOf(await request())) whole.push(data)
    expect(whole.slice(0, 5)).toEqual(seen.slice(0, 5))
    expect(JSON.parse(whole.at(-2)!)).toMatchObject({ usage: { completion_tokens: expect.any(Number) } })
    const again: string[] = []
    for await (const { data } of eventsOf(await request())) again.push(data)
    expect(again).toEqual(whole)
  })

  test('in a session that lasts is a turn of it once', async () => {
    const session = inSession('lasting').headers
    const turn = (gateway: Serving, key: string) =>
      ask<{ choices: readonly unknown[] }>(`${gateway.url}/v1/chat/completions`, chat, keyed(key, session))
    const first = await turn(one, 'turn 1')
    const second = await turn(one, 'turn 2')
    expect((await turn(other, 'turn 1')).body).toEqual(first.body)
    expect((await turn(other, 'turn 2')).body).toEqual(second.body)
    const { body } = await ask<{ generated: number }>(`${one.url}/v1/sessions/lasting`)
    expect(body.generated).toBeLessThanOrEqual(24)
  })

  test('is refused again where it was refused, and for another body', async () => {
    const wrong = { ...completion, grammar: { type: 'regex', pattern: 'a(?=b)c' } }
    const [first, again] = [
      await ask<Refused>(`${one.url}/v1/completions`, wrong, keyed('refused')),
      await ask<Refused>(`${other.url}/v1/completions`, wrong, keyed('refused')),
    ]
    expect(first.status).toBe(400)
    expect(again.body).toEqual(first.body)

    await ask(`${one.url}/v1/completions`, completion, keyed('mine'))
    const reused = await ask<Refused>(`${other.url}/v1/completions`, { ...completion, max_tokens: 13 }, keyed('mine'))
    expect(reused.status).toBe(422)
    expect(reused.body.error).toMatchObject({ code: 'idempotency_key_reused', param: 'idempotency-key' })
    const long = await ask<Refused>(`${one.url}/v1/completions`, completion, keyed('x'.repeat(256)))
    expect([long.status, long.body.error.param]).toEqual([400, 'idempotency-key'])
    for (const more of [{ n: 2 }, { echo: true }]) {
      const told = await ask<Refused>(`${one.url}/v1/completions`, { ...completion, ...more }, keyed('several'))
      expect([told.status, told.body.error.code]).toEqual([400, 'unsupported_parameter'])
    }
    const large = { ...completion, prompt: 'x'.repeat(1_000_000) }
    expect((await ask(`${one.url}/v1/completions`, large, keyed('large'))).status).toBe(413)
  })

  test('with OpenAI’s client', async () => {
    const client = new OpenAI({ baseURL: `${one.url}/v1`, apiKey: 'none', maxRetries: 0 })
    const create = () =>
      client.chat.completions.create(chat as never, {
        idempotencyKey: 'by the client',
        headers: keyed('by the client'),
      })
    expect(await create()).toEqual(await create())
  })
})

describe('events of our own', () => {
  test('are taken once, and answered with where they are', async () => {
    const events = [
      { type: 'text', text: 'Once upon a time ' },
      { type: 'generate', maxTokens: 5, seed: 1 },
    ]
    const post = (gateway: Serving) => ask(`${gateway.url}/v1/sessions/told/chunks`, events, keyed('told'))
    const first = await post(one)
    expect(first.status).toBe(202)
    for (const gateway of [one, other]) {
      const again = await post(gateway)
      expect(again.body).toEqual(first.body)
      expect(again.headers.get('idempotency-replayed')).toBe('true')
    }
    const both = await Promise.all(
      [one, other].map((gateway) => ask(`${gateway.url}/v1/sessions/both/chunks`, events, keyed('x'))),
    )
    expect(both[0]!.body).toEqual(both[1]!.body)
    await expect
      .poll(async () => (await ask<{ tokens: number }>(`${one.url}/v1/sessions/both`)).body.tokens, { timeout: 30_000 })
      .toBe(17)
    const ended = await ask<Refused>(`${one.url}/v1/sessions/told/chunks`, { type: 'delete' }, keyed('ended'))
    expect(ended.status).toBe(400)
  })

  test('fork a session once, also where the fork has no name', async () => {
    const post = (body: object, key: string) =>
      ask<{ session: string; from: object }>(`${one.url}/v1/sessions/told/fork`, body, keyed(key))
    for (const body of [{}, { session: 'told-again' }]) {
      const first = await post(body, `fork ${JSON.stringify(body)}`)
      expect([first.status, first.body.from]).toEqual([201, { session: 'told', pulse: expect.any(Number) }])
      expect((await post(body, `fork ${JSON.stringify(body)}`)).body).toEqual(first.body)
    }
    const taken = await post({ session: 'told-again' }, 'another')
    expect(taken.status).toBe(400)
  })
})

test('the gateway and the worker die behind the request: the next ones give its answer', { tags: 'slow' }, async () => {
  const place = logIn(temporary())
  const worker = (): Running => start(['run', '--log', place, '--model', MODEL, '--commit-interval', '5'])
  const front = () => serving(place, '--model-name', 'm')
  const first = worker()
  endWithTest(first)
  // It makes the log; a gateway before a log that is not there ends.
  await first.saw(/"state":"running"/)
  const gateway = await front()
  endWithTest(gateway)
  const known = await ask(`${gateway.url}/v1/completions`, completion, keyed('known'))
  first.child.kill('SIGKILL')
  await first.done
  // In the log, and nobody answers.
  const lost = ask(`${gateway.url}/v1/completions`, { ...completion, max_tokens: 30 }, keyed('lost')).catch(() => null)
  await expect.poll(async () => (await recordsOf(place, 'continuo.chunks')).length, { timeout: 30_000 }).toBe(6)
  gateway.child.kill('SIGKILL')
  expect(await lost).toBeNull()
  const [second, next] = [worker(), await front()]
  endWithTest(second, next)
  const again = await ask(`${next.url}/v1/completions`, { ...completion, max_tokens: 30 }, keyed('lost'))
  expect(again.status).toBe(200)
  expect((await ask(`${next.url}/v1/completions`, { ...completion, max_tokens: 30 }, keyed('lost'))).body).toEqual(
    again.body,
  )
  expect((await ask(`${next.url}/v1/completions`, completion, keyed('known'))).body).toEqual(known.body)
  const tokens = valuesOf<Generated>(await recordsOf(place, 'continuo.tokens'))
  expect(new Set(tokens.map(({ requestId }) => requestId)).size).toBe(2)
})
