/** How far a prompt was read, told in its stream before the first token, as llama.cpp's server tells it. */
import OpenAI from 'openai'
import { describe, expect, onTestFinished, test } from 'vitest'
import { continuo, MODEL, start, temporary } from '../cli/helpers.ts'
import { ask, eventsOf, logIn, type Refused, serving, servingAll } from './helpers.ts'

interface Progress {
  readonly total: number | null
  readonly cache: number
  readonly processed: number
  readonly time_ms: number
}
interface Told {
  readonly choices: readonly unknown[]
  readonly prompt_progress?: Progress
}
const LETTERS = 'abcdefghijklmnopqrstuvwxyz \n'
const prompt = Array.from({ length: 3000 }, (_, at) => LETTERS[(at * at + 3 * at) % LETTERS.length]).join('')
const asked = { model: 'demo', max_tokens: 2, temperature: 0, stream: true, return_progress: true } as const
const post = (url: string, path: string, body: object): Promise<Response> =>
  fetch(`${url}/v1/${path}`, {
    method: 'POST',
    headers: { 'content-type': 'application/json' },
    body: JSON.stringify({ ...asked, ...body }),
  })
/** The events of a stream, up to the word that ends it. */
const told = async (response: Response): Promise<Told[]> => {
  const all: Told[] = []
  for await (const { data } of eventsOf(response)) if (data !== '[DONE]') all.push(JSON.parse(data))
  return all
}
const progressIn = (events: readonly Told[]): Progress[] =>
  events.flatMap(({ prompt_progress }) => (prompt_progress === undefined ? [] : [prompt_progress]))

describe('where it is asked for', () => {
  test('grows to all of the prompt before the first token, and says what had been read before', async () => {
    const log = logIn(temporary())
    await continuo(['topics', 'apply', '--log', log])
    const gateway = await serving(log)
    // The stream is open before anybody reads.
    const first = await post(gateway.url, 'completions', { prompt })
    const worker = start(['run', '--log', log, '--model', MODEL, '--threads', '1', '--commit-interval', '1'])
    onTestFinished(async () => {
      for (const { child } of [gateway, worker]) child.kill('SIGTERM')
      await Promise.all([gateway.done, worker.done])
    })
    const events = await told(first)
    const steps = progressIn(events)
    expect(steps.length).toBeGreaterThan(1)
    expect(steps.map(({ total, cache }) => [total, cache])).toEqual(steps.map(() => [3000, 0]))
    expect(steps.map(({ processed }) => processed)).toEqual(
      [...new Set(steps.map(({ processed }) => processed))].sort((a, b) => a - b),
    )
    expect(steps[0]!.processed).toBeLessThan(3000)
    // No event of it behind the first token, nor a choice in one of it.
    expect(events.slice(0, steps.length).every((each) => each.choices.length === 0)).toBe(true)
    expect(progressIn(events.slice(steps.length))).toEqual([])
    expect(events.length).toBeGreaterThan(steps.length)

    worker.child.kill('SIGTERM')
    await worker.done
    const second = await post(gateway.url, 'completions', { prompt: `${prompt}${prompt.slice(0, 1500)}` })
    const next = start(['run', '--log', log, '--model', MODEL, '--threads', '1', '--commit-interval', '1'])
    onTestFinished(async () => {
      next.child.kill('SIGTERM')
      await next.done
    })
    const behind = progressIn(await told(second))
    expect(behind.length).toBeGreaterThan(0)
    for (const { total, cache, processed } of behind) {
      expect([total, cache]).toEqual([4500, 3000])
      expect(processed).toBeGreaterThanOrEqual(cache)
    }
  })

  test('disturbs no client, and is refused by name where nothing can tell it', async () => {
    const { url } = await servingAll((end) => onTestFinished(async () => void (await end())))
    const client = new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
    const messages = [{ role: 'user' as const, content: prompt }]
    const texts: string[] = []
    for (const return_progress of [true, false]) {
      const body = { ...asked, messages, return_progress, seed: 3 }
      let text = ''
      for await (const { choices } of await client.chat.completions.create(body))
        text += choices[0]?.delta.content ?? ''
      texts.push(text)
    }
    expect(texts[0]).toBe(texts[1])
    for (const wrong of [{ stream: false }, { n: 2 }, { echo: true, logprobs: 0 }]) {
      const { status, body } = await ask<Refused>(`${url}/v1/completions`, { ...asked, prompt: 'a', ...wrong })
      expect([status, body.error.param]).toEqual([400, 'return_progress'])
    }
  })
})
