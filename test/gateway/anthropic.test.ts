/** The client that Anthropic publishes, as it is, against a gateway with a worker; and the same by plain requests. */
import { join } from 'node:path'
import Anthropic from '@anthropic-ai/sdk'
import { zodOutputFormat } from '@anthropic-ai/sdk/helpers/zod'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { messagesRequest } from '../../src/gateway/anthropic/schema.ts'
import { messageShape } from '../../src/gateway/anthropic/shape.ts'
import { continuo, temporary } from '../cli/helpers.ts'
import { ask, endWithTest, eventsOf, inSession, logIn, type Serving, serving, servingAll } from './helpers.ts'

const ends: (() => Promise<unknown>)[] = []
const keys = join(temporary(), 'keys.json')
let key = ''
let gateway: Serving
let client: Anthropic
let openai: OpenAI
beforeAll(async () => {
  key = (await continuo(['keys', 'add', 'ada', '--keys', keys])).out.trim()
  gateway = await servingAll((end) => ends.push(end), '--keys', keys, '--rate-limit', '0', '--max-tokens', '60000')
  client = new Anthropic({ baseURL: gateway.url, apiKey: key, maxRetries: 0 })
  openai = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: key, maxRetries: 0 })
})
afterAll(() => Promise.all(ends.map((end) => end())))

const question = { role: 'user', content: 'What did the harbour master see?' } as const
type Params = Anthropic.MessageCreateParamsNonStreaming
/** `temperature` is of the protocol, and of what older clients have in their types. */
const request = { model: 'demo', max_tokens: 24, messages: [question], ...{ temperature: 0 } } satisfies Params
/** All that there is to iterate over. */
const allOf = async <T>(values: AsyncIterable<T>): Promise<T[]> => {
  const all: T[] = []
  for await (const value of values) all.push(value)
  return all
}
type Block = Anthropic.ContentBlock
const textOf = (content: readonly Block[]): string =>
  content.map((block) => (block.type === 'text' ? block.text : expect.fail(block.type))).join('')
const told = async (more: Partial<Params> = {}, options: object = {}): Promise<string> =>
  textOf((await client.messages.create({ ...request, ...more } as Params, options)).content)
/** The same conversation asked as OpenAI's clients ask. */
const chatted = async (messages: OpenAI.ChatCompletionMessageParam[], more: object = {}, options: object = {}) => {
  const asked = { model: 'demo', max_tokens: 24, temperature: 0, messages, ...more } as const
  return (await openai.chat.completions.create(asked, options)).choices[0]!.message.content
}

interface RefusedHere {
  readonly type: 'error'
  readonly error: { readonly type: string; readonly message: string }
}
const post = <T = RefusedHere>(body: unknown, path = '/v1/messages', headers: Record<string, string> = {}) =>
  ask<T>(`${gateway.url}${path}`, body, { 'x-api-key': key, ...headers })

