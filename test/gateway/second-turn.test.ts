/**
 * What a client sends in its second turn: the answers that it was given, with all that stood beside them, from here or
 * from another server; and hints that ask for nothing.
 */
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { temporary } from '../cli/helpers.ts'
import { openFamily } from '../families.ts'
import { ask, inSession, type Refused, type Serving, servingAll } from './helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
let client: OpenAI
beforeAll(async () => {
  gateway = await servingAll((end) => ends.push(end))
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', maxRetries: 0 })
})
afterAll(() => Promise.all(ends.map((end) => end())))

const chats = { model: 'demo', temperature: 0, max_tokens: 12 } as const
const question = { role: 'user', content: 'What did the harbour master see?' } as const
const post = <T>(path: string, body: object) => ask<T>(`${gateway.url}${path}`, body)
type Chat = OpenAI.Chat.ChatCompletion
const told = async (messages: readonly object[], more: object = {}) => {
  const { status, body } = await post<Chat>('/v1/chat/completions', { ...chats, messages, ...more })
  expect(body).toMatchObject({ choices: [{ message: { role: 'assistant' } }] })
  expect(status).toBe(200)
  return body.choices[0]!.message.content
}
const plain = (content: string) => [question, { role: 'assistant', content }, { role: 'user', content: 'And then?' }]

describe('a chat', () => {
  test('takes back the message that it gave, as it is', async () => {
    const first = await client.chat.completions.create({ ...chats, messages: [question] })
    const { message } = first.choices[0]!
    const second = await client.chat.completions.create({
      ...chats,
      messages: [question, message, { role: 'user', content: 'And then?' }],
    })
    expect(second.choices[0]!.message.content).toBe(await told(plain(message.content!)))
  })

  test.each([
    ['of OpenAI', { content: 'A sail.', refusal: null, annotations: [], audio: null }],
    ['with calls that are none', { content: 'A sail.', tool_calls: [], function_call: null }],
    ['of vLLM', { content: 'A sail.', reasoning_content: null, refusal: null, tool_calls: [] }],
    [
      'in parts',
      {
        content: [
          { type: 'text', text: 'A ' },
          { type: 'text', text: 'sail.' },
        ],
      },
    ],
    [
      'of the Agents SDK',
      { content: [{ type: 'text', text: 'A sail.', role: 'assistant', refusal: null, annotations: [] }] },
    ],
    ['a refusal in parts', { content: [{ type: 'refusal', refusal: 'A sail.' }] }],
    ['a refusal without content', { content: null, refusal: 'A sail.' }],
    ['with a name', { content: 'A sail.', name: 'mate' }],
  ])('takes the message of another server, %s', async (_, members) => {
    const messages = [question, { role: 'assistant', ...members }, { role: 'user', content: 'And then?' }]
    expect(await told(messages)).toBe(await told(plain('A sail.')))
  })

  test('takes hints, and answers as without them', async () => {
    const without = await told([question])
    const hints = {
      ...{ prompt_cache_key: 'k', safety_identifier: 'p', user: 'ada', store: true, metadata: { run: '7' } },
      ...{ service_tier: 'auto', parallel_tool_calls: true, stream_options: { include_obfuscation: false } },
    }
    expect(await told([question], hints)).toBe(without)
  })

  test('goes on with a last message of the assistant', async () => {
    const whole = (await told([question]))!
    const cut = whole.slice(0, 5)
    const rest = await told([question, { role: 'assistant', content: cut }], { max_tokens: 12 - cut.length })
    expect(`${cut}${rest}`).toBe(whole)
  })

  test('in a session goes on with one, too', async () => {
    const options = inSession('goes on')
    await client.chat.completions.create({ ...chats, messages: [question] }, options)
    const messages = [{ role: 'user', content: 'Whose?' } as const, { role: 'assistant', content: 'It was ' } as const]
    const { choices } = await client.chat.completions.create({ ...chats, messages }, options)
    expect(choices[0]!.message.content).not.toBe('')
  })

  test.each([
    [
      'a call of no function',
      { role: 'assistant', content: null, tool_calls: [{ id: '1' }] },
      'messages.1.tool_calls.0.type',
      'expected "function"',
    ],
    ['a sound', { role: 'assistant', content: 'x', audio: { id: 'a' } }, 'messages.1.audio', 'expected null'],
    ['nothing of a user', { role: 'user', content: null }, 'messages.1.content', 'expected string or array'],
    ['a picture', { role: 'user', content: [{ type: 'image_url' }] }, 'messages.1.content.0.type', '"text"'],
    ['half a character', { role: 'user', content: 'a', name: '\ud800' }, 'messages.1.name', 'half a surrogate'],
    ['another role', { role: 'owner', content: 'x' }, 'messages.1.role', '"assistant"'],
  ])('refuses %s by name', async (_, message, param, said) => {
    const { status, body } = await post<Refused>('/v1/chat/completions', { ...chats, messages: [question, message] })
    expect(body.error).toMatchObject({ param, message: expect.stringContaining(said) })
    expect(status).toBe(400)
  })

  test('two conversations of one user do not run into each other', async () => {
    const one = await client.chat.completions.create({ ...chats, messages: [question], user: 'ada' })
    const two = await client.chat.completions.create({ ...chats, messages: [question], user: 'ada' })
    expect(two.usage).toEqual(one.usage)
    expect((await fetch(`${gateway.url}/v1/sessions/ada`)).status).toBe(404)
  })
})

