/** The client that OpenAI publishes, as it is, against a gateway with a worker. */
import OpenAI from 'openai'
import { zodResponseFormat } from 'openai/helpers/zod'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { openChat } from '../../src/models/chat/index.ts'
import { openPackage } from '../../src/models/open.ts'
import { chatTurn } from '../../src/sessions/chat.ts'
import { SessionManager } from '../../src/sessions/manager.ts'
import type { Generated } from '../../topics/tokens.ts'
import { MODEL } from '../cli/helpers.ts'
import { eventually } from '../streams/helpers.ts'
import { ask, inSession, messages, type Refused, type Serving, servingAll } from './helpers.ts'

const PROMPT = 'The harbour master wrote in his log: '
const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
let client: OpenAI

beforeAll(async () => {
  gateway = await servingAll((end) => ends.push(end))
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', maxRetries: 0 })
})
afterAll(() => Promise.all(ends.map((end) => end())))

/** What the engine itself makes of it, without a log and without a gateway. */
const directly = async <T>(
  use: (manager: SessionManager, loaded: Awaited<ReturnType<typeof openPackage>>) => Promise<T>,
) => {
  const loaded = await openPackage(MODEL, { threads: 1 })
  const manager = new SessionManager(loaded.model, { tokenizer: loaded.tokenizer! })
  try {
    return await use(manager, loaded)
  } finally {
    await manager.close()
    loaded.model.close()
  }
}

const refusalOf = async (call: Promise<unknown>): Promise<InstanceType<typeof OpenAI.APIError>> => {
  const error = await call.then(
    () => expect.fail('the request was not refused'),
    (thrown: unknown) => thrown,
  )
  return error instanceof OpenAI.APIError ? error : expect.fail(String(error))
}

describe('models', () => {
  test('are listed, found by name, and missed by another', async () => {
    const { data } = await client.models.list()
    expect(data).toMatchObject([{ id: 'demo', object: 'model', owned_by: 'continuo' }])
    expect(await client.models.retrieve('demo')).toMatchObject({ id: 'demo' })
    expect(await refusalOf(client.models.retrieve('org/other'))).toMatchObject({ status: 404, code: 'model_not_found' })
  })
})