describe('a message', () => {
  test('is the chat of its conversation, with what the client reads of it', async () => {
    const { data, response } = await client.messages.create({ ...request, system: 'Be brief.' }).withResponse()
    expect(data).toMatchObject({
      ...{ id: expect.stringMatching(/^msg_/), type: 'message', role: 'assistant', model: 'demo' },
      ...{ stop_reason: 'max_tokens', stop_sequence: null },
      content: [{ type: 'text', text: await chatted([{ role: 'system', content: 'Be brief.' }, question]) }],
      usage: { output_tokens: 24, cache_creation_input_tokens: 0, cache_read_input_tokens: 0 },
    })
    expect(response.headers.get('x-session')).toMatch(/^api-/)
    const counted = await client.messages.countTokens({
      ...{ model: 'demo', system: 'Be brief.', messages: [question] },
    })
    expect(data.usage.input_tokens).toBe(counted.input_tokens)
  })

  test('is had by what the client calls beta, too', async () => {
    const { content } = await client.beta.messages.create(request)
    expect(content).toEqual([{ type: 'text', text: await told() }])
  })

  test('comes in pieces that put together are the whole', async () => {
    const whole = await client.messages.create(request)
    const kinds: string[] = []
    const stream = client.messages.stream(request).on('streamEvent', ({ type }) => kinds.push(type))
    const final = await stream.finalMessage()
    expect(final).toMatchObject({ ...whole, id: expect.stringMatching(/^msg_/) })
    const deltas = kinds.filter((kind) => kind === 'content_block_delta')
    expect(deltas.length).toBeGreaterThan(10)
    expect(kinds).toEqual([
      ...['message_start', 'content_block_start', ...deltas],
      ...['content_block_stop', 'message_delta', 'message_stop'],
    ])
  })

  test('in a stream has the events of the protocol by their names', async () => {
    const response = await fetch(`${gateway.url}/v1/messages`, {
      method: 'POST',
      headers: { 'content-type': 'application/json', authorization: `Bearer ${key}` },
      body: JSON.stringify({ ...request, max_tokens: 2, stream: true }),
    })
    const events = (await allOf(eventsOf(response))).map(({ event, data }) => ({
      event,
      data: JSON.parse(data) as Record<string, unknown>,
    }))
    expect(events.every(({ event, data }) => data.type === event)).toBe(true)
    const usage = { input_tokens: expect.any(Number), cache_creation_input_tokens: 0, cache_read_input_tokens: 0 }
    const delta = { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: expect.any(String) } }
    expect(events.map(({ data }) => data)).toEqual([
      {
        type: 'message_start',
        message: {
          ...{ id: expect.stringMatching(/^msg_/), type: 'message', role: 'assistant', model: 'demo', content: [] },
          ...{ stop_reason: null, stop_sequence: null, usage: { ...usage, output_tokens: 0 } },
        },
      },
      { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
      { type: 'ping' },
      ...[delta, delta],
      { type: 'content_block_stop', index: 0 },
      {
        type: 'message_delta',
        delta: { stop_reason: 'max_tokens', stop_sequence: null },
        usage: { ...usage, output_tokens: 2 },
      },
      { type: 'message_stop' },
    ])
  })

  test('says which stop sequence ended it, whole and streamed', async () => {
    const whole = await told()
    const stop = whole.slice(7, 10)
    const asked = { ...request, stop_sequences: ['never there', stop] }
    const ended = { stop_reason: 'stop_sequence', stop_sequence: stop }
    const answer = await client.messages.create(asked)
    expect(answer).toMatchObject(ended)
    expect(textOf(answer.content)).toBe(whole.slice(0, whole.indexOf(stop)))
    const streamed = await client.messages.stream(asked).finalMessage()
    expect(streamed).toMatchObject({ ...ended, content: answer.content, usage: answer.usage })
  })

  test.each([
    ['the end of a text', { finish: 'stop' }, 'end_turn', null],
    ['the form', { finish: 'stop', stop: '\n\nUser:' }, 'end_turn', null],
    ['the request', { finish: 'stop', stop: 'END' }, 'stop_sequence', 'END'],
    ['a bound', { finish: 'length' }, 'max_tokens', null],
    ['somebody who cancelled it', { finish: 'cancelled' }, 'end_turn', null],
  ] as const)('says that %s ended it', (_, end, stop_reason, stop_sequence) => {
    const body = messagesRequest.parse({ ...request, stop_sequences: ['END'] })
    const shape = messageShape({ promptTokens: 7, cachedTokens: 3, nonce: 'x' }, body)
    const usage = {
      prompt_tokens: 7,
      completion_tokens: 1,
      total_tokens: 8,
      prompt_tokens_details: { cached_tokens: 3 },
    }
    const piece = { text: 'x', tokens: [], calls: [], ...end }
    expect(shape.whole([piece], usage)).toMatchObject({ stop_reason, stop_sequence })
    shape.piece(piece)
    expect(shape.closing(usage)[1]!.data).toMatchObject({ delta: { stop_reason, stop_sequence } })
  })

  test('is parsed by the client where its form is asked for', async () => {
    const ship = z.object({ name: z.enum(['Havenesse', 'Mary']), crew: z.literal([3, 12]) })
    const { parsed_output: parsed } = await client.messages.parse({
      ...{ ...request, max_tokens: 300, output_config: { format: zodOutputFormat(ship) } },
    })
    expect(ship.parse(parsed)).toEqual(parsed)
  })
})

