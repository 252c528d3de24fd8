/**
 * Every answer of /v1/responses, and every event, is one of the Open Responses specification; and the cases that its
 * compliance tests have, asked in words of our own.
 *
 * @module-tag slow
 */
import { cpSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { MODEL, temporary } from '../cli/helpers.ts'
import { openFamily } from '../families.ts'
import { ask, eventsOf, type Refused, type Serving, servingAll } from './helpers.ts'
import { checkStream, type Resource, response } from './open-responses.ts'
import { servingTools } from './tool-servers.ts'

const THINKING = `{%- for m in messages %}<|{{ m.role }}|>{{ m.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|><think>
{% endif %}`

const ends: (() => Promise<unknown>)[] = []
let plain: Serving
let hermes: Serving
let thinker: Serving
beforeAll(async () => {
  const dir = join(temporary(), 'thinker')
  cpSync(MODEL, dir, { recursive: true })
  writeFileSync(join(dir, 'chat_template.jinja'), THINKING)
  const finished = (end: () => Promise<unknown>) => ends.push(end)
  ;[[plain, hermes], thinker] = await Promise.all([
    servingTools(finished),
    servingAll(finished, '--model', dir, '--model-name', 'demo'),
  ])
})
afterAll(() => Promise.all(ends.map((end) => end())))

/** Of a client that goes by the specification. */
const VERSION = { 'openresponses-version': '2026-04-24' }

type Body = Readonly<Record<string, unknown>>
const asked: Body = { model: 'demo', input: 'What did the harbour master see?', max_output_tokens: 24, seed: 3 }

/** The response, whole, found again by its id, and as a stream, each by the specification. */
const whole = async (gateway: Serving, body: Body): Promise<Resource> => {
  const told = await ask(`${gateway.url}/v1/responses`, body)
  expect(told.status, JSON.stringify(told.body)).toBe(200)
  const made = response.parse(told.body)
  expect(response.parse((await ask(`${gateway.url}/v1/responses/${made.id}`)).body)).toEqual(made)
  const again = await streamOf(await fetch(`${gateway.url}/v1/responses/${made.id}?stream=true`, { headers: VERSION }))
  expect(checkStream(again)).toEqual(made)
  expect(
    checkStream(
      await streamOf(
        await fetch(`${gateway.url}/v1/responses/${made.id}?stream=true&starting_after=2`, { headers: VERSION }),
      ),
      3,
    ),
  ).toEqual(made)
  return made
}

/** The events of a stream, which has each under the name of its type, and an end. */
const streamOf = async (from: Response): Promise<unknown[]> => {
  expect(from.status).toBe(200)
  expect(from.headers.get('content-type')).toMatch(/^text\/event-stream/)
  const events: unknown[] = []
  let ended = false
  for await (const { event, data } of eventsOf(from)) {
    expect(ended).toBe(false)
    ended = data === '[DONE]'
    if (ended) continue
    const parsed = JSON.parse(data) as { readonly type: string }
    expect(event).toBe(parsed.type)
    events.push(parsed)
  }
  expect(ended).toBe(true)
  return events
}
const post = (gateway: Serving, body: Body, headers: Readonly<Record<string, string>> = {}): Promise<Response> =>
  fetch(`${gateway.url}/v1/responses`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', ...VERSION, ...headers },
    body: JSON.stringify(body),
  })
const streaming = async (gateway: Serving, body: Body): Promise<Resource> => {
  const events = await streamOf(await post(gateway, { ...body, stream: true }))
  const made = checkStream(events)
  const again = await streamOf(await fetch(`${gateway.url}/v1/responses/${made.id}?stream=true`, { headers: VERSION }))
  expect(again).toEqual(events)
  expect((await ask(`${gateway.url}/v1/responses/${made.id}`)).body).toEqual(made)
  return made
}
/** Without what differs from one response to another. */
const answers = ({ output, usage, status }: Resource) => {
  const bare = output.map(({ id: _, ...rest }) => ({ ...rest, ...('call_id' in rest && { call_id: '' }) }))
  // What is asked again was read before.
  const { input_tokens_details: _, ...counts } = usage!
  return { output: bare, usage: counts, status }
}

const weather = {
  ...{ type: 'function', name: 'get_weather', description: 'The weather at a place.' },
  parameters: {
    ...{ type: 'object', additionalProperties: false, required: ['location'] },
    properties: { location: { enum: ['Oslo', 'Bergen'] } },
  },
}
const message = (role: string, content: unknown) => ({ type: 'message', role, content })
const told = { temperature: 0.8, max_output_tokens: 300, seed: 5 }

