/** Texts and conversations as the ids that a session is fed, counts of them, and ids as text. */
import { mkdirSync } from 'node:fs'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { temporary } from '../cli/helpers.ts'
import { safetensors, writePackageTo } from '../engine/safetensors.ts'
import { openFamily } from '../families.ts'
import { gpt2ConfigOf, randomGpt2 } from '../models/gpt2/gpt2.ts'
import { ask, type Refused, type Serving, servingAll } from './helpers.ts'

/** Most of it are tokens of several bytes, some of several characters. */
const PROMPT = 'The quick brown fox jumps over the lazy dog.\nnaïve café — größe: 00012 xxxxxxxx'
const model = 'words'
const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
let client: OpenAI
beforeAll(async () => {
  const { dir } = await openFamily('subwords', temporary())
  gateway = await servingAll((end) => ends.push(end), '--model', dir, '--model-name', model)
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', maxRetries: 0 })
})
afterAll(() => Promise.all(ends.map((end) => end())))

interface Tokenized {
  readonly count: number
  readonly max_model_len: number | null
  readonly tokens: readonly number[]
}
const post = async <T>(path: string, body: unknown, { url } = gateway): Promise<T> => {
  const told = await ask<T>(`${url}/v1/${path}`, body)
  expect(told.body).not.toHaveProperty('error')
  return told.body
}
const refused = async (path: string, body: unknown, { url } = gateway) => {
  const told = await ask<Refused>(`${url}/v1/${path}`, body)
  return [told.status, told.body.error.param, told.body.error.message]
}
const asked = { model, max_tokens: 4, temperature: 0 } as const
const question = { role: 'user', content: 'The quick brown fox' } as const

describe('the ids of a text', () => {
  test('are those that a session reads of it', async () => {
    const { count, tokens, max_model_len } = await post<Tokenized>('tokenize', { model, prompt: PROMPT })
    expect(tokens).toHaveLength(count)
    expect(count).toBeLessThan(PROMPT.length / 2)
    expect(max_model_len).toBeNull()
    const [text, ids] = await Promise.all([
      client.completions.create({ ...asked, prompt: PROMPT }),
      client.completions.create({ ...asked, prompt: [...tokens] }),
    ])
    expect(text.usage!.prompt_tokens).toBe(count)
    expect(ids.choices[0]!.text).toBe(text.choices[0]!.text)
  })

  test('are given back as the text', async () => {
    const { tokens } = await post<Tokenized>('tokenize', { prompt: PROMPT })
    expect(await post('detokenize', { model, tokens })).toEqual({ prompt: PROMPT })
    expect(await post('detokenize', { tokens: [] })).toEqual({ prompt: '' })
    expect(await post('tokenize', { prompt: '' })).toMatchObject({ count: 0, tokens: [] })
  })

  test('are those of the whole, however long it is', async () => {
    const { count: one } = await post<Tokenized>('tokenize', { prompt: '😀 brown fox' })
    const { count, tokens } = await post<Tokenized>('tokenize', { prompt: '😀 brown fox'.repeat(20_000) })
    expect(count).toBe(20_000 * one)
    expect(tokens).toHaveLength(count)
    expect(await post('detokenize', { tokens })).toEqual({ prompt: '😀 brown fox'.repeat(20_000) })
  })

  test('may make a text that is longer than a request may be, which is refused', async () => {
    const { tokens } = await post<Tokenized>('tokenize', { prompt: ' nobody counts', messages: null })
    expect(tokens).toHaveLength(1)
    expect(await refused('detokenize', { tokens: Array.from({ length: 400_000 }, () => tokens[0]) })).toEqual([
      400,
      'tokens',
      expect.stringContaining(`more than ${2 << 20} bytes`),
    ])
  })
})

describe('the ids of a conversation', () => {
  test('are as many as a chat, a response and their counts say', async () => {
    const { count } = await post<Tokenized>('tokenize', { model, messages: [question] })
    const chat = await client.chat.completions.create({ ...asked, messages: [question] })
    const response = await client.responses.create({ model, max_output_tokens: 4, input: [question] })
    const { input_tokens: counted, object } = await client.responses.inputTokens.count({ model, input: [question] })
    expect(object).toBe('response.input_tokens')
    expect([chat.usage!.prompt_tokens, response.usage!.input_tokens, counted]).toEqual([count, count, count])
  })

  test('end where an answer begins, or goes on; alone, with the last message', async () => {
    const textOf = async (body: object): Promise<string> => {
      const { tokens } = await post<Tokenized>('tokenize', body)
      return (await post<{ readonly prompt: string }>('detokenize', { tokens })).prompt
    }
    const messages = [question, { role: 'assistant', content: ' jumps ' }]
    expect(await textOf({ messages: [question] })).toBe('User: The quick brown fox\n\nAssistant:')
    expect(await textOf({ messages: [question], add_generation_prompt: false })).toBe('User: The quick brown fox')
    expect(await textOf({ messages })).toBe('User: The quick brown fox\n\nAssistant: jumps ')
    expect(await textOf({ messages, add_generation_prompt: false })).toBe(
      'User: The quick brown fox\n\nAssistant: jumps',
    )
  })
})

