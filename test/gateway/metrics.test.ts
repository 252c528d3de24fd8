/** What a gateway says of itself: requests, answers under way, the time to the first token, tokens sent. */
import { afterAll, beforeAll, expect, test } from 'vitest'
import { continuo, temporary } from '../cli/helpers.ts'
import { ask, eventsOf, logIn, messages, type Serving, serving, servingAll } from './helpers.ts'

const scrape = async (gateway: Pick<Serving, 'url'>, headers: Readonly<Record<string, string>> = {}) => {
  const response = await fetch(`${gateway.url}/metrics`, { headers })
  const text = await response.text()
  /** The value of a sample; 0 where there is none. */
  const value = (sample: string): number =>
    Number(
      text
        .split('\n')
        .find((line) => line.startsWith(`${sample} `))
        ?.slice(sample.length + 1) ?? 0,
    )
  return { status: response.status, type: response.headers.get('content-type'), text, value }
}

const completion = (url: string, more: object = {}) =>
  ask(`${url}/v1/completions`, { model: 'demo', prompt: 'The sea ', max_tokens: 20, seed: 1, ...more })

let gateway: Serving
beforeAll(async () => {
  gateway = await servingAll(afterAll)
})

test('requests are counted by the pattern of their route, streams when they are over', async () => {
  expect((await completion(gateway.url)).status).toBe(200)
  expect((await completion(gateway.url, { max_tokens: 0 })).status).toBe(400)
  await ask(`${gateway.url}/v1/sessions/secret-name`)
  await ask(`${gateway.url}/secret/path`)
  // A request is counted once its answer was handed over, which a client may see first.
  const lost = 'continuo_gateway_requests_total{route="none",method="GET",status="404"}'
  await expect.poll(async () => (await scrape(gateway)).value(lost), { timeout: 10_000 }).toBe(1)
  const { status, type, text, value } = await scrape(gateway)
  expect(status).toBe(200)
  expect(type).toMatch(/^text\/plain; version=0\.0\.4/)
  const requests = (route: string, method: string, code: number): number =>
    value(`continuo_gateway_requests_total{route="${route}",method="${method}",status="${code}"}`)
  expect(requests('/v1/completions', 'POST', 200)).toBe(1)
  expect(requests('/v1/completions', 'POST', 400)).toBe(1)
  expect(requests('/v1/sessions/:id', 'GET', 404)).toBe(1)
  expect(text).not.toContain('secret')
})

test('tokens sent and the time to the first one are counted by route', async () => {
  const before = await scrape(gateway)
  const response = await fetch(`${gateway.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-session': 'counted' },
    body: JSON.stringify({ model: 'demo', prompt: 'The sea ', max_tokens: 40, seed: 1, stream: true }),
  })
  for await (const { data } of eventsOf(response)) expect(data).not.toContain('error')
  expect(await messages(`${gateway.url}/v1/sessions/counted/tokens?from=beginning`, 3)).toHaveLength(3)
  await expect
    .poll(async () => (await scrape(gateway)).value('continuo_gateway_open{kind="stream"}'), { timeout: 10_000 })
    .toBe(0)
  const after = await scrape(gateway)
  const more = (sample: string): number => after.value(sample) - before.value(sample)
  expect(more('continuo_gateway_tokens_sent_total{route="/v1/completions"}')).toBe(40)
  expect(more('continuo_gateway_first_token_seconds_count{route="/v1/completions"}')).toBe(1)
  expect(more('continuo_gateway_first_token_seconds_sum{route="/v1/completions"}')).toBeGreaterThan(0)
  // The client left when it had seen the last of three records; whether that one was counted by then is open.
  expect([32, 40]).toContain(more('continuo_gateway_tokens_sent_total{route="/v1/sessions/:id/tokens"}'))
})

test('a stream counts as open until its client leaves', async () => {
  const open = async () => (await scrape(gateway)).value('continuo_gateway_open{kind="stream"}')
  const before = await open()
  const leaving = new AbortController()
  const response = await fetch(`${gateway.url}/v1/sessions/x/tokens`, { signal: leaving.signal })
  await eventsOf(response).next()
  expect(await open()).toBe(before + 1)
  leaving.abort()
  await expect.poll(open, { timeout: 10_000 }).toBe(before)
})

test('where there are keys a scrape takes one, and is no request of its rate', { tags: 'slow' }, async () => {
  const folder = temporary()
  const keys = `${folder}/keys.json`
  const key = (await continuo(['keys', 'add', 'prometheus', '--keys', keys])).out.trim()
  const log = logIn(folder)
  expect((await continuo(['topics', 'apply', '--log', log])).code).toBe(0)
  const guarded = await serving(log, '--keys', keys, '--rate-limit', '2')
  try {
    expect((await scrape(guarded)).status).toBe(401)
    for (let at = 0; at < 4; at += 1)
      expect((await scrape(guarded, { authorization: `Bearer ${key}` })).status).toBe(200)
    const { text } = await scrape(guarded, { authorization: `Bearer ${key}` })
    expect(text).toContain('continuo_gateway_requests_total{route="/metrics",method="GET",status="401"} 1')
    expect(text).not.toContain(key)
  } finally {
    guarded.child.kill('SIGKILL')
    await guarded.done
  }
})