describe('completions', () => {
  const request = { model: 'demo', prompt: PROMPT, max_tokens: 40, temperature: 0.9, top_p: 0.95, seed: 7 }

  test('are what the engine gives by itself, with its logprobs and its counts', async () => {
    const expected = await directly(async (manager) => {
      const session = manager.createSession('s')
      await manager.process(session, PROMPT)
      return manager.generate(session, { maxTokens: 40, temperature: 0.9, topP: 0.95, seed: 7 })
    })
    const { choices, usage } = await client.completions.create({ ...request, logprobs: 0 })
    const [choice] = choices
    expect(choice).toMatchObject({ text: expected.text, finish_reason: 'length', index: 0 })
    expect(choice!.logprobs!.token_logprobs).toEqual([...expected.logprobs])
    expect(choice!.logprobs!.tokens).toHaveLength(40)
    expect(usage).toEqual({
      prompt_tokens: PROMPT.length,
      completion_tokens: 40,
      total_tokens: PROMPT.length + 40,
      prompt_tokens_details: { cached_tokens: 0 },
    })
  })

  test('come in pieces that put together are the whole', async () => {
    const whole = await client.completions.create(request)
    const stream = await client.completions.create({
      ...request,
      stream: true,
      stream_options: { include_usage: true },
    })
    let text = ''
    const finishes: unknown[] = []
    let usage: unknown
    for await (const chunk of stream) {
      text += chunk.choices[0]?.text ?? ''
      if (chunk.choices[0]?.finish_reason != null) finishes.push(chunk.choices[0].finish_reason)
      usage = chunk.usage ?? usage
    }
    expect(text).toBe(whole.choices[0]!.text)
    expect(finishes).toEqual(['length'])
    expect(usage).toEqual(whole.usage)
  })

  test('are drawn with penalties, biases and cuts as the engine draws with them', async () => {
    const bias = { 101: -2.5, 32: 0.5 }
    const options = {
      minP: 0.05,
      repetitionPenalty: 1.2,
      presencePenalty: 0.4,
      frequencyPenalty: -0.1,
      penaltyLast: 12,
    }
    const expected = await directly(async (manager) => {
      const session = manager.createSession('s')
      await manager.process(session, PROMPT)
      return manager.generate(session, {
        maxTokens: 40,
        temperature: 0.9,
        topP: 0.95,
        seed: 7,
        logitBias: bias,
        ...options,
      })
    })
    const plain = await client.completions.create(request)
    const { choices } = await client.completions.create({
      ...request,
      ...{ presence_penalty: 0.4, frequency_penalty: -0.1, logit_bias: bias },
      ...{ min_p: 0.05, repetition_penalty: 1.2, repeat_last_n: 12 },
    })
    expect(choices[0]!.text).toBe(expected.text)
    expect(choices[0]!.text).not.toBe(plain.choices[0]!.text)
  })

  test('give the likeliest tokens in the place of each, whole and streamed', async () => {
    const { choices } = await client.completions.create({ ...request, temperature: 1.5, logprobs: 3 })
    const { tokens, token_logprobs: own, top_logprobs: top } = choices[0]!.logprobs!
    expect(top).toHaveLength(40)
    for (const [at, all] of top!.entries()) {
      const others = Object.values(all)
      expect(all[tokens![at]!]).toBe(own![at])
      expect([3, 4]).toContain(others.length)
      expect(others).toEqual(others.toSorted((a, b) => b - a))
      // What is not among the likeliest three is likelier than none of them.
      if (others.length === 4) expect(own![at]).toBe(Math.min(...others))
    }
    expect(top!.some((all) => Object.keys(all).length === 4)).toBe(true)
    const streamed: unknown[] = []
    const stream = await client.completions.create({ ...request, temperature: 1.5, logprobs: 3, stream: true })
    for await (const chunk of stream) streamed.push(...(chunk.choices[0]?.logprobs?.top_logprobs ?? []))
    expect(streamed).toEqual(top)
  })

  test('end before a stop text, streamed or not, whatever piece it begins in', async () => {
    const { choices } = await client.completions.create(request)
    const whole = choices[0]!.text
    const stop = whole.slice(17, 20)
    const before = whole.slice(0, whole.indexOf(stop))
    const stopped = await client.completions.create({ ...request, stop: ['never there', stop] })
    expect(stopped.choices[0]).toMatchObject({ text: before, finish_reason: 'stop' })
    let text = ''
    for await (const chunk of await client.completions.create({ ...request, stop, stream: true }))
      text += chunk.choices[0]?.text
    expect(text).toBe(before)
  })

  test('take a prompt of ids, and one in a list', async () => {
    const ids = [...Buffer.from(PROMPT)]
    const texts = await Promise.all(
      [ids, [ids], [PROMPT], PROMPT].map(
        async (prompt) => (await client.completions.create({ ...request, prompt })).choices[0]!.text,
      ),
    )
    expect(new Set(texts).size).toBe(1)
  })

  test('without a seed differ, and the header says what was drawn with', async () => {
    const { seed: _, ...unseeded } = request
    const first = await client.completions.create(unseeded).withResponse()
    const again = await client.completions.create({ ...unseeded, seed: Number(first.response.headers.get('x-seed')) })
    expect(again.choices[0]!.text).toBe(first.data.choices[0]!.text)
    const other = await client.completions.create(unseeded)
    expect(other.choices[0]!.text).not.toBe(first.data.choices[0]!.text)
  })

  test('leave a closed session of their own, and go on in one that is named', async () => {
    const { response } = await client.completions.create({ ...request, max_tokens: 2 }).withResponse()
    const own = response.headers.get('x-session')!
    const head = async (id: string) => (await ask(`${gateway.url}/v1/sessions/${encodeURIComponent(id)}`)).body
    await expect.poll(() => head(own)).toMatchObject({ status: 'closed', tokens: PROMPT.length, generated: 2 })

    const name = 'Anna Ωlson'
    await client.completions.create({ ...request, max_tokens: 3 }, inSession(name))
    await client.completions.create({ ...request, prompt: '', max_tokens: 4 }, inSession(name))
    await expect
      .poll(() => head(name))
      .toMatchObject({ status: 'open', tokens: PROMPT.length, generated: 7, pulse: PROMPT.length + 7 })
  })
})

