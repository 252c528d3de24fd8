/**
 * Tools as Anthropic's clients use them: calls in blocks, whole and in pieces, their results, and what is refused of
 * both.
 *
 * @module-tag slow
 */
import Anthropic from '@anthropic-ai/sdk'
import { partialParse } from '@anthropic-ai/sdk/_vendor/partial-json-parser/parser.js'
import { betaZodTool } from '@anthropic-ai/sdk/helpers/beta/zod'
import fc from 'fast-check'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { conversationOf } from '../../src/gateway/anthropic/messages.ts'
import { messagesRequest } from '../../src/gateway/anthropic/schema.ts'
import { messageShape } from '../../src/gateway/anthropic/shape.ts'
import { inputOf } from '../../src/gateway/anthropic/tools.ts'
import { ask, inSession, type Serving } from './helpers.ts'
import { servingTools } from './tool-servers.ts'

const ends: (() => Promise<unknown>)[] = []
let plain: Serving
let hermes: Serving
const clientOf = ({ url }: Serving) => new Anthropic({ baseURL: url, apiKey: 'none', maxRetries: 0 })
beforeAll(async () => {
  ;[plain, hermes] = await servingTools((end) => ends.push(end))
})
afterAll(() => Promise.all(ends.map((end) => end())))
const forms = [
  ['told in words', () => plain],
  ['by a template', () => hermes],
] as const

const weather = z.strictObject({ city: z.enum(['Oslo', 'Bergen']), days: z.int().min(1).max(9) })
const { $schema: _, ...schema } = z.toJSONSchema(weather)
const WEATHER: Anthropic.Tool = {
  ...{ name: 'weather', description: 'Of the next days.', input_schema: schema as Anthropic.Tool.InputSchema },
  cache_control: { type: 'ephemeral' },
}
const NOW: Anthropic.Tool = { type: 'custom', name: 'now', input_schema: { type: 'object', properties: {} } }
const question = { role: 'user' as const, content: 'Will it rain?' }
type Params = Anthropic.MessageCreateParamsNonStreaming
const request = (more: Partial<Params> = {}): Params => ({
  ...{ model: 'demo', max_tokens: 400, messages: [question], tools: [WEATHER, NOW], tool_choice: { type: 'any' } },
  ...{ temperature: 0 },
  ...more,
})
const forced: Partial<Params> = { tool_choice: { type: 'tool', name: 'weather', disable_parallel_tool_use: true } }
const callsIn = ({ content }: Pick<Anthropic.Message, 'content'>) =>
  content.map((block) => (block.type === 'tool_use' ? block : expect.fail(block.type)))
const resultOf = ({ id }: { readonly id: string }, more: object = { content: 'It will not.' }) =>
  ({ type: 'tool_result', tool_use_id: id, ...more }) as Anthropic.ToolResultBlockParam

