/**
 * Several answers to one prompt: each is the one that its seed gives alone, and the prompt is read once.
 *
 * @module-tag slow
 */
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { temporary } from '../cli/helpers.ts'
import { openFamily } from '../families.ts'
import { ask, eventsOf, inSession, type Refused, type Serving, servingAll } from './helpers.ts'
import { servingTools } from './tool-servers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
let hermes: Serving
let client: OpenAI
beforeAll(async () => {
  const finished = (end: () => Promise<unknown>) => ends.push(end)
  ;[gateway, hermes] = await servingTools(finished)
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', maxRetries: 0 })
})
afterAll(() => Promise.all(ends.map((end) => end())))

const prompt = { model: 'demo', prompt: 'The harbour master ', max_tokens: 16, temperature: 0.9, seed: 7 }
const chat = {
  ...{ model: 'demo', max_tokens: 16, temperature: 0.9, seed: 7 },
  messages: [{ role: 'user' as const, content: 'What is new?' }],
}
const sessions = async () =>
  (
    await ask<{ sessions: { session: string; tokens: number; from?: object; status: string }[] }>(
      `${gateway.url}/v1/sessions?limit=1000`,
    )
  ).body.sessions

test('completions have each the text that its seed gives alone, and the prompt is read once', async () => {
  const many = await client.completions.create({ ...prompt, n: 4, logprobs: 1 })
  expect(many.choices.map(({ index }) => index)).toEqual([0, 1, 2, 3])
  for (const { index, text, logprobs } of many.choices) {
    const alone = await client.completions.create({ ...prompt, seed: 7 + index, logprobs: 1 })
    expect([text, logprobs]).toEqual([alone.choices[0]!.text, alone.choices[0]!.logprobs])
  }
  expect(new Set(many.choices.map(({ text }) => text)).size).toBe(4)
  expect(many.usage).toMatchObject({ prompt_tokens: 19, completion_tokens: 64, total_tokens: 83 })
})

test('a chat streams them beside each other, by their index, and adds up to the same', async () => {
  const whole = await client.chat.completions.create({ ...chat, n: 3 })
  const stream = await client.chat.completions.create({
    ...{ ...chat, n: 3, stream: true as const, stream_options: { include_usage: true } },
  })
  const texts = ['', '', '']
  const order: number[] = []
  const heads = new Set<string>()
  let usage: unknown
  for await (const chunk of stream) {
    heads.add(`${chunk.id} ${chunk.created}`)
    for (const { index, delta } of chunk.choices) {
      texts[index] += delta.content ?? ''
      order.push(index)
    }
    usage = chunk.usage ?? usage
  }
  expect(texts).toEqual(whole.choices.map(({ message }) => message.content))
  expect(heads.size).toBe(1)
  expect(usage).toEqual(whole.usage)
  // None waits for another one's end.
  expect(order.lastIndexOf(0)).toBeGreaterThan(order.indexOf(2, 3))
})

test('calls of tools have ids of their own', async () => {
  const tools = [{ type: 'function', function: { name: 'now', parameters: { type: 'object', properties: {} } } }]
  const { body } = await ask<OpenAI.ChatCompletion>(`${hermes.url}/v1/chat/completions`, {
    ...{ ...chat, n: 2, tools, tool_choice: 'required', parallel_tool_calls: false, max_tokens: 400 },
  })
  const ids = body.choices.map(({ message }) => message.tool_calls?.[0]?.id)
  expect(new Set(ids).size).toBe(2)
  expect(body.choices.map(({ finish_reason }) => finish_reason)).toEqual(['tool_calls', 'tool_calls'])
})

test('a session goes on with the first, and the forks are closed', async () => {
  const options = inSession('several')
  const first = await client.chat.completions.create({ ...chat, n: 2 }, options)
  const next = { ...chat, messages: [{ role: 'user' as const, content: 'And then?' }], temperature: 0 }
  const behind = await client.chat.completions.create(next, options)
  const straight = await client.chat.completions.create(chat, inSession('straight'))
  expect(straight.choices[0]!.message).toEqual(first.choices[0]!.message)
  const same = await client.chat.completions.create(next, inSession('straight'))
  expect(behind.choices[0]!.message).toEqual(same.choices[0]!.message)
  await expect
    .poll(async () => (await sessions()).filter(({ from, status }) => from !== undefined && status !== 'closed'))
    .toEqual([])
})

test('a client that goes away ends all of them', async () => {
  const leaving = new AbortController()
  const response = await fetch(`${gateway.url}/v1/chat/completions`, {
    ...{ method: 'POST', signal: leaving.signal, headers: { 'content-type': 'application/json' } },
    body: JSON.stringify({ ...chat, n: 3, stream: true, max_tokens: 4000 }),
  })
  for await (const { data } of eventsOf(response)) if (data.includes('"content":"')) break
  leaving.abort()
  await expect
    .poll(async () => (await sessions()).filter(({ status }) => status === 'open').length, { timeout: 20_000 })
    .toBe(2)
})

describe('refused by name', () => {
  test.each([0, 9, 1.5, '2'])('%s answers', async (n) => {
    for (const [path, body] of [
      ['completions', prompt],
      ['chat/completions', chat],
    ] as const) {
      const { status, body: said } = await ask<Refused>(`${gateway.url}/v1/${path}`, { ...body, n })
      expect([status, said.error.param]).toEqual([400, 'n'])
    }
  })

  test('a prompt that is too long, once for all', async () => {
    const { dir } = await openFamily('gpt2-refuse', temporary())
    const { url } = await servingAll((end) => ends.push(end), '--model', dir, '--model-name', 'short')
    for (const stream of [false, true]) {
      const body = { model: 'short', prompt: 'x'.repeat(200), n: 3, stream }
      const { status, body: said } = await ask<Refused>(`${url}/v1/completions`, body)
      expect([status, said.error.code]).toEqual([400, 'context_length_exceeded'])
    }
  })
})