describe('a response', () => {
  const request = { model: 'demo', temperature: 0, max_output_tokens: 12 } as const
  const easy = (content: string) => [
    question,
    { role: 'assistant' as const, content },
    { ...question, content: 'More' },
  ]

  test('takes back the items that it gave, as they are', async () => {
    const asked = { ...request, top_logprobs: 2, include: ['message.output_text.logprobs' as const] }
    const first = await client.responses.create({ ...asked, input: [question] })
    const input = [question, ...first.output, { ...question, content: 'More' }]
    const second = await client.responses.create({ ...request, input: input as OpenAI.Responses.ResponseInput })
    expect(second.output_text).toBe(
      (await client.responses.create({ ...request, input: easy(first.output_text) })).output_text,
    )
  })

  test('finds an item by its reference in the log', async () => {
    const first = await client.responses.create({ ...request, input: [question] })
    const reference = { type: 'item_reference' as const, id: first.output[0]!.id! }
    const second = await client.responses.create({
      ...request,
      input: [question, reference, { ...question, content: 'More' }],
    })
    expect(second.output_text).toBe(
      (await client.responses.create({ ...request, input: easy(first.output_text) })).output_text,
    )
  })

  test.each(['msg_1', 'rs_1', 'msg_bm90aGluZw'])('says of the reference %s that there is no such item', async (id) => {
    const { status, body } = await post<Refused>('/v1/responses', {
      ...request,
      input: [question, { type: 'item_reference', id }, question],
    })
    expect(status).toBe(404)
    expect(body.error).toMatchObject({ param: 'input.1.id', message: expect.stringContaining(id) })
  })

  test('a session with a long name cannot have one: the id would be too long', async () => {
    const { status, body } = await ask<Refused>(
      `${gateway.url}/v1/responses`,
      { ...request, input: 'x' },
      { 'x-session': 'x'.repeat(200) },
    )
    expect([status, body.error.param]).toEqual([400, 'x-session'])
  })
})

describe('completions', () => {
  test('places of tokens count characters of the text', async () => {
    const ids = [...Buffer.from('😀a😀b')]
    const bias = Object.fromEntries(ids.map((id) => [id, 0]))
    expect(Object.keys(bias)).toHaveLength(6)
    const pattern = '😀a😀b'
    const { choices } = await client.completions.create({
      ...{ model: 'demo', prompt: 'x', max_tokens: 12, logprobs: 0, grammar: { type: 'regex', pattern } },
    } as OpenAI.CompletionCreateParamsNonStreaming)
    expect(choices[0]!.text).toBe(pattern)
    expect(choices[0]!.logprobs!.text_offset!.slice(0, 10)).toEqual([0, 0, 0, 0, 1, 2, 2, 2, 2, 3])
  })

  test('penalties count the tokens of the answer, not those of the prompt', async () => {
    const prompt = 'The harbour master and the harbour master and the harbour master and the harbour '
    const asked = { model: 'demo', prompt, max_tokens: 1, temperature: 0 } as const
    const without = await client.completions.create(asked)
    const punished = await client.completions.create({ ...asked, frequency_penalty: 2, presence_penalty: 2 })
    expect(punished.choices[0]!.text).toBe(without.choices[0]!.text)
    const before = await client.completions.create({
      ...{ ...asked, frequency_penalty: 2, repeat_last_n: 64 },
    } as OpenAI.CompletionCreateParamsNonStreaming)
    expect(before.choices[0]!.text).not.toBe(without.choices[0]!.text)
  })
})

test('a context that is full is told by the code that clients look for, and the card says how long one is', async () => {
  const { dir } = await openFamily('gpt2-refuse', temporary())
  const { url } = await servingAll((end) => ends.push(end), '--model', dir, '--model-name', 'short')
  expect((await ask(`${url}/v1/models`)).body).toMatchObject({ data: [{ max_model_len: 128, context_length: 128 }] })
  const { status, body } = await ask<Refused>(`${url}/v1/completions`, { model: 'short', prompt: 'x'.repeat(200) })
  expect(status).toBe(400)
  expect(body.error).toMatchObject({
    code: 'context_length_exceeded',
    message: expect.stringContaining("This model's maximum context length is 128 tokens"),
  })
})
