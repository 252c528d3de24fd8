/**
 * Metrics and spans of answers by the names of OpenTelemetry's conventions: the counts are those of `usage`, and
 * nothing of a session is in them.
 *
 * @module-tag slow
 */
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { eventually } from '../streams/helpers.ts'
import { ask, eventsOf, type Refused, type Serving, servingAll } from './helpers.ts'

interface SentSpan {
  readonly traceId: string
  readonly spanId: string
  readonly parentSpanId?: string
  readonly name: string
  readonly kind: number
  readonly startTimeUnixNano: string
  readonly endTimeUnixNano: string
  readonly attributes: readonly { readonly key: string; readonly value: Record<string, unknown> }[]
  readonly status: { readonly code?: number }
}
interface Sent {
  readonly resourceSpans: readonly { readonly scopeSpans: readonly { readonly spans: readonly SentSpan[] }[] }[]
}

const spans: SentSpan[] = []
const collector = createServer(async (request, response) => {
  const parts: Buffer[] = []
  for await (const part of request) parts.push(part as Buffer)
  const { resourceSpans } = JSON.parse(Buffer.concat(parts).toString()) as Sent
  spans.push(...resourceSpans.flatMap(({ scopeSpans }) => scopeSpans.flatMap((scope) => scope.spans)))
  response.setHeader('content-type', 'application/json').end('{}')
})
let gateway: Serving
beforeAll(async () => {
  await new Promise<void>((resolve) => collector.listen(0, '127.0.0.1', resolve))
  gateway = await servingAll(afterAll, '--otlp', `http://127.0.0.1:${(collector.address() as AddressInfo).port}`)
})
afterAll(() => void collector.close())

/** The value of a sample, whatever labels it has beside these; 0 where there is none. */
const scrape = async () => {
  const text = await (await fetch(`${gateway.url}/metrics`)).text()
  const lines = text.split('\n')
  return {
    text,
    value: (name: string, ...labels: readonly string[]): number =>
      lines
        .filter((line) => line.startsWith(`${name}{`) && labels.every((label) => line.includes(label)))
        .reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0),
  }
}
/**
 * Metrics once so many requests more of an operation are over than `before` says: one is counted when its answer was
 * handed over.
 */
const afterRequests = async (before: Awaited<ReturnType<typeof scrape>>, operation: string, more: number) => {
  const count = ({ value }: typeof before) => value('gen_ai_server_request_duration_seconds_count', operation)
  await expect.poll(async () => count(await scrape()) - count(before), { timeout: 10_000 }).toBe(more)
  const now = await scrape()
  return {
    ...now,
    more: (name: string, ...labels: string[]) => now.value(name, ...labels) - before.value(name, ...labels),
  }
}

const CHAT = 'gen_ai_operation_name="chat"'
const TEXT = 'gen_ai_operation_name="text_completion"'
const chat = { model: 'demo', messages: [{ role: 'user', content: 'What is new?' }], max_tokens: 24, seed: 1 }
interface Usage {
  readonly id: string
  readonly usage: { readonly prompt_tokens: number; readonly completion_tokens: number }
}