describe.each(forms)('with tools %s', (_name, serving) => {
  test('an answer calls with an input of the schema, and is taken back with the result', async () => {
    const client = clientOf(serving())
    const first = await client.messages.create(request(forced))
    expect(first).toMatchObject({ stop_reason: 'tool_use', stop_sequence: null })
    const [call, ...others] = callsIn(first)
    expect(others).toEqual([])
    expect(call).toEqual({
      ...{ type: 'tool_use', id: expect.stringMatching(/^call_[a-zA-Z0-9_-]+$/), name: 'weather' },
      ...{ input: expect.anything(), caller: { type: 'direct' } },
    })
    weather.parse(call!.input)

    const messages = [
      question,
      { role: 'assistant' as const, content: first.content },
      { role: 'user' as const, content: [resultOf(call!), { type: 'text' as const, text: 'Well?' }] },
    ]
    const asked = request({ messages, tool_choice: { type: 'auto' }, max_tokens: 20 })
    const second = await client.messages.create(asked)
    expect(second.content).toEqual([{ type: 'text', text: expect.stringMatching(/./) }])
    const { max_tokens: _most, ...counted } = asked
    const { input_tokens: fresh, cache_read_input_tokens: cached } = second.usage
    // The question was read for the first answer.
    expect(cached).toBeGreaterThan(256)
    expect((await client.messages.countTokens(counted)).input_tokens).toBe(fresh + cached!)

    const chat = new OpenAI({ baseURL: `${serving().url}/v1`, apiKey: 'none', maxRetries: 0 })
    const { name, input, id } = call!
    const called = { id, type: 'function' as const, function: { name, arguments: JSON.stringify(input) } }
    const { choices, usage } = await chat.chat.completions.create({
      ...{ model: 'demo', max_tokens: 20, temperature: 0 },
      messages: [
        question,
        { role: 'assistant', content: '', tool_calls: [called] },
        { role: 'tool', tool_call_id: id, content: 'It will not.' },
        { role: 'user', content: 'Well?' },
      ],
      tools: [WEATHER, NOW].map((tool) => ({
        type: 'function' as const,
        function: {
          ...(tool.description !== undefined && { description: tool.description }),
          ...{ name: tool.name, parameters: tool.input_schema },
        },
      })),
    })
    expect(choices[0]!.message.content).toBe(second.content.map((block) => 'text' in block && block.text).join(''))
    expect(usage!.prompt_tokens).toBe(fresh + cached!)
  })

  test.each([400, 110, 60])('comes in pieces as it comes whole, in %i tokens', async (max_tokens) => {
    const client = clientOf(serving())
    const asked = request({ max_tokens })
    const whole = await client.messages.create(asked)
    const kinds: string[] = []
    const final = await client.messages
      .stream(asked)
      .on('streamEvent', (event) => kinds.push(event.type === 'content_block_delta' ? event.delta.type : event.type))
      .finalMessage()
    const withoutIds = ({ content, stop_reason, usage }: Anthropic.Message) => ({
      ...{ stop_reason, usage },
      content: content.map((block) => (block.type === 'tool_use' ? { ...block, id: '' } : block)),
    })
    expect(withoutIds(final as Anthropic.Message)).toEqual(withoutIds(whole))
    expect(new Set(callsIn(final as Anthropic.Message).map(({ id }) => id)).size).toBe(final.content.length)
    expect(kinds).toContain('input_json_delta')
    expect(kinds).not.toContain('text_delta')
    const count = (kind: string): number => kinds.filter((each) => each === kind).length
    expect(count('content_block_start')).toBe(whole.content.length)
    expect(count('content_block_stop')).toBe(whole.content.length)
  })

  test('takes several results of one message, and says that a tool failed', async () => {
    const client = clientOf(serving())
    const calls = ['a', 'b'].map((id) => ({ type: 'tool_use' as const, id, name: 'now', input: {} }))
    const said = (results: readonly Anthropic.ToolResultBlockParam[]) =>
      client.messages.countTokens({
        ...{ model: 'demo', tools: [NOW] },
        messages: [
          question,
          { role: 'assistant', content: [{ type: 'text', text: 'I look.' }, ...calls] },
          { role: 'user', content: [...results] },
        ],
      })
    const [one, two] = calls
    const texts = {
      content: [
        { type: 'text' as const, text: 'No ' },
        { type: 'text' as const, text: 'clock.' },
      ],
    }
    const plainly = await said([resultOf(one!, { content: 'No clock.' }), resultOf(two!, texts)])
    const failed = await said([resultOf(one!, { content: 'No clock.', is_error: true }), resultOf(two!, texts)])
    expect(failed.input_tokens - plainly.input_tokens).toBe('Error: '.length)
    const already = { content: 'Error: no clock.', is_error: true }
    const twice = await said([resultOf(one!, already), resultOf(two!, texts)])
    expect(twice.input_tokens).toBe(failed.input_tokens)
    expect((await said([resultOf(one!, {}), resultOf(two!, texts)])).input_tokens).toBeLessThan(plainly.input_tokens)
  })
})