describe('the count of a response', () => {
  test('has its instructions, its items, and those that it names', async () => {
    const first = await client.responses.create({ model, max_output_tokens: 4, input: [question] })
    const input = [question, { type: 'item_reference' as const, id: first.output[0]!.id! }, question]
    const body = { model, instructions: 'The lazy dog', input }
    const { usage } = await client.responses.create({ ...body, max_output_tokens: 4 })
    expect((await client.responses.inputTokens.count(body)).input_tokens).toBe(usage!.input_tokens)
    const hinted = await client.responses.inputTokens.count({
      ...body,
      ...{ tools: [], tool_choice: 'auto', parallel_tool_calls: true, truncation: 'disabled' },
      text: { format: { type: 'text' } },
    })
    expect(hinted.input_tokens).toBe(usage!.input_tokens)
  })

  test('is refused for what a session has read', async () => {
    const body = { model, input: 'x', previous_response_id: 'resp_x' }
    expect(await refused('responses/input_tokens', body)).toEqual([
      400,
      'previous_response_id',
      expect.stringContaining('what a session has read before'),
    ])
  })
})

describe('refused', () => {
  test.each([
    ['tokenize', { model: 'other', prompt: 'x' }, 404, 'model'],
    ['tokenize', { prompt: 5 }, 400, 'prompt'],
    ['tokenize', {}, 400, 'prompt'],
    ['tokenize', { prompt: '\ud800' }, 400, 'prompt'],
    ['tokenize', { prompt: 'x', add_special_tokens: false }, 400, 'add_special_tokens'],
    ['tokenize', { prompt: 'x', return_token_strs: true }, 400, 'return_token_strs'],
    ['tokenize', { prompt: 'x', messages: [question] }, 400, 'prompt'],
    ['tokenize', { messages: [] }, 400, 'messages'],
    ['tokenize', { messages: [question], chat_template: 'x' }, 400, 'chat_template'],
    ['detokenize', { model: 'other', tokens: [] }, 404, 'model'],
    ['detokenize', { tokens: [1e6] }, 400, 'tokens'],
    ['detokenize', { tokens: 'x' }, 400, 'tokens'],
    ['responses/input_tokens', { model: 'other', input: 'x' }, 404, 'model'],
    ['responses/input_tokens', { input: [] }, 400, 'input'],
  ])('%s %j', async (path, body, status, param) => {
    expect(await refused(path, body)).toEqual([status, param, expect.stringMatching(/^\S.* .*[.]$/)])
  })

  test('for a model without a tokenizer', { tags: 'slow' }, async () => {
    const dir = join(temporary(), 'ids')
    const sizes = { L: 1, H: 2, N: 16, F: 32, V: 300, P: 128 }
    mkdirSync(dir)
    writePackageTo(dir, gpt2ConfigOf(sizes), safetensors(randomGpt2(5, sizes)))
    const ids = await servingAll((end) => ends.push(end), '--model', dir, '--model-name', 'ids')
    for (const [path, body] of [
      ['tokenize', { prompt: 'x' }],
      ['tokenize', { messages: [question] }],
      ['detokenize', { tokens: [1] }],
    ] as const)
      expect(await refused(path, body, ids)).toEqual([400, null, expect.stringContaining('has no tokenizer')])
    expect(await refused('responses/input_tokens', { input: 'x' }, ids)).toEqual([
      400,
      null,
      expect.stringContaining('has no tokenizer'),
    ])
  })

  test('a body that is longer than the bound; and the length of a context is told', { tags: 'slow' }, async () => {
    const { dir } = await openFamily('gpt2-refuse', temporary())
    const short = await servingAll((end) => ends.push(end), '--model', dir, '--body-limit', '2048')
    expect((await refused('tokenize', { prompt: 'x'.repeat(3000) }, short))[0]).toBe(413)
    expect(await post('tokenize', { prompt: 'xy' }, short)).toEqual({
      count: 2,
      max_model_len: 128,
      tokens: [120, 121],
    })
  })
})