describe('metrics', () => {
  test('of an answer that is given whole are its usage, its time and its place', async () => {
    const before = await scrape()
    const { body } = await ask<Usage>(`${gateway.url}/v1/chat/completions`, chat)
    const { more, text } = await afterRequests(before, CHAT, 1)
    const input = more('gen_ai_client_token_usage_sum', CHAT, 'gen_ai_token_type="input"')
    const output = more('gen_ai_client_token_usage_sum', CHAT, 'gen_ai_token_type="output"')
    expect([input, output]).toEqual([body.usage.prompt_tokens, body.usage.completion_tokens])
    expect(more('gen_ai_client_token_usage_count', CHAT, 'gen_ai_token_type="output"')).toBe(1)
    const duration = more('gen_ai_server_request_duration_seconds_sum', CHAT)
    const first = more('gen_ai_server_time_to_first_token_seconds_sum', CHAT)
    expect(first).toBeGreaterThan(0)
    expect(duration).toBeGreaterThanOrEqual(first)
    expect(more('gen_ai_server_time_per_output_token_seconds_count', CHAT)).toBe(1)
    expect(more('gen_ai_server_time_per_output_token_seconds_sum', CHAT)).toBeLessThan(duration)
    const port = new URL(gateway.url).port
    expect(text).toContain(
      `gen_ai_server_request_duration_seconds_count{gen_ai_operation_name="chat",gen_ai_provider_name="continuo",gen_ai_request_model="demo",gen_ai_response_model="demo",server_address="127.0.0.1",server_port="${port}"}`,
    )
    // The conventions' buckets.
    const buckets = (name: string): number[] => [
      ...new Set([...text.matchAll(new RegExp(`^${name}_bucket\\{le="([\\d.]+)"`, 'gm'))].map(([, le]) => Number(le))),
    ]
    expect(buckets('gen_ai_server_request_duration_seconds').slice(0, 3)).toEqual([0.01, 0.02, 0.04])
    expect(buckets('gen_ai_server_time_to_first_token_seconds')).toHaveLength(16)
    expect(buckets('gen_ai_server_time_per_output_token_seconds')).toHaveLength(13)
    expect(buckets('gen_ai_client_token_usage').at(-1)).toBe(67_108_864)
  })

  test('of streams of each protocol are the same', async () => {
    const input = [{ role: 'user', content: 'What is new?' }]
    const requests: [path: string, operation: string, body: object][] = [
      ['/v1/completions', TEXT, { model: 'demo', prompt: 'The sea ', max_tokens: 24, seed: 1 }],
      ['/v1/chat/completions', CHAT, chat],
      ['/v1/messages', CHAT, { model: 'demo', messages: chat.messages, max_tokens: 24 }],
      ['/v1/responses', CHAT, { model: 'demo', input, max_output_tokens: 24 }],
    ]
    for (const [path, operation, body] of requests) {
      const before = await scrape()
      const response = await fetch(`${gateway.url}${path}`, {
        method: 'POST',
        headers: { 'content-type': 'application/json' },
        body: JSON.stringify({ ...body, stream: true }),
      })
      for await (const { data } of eventsOf(response)) expect(data).not.toContain('"error":{')
      const { more } = await afterRequests(before, operation, 1)
      expect(more('gen_ai_client_token_usage_sum', operation, 'gen_ai_token_type="output"')).toBe(24)
      expect(more('gen_ai_server_time_to_first_token_seconds_count', operation)).toBe(1)
      expect(more('gen_ai_server_time_per_output_token_seconds_count', operation)).toBe(1)
      expect(more('gen_ai_server_request_duration_seconds_count', operation, 'error_type=')).toBe(0)
    }
  })

  test('of vectors are what was read of all inputs', async () => {
    const VECTORS = 'gen_ai_operation_name="embeddings"'
    const before = await scrape()
    await ask(`${gateway.url}/v1/embeddings`, { model: 'demo', input: ['The sea ', 'a'] })
    const { more } = await afterRequests(before, VECTORS, 1)
    expect(more('gen_ai_client_token_usage_sum', VECTORS, 'gen_ai_token_type="input"')).toBe(9)
    expect(more('gen_ai_client_token_usage_count', VECTORS, 'gen_ai_token_type="output"')).toBe(0)
    expect(more('gen_ai_server_request_duration_seconds_count', VECTORS, 'error_type=')).toBe(0)
  })

  test('of what is refused, and of what its client leaves, have the class of the error and no tokens', async () => {
    const before = await scrape()
    const url = `${gateway.url}/v1/completions`
    await ask<Refused>(url, { model: 'demo', prompt: 'a', max_tokens: 0 })
    await ask<Refused>(url, { model: 'secret-model', prompt: 'a' })
    const leaving = new AbortController()
    const response = await fetch(url, {
      ...{ method: 'POST', headers: { 'content-type': 'application/json' }, signal: leaving.signal },
      body: JSON.stringify({ model: 'demo', prompt: 'The sea ', max_tokens: 4000, stream: true }),
    })
    await eventsOf(response).next()
    leaving.abort()
    const { more, text } = await afterRequests(before, TEXT, 3)
    const failed = (type: string): number =>
      more('gen_ai_server_request_duration_seconds_count', `error_type="${type}"`)
    expect([failed('400'), failed('404'), failed('client_gone')]).toEqual([1, 1, 1])
    expect(more('gen_ai_client_token_usage_count', TEXT)).toBe(0)
    expect(more('gen_ai_server_time_to_first_token_seconds_count', TEXT)).toBe(0)
    expect(text).not.toContain('secret')
  })
})

