/** Tools over HTTP: calls whose arguments keep their schemas, whole and in pieces, and the turns behind them. */
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { ask, inSession, type Refused, type Serving } from './helpers.ts'
import { servingTools } from './tool-servers.ts'

const ends: (() => Promise<unknown>)[] = []
let plain: Serving
let hermes: Serving
const clientOf = ({ url }: Serving) => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
beforeAll(async () => {
  ;[plain, hermes] = await servingTools((end) => ends.push(end))
})
afterAll(() => Promise.all(ends.map((end) => end())))
const both = () => [plain, hermes] as const

const weather = z.strictObject({ city: z.enum(['Oslo', 'Bergen']), days: z.int().min(1).max(9) })
const parameters = z.toJSONSchema(weather) as Record<string, unknown>
const WEATHER = {
  type: 'function' as const,
  function: { name: 'weather', description: 'Of the next days.', parameters },
}
const NOW = { type: 'function' as const, function: { name: 'now' } }
const question = { role: 'user' as const, content: 'Will it rain?' }
const base = { model: 'demo', seed: 5, temperature: 0.8, max_tokens: 400 }
type Create = OpenAI.Chat.ChatCompletionCreateParamsNonStreaming
const request = (more: Partial<Create> = {}): Create => ({
  ...{ ...base, messages: [question], tools: [WEATHER, NOW], tool_choice: 'required' },
  ...more,
})
const callsIn = ({ choices }: OpenAI.Chat.ChatCompletion) =>
  choices[0]!.message.tool_calls!.map((call) => {
    if (call.type !== 'function') throw new Error('expected a function')
    return { ...call.function, id: call.id }
  })