test('an answer may be in words, and may be told to', async () => {
  for (const type of ['auto', 'none'] as const) {
    const answer = await clientOf(plain).messages.create(request({ tool_choice: { type }, max_tokens: 30 }))
    expect(answer).toMatchObject({ stop_reason: 'max_tokens', content: [{ type: 'text' }] })
    const streamed = await clientOf(plain).messages.stream(request({ tool_choice: { type }, max_tokens: 30 }))
    expect((await streamed.finalMessage()).content).toEqual(answer.content)
  }
})

test('a text stands in a block before the calls, and the next block begins with the call', () => {
  const shape = messageShape({ promptTokens: 1, cachedTokens: 0, nonce: 'x' }, messagesRequest.parse(request()))
  const usage = {
    prompt_tokens: 1,
    completion_tokens: 2,
    total_tokens: 3,
    prompt_tokens_details: { cached_tokens: 0 },
  }
  const piece = { text: '', tokens: [], calls: [], finish: null }
  const pieces = [
    { ...piece, text: 'I ' },
    { ...piece, text: 'look.', calls: [{ index: 0, name: 'now', json: '' }] },
    { ...piece, calls: [{ index: 0, json: '{}' }] },
    { ...piece, calls: [{ index: 1, name: 'weather', json: '{"city":' }] },
    { ...piece, calls: [{ index: 1, json: ' "Oslo"}' }], finish: 'calls' as const },
  ]
  const events = [...shape.opening(), ...pieces.flatMap((each) => shape.piece(each)), ...shape.closing(usage)]
  const id = shape.id.replace('msg_', 'call_')
  const call = { type: 'tool_use', input: {}, caller: { type: 'direct' } }
  const told = events.map(({ data }) => data as { readonly type: string })
  expect(told.filter(({ type }) => type.startsWith('content_block'))).toEqual([
    { type: 'content_block_start', index: 0, content_block: { type: 'text', text: '' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'I ' } },
    { type: 'content_block_delta', index: 0, delta: { type: 'text_delta', text: 'look.' } },
    { type: 'content_block_stop', index: 0 },
    { type: 'content_block_start', index: 1, content_block: { ...call, id: `${id}_0`, name: 'now' } },
    { type: 'content_block_delta', index: 1, delta: { type: 'input_json_delta', partial_json: '{}' } },
    { type: 'content_block_stop', index: 1 },
    { type: 'content_block_start', index: 2, content_block: { ...call, id: `${id}_1`, name: 'weather' } },
    { type: 'content_block_delta', index: 2, delta: { type: 'input_json_delta', partial_json: '{"city":' } },
    { type: 'content_block_delta', index: 2, delta: { type: 'input_json_delta', partial_json: ' "Oslo"}' } },
    { type: 'content_block_stop', index: 2 },
  ])
  expect(told.at(-2)).toMatchObject({ delta: { stop_reason: 'tool_use' } })
  expect(shape.whole(pieces, usage)).toMatchObject({
    stop_reason: 'tool_use',
    content: [
      { type: 'text', text: 'I look.' },
      { ...call, id: `${id}_0`, name: 'now', input: {} },
      { ...call, id: `${id}_1`, name: 'weather', input: { city: 'Oslo' } },
    ],
  })
})