describe('a conversation', () => {
  const more = { role: 'user', content: 'And then?' } as const
  const chat = (content: string) => chatted([question, { role: 'assistant', content }, more])

  test('takes back the answer that it gave, as it is', async () => {
    const { content, role } = await client.messages.create(request)
    expect(await told({ messages: [question, { role, content }, more] })).toBe(await chat(textOf(content)))
  })

  test.each([
    ['of Anthropic', [{ type: 'text' as const, text: 'A sail.', citations: null }]],
    [
      'in blocks, with a hint',
      [
        { type: 'text' as const, text: 'A ', cache_control: { type: 'ephemeral' as const, ttl: '1h' as const } },
        { type: 'text' as const, text: 'sail.', cache_control: null },
      ],
    ],
    ['that is a text', 'A sail.'],
  ])('takes an answer %s', async (_, content) => {
    expect(await told({ messages: [question, { role: 'assistant', content }, more] })).toBe(await chat('A sail.'))
  })

  test('takes hints, and what asks for nothing, and answers as without them', async () => {
    const hints = {
      ...{ metadata: { user_id: 'ada' }, service_tier: 'auto' as const, tools: [], cache_control: null },
      ...{ tool_choice: { type: 'auto' as const }, thinking: { type: 'disabled' as const } },
      ...{ top_k: 0, top_p: 1, container: null, stop_sequences: [] },
    }
    expect(await told(hints)).toBe(await told())
  })

  test('has one turn of what one role says in several messages', async () => {
    const two = [question, more, { role: 'assistant', content: 'A' } as const, { role: 'assistant', content: 'sail' }]
    const one = { role: 'user' as const, content: `${question.content}\n${more.content}` }
    expect(await told({ messages: two as Anthropic.MessageParam[] })).toBe(
      await chatted([one, { role: 'assistant', content: 'A\nsail' }]),
    )
  })

  test('goes on with a last message of the assistant', async () => {
    const whole = await told()
    const cut = whole.slice(0, 5)
    const rest = await told({ messages: [question, { role: 'assistant', content: cut }], max_tokens: 24 - cut.length })
    expect(`${cut}${rest}`).toBe(whole)
  })

  test('in a named session goes on from request to request, as a chat does', async () => {
    const [mine, other] = [inSession('of Anthropic’s client'), inSession("of OpenAI's client")]
    expect(await told({ system: 'Be brief.' }, mine)).toBe(
      await chatted([{ role: 'system', content: 'Be brief.' }, question], {}, other),
    )
    const second = await client.messages.create({ ...request, messages: [more] }, mine)
    expect(textOf(second.content)).toBe(await chatted([more], {}, other))
    expect(second.usage.input_tokens).toBeLessThan(
      (await client.messages.countTokens({ model: 'demo', messages: [question] })).input_tokens,
    )
  })

  test('ends when its client goes', async () => {
    const session = inSession('left')
    const stream = await client.messages.create({ ...request, max_tokens: 50_000, stream: true }, session)
    for await (const { type } of stream) if (type === 'content_block_delta') break
    // The session is free again long before so many tokens were made.
    const { usage } = await client.messages.create({ ...request, messages: [more], max_tokens: 3 }, session)
    expect(usage.output_tokens).toBe(3)
    const url = `${gateway.url}/v1/sessions/left`
    const head = async () => (await ask(url, undefined, { 'x-api-key': key })).body.generated
    await expect.poll(head).toBeGreaterThan(3)
    expect(await head()).toBeLessThan(50_000)
  })
})