describe('a chat', () => {
  test.each([0, 1])('calls, with arguments of the schema, and takes call and result back (%i)', async (which) => {
    const client = clientOf(both()[which]!)
    const choice = { type: 'function' as const, function: { name: 'weather' } }
    const first = await client.chat.completions.create(request({ tool_choice: choice, parallel_tool_calls: false }))
    expect(first.choices[0]!.finish_reason).toBe('tool_calls')
    expect(first.choices[0]!.message.content).toBeNull()
    const [call, ...others] = callsIn(first)
    expect(others).toEqual([])
    expect(call).toMatchObject({ name: 'weather', id: expect.stringMatching(/^call_/) })
    weather.parse(JSON.parse(call!.arguments))

    const messages = [
      question,
      first.choices[0]!.message,
      { role: 'tool' as const, tool_call_id: call!.id, content: 'It will not.' },
    ]
    const second = await client.chat.completions.create(request({ messages, tool_choice: 'auto', max_tokens: 20 }))
    expect(second.choices[0]!.message.content).not.toBe('')
    expect(second.usage!.prompt_tokens).toBeGreaterThan(first.usage!.prompt_tokens)
  })

  test.each([0, 1])('gives in pieces what it gives whole (%i)', async (which) => {
    const client = clientOf(both()[which]!)
    const asked = request({ max_tokens: 120 })
    const whole = await client.chat.completions.create(asked)
    const made: { name: string; json: string }[] = []
    const ids: string[] = []
    let finish: string | null = null
    for await (const { choices } of await client.chat.completions.create({ ...asked, stream: true })) {
      for (const { index, id, function: called } of choices[0]!.delta.tool_calls ?? []) {
        if (id !== undefined) ids[index] = id
        made[index] ??= { name: called!.name!, json: '' }
        made[index].json += called?.arguments ?? ''
      }
      finish = choices[0]!.finish_reason ?? finish
    }
    expect(made).toEqual(callsIn(whole).map(({ name, arguments: json }) => ({ name, json })))
    expect(new Set(ids).size).toBe(ids.length)
    expect(finish).toBe(whole.choices[0]!.finish_reason)
  })

  test('may answer in words, and may be told to', async () => {
    for (const choice of ['auto', 'none'] as const) {
      const { choices } = await clientOf(plain).chat.completions.create(
        request({ tool_choice: choice, max_tokens: 30, temperature: 0 }),
      )
      expect(choices[0]!.message.tool_calls).toBeUndefined()
      expect(choices[0]).toMatchObject({ finish_reason: 'length', message: { content: expect.stringMatching(/./) } })
    }
  })

  test('calls those of its tools alone that it may', async () => {
    const tool_choice = {
      type: 'allowed_tools' as const,
      allowed_tools: { mode: 'required' as const, tools: [{ type: 'function', function: { name: 'now' } }] },
    }
    const answer = await clientOf(plain).chat.completions.create(request({ tool_choice, parallel_tool_calls: false }))
    expect(callsIn(answer)).toMatchObject([{ name: 'now' }])
    expect(JSON.parse(callsIn(answer)[0]!.arguments)).toEqual({})
  })

  test('in a session reads the result behind its call', async () => {
    const client = clientOf(hermes)
    const first = await client.chat.completions.create(request({ parallel_tool_calls: false }), inSession('tools'))
    const result = { role: 'tool' as const, tool_call_id: callsIn(first)[0]!.id, content: 'No.' }
    const second = await client.chat.completions.create(
      request({ messages: [result], tool_choice: 'none', max_tokens: 10 }),
      inSession('tools'),
    )
    expect(second.usage!.prompt_tokens).toBeLessThan(30)
  })

  test.each([
    ['a tool that is not there', { tool_choice: { type: 'function', function: { name: 'x' } } }, 'tool_choice', '"x"'],
    ['a call without tools', { tools: [] }, 'tool_choice', 'there are no tools'],
    ['two tools of one name', { tools: [NOW, NOW] }, 'tools', 'different names'],
    [
      'a name that is none',
      { tools: [{ type: 'function', function: { name: 'a b' } }] },
      'tools.0.function.name',
      '64',
    ],
    [
      'a schema that cannot be kept',
      { tools: [{ type: 'function', function: { name: 'f', parameters: { not: {} } } }] },
      'tools',
      'The tool "f": ',
    ],
    ['another form beside', { response_format: { type: 'json_object' } }, 'tools', 'both'],
    [
      'a result of nothing',
      { messages: [question, { role: 'tool', content: 'x' }] },
      'messages.1.tool_call_id',
      'expected the id',
    ],
  ])('refuses %s by name', async (_, more, param, said) => {
    const { status, body } = await ask<Refused>(`${plain.url}/v1/chat/completions`, { ...request(), ...more })
    expect(body.error).toMatchObject({ param, message: expect.stringContaining(said) })
    expect(status).toBe(400)
  })

  test('takes back a call that was cut off, as it was', async () => {
    const client = clientOf(plain)
    const tool_choice = { type: 'function' as const, function: { name: 'weather' } }
    const first = await client.chat.completions.create(request({ tool_choice, max_tokens: 45 }))
    expect(first.choices[0]!.finish_reason).toBe('length')
    const [cut] = callsIn(first)
    expect(() => JSON.parse(cut!.arguments)).toThrow(SyntaxError)
    const result = { role: 'tool' as const, tool_call_id: cut!.id, content: 'Say it again.' }
    const messages = [question, first.choices[0]!.message, result]
    const second = await client.chat.completions.create(request({ messages, tool_choice: 'none', max_tokens: 5 }))
    expect(second.choices[0]!.finish_reason).toBe('length')
  })

  test('says "stop" of a call in which a stop text stood', async () => {
    const tool_choice = { type: 'function' as const, function: { name: 'weather' } }
    const { choices } = await clientOf(plain).chat.completions.create(request({ tool_choice, stop: ['days'] }))
    expect(choices[0]!.finish_reason).toBe('stop')
  })

  test('another form may bind an answer that is to call nothing', async () => {
    const { choices } = await clientOf(plain).chat.completions.create(
      request({ tool_choice: 'none', response_format: { type: 'json_object' }, max_tokens: 60 }),
    )
    expect(choices[0]!.message.content).toMatch(/^\s*\{/)
  })

  test('nothing follows from calls without results', async () => {
    const call = { id: 'c', type: 'function' as const, function: { name: 'now', arguments: '{}' } }
    const refused = await ask<Refused>(`${hermes.url}/v1/chat/completions`, {
      ...request(),
      messages: [question, { role: 'assistant', content: null, tool_calls: [call] }],
    })
    expect(refused.body.error.message).toContain('Send the results of its calls')
  })

  test('is not brought down by what is nested deeply', async () => {
    const deep = `${'['.repeat(5000)}${']'.repeat(5000)}`
    const text = JSON.stringify(request())
      .replace('"Of the next days."', '"x","deep":1')
      .replace(/"parameters":\{/, `$&"enum":${deep},`)
    const schema = await ask<Refused>(`${plain.url}/v1/chat/completions`, text.replace('"deep":1,', ''))
    expect([schema.status, schema.body.error.message]).toEqual([400, expect.stringContaining('levels')])
    const call = { id: '1', type: 'function', function: { name: 'f', arguments: deep } }
    const messages = [{ role: 'assistant', content: '', tool_calls: [call] }, question]
    const old = await ask<Refused>(`${plain.url}/v1/chat/completions`, { ...request(), messages })
    expect([old.status, old.body.error.message]).toEqual([400, expect.stringContaining('levels')])
  })
})

describe('a response', () => {
  const asked = {
    ...{ model: 'demo', max_output_tokens: 300, temperature: 0.8, parallel_tool_calls: false },
    tools: [{ type: 'function' as const, name: 'weather', strict: true, parameters }],
    tool_choice: 'required' as const,
  }

  test('has its calls as items, which are found again and taken back, whole or by reference', async () => {
    const client = clientOf(plain)
    const first = await client.responses.create({ ...asked, input: [question] })
    const [call, ...others] = first.output
    if (call?.type !== 'function_call') throw new Error('expected a call')
    expect(others).toEqual([])
    expect(call).toMatchObject({ name: 'weather', status: 'completed', call_id: expect.stringMatching(/^call_/) })
    weather.parse(JSON.parse(call.arguments))
    expect(await client.responses.retrieve(first.id)).toEqual(first)

    const result = { type: 'function_call_output' as const, call_id: call.call_id, output: 'No.' }
    const rest = { ...asked, tool_choice: 'none' as const, temperature: 0, max_output_tokens: 20 }
    const whole = await client.responses.create({ ...rest, input: [question, call, result] })
    const reference = { type: 'item_reference' as const, id: call.id! }
    const referred = await client.responses.create({ ...rest, input: [question, reference, result] })
    expect(whole.output_text).not.toBe('')
    expect(referred.output_text).toBe(whole.output_text)
    const behind = await client.responses.create({ ...rest, previous_response_id: first.id, input: [result] })
    expect(behind.output_text).not.toBe('')
  })

  test('tells them in pieces, the same to whoever comes later', async () => {
    const client = clientOf(plain)
    const events: OpenAI.Responses.ResponseStreamEvent[] = []
    for await (const event of await client.responses.create({ ...asked, input: [question], stream: true }))
      events.push(event)
    expect(events.map(({ sequence_number }) => sequence_number)).toEqual(events.map((_, at) => at))
    const deltas = events.flatMap((event) =>
      event.type === 'response.function_call_arguments.delta' ? [event.delta] : [],
    )
    const last = events.at(-1)!
    if (last.type !== 'response.completed') throw new Error(`expected the end, found ${last.type}`)
    expect(last.response.output).toMatchObject([{ type: 'function_call', arguments: deltas.join('') }])
    expect(deltas.length).toBeGreaterThan(3)
    const again: unknown[] = []
    for await (const event of await client.responses.retrieve(last.response.id, { stream: true })) again.push(event)
    expect(again).toEqual(events)
  })
})