test('the runner of tools that the client has asks, runs and asks again', async () => {
  const ran: unknown[] = []
  const tool = betaZodTool({
    ...{ name: 'weather', description: 'Of the next days.', inputSchema: weather },
    run: (input) => {
      ran.push(weather.parse(input))
      return 'Rain.'
    },
  })
  for (const stream of [false, true]) {
    ran.length = 0
    const runner = clientOf(hermes).beta.messages.toolRunner({
      ...{ model: 'demo', max_tokens: 300, messages: [question], tools: [tool], stream, max_iterations: 2 },
      tool_choice: { type: 'any', disable_parallel_tool_use: true },
    })
    const last = await runner.runUntilDone()
    expect(last.stop_reason).toBe('tool_use')
    expect(ran.length).toBeGreaterThanOrEqual(1)
    const { messages } = runner.params
    expect(messages.map(({ role }) => role).slice(0, 3)).toEqual(['user', 'assistant', 'user'])
    expect(messages[2]!.content).toMatchObject([{ type: 'tool_result', content: 'Rain.' }])
  }
})

test('in a named session the result alone is read behind its call', async () => {
  const client = clientOf(hermes)
  const [call] = callsIn(await client.messages.create(request(forced), inSession('tools')))
  const messages = [{ role: 'user' as const, content: [resultOf(call!, { content: 'No.' })] }]
  const second = await client.messages.create(
    request({ messages, tool_choice: { type: 'none' }, max_tokens: 10 }),
    inSession('tools'),
  )
  expect(second.usage.input_tokens).toBeLessThan(30)
})

test('messages are those of a chat, a turn for each role', () => {
  const call = { type: 'tool_use', id: 'a', name: 'now', input: { x: [1] } }
  const { messages } = messagesRequest.parse(
    request({
      messages: [
        question,
        { role: 'assistant', content: 'I look.' },
        { role: 'assistant', content: [call as Anthropic.ToolUseBlockParam] },
        { role: 'user', content: [resultOf({ id: 'a' }, { content: 'Noon.' })] },
        { role: 'user', content: 'And now?' },
      ],
    }),
  )
  const called = { id: 'a', type: 'function', function: { name: 'now', arguments: { x: [1] } } }
  expect(conversationOf({ system: 'S', messages })).toEqual([
    { role: 'system', content: 'S' },
    question,
    { role: 'assistant', content: 'I look.', tool_calls: [called] },
    { role: 'tool', content: 'Noon.', tool_call_id: 'a' },
    { role: 'user', content: 'And now?' },
  ])
})

test('the input of a call that is cut off is what the client reads from the stream', () => {
  const spaced = fc.constantFrom(undefined, 1)
  const value = fc.oneof(fc.jsonValue({ maxDepth: 4 }), fc.constantFrom('a"b\\', -1.5e-7, 120, true, null, {}, []))
  fc.assert(
    fc.property(fc.dictionary(fc.string(), value), spaced, fc.nat(), (object, spaces, cut) => {
      const json = JSON.stringify(object, null, spaces)
      expect(inputOf(json)).toEqual(JSON.parse(json))
      const beginning = json.slice(0, 1 + (cut % json.length))
      expect(inputOf(beginning)).toEqual(partialParse(beginning))
    }),
    { numRuns: 2000 },
  )
  for (const json of ['', ' ', '[1]', '12', '"x', '}', ']{', '{"a":1}]']) expect(inputOf(json)).toEqual({})
})

