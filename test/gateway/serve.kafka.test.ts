/**
 * The same gateway before a broker, where offsets have gaps and answers are seen a moment after their commit.
 *
 * @module-tag slow
 */
import { randomUUID } from 'node:crypto'
import { describe, expect, inject, test } from 'vitest'
import type { Generated } from '../../topics/tokens.ts'
import { ask, endWithTest, messages, type Refused, serving } from './helpers.ts'

const { brokers, missing } = inject('kafka')

describe.skipIf(brokers === null)(`a gateway on Kafka${brokers === null ? ` (none here: ${missing})` : ''}`, () => {
  test('answers, refuses, and loses and repeats nothing for a client that comes again after each record', async () => {
    const log = `kafka://${brokers}/g${randomUUID().slice(0, 8)}`
    const gateway = await serving(
      log,
      '--with-worker',
      '--threads',
      '1',
      '--partitions',
      '2',
      '--commit-interval',
      '10',
    )
    endWithTest(gateway)
    const at = (path: string): string => `${gateway.url}${path}`
    await expect.poll(async () => (await ask(at('/readyz'))).body, { timeout: 30_000 }).toEqual({ ready: true })

    const request = { model: 'demo', prompt: 'The harbour ', max_tokens: 40, seed: 1 }
    const first = await ask<{ choices: unknown; usage: unknown }>(at('/v1/completions'), request)
    expect(first.status).toBe(200)
    expect(first.body.usage).toMatchObject({ prompt_tokens: 12, completion_tokens: 40, total_tokens: 52 })
    expect((await ask<{ choices: unknown }>(at('/v1/completions'), request)).body.choices).toEqual(first.body.choices)

    const refused = await ask<Refused>(at('/v1/completions'), { ...request, prompt: '', user: 'empty' })
    expect(refused.status).toBe(400)

    const sent = await ask<{ starting_after: string }>(at('/v1/sessions/book/chunks'), [
      { type: 'text', text: 'The harbour ' },
      { type: 'generate', maxTokens: 40, seed: 1 },
    ])
    const runs: Generated[] = []
    let last = sent.body.starting_after
    while (runs.at(-1)?.finish !== 'length') {
      const [event] = await messages(at('/v1/sessions/book/tokens'), 1, { 'last-event-id': last })
      runs.push(JSON.parse(event!.data) as Generated)
      last = event!.id!
    }
    expect(runs.map(({ index }) => index)).toEqual([0, 16, 32])
    expect(first.body.choices).toMatchObject([{ text: runs.map(({ text }) => text).join('') }])
    await expect
      .poll(async () => (await ask(at('/v1/sessions/book'))).body)
      .toMatchObject({ pulse: 52, complete: true })
  })
})