describe('answers of a form', () => {
  const ship = z.object({
    name: z.string().regex(/^[A-Z][a-z]{2,8}$/),
    cargo: z.enum(['salt', 'coal']),
    crew: z.int().min(3).max(40),
    mate: z.union([z.object({ watches: z.array(z.boolean()).max(3) }), z.null()]),
  })
  const messages = [{ role: 'user' as const, content: 'Which ship came in?' }]
  const request = { model: 'demo', messages, max_tokens: 300, seed: 5, temperature: 1 }

  test('are parsed by the client, as the schema of the request has them', { tags: 'slow' }, async () => {
    const format = zodResponseFormat(ship, 'ship')
    const { choices } = await client.chat.completions.parse({ ...request, response_format: format })
    expect(choices[0]).toMatchObject({ finish_reason: 'stop' })
    expect(ship.parse(choices[0]!.message.parsed)).toEqual(JSON.parse(choices[0]!.message.content!))
    const stream = client.chat.completions.stream({ ...request, response_format: format })
    expect((await stream.finalChatCompletion()).choices[0]!.message.parsed).toEqual(choices[0]!.message.parsed)
  })

  test('are JSON, or of a grammar', async () => {
    const object = await client.chat.completions.create({
      ...request,
      temperature: 0.3,
      response_format: { type: 'json_object' },
      stop: '}',
    })
    expect(object.choices[0]!.message.content).toMatch(/^\{/)
    const given = { model: 'demo', prompt: PROMPT, seed: 2, max_tokens: 50 }
    const answers = [{ type: 'regex', pattern: 'It was (calm|rough)\\.' }, 'root ::= "It was " ("calm" | "rough") "."']
    for (const grammar of answers) {
      const { choices } = await client.completions.create({ ...given, ...{ grammar } })
      expect(choices[0]).toMatchObject({
        text: expect.stringMatching(/^It was (calm|rough)\.$/),
        finish_reason: 'stop',
      })
    }
    const cut = await client.completions.create({ ...given, max_tokens: 5, ...{ grammar: answers[1] } })
    expect(cut.choices[0]).toMatchObject({ text: 'It wa', finish_reason: 'length' })
  })
})

describe('chat', () => {
  const question = { role: 'user' as const, content: 'What did the harbour master see?' }
  const request = { model: 'demo', max_completion_tokens: 48, temperature: 0.8, seed: 3 }

  test('is the conversation that the package writes, turn by turn on one session', async () => {
    const expected = await directly(async (manager, { model, tokenizer, metadata }) => {
      const { dir, modelType } = model
      const form = await openChat({ dir, modelType, tokenizer: tokenizer!, metadata }, { system: 'Be brief.' })
      const session = manager.createSession('chat')
      const options = { maxTokens: 48, temperature: 0.8, seed: 3 }
      const one = await chatTurn(manager, session, form, question.content, options)
      const two = await chatTurn(manager, session, form, 'And then?', options)
      return [one.text, two.text]
    })
    const first = await client.chat.completions.create(
      { ...request, messages: [{ role: 'developer', content: 'Be brief.' }, question], logprobs: true },
      inSession('chat'),
    )
    expect(first.choices[0]!.message).toMatchObject({ role: 'assistant', content: expected[0] })
    expect(first.choices[0]!.logprobs!.content!.length).toBe(first.usage!.completion_tokens)
    let text = ''
    const stream = await client.chat.completions.create(
      { ...request, messages: [{ role: 'user', content: [{ type: 'text', text: 'And then?' }] }], stream: true },
      inSession('chat'),
    )
    for await (const chunk of stream) text += chunk.choices[0]?.delta.content ?? ''
    expect(text).toBe(expected[1])
  })

  test('begins anew on a session that was deleted, with the opening of its template', async () => {
    const named = { ...request, messages: [question] }
    const first = await client.chat.completions.create(named, inSession('deleted'))
    expect((await ask(`${gateway.url}/v1/sessions/deleted/chunks`, { type: 'delete' })).status).toBe(202)
    await eventually(async () => expect((await fetch(`${gateway.url}/v1/sessions/deleted`)).status).toBe(404))
    const again = await client.chat.completions.create(named, inSession('deleted'))
    expect(again.choices[0]!.message.content).toBe(first.choices[0]!.message.content)
    expect(again.usage).toEqual(first.usage)
  })

  test('gives alternatives as OpenAI writes them', async () => {
    const { choices } = await client.chat.completions.create({
      ...request,
      ...{ messages: [question], logprobs: true, top_logprobs: 4, logit_bias: { 10: -100 } },
    })
    const { content } = choices[0]!.logprobs!
    expect(content!.length).toBeGreaterThan(10)
    for (const { token, bytes, top_logprobs: top } of content!) {
      expect(top).toHaveLength(4)
      // What the model thinks, biases or not.
      expect(top.reduce((sum, { logprob }) => sum + Math.exp(logprob), 0)).toBeLessThanOrEqual(1.000001)
      expect(top.map(({ logprob }) => logprob)).toEqual(top.map(({ logprob }) => logprob).toSorted((a, b) => b - a))
      expect(new Set(top.map(({ token: each }) => each)).size).toBe(4)
      expect(bytes).not.toEqual([10])
      expect(token).not.toBe('\n')
    }
  })

  test('without a session has what its messages say, answers of before among them', async () => {
    const history = [
      question,
      { role: 'assistant' as const, content: 'A sail.' },
      { role: 'user' as const, content: 'Whose?' },
    ]
    const alone = await client.chat.completions.create({ ...request, messages: history })
    const again = await client.chat.completions.create({ ...request, messages: history })
    expect(again.choices[0]!.message.content).toBe(alone.choices[0]!.message.content)
    const other = await client.chat.completions.create({ ...request, messages: [question] })
    expect(other.usage!.prompt_tokens).toBeLessThan(alone.usage!.prompt_tokens)
  })

  test('requests to one session take turns', async () => {
    const texts = await Promise.all(
      [1, 2, 3].map((seed) =>
        client.chat.completions.create(
          { ...request, seed, max_completion_tokens: 20, messages: [question] },
          inSession('turns'),
        ),
      ),
    )
    const runs = await messages(`${gateway.url}/v1/sessions/turns/tokens?from=beginning`, 6)
    const requests = runs.map(({ data }) => (JSON.parse(data) as Generated).requestId)
    expect(new Set(requests)).toEqual(new Set(texts.map(({ id }) => id)))
    expect(new Set([requests[0], requests[2], requests[4]]).size).toBe(3)
    const whole = texts.map(({ usage }) => usage!.prompt_tokens).sort()
    // The first begins with the conversation; those that follow put an empty line before theirs.
    expect(whole[1]).toBe(whole[2])
    expect(whole[1]! - whole[0]!).toBe(2)
  })

  test('in a stream leaves nothing behind when the client goes', async () => {
    const stream = await client.chat.completions.create({
      ...request,
      max_completion_tokens: 4000,
      messages: [question],
      stream: true,
    })
    for await (const _ of stream) break
    expect(
      (await client.completions.create({ model: 'demo', prompt: 'x', max_tokens: 1 })).usage!.completion_tokens,
    ).toBe(1)
  })
})

describe('refused with a sentence in the shape of OpenAI', () => {
  const base = { model: 'demo', prompt: 'x', max_tokens: 1 }
  test.each([
    ['another model', { ...base, model: 'gpt-4' }, 404, 'model'],
    ['n', { ...base, n: 9 }, 400, 'n'],
    ['a penalty beyond its range', { ...base, presence_penalty: 2.5 }, 400, 'presence_penalty'],
    ['a bias of what is no id', { ...base, logit_bias: { five: -100 } }, 400, 'logit_bias.five'],
    ['a bias of a token that the model lacks', { ...base, logit_bias: { 256: 1 } }, 400, null],
    ['a share above 1', { ...base, min_p: 1.1 }, 400, 'min_p'],
    ['no token without an echo', { ...base, max_tokens: 0 }, 400, 'max_tokens'],
    ['two answers behind an echo', { ...base, echo: true, n: 2 }, 400, 'n'],
    ['more alternatives than OpenAI gives', { ...base, logprobs: 6 }, 400, 'logprobs'],
    ['what nobody knows', { ...base, temprature: 1 }, 400, 'temprature'],
    ['a temperature below nothing', { ...base, temperature: -1 }, 400, 'temperature'],
    ['an empty prompt', { ...base, prompt: '' }, 400, 'prompt'],
    ['an id that is none', { ...base, prompt: [256] }, 400, 'prompt'],
    ['two prompts', { ...base, prompt: ['a', 'b'] }, 400, 'prompt'],
    ['half a character', { ...base, prompt: '\ud800' }, 400, 'prompt'],
    ['too many tokens', { ...base, max_tokens: 1e6 }, 400, 'max_tokens'],
  ])('%s', async (_, body, status, param) => {
    const refused = await ask<Refused>(`${gateway.url}/v1/completions`, body)
    expect(refused.status).toBe(status)
    expect(refused.body.error).toMatchObject({ type: 'invalid_request_error', param })
    expect(refused.body.error.message).toMatch(/^\S.* .*[.]$/)
  })

  test.each([
    ['a tool of the server', { tools: [{ type: 'web_search' }] }, 'tools.0.type'],
    ['alternatives without logprobs', { top_logprobs: 2 }, 'top_logprobs'],
    [
      'a schema that cannot be kept',
      { response_format: { type: 'json_schema', json_schema: { name: 's', schema: { not: {} } } } },
      'response_format',
    ],
    [
      'a schema that is none',
      { response_format: { type: 'json_schema', json_schema: { name: 's', schema: [] } } },
      'response_format',
    ],
    ['a grammar that cannot be read', { grammar: 'root = "x"' }, 'grammar'],
    ['two grammars', { grammar: { type: 'json' }, response_format: { type: 'json_object' } }, 'grammar'],
    [
      'an image',
      { messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
      'messages',
    ],
    ['a system message at the end', { messages: [{ role: 'system', content: 'x' }] }, 'messages'],
  ])('%s in a chat', async (_, more, param) => {
    const body = { model: 'demo', messages: [{ role: 'user', content: 'x' }], ...more }
    const refused = await ask<Refused>(`${gateway.url}/v1/chat/completions`, body)
    expect(refused.status).toBe(400)
    expect(refused.body.error.param).toContain(param)
  })

  test('what changes nothing is taken: n 1, no penalty, null', async () => {
    const body = {
      ...base,
      n: 1,
      presence_penalty: 0,
      frequency_penalty: 0,
      logit_bias: {},
      stop: null,
      user: null,
      suffix: null,
    }
    expect((await ask(`${gateway.url}/v1/completions`, body)).status).toBe(200)
  })
})