const attributesOf = ({ attributes }: SentSpan): Record<string, unknown> =>
  Object.fromEntries(attributes.map(({ key, value }) => [key, Object.values(value)[0]]))
const spanOf = (traceId: string, name: string): Promise<SentSpan> => {
  return eventually(
    () =>
      spans.find((span) => span.traceId === traceId && span.name.startsWith(name)) ?? expect.fail(`no span ${name}`),
  )
}

// Spans are sent in batches, every five seconds: the tests wait for them together.
describe.concurrent('spans', () => {
  const PARENT = 'b7ad6b7169203331'
  const traced = (traceId: string, more: object = {}) => ({ traceparent: `00-${traceId}-${PARENT}-01`, ...more })

  test('stand below that of the client and above those of the worker, and say what was asked and given', async () => {
    const trace = '0af7651916cd43dd8448eb211c80319c'
    const headers = traced(trace, { 'x-session': 'secret-session' })
    const asked = { ...chat, temperature: 0.5, stop: ['secret'] }
    const { body } = await ask<Usage>(`${gateway.url}/v1/chat/completions`, asked, headers)
    const span = await spanOf(trace, 'chat demo')
    expect(span).toMatchObject({ name: 'chat demo', kind: 2, parentSpanId: PARENT, status: {} })
    const attributes = attributesOf(span)
    const { prompt_tokens, completion_tokens } = body.usage
    expect(attributes).toMatchObject({
      'gen_ai.operation.name': 'chat',
      'gen_ai.provider.name': 'continuo',
      'gen_ai.request.model': 'demo',
      'gen_ai.request.max_tokens': 24,
      'gen_ai.request.temperature': 0.5,
      'gen_ai.request.seed': 1,
      'gen_ai.output.type': 'text',
      'gen_ai.response.model': 'demo',
      'gen_ai.response.id': body.id,
      'gen_ai.response.finish_reasons': { values: [{ stringValue: 'length' }] },
      'gen_ai.usage.input_tokens': prompt_tokens,
      'gen_ai.usage.output_tokens': completion_tokens,
      'server.address': '127.0.0.1',
      'server.port': Number(new URL(gateway.url).port),
    })
    expect(JSON.stringify(attributes)).not.toContain('secret')
    expect(BigInt(span.endTimeUnixNano) > BigInt(span.startTimeUnixNano)).toBe(true)
    expect(await spanOf(trace, 'process ')).toMatchObject({ parentSpanId: span.spanId })
  })

  test('of responses have no id, which names the session, and of what failed the class of the error', async () => {
    const trace = '1af7651916cd43dd8448eb211c80319c'
    const input = 'What is new?'
    await ask(`${gateway.url}/v1/responses`, { model: 'demo', input, max_output_tokens: 4 }, traced(trace))
    const failed = '2af7651916cd43dd8448eb211c80319c'
    const refused = { model: 'demo', prompt: '' }
    expect((await ask(`${gateway.url}/v1/completions`, refused, traced(failed))).status).toBe(400)
    const attributes = attributesOf(await spanOf(trace, 'chat demo'))
    expect(attributes).toMatchObject({ 'gen_ai.usage.output_tokens': 4 })
    expect(attributes).not.toHaveProperty('gen_ai.response.id')
    const span = await spanOf(failed, 'text_completion demo')
    expect(span.status.code).toBe(2)
    expect(attributesOf(span)).toMatchObject({ 'error.type': '400' })
  })
})
