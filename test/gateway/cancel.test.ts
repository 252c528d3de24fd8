/** A client that goes away ends its answer, unless that can be had later; and an answer that somebody else cancels. */
import OpenAI from 'openai'
import { afterAll, beforeAll, expect, test } from 'vitest'
import type { Generated } from '../../topics/tokens.ts'
import { temporary } from '../cli/helpers.ts'
import { ask, endWithTest, eventsOf, inSession, logIn, type Serving, serving } from './helpers.ts'

/** More than a worker makes before a test is over. */
const LONG = 60_000
const log = logIn(temporary())
let gateway: Serving
let client: OpenAI

beforeAll(async () => {
  gateway = await serving(log, '--with-worker', '--threads', '1', '--commit-interval', '5')
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', maxRetries: 0 })
})
afterAll(async () => {
  gateway.child.kill('SIGTERM')
  await gateway.done
})

/** The runs of a session's first request, to its end or to what `isEnough` says. */
const runsOf = async (
  session: string,
  isEnough: (run: Generated) => boolean = ({ finish }) => finish !== null,
): Promise<Generated[]> => {
  const leaving = new AbortController()
  const url = `${gateway.url}/v1/sessions/${session}/tokens?from=beginning`
  const runs: Generated[] = []
  for await (const { event, data } of eventsOf(await fetch(url, { signal: leaving.signal }))) {
    if (event !== 'message') continue
    runs.push(JSON.parse(data) as Generated)
    if (isEnough(runs.at(-1)!)) break
  }
  leaving.abort()
  return runs
}
const prompt = { model: 'demo', prompt: 'The harbour master ', max_tokens: LONG, seed: 4 }
const leave = async (url: string, body: object, session: string, pieces: number): Promise<Response> => {
  const leaving = new AbortController()
  const response = await fetch(`${url}/v1/completions`, {
    method: 'POST',
    body: JSON.stringify({ ...body, stream: true }),
    headers: { 'content-type': 'application/json', 'x-session': session },
    signal: leaving.signal,
  })
  let seen = 0
  for await (const _ of eventsOf(response)) {
    seen += 1
    if (seen === pieces) break
  }
  leaving.abort()
  return response
}

test('a stream has each token by itself, and ends when its client goes; the session goes on behind it', async () => {
  await leave(gateway.url, prompt, 'left', 5)
  const next = await client.completions.create({ ...prompt, prompt: ' and', max_tokens: 3 }, inSession('left'))
  expect(next.usage).toMatchObject({ prompt_tokens: 4, completion_tokens: 3 })
  const runs = await runsOf('left')
  const { finish, ids, index } = runs.at(-1)!
  expect({ finish, ids }).toEqual({ finish: 'cancelled', ids: [] })
  expect(index).toBeGreaterThan(4)
  expect(index).toBeLessThan(LONG)
  expect(runs.slice(0, -1).every(({ ids }) => ids.length === 1)).toBe(true)
})

test('a session of its own is closed behind an answer that its client left', async () => {
  const response = await client.chat.completions
    .create({ model: 'demo', messages: [{ role: 'user', content: 'x' }], max_tokens: LONG, stream: true })
    .withResponse()
  const session = response.response.headers.get('x-session')!
  for await (const _ of response.data) break
  expect((await runsOf(session)).at(-1)).toMatchObject({ finish: 'cancelled' })
  const closed = `${gateway.url}/v1/sessions/${session}/observations?from=beginning`
  for await (const { data } of eventsOf(await fetch(closed))) if (data.includes('"type":"closed"')) break
})

test('an answer that is given whole ends, too', async () => {
  const leaving = new AbortController()
  const asked = client.completions.create(prompt, { ...inSession('whole'), signal: leaving.signal }).catch(() => 'left')
  const [first] = await runsOf('whole', () => true)
  expect(first!.ids).toHaveLength(16)
  leaving.abort()
  expect(await asked).toBe('left')
  expect((await runsOf('whole')).at(-1)).toMatchObject({ finish: 'cancelled' })
})

test('a response that is kept goes on without its client, until it is cancelled by its id', {
  tags: 'slow',
}, async () => {
  const asked = { model: 'demo', input: 'What did the harbour master see?', max_output_tokens: LONG }
  let id = ''
  for await (const event of await client.responses.create({ ...asked, stream: true })) {
    if (event.type === 'response.created') id = event.response.id
    if (event.type === 'response.output_text.delta') break
  }
  let seen = 0
  const kinds: string[] = []
  let cancelled: unknown
  for await (const event of await client.responses.retrieve(id, { stream: true })) {
    kinds.push(event.type)
    if (event.type !== 'response.output_text.delta') continue
    seen += 1
    // The gateway had time to end it.
    if (seen === 300) cancelled = client.responses.cancel(id)
  }
  const response = (await cancelled) as OpenAI.Responses.Response
  expect(response).toMatchObject({ id, status: 'cancelled', output: [{ status: 'incomplete' }], error: null })
  expect(response.usage!.output_tokens).toBeGreaterThanOrEqual(300)
  expect(kinds.at(-1)).toBe('response.incomplete')
  expect(await client.responses.cancel(id)).toEqual(response)
  expect(await client.responses.retrieve(id)).toMatchObject(response)
  // What was over before stays what it is.
  const short = await client.responses.create({ ...asked, max_output_tokens: 3 })
  expect(await client.responses.cancel(short.id)).toMatchObject({ status: 'incomplete' })
  expect((await ask(`${gateway.url}/v1/responses/resp_x/cancel`, {})).status).toBe(404)

  const gone = await client.responses.create({ ...asked, stream: true, store: false }, inSession('unkept'))
  for await (const event of gone) if (event.type === 'response.output_text.delta') break
  expect((await runsOf('unkept')).at(-1)).toMatchObject({ finish: 'cancelled' })
})

test('a cancel among the events of a session ends an answer, whose client is told "stop"', async () => {
  const asked = client.completions.create(prompt, inSession('ended'))
  const [{ requestId }] = (await runsOf('ended', () => true)) as [Generated]
  const sent = await ask(`${gateway.url}/v1/sessions/ended/chunks`, { type: 'cancel', requestId })
  expect(sent.status).toBe(202)
  const { choices, usage } = await asked
  expect(choices[0]).toMatchObject({ finish_reason: 'stop' })
  expect(usage!.completion_tokens % 16).toBe(0)
})

test('with --no-cancel an answer is made to its end', { tags: 'slow' }, async () => {
  const other = await serving(log, '--no-cancel')
  endWithTest(other)
  await leave(other.url, { ...prompt, max_tokens: 500 }, 'kept', 3)
  expect((await runsOf('kept')).at(-1)).toMatchObject({ finish: 'length' })
})
