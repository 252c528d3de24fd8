/**
 * /v1/responses with the client that OpenAI publishes, across gateways: a response is found again by what its id says.
 */
import OpenAI from 'openai'
import { zodTextFormat } from 'openai/helpers/zod'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { temporary } from '../cli/helpers.ts'
import { ask, logIn, type Refused, type Serving, serving } from './helpers.ts'

let one: Serving
let other: Serving
let client: OpenAI
let elsewhere: OpenAI

beforeAll(async () => {
  const log = logIn(temporary())
  one = await serving(log, '--with-worker', '--threads', '1', '--commit-interval', '5')
  other = await serving(log)
  const clientOf = ({ url }: Serving) => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
  client = clientOf(one)
  elsewhere = clientOf(other)
})
afterAll(async () => {
  for (const { child } of [one, other]) child.kill('SIGTERM')
  await Promise.all([one.done, other.done])
})

const request = { model: 'demo', input: 'What did the harbour master see?', max_output_tokens: 100, temperature: 0 }
const statusOf = (call: Promise<unknown>): Promise<unknown> =>
  call.then(
    () => 200,
    (error: unknown) => (error instanceof OpenAI.APIError ? error.status : error),
  )

test('is whole, and found again by another gateway', async () => {
  const response = await client.responses.create({ ...request, instructions: 'Be brief.' })
  expect(response).toMatchObject({
    object: 'response',
    status: 'incomplete',
    incomplete_details: { reason: 'max_output_tokens' },
  })
  expect(response.output_text.length).toBeGreaterThan(50)
  expect(response.usage).toMatchObject({ output_tokens: 100, total_tokens: response.usage!.input_tokens + 100 })
  expect(await elsewhere.responses.retrieve(response.id)).toEqual(response)
})

test('has the likeliest tokens beside each where they were asked for, told again as they were told first', async () => {
  const asked = { ...request, top_logprobs: 2, include: ['message.output_text.logprobs' as const] }
  const response = await client.responses.create(asked)
  const [item] = response.output
  const [part] = item?.type === 'message' ? item.content : []
  const logprobs = part?.type === 'output_text' ? part.logprobs! : []
  expect(logprobs).toHaveLength(100)
  // Greedy: the first alternative is the token.
  for (const { token, logprob, top_logprobs: top } of logprobs) {
    expect(top).toHaveLength(2)
    expect(top[0]).toMatchObject({ token, logprob })
  }
  expect(await elsewhere.responses.retrieve(response.id)).toEqual(response)
  const listed: unknown[] = []
  for await (const event of await client.responses.create({ ...asked, stream: true }))
    if (event.type === 'response.output_text.delta') listed.push(...event.logprobs)
  expect(listed).toEqual(logprobs)
  expect(await statusOf(client.responses.create({ ...asked, top_logprobs: 0 }))).toBe(400)
})

describe('a stream', () => {
  test('is numbered, ends with the whole, and goes on at another gateway from any event', async () => {
    const events: OpenAI.Responses.ResponseStreamEvent[] = []
    for await (const event of await client.responses.create({ ...request, stream: true })) events.push(event)
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, at) => at))
    expect(events.map(({ type }) => type).filter((type) => type !== 'response.output_text.delta')).toEqual([
      'response.created',
      'response.in_progress',
      'response.output_item.added',
      'response.content_part.added',
      'response.output_text.done',
      'response.content_part.done',
      'response.output_item.done',
      'response.incomplete',
    ])
    const last = events.at(-1) as OpenAI.Responses.ResponseIncompleteEvent
    const text = events.map((event) => (event.type === 'response.output_text.delta' ? event.delta : '')).join('')
    expect(last.response.output).toMatchObject([{ content: [{ text }] }])
    for (const cut of [0, 3, 5, events.length - 2]) {
      const rest: OpenAI.Responses.ResponseStreamEvent[] = []
      const again = await elsewhere.responses.retrieve(last.response.id, { stream: true, starting_after: cut })
      for await (const event of again) rest.push(event)
      expect(rest).toEqual(events.slice(cut + 1))
    }
  })

  test('that its client left is gone on with while the answer is made', { tags: 'slow' }, async () => {
    const seen: OpenAI.Responses.ResponseStreamEvent[] = []
    let id = ''
    const whole = { ...request, max_output_tokens: 400 }
    for await (const event of await client.responses.create({ ...whole, stream: true })) {
      seen.push(event)
      if (event.type === 'response.created') id = event.response.id
      if (seen.length === 8) break
    }
    const more = await elsewhere.responses.retrieve(id, { stream: true, starting_after: seen.at(-1)!.sequence_number })
    for await (const event of more) seen.push(event)
    expect(seen.map(({ sequence_number }) => sequence_number)).toEqual(seen.map((_, at) => at))
    expect(seen.at(-1)).toMatchObject({ response: { usage: { output_tokens: 400 } } })
  })
})

test('of a form is parsed by the client, and completed', async () => {
  const watch = z.object({ bells: z.int().min(1).max(8), weather: z.enum(['fair', 'foul']) })
  const text = { format: zodTextFormat(watch, 'watch') }
  // Blanks are drawn as well, and at temperature 1 there may be many.
  const response = await client.responses.parse({ ...request, temperature: 1, max_output_tokens: 2000, text })
  expect(response).toMatchObject({ status: 'completed', incomplete_details: null })
  expect(watch.parse(response.output_parsed)).toEqual(JSON.parse(response.output_text))
  expect((await elsewhere.responses.retrieve(response.id)).output_text).toBe(response.output_text)
})

test('goes on after the one before, and only after the last', async () => {
  const first = await client.responses.create({ ...request, max_output_tokens: 20 })
  const second = await client.responses.create({
    ...request,
    input: 'And then?',
    max_output_tokens: 20,
    previous_response_id: first.id,
  })
  expect(second.usage!.input_tokens).toBeLessThan(first.usage!.input_tokens)
  const late = client.responses.create({ ...request, input: 'And then?', previous_response_id: first.id })
  expect(await statusOf(late)).toBe(409)
  const alone = await client.responses.create({ ...request, store: false, max_output_tokens: 20 })
  expect(alone.output_text).toBe(first.output_text)
  const closed = client.responses.create({ ...request, previous_response_id: alone.id })
  // 400 where the worker says so first.
  expect([400, 409]).toContain(await statusOf(closed))
})

test.each([
  ['resp_x', 404],
  ['x', 404],
  [`resp_${Buffer.from('["0123456789abcdef",7,0,0,0,0,"s"]').toString('base64url')}`, 404],
])('an id that is none is not found: %s', async (id, status) => {
  expect(await statusOf(client.responses.retrieve(id))).toBe(status)
  const follows = client.responses.create({ ...request, previous_response_id: id })
  expect([404, 409]).toContain(await statusOf(follows))
})

test.each([
  ['a tool of the server', { tools: [{ type: 'web_search' }] }, 'tools.0.type'],
  ['an effort', { reasoning: { effort: 'low' } }, 'reasoning'],
  ['a schema', { text: { format: { type: 'json_schema', name: 's', schema: { not: {} } } } }, 'text'],
  ['a conversation', { conversation: 'c' }, 'conversation'],
])('%s cannot be had', async (_, more, param) => {
  const refused = await ask<Refused>(`${one.url}/v1/responses`, { ...request, ...more })
  expect(refused.status).toBe(400)
  expect(refused.body.error.param).toBe(param)
})