describe('the cases of the specification', () => {
  test.each<[string, Body]>([
    ['a message of a user', { input: [message('user', 'Say hello in three words.')] }],
    ['a system prompt', { input: [message('system', 'You are a pirate.'), message('user', 'Say hello.')] }],
    ['a developer', { input: [message('developer', 'You are a pirate.'), message('user', 'Say hello.')] }],
    [
      'several turns',
      {
        input: [
          message('user', 'My name is Alice.'),
          message('assistant', 'Hello Alice!'),
          message('user', [{ type: 'input_text', text: 'What is my name?' }]),
        ],
      },
    ],
  ])('%s', async (_, body) => {
    const made = await whole(plain, { ...asked, ...body })
    expect(made.output).toMatchObject([{ type: 'message', role: 'assistant', content: [{ type: 'output_text' }] }])
    expect(answers(await streaming(plain, { ...asked, ...body }))).toEqual(answers(made))
  })

  test('completed where it came to its end', async () => {
    const body = { ...asked, text: { format: { type: 'json_schema', name: 's', schema: { enum: ['yes', 'no'] } } } }
    const made = await whole(plain, { ...body, max_output_tokens: 100 })
    expect(made).toMatchObject({ status: 'completed', completed_at: made.created_at, incomplete_details: null })
    expect(made.text.format).toEqual({ ...body.text.format, description: null, strict: false })
    const cut = await whole(plain, asked)
    expect(cut).toMatchObject({ status: 'incomplete', completed_at: null, output: [{ status: 'incomplete' }] })
  })

  test.each([
    ['a form in words', () => plain],
    ["Hermes' form", () => hermes],
  ])('calls of tools in %s, and their results', async (_, gatewayOf) => {
    const gateway = gatewayOf()
    const body = { ...asked, ...told, tools: [weather], tool_choice: 'required' }
    const made = await whole(gateway, body)
    const [call] = made.output
    expect(call).toMatchObject({ type: 'function_call', name: 'get_weather', status: 'completed' })
    expect(answers(await streaming(gateway, body))).toEqual(answers(made))
    const result = { type: 'function_call_output', call_id: (call as { call_id: string }).call_id, output: 'Rain.' }
    const input = [message('user', asked.input), ...made.output, result]
    const next = await whole(gateway, { ...body, input, tool_choice: { type: 'function', name: 'get_weather' } })
    expect(next.tool_choice).toEqual({ type: 'function', name: 'get_weather' })
    expect(next.tools).toEqual([{ ...weather, strict: null }])
  })

  test('thoughts, and what follows them', async () => {
    const made = await streaming(thinker, { ...asked, max_output_tokens: 40 })
    expect(made.output[0]).toMatchObject({ type: 'reasoning', summary: [], content: [{ type: 'reasoning_text' }] })
    expect(made.usage!.output_tokens_details.reasoning_tokens).toBeGreaterThan(0)
    await whole(thinker, {
      ...asked,
      max_output_tokens: 40,
      input: [message('user', 'x'), ...made.output, message('user', 'y')],
    })
  })

  test('a picture is refused by name', async () => {
    const picture = { type: 'input_image', image_url: 'data:image/png;base64,AA==' }
    const { status, body } = await ask<Refused>(`${plain.url}/v1/responses`, {
      ...asked,
      input: [message('user', [{ type: 'input_text', text: 'What is it?' }, picture])],
    })
    expect(status).toBe(400)
    expect(body.error).toMatchObject({ type: 'invalid_request_error', param: 'input.0.content.1.type' })
    expect(body.error.message).toContain('input_text')
  })
})

test('says again what was asked', async () => {
  const body = {
    ...{
      instructions: 'Be brief.',
      max_output_tokens: 9,
      max_tool_calls: 3,
      metadata: { run: '7' },
      truncation: 'auto',
    },
    ...{ temperature: 0.5, top_p: 0.9, presence_penalty: 0.25, frequency_penalty: -0.5, top_logprobs: 2 },
    ...{
      tools: [{ ...weather, strict: true }],
      parallel_tool_calls: false,
      safety_identifier: 'p',
      prompt_cache_key: 'k',
    },
    tool_choice: { type: 'allowed_tools', mode: 'auto', tools: [{ type: 'function', name: 'get_weather' }] },
  }
  const made = await whole(plain, { ...asked, ...body, metadata: body.metadata, service_tier: 'auto', user: 'ada' })
  expect(made).toMatchObject({ ...body, store: true, background: false, service_tier: 'default' })
  expect(await whole(plain, { ...asked, max_output_tokens: 3, metadata: null, temperature: null })).toMatchObject({
    ...{ metadata: {}, temperature: 1, top_p: 1, presence_penalty: 0, frequency_penalty: 0, top_logprobs: 0 },
    ...{ tools: [], tool_choice: 'auto', parallel_tool_calls: true, text: { format: { type: 'text' } } },
    ...{ instructions: null, max_tool_calls: null, safety_identifier: null, prompt_cache_key: null, reasoning: null },
  })
})

