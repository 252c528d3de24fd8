/**
 * A prompt that is given back with what each of its tokens had, as evaluation harnesses ask for it.
 *
 * @module-tag slow
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

const prompt = 'The harbour master saw é.'
const length = Buffer.byteLength(prompt)
const asked = { model: 'demo', prompt, temperature: 0, echo: true }
interface Logprobs {
  readonly tokens: string[]
  readonly token_logprobs: (number | null)[]
  readonly top_logprobs: (Record<string, number> | null)[] | null
  readonly text_offset: number[]
}
const create = async (more: object) => {
  const { choices, usage } = await client.completions.create({ ...asked, ...more })
  return {
    text: choices[0]!.text,
    finish: choices[0]!.finish_reason,
    usage,
    logprobs: choices[0]!.logprobs as Logprobs | null,
  }
}

describe('a prompt alone', () => {
  test('has of each token what the model gave it, and of the first nothing', async () => {
    const { text, finish, usage, logprobs } = await create({ max_tokens: 0, logprobs: 0 })
    expect([text, finish]).toEqual([prompt, 'length'])
    expect(usage).toMatchObject({ prompt_tokens: length, completion_tokens: 0, total_tokens: length })
    expect(logprobs!.tokens).toHaveLength(length)
    expect(logprobs!.token_logprobs[0]).toBeNull()
    expect(logprobs!.token_logprobs.slice(1).every((value) => value !== null && value < 0)).toBe(true)
    expect(logprobs!.top_logprobs).toBeNull()
    expect(logprobs!.text_offset.slice(0, 4)).toEqual([0, 1, 2, 3])
    // A character of two bytes is two tokens here, at one place.
    expect(logprobs!.text_offset.slice(-3)).toEqual([23, 23, 24])
  })

  test('has the likeliest beside each where they are asked for, and the same numbers', async () => {
    const without = await create({ max_tokens: 0, logprobs: 0 })
    const { logprobs } = await create({ max_tokens: 0, logprobs: 3 })
    for (const [at, logprob] of logprobs!.token_logprobs.entries())
      if (logprob === null) expect([at, logprobs!.top_logprobs![at]]).toEqual([0, null])
      else {
        expect(logprob).toBeCloseTo(without.logprobs!.token_logprobs[at]!, 3)
        const top = Object.values(logprobs!.top_logprobs![at]!)
        expect(top.length).toBeGreaterThanOrEqual(3)
        expect(Math.max(...top)).toBeGreaterThanOrEqual(logprob)
      }
  })

  test('by its ids is the same, in a stream too, and without logprobs the text alone', async () => {
    const whole = await create({ max_tokens: 0, logprobs: 0 })
    expect(await create({ max_tokens: 0, logprobs: 0, prompt: [...Buffer.from(prompt)] })).toEqual(whole)
    const texts: string[] = []
    let logprobs: unknown
    for await (const { choices } of await client.completions.create({
      ...asked,
      max_tokens: 0,
      logprobs: 0,
      stream: true,
    })) {
      texts.push(choices[0]!.text)
      logprobs ??= choices[0]!.logprobs
    }
    expect([texts.join(''), logprobs]).toEqual([prompt, whole.logprobs])
    expect(await create({ max_tokens: 0 })).toMatchObject({
      text: prompt,
      logprobs: null,
      usage: { prompt_tokens: length },
    })
  })
})

describe('a prompt before an answer', () => {
  test.each([undefined, 0, 2])('is that of the answer without it, with logprobs %s', async (logprobs) => {
    const more = { max_tokens: 6, ...(logprobs !== undefined && { logprobs }) }
    const { text, usage, logprobs: all } = await create(more)
    const alone = await client.completions.create({ ...asked, ...more, echo: false })
    expect(text).toBe(`${prompt}${alone.choices[0]!.text}`)
    expect(usage).toEqual(alone.usage)
    if (logprobs === undefined) return expect(all).toBeNull()
    const behind = alone.choices[0]!.logprobs as Logprobs
    expect(all!.tokens.slice(length)).toEqual(behind.tokens)
    for (const [at, value] of all!.token_logprobs.slice(length).entries())
      expect(value).toBeCloseTo(behind.token_logprobs[at]!, 3)
    expect(all!.text_offset.slice(length)).toEqual(behind.text_offset.map((offset) => offset + prompt.length))
  })

  test('as a harness scores a continuation: its tokens between the context and the one that is generated', async () => {
    const context = 'The harbour '
    const score = async (continuation: string) => {
      const ids = [...Buffer.from(`${context}${continuation}`)]
      const { logprobs } = await create({ prompt: ids, max_tokens: 1, logprobs: 1, seed: 1234 })
      const from = context.length
      const scored = logprobs!.token_logprobs.slice(from, -1) as number[]
      const tops = logprobs!.top_logprobs!.slice(from, -1) as Record<string, number>[]
      expect(scored).toHaveLength(continuation.length)
      const isGreedy = scored.every((value, at) => value === Math.max(...Object.values(tops[at]!)))
      return { sum: scored.reduce((sum, value) => sum + value, 0), isGreedy }
    }
    const greedy = (await client.completions.create({ ...asked, echo: false, prompt: context, max_tokens: 5 }))
      .choices[0]!.text
    const [likely, unlikely] = [await score(greedy), await score('zqxjw')]
    expect([likely.isGreedy, unlikely.isGreedy]).toEqual([true, false])
    expect(likely.sum).toBeGreaterThan(unlikely.sum)
  })

  test('leaves no session open', async () => {
    await expect
      .poll(async () => (await ask<{ sessions: object[] }>(`${gateway.url}/v1/sessions?status=open`)).body.sessions)
      .toEqual([])
  })
})

test('is refused by name where it cannot be had', async () => {
  const { dir } = await openFamily('gpt2-refuse', temporary())
  const short = await servingAll((end) => ends.push(end), '--model', dir, '--model-name', 'demo')
  const refused = async ({ url }: Serving, more: object, headers = {}) => {
    const { status, body } = await ask<Refused>(`${url}/v1/completions`, { ...asked, ...more }, headers)
    return [status, body.error.param, body.error.code]
  }
  expect(await refused(gateway, { prompt: '' })).toEqual([400, 'prompt', null])
  expect(await refused(gateway, {}, inSession('s').headers)).toEqual([400, 'x-session', null])
  expect(await refused(gateway, { prompt: 'x'.repeat(5000), logprobs: 1 })).toEqual([400, 'logprobs', null])
  for (const logprobs of [0, 1])
    expect(await refused(short, { prompt: 'x'.repeat(200), logprobs })).toEqual([
      400,
      'prompt',
      'context_length_exceeded',
    ])
})