describe('refused in the shape of Anthropic', () => {
  const text = (of: unknown) => ({ ...request, messages: [{ role: 'user', content: of }] })
  const { max_tokens: _, ...boundless } = request
  test.each([
    ['another model', { ...request, model: 'other' }, 404, 'not_found_error', '"other" is not served here; "demo" is'],
    ['no bound', boundless, 400, 'invalid_request_error', '"max_tokens" cannot be taken'],
    ['too many tokens', { ...request, max_tokens: 60_001 }, 400, 'invalid_request_error', 'max_tokens: At most 60000'],
    ['no messages', { ...request, messages: [] }, 400, 'invalid_request_error', '"messages" cannot be taken'],
    [
      'a picture',
      text([
        { type: 'text', text: 'x' },
        { type: 'image', source: {} },
      ]),
      400,
      'invalid_request_error',
      '"messages.0.content.1.type" cannot be taken: expected "text" or "tool_result", received "image": the model reads text alone.',
    ],
    ['a document in the system prompt', { ...request, system: [{ type: 'document' }] }, 400, '', '"system.0.type"'],
    ['half a character', text('\ud800'), 400, 'invalid_request_error', 'messages.0.content: The message has half'],
    ['half a character of the system', { ...request, system: '\ud800' }, 400, '', 'system prompt has half a surrogate'],
    [
      'a message of the system',
      { ...request, messages: [{ role: 'system', content: 'x' }] },
      400,
      '',
      'messages.0.role',
    ],
    [
      'servers of tools',
      { ...request, mcp_servers: [{}] },
      400,
      'invalid_request_error',
      '"mcp_servers" is not supported',
    ],
    [
      'thoughts',
      { ...request, thinking: { type: 'enabled', budget_tokens: 1024 } },
      400,
      '',
      '"thinking" is not supported',
    ],
    ['an effort', { ...request, output_config: { effort: 'low' } }, 400, '', '"output_config.effort" cannot be taken'],
    [
      'a schema that cannot be kept',
      { ...request, output_config: { format: { type: 'json_schema', schema: { not: {} } } } },
      ...[400, 'invalid_request_error', 'output_config.format: '],
    ],
    [
      'what nobody knows',
      { ...request, temprature: 1 },
      400,
      'invalid_request_error',
      '"temprature" is not known here',
    ],
    ['a temperature below nothing', { ...request, temperature: -1 }, 400, '', '"temperature" cannot be taken'],
    [
      'more stop sequences than are taken',
      { ...request, stop_sequences: Array.from({ length: 16 }, (_, i) => `${i}`) },
      ...[400, 'invalid_request_error', 'stop_sequences: At most 15 stop sequences can be given, 16 were.'],
    ],
    ['a list', [], 400, 'invalid_request_error', 'The body is a JSON object'],
    ['no JSON', '{', 400, 'invalid_request_error', 'The body is no JSON'],
  ] as const)('%s', async (_, body, status, type, said) => {
    const refused = await post(body)
    expect(refused.body).toEqual({
      type: 'error',
      error: { type: expect.stringContaining(type), message: expect.stringContaining(said) },
    })
    expect(refused.status).toBe(status)
    expect(refused.body.error.message).toMatch(/^\S.* .*[.]$/)
  })

  test('a key that is none, by either header, as the client throws it', async () => {
    const stranger = new Anthropic({ baseURL: gateway.url, apiKey: 'ck_none', maxRetries: 0 })
    const thrown = await stranger.messages.create(request).catch((error: unknown) => error)
    expect(thrown).toBeInstanceOf(Anthropic.AuthenticationError)
    expect(thrown).toMatchObject({ status: 401, error: { type: 'error', error: { type: 'authentication_error' } } })
    const none = await ask<RefusedHere>(`${gateway.url}/v1/messages`, request)
    expect([none.status, none.body.error.message]).toEqual([401, expect.stringContaining('x-api-key: KEY')])
    const bearer = new Anthropic({ baseURL: gateway.url, apiKey: null, authToken: key, maxRetries: 0 })
    expect((await bearer.messages.create(request)).type).toBe('message')
    // One of two that is known is enough.
    expect((await post(request, '/v1/messages', { authorization: 'Bearer none' })).status).toBe(200)
    const models = await ask(`${gateway.url}/v1/models`, undefined, { 'x-api-key': key })
    expect(models.status).toBe(200)
  })

  test('a body that is no JSON by its type, and one that is too large', { tags: 'slow' }, async () => {
    expect(await post('{}', '/v1/messages', { 'content-type': 'text/plain' })).toMatchObject({
      status: 415,
      body: { type: 'error', error: { type: 'invalid_request_error' } },
    })
    // So small that all of it is on its way before it is refused.
    const small = await serving(logIn(temporary()), '--with-worker', '--threads', '1', '--body-limit', '2048')
    endWithTest(small)
    const large = await ask(`${small.url}/v1/messages`, { ...request, system: 'x'.repeat(3000) })
    expect(large).toMatchObject({ status: 413, body: { type: 'error', error: { type: 'request_too_large' } } })
  })

  test('what fails within a stream, as its last event', { tags: 'slow' }, async () => {
    const log = logIn(temporary())
    expect((await continuo(['topics', 'apply', '--log', log])).code).toBe(0)
    // No worker answers, and after a second the stream begins.
    const alone = await serving(log, '--answer-timeout', '2')
    endWithTest(alone)
    const stranded = new Anthropic({ baseURL: alone.url, apiKey: 'none', maxRetries: 0 })
    const stream = await stranded.messages.create({ ...request, stream: true })
    const thrown = await allOf(stream).catch((error: unknown) => error)
    expect(thrown).toBeInstanceOf(Anthropic.APIError)
    expect(thrown).toMatchObject({
      error: { type: 'error', error: { type: 'timeout_error', message: expect.stringContaining('within 2 seconds') } },
    })
  })
})

describe('the count of tokens', () => {
  const path = '/v1/messages/count_tokens'
  test('is that of the same request', async () => {
    const body = { ...request, system: [{ type: 'text', text: 'Be brief.' }], stream: true, metadata: {} }
    const { usage } = (await post<Anthropic.Message>({ ...body, stream: false })).body
    expect((await post<object>(body, path)).body).toEqual({ input_tokens: usage.input_tokens })
  })

  test('is refused as the request is', async () => {
    expect(await post({ ...request, model: 'other' }, path)).toMatchObject({
      ...{ status: 404, body: { type: 'error', error: { type: 'not_found_error' } } },
    })
    expect(await post({ ...request, messages: [{ role: 'user' }] }, path)).toMatchObject({
      ...{ status: 400, body: { error: { message: expect.stringContaining('"messages.0.content"') } } },
    })
  })
})