test('a seed gives the same answer again', async () => {
  const one = await whole(plain, { ...asked, seed: 11 })
  expect(answers(await whole(plain, { ...asked, seed: 11 }))).toEqual(answers(one))
  expect(answers(await whole(plain, { ...asked, seed: 12 }))).not.toEqual(answers(one))
})

test('at most so many calls are made', async () => {
  const body = { ...asked, ...told, tools: [weather], tool_choice: 'required', temperature: 1 }
  const { output } = await whole(hermes, { ...body, max_tool_calls: 1 })
  expect(output).toHaveLength(1)
  for (const most of [0, 1.5, '1'])
    expect((await ask<Refused>(`${plain.url}/v1/responses`, { ...body, max_tool_calls: most })).body.error.param).toBe(
      'max_tool_calls',
    )
})

describe('a conversation that is too long', () => {
  let short: Serving
  beforeAll(async () => {
    const { dir } = await openFamily('gpt2-refuse', temporary())
    writeFileSync(
      join(dir, 'chat_template.jinja'),
      '{% for m in messages %}{{ m.role[0] }}{{ m.content }};{% endfor %}',
    )
    short = await servingAll((end) => ends.push(end), '--model', dir, '--model-name', 'demo')
  })
  const turns = (count: number) => [
    message('system', 'sys'),
    ...Array.from({ length: count }, (_, at) => [
      message('user', `q${at} and some more words`),
      message('assistant', `a${at}`),
    ]).flat(),
    message('user', 'the last'),
  ]
  const body = { model: 'demo', max_output_tokens: 4, seed: 1 }

  test('is refused by its length, or read without its oldest turns where that is asked for', async () => {
    const refused = await ask<Refused>(`${short.url}/v1/responses`, { ...body, input: turns(12) })
    expect([refused.status, refused.body.error.code]).toEqual([400, 'context_length_exceeded'])
    const cut = await whole(short, { ...body, input: turns(12), truncation: 'auto' })
    expect(cut.usage!.input_tokens).toBeLessThanOrEqual(124)
    expect(cut.usage!.input_tokens).toBeGreaterThan(90)
    // As the last turns alone, with the system message.
    const kept = turns(12)
    const last = await whole(short, { ...body, input: [kept[0], ...kept.slice(-7)] })
    expect([last.usage!.input_tokens < cut.usage!.input_tokens + 40, cut.truncation]).toEqual([true, 'auto'])
    // What fits is read whole.
    const whole1 = await whole(short, { ...body, input: turns(1), truncation: 'auto' })
    expect(answers(whole1)).toEqual(answers(await whole(short, { ...body, input: turns(1) })))
  })

  test('in a session cannot be cut', async () => {
    const first = await whole(short, { ...body, input: turns(1) })
    const next = { ...body, input: 'x', previous_response_id: first.id, truncation: 'auto' }
    const { status, body: said } = await ask<Refused>(`${short.url}/v1/responses`, next)
    expect([status, said.error.param]).toEqual([400, 'truncation'])
  })

  test('fails in the background, and says why, whole and in a stream', async () => {
    const made = response.parse(
      (await ask(`${short.url}/v1/responses`, { ...body, input: turns(12), background: true })).body,
    )
    expect(made.status).toBe('queued')
    const events = await streamOf(await fetch(`${short.url}/v1/responses/${made.id}?stream=true`, { headers: VERSION }))
    const failed = checkStream(events)
    expect(failed).toMatchObject({ status: 'failed', error: { code: 'context_length_exceeded' }, background: true })
    expect(events.at(-2)).toMatchObject({ type: 'error', error: { code: 'context_length_exceeded' } })
    expect(response.parse((await ask(`${short.url}/v1/responses/${made.id}`)).body)).toEqual(failed)
  })
})