describe('refused by name:', () => {
  const call = { type: 'tool_use', id: 'a', name: 'now', input: {} }
  const answered = (content: unknown, ...more: unknown[]) => ({
    messages: [question, { role: 'assistant', content: [call] }, { role: 'user', content }, ...more],
  })
  const declared = (more: object) => ({ tools: [{ ...NOW, ...more }] })
  test.each([
    [
      'a tool of the server',
      declared({ type: 'web_search_20250305' }),
      '"tools.0.type"',
      'received "web_search_20250305"',
    ],
    ['a tool without a schema', { tools: [{ name: 'x' }] }, '"tools.0.input_schema"', 'expected'],
    ['a schema of a text', declared({ input_schema: { type: 'string' } }), '"tools.0.input_schema"', 'of an object'],
    ['a schema that cannot be kept', declared({ input_schema: { type: 'object', not: {} } }), 'tools: ', '"now"'],
    ['a name that is none', declared({ name: 'a b' }), '"tools.0.name"', '64 letters'],
    ['two tools of one name', { tools: [NOW, NOW] }, '"tools"', 'different names'],
    ['a tool that comes later', declared({ defer_loading: true }), '"tools.0.defer_loading"', 'at once'],
    ['examples', declared({ input_examples: [{}] }), '"tools.0.input_examples"', 'description'],
    ['a choice that is none', { tool_choice: { type: 'all' } }, '"tool_choice.type"', '"any"'],
    ['a choice in a word', { tool_choice: 'any' }, '"tool_choice"', 'object'],
    ['a tool that is not there', { tool_choice: { type: 'tool', name: 'x' } }, '"tool_choice" names "x"', 'not among'],
    ['a call without tools', { tools: [] }, '"tool_choice"', 'there are no tools'],
    ['another form beside', { output_config: { format: { type: 'json_schema', schema: {} } } }, 'Tools and', 'both'],
    [
      'a call of the user',
      { messages: [{ role: 'user', content: [call] }] },
      '"messages.0.content.0.type"',
      'tool_use',
    ],
    [
      'a result of the assistant',
      answered([], { role: 'assistant', content: [resultOf(call)] }),
      '"messages.3.',
      'tool_result',
    ],
    ['a call without a result', answered('And?'), 'messages.1: ', 'The call "a" has no result.'],
    ['a call at the end', { messages: answered([]).messages.slice(0, 2) }, 'messages.1: ', 'has no result'],
    ['the result of another call', answered([resultOf({ id: 'b' })]), 'messages.1: ', 'The call "a" has no result.'],
    [
      'a result behind a text',
      answered([{ type: 'text', text: 'x' }, resultOf(call)]),
      '"messages.2.content.1"',
      'before',
    ],
    [
      'a picture as a result',
      answered([resultOf(call, { content: [{ type: 'image' }] })]),
      '"messages.2.content.0.content.0.type"',
      '"image"',
    ],
    [
      'half a character in a result',
      answered([resultOf(call, { content: '\ud800' })]),
      'messages.2.content: ',
      'surrogate',
    ],
    [
      'a text behind a call',
      { messages: [question, { role: 'assistant', content: [call, { type: 'text', text: 'x' }] }, question] },
      '"messages.1.content"',
      'behind a call',
    ],
    [
      'an input that is none',
      { messages: [question, { role: 'assistant', content: [{ ...call, input: 1 }] }, question] },
      '"messages.1.content.0.input"',
      'expected',
    ],
  ])('%s', async (_name, more, place, said) => {
    for (const path of ['', '/count_tokens']) {
      const { status, body } = await ask<{ error: { type: string; message: string } }>(
        `${plain.url}/v1/messages${path}`,
        { ...request(), ...more },
      )
      expect(body.error).toMatchObject({ type: 'invalid_request_error', message: expect.stringContaining(said) })
      expect(body.error.message).toContain(place)
      expect(body.error.message).toMatch(/^\S.* .*[.]$/)
      expect(status).toBe(400)
    }
  })

  test('what is nested deeply, in a schema, an input and a result', async () => {
    const deep = `${'['.repeat(5000)}${']'.repeat(5000)}`
    const bodies = [
      { ...request(), ...declared({ input_schema: { type: 'object', enum: 'HERE' } }) },
      { ...request(), messages: [question, { role: 'assistant', content: [{ ...call, input: { x: 'HERE' } }] }] },
      { ...request(), ...answered([resultOf(call, { content: 'HERE' })]) },
    ]
    for (const body of bodies) {
      const told = await ask<{ error: { message: string } }>(
        `${plain.url}/v1/messages`,
        JSON.stringify(body).replace('"HERE"', deep),
      )
      expect([told.status, told.body.error.message]).toEqual([400, expect.stringMatching(/cannot be taken|levels/)])
    }
  })
})
