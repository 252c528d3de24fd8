/**
 * Responses over a WebSocket: the events of a stream as messages, by the rules of HTTP, and nothing that a client sends
 * ends more than its connection.
 */
import { connect } from 'node:net'
import { join } from 'node:path'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, onTestFinished, test } from 'vitest'
import type { z } from 'zod'
import { start, temporary } from '../cli/helpers.ts'
import { ask, type Serving, servingAll } from './helpers.ts'
import { checkStream, type Resource, socketError, streamed } from './open-responses.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
let locked: Serving
let key: string
beforeAll(async () => {
  const keys = join(temporary(), 'keys.json')
  const made = await start(['keys', 'add', 'ada', '--keys', keys]).done
  key = /ck_\S+/.exec(made.out)![0]
  const finished = (end: () => Promise<unknown>) => ends.push(end)
  gateway = await servingAll(finished, '--rate-limit', '0', '--body-limit', '65536')
  locked = await servingAll(finished, '--keys', keys, '--rate-limit', '4')
})
afterAll(() => Promise.all(ends.map((end) => end())))

type SocketError = z.output<typeof socketError>
/** Node's client takes headers, which that of browsers does not. */
const Client = WebSocket as unknown as new (
  url: string,
  options: { readonly headers: Record<string, string> },
) => WebSocket

/** A client that reads one message after the other. */
const open = async ({ url }: Serving, headers: Record<string, string> = {}) => {
  const socket = new Client(`${url.replace(/^http/, 'ws')}/v1/responses`, { headers })
  const came: unknown[] = []
  let look = (): void => undefined
  socket.addEventListener('message', ({ data }) => {
    came.push(JSON.parse(String(data)))
    look()
  })
  const closed = new Promise<number>((resolve) => {
    socket.addEventListener('close', ({ code }) => resolve(code))
  })
  socket.addEventListener('error', () => undefined)
  await new Promise<void>((resolve, reject) => {
    socket.addEventListener('open', () => resolve())
    void closed.then((code) => reject(new Error(`closed: ${code}`)))
  })
  onTestFinished(() => socket.close())
  const next = async (): Promise<unknown> => {
    while (came.length === 0)
      await new Promise<void>((resolve) => {
        look = resolve
      })
    return came.shift()
  }
  return {
    socket,
    closed,
    next,
    send: (message: unknown) => socket.send(typeof message === 'string' ? message : JSON.stringify(message)),
    /** The events of a whole response. */
    async response(): Promise<Resource> {
      const events: unknown[] = []
      for (;;) {
        const event = await next()
        events.push(event)
        if (['response.completed', 'response.incomplete', 'response.failed'].includes((event as { type: string }).type))
          return checkStream(events)
      }
    },
    error: async (): Promise<SocketError> => socketError.parse(await next()),
  }
}
const create = { type: 'response.create', model: 'demo', input: 'What is new?', max_output_tokens: 12, temperature: 0 }

describe('a connection', () => {
  test('brings the events of a response as over HTTP, one response after the other, and each goes on', async () => {
    const client = await open(gateway)
    client.send(create)
    const first = await client.response()
    const { type: _, ...body } = create
    const http = await ask<Resource>(`${gateway.url}/v1/responses`, body)
    const contentOf = ({ output }: Resource) => output.map((item) => ('content' in item ? item.content : null))
    expect(contentOf(first)).toEqual(contentOf(http.body))
    expect((await ask(`${gateway.url}/v1/responses/${first.id}`)).body).toEqual(first)
    // Both are asked for at once, and told in their order.
    client.send({ ...create, input: 'And?', previous_response_id: first.id })
    client.send({ ...create, max_output_tokens: 3 })
    expect(await client.response()).toMatchObject({ previous_response_id: first.id })
    expect(await client.response()).toMatchObject({ previous_response_id: null, max_output_tokens: 3 })
  })

  test('that its client leaves ends what is not kept', async () => {
    const client = await open(gateway, { 'x-session': 'left' })
    client.send({ ...create, store: false, max_output_tokens: 4000 })
    for (;;) if (streamed.parse(await client.next()).type === 'response.output_text.delta') break
    client.socket.close()
    await expect
      .poll(async () => (await ask(`${gateway.url}/v1/sessions/left`)).body, { timeout: 20_000 })
      .toMatchObject({ generating: false })
    expect((await ask<{ generated: number }>(`${gateway.url}/v1/sessions/left`)).body.generated).toBeLessThan(4000)
  })

  test.each<[string, unknown, string | null, number]>([
    ['no JSON', '{', null, 400],
    ['no object', '7', 'type', 400],
    ['another event', { ...create, type: 'response.cancel' }, 'type', 400],
    ['a stream', { ...create, stream: true }, 'stream', 400],
    ['options of a stream', { ...create, stream_options: {} }, 'stream_options', 400],
    ['the background', { ...create, background: false }, 'background', 400],
    ['what HTTP refuses', { ...create, temperature: -1 }, 'temperature', 400],
    ['what nobody knows', { ...create, colour: 'red' }, 'colour', 400],
    ['another model', { ...create, model: 'other' }, 'model', 404],
    ['a response that is none', { ...create, previous_response_id: 'resp_x' }, 'previous_response_id', 404],
  ])('refuses %s by name, and goes on', async (_, message, param, status) => {
    const client = await open(gateway)
    client.send(message)
    const { error, ...event } = await client.error()
    expect([event.status, error.param]).toEqual([status, param])
    expect(error.message).toMatch(/^\S.* .*\S$/s)
    if (param === 'previous_response_id') expect(error.code).toBe('previous_response_not_found')
    client.send({ ...create, max_output_tokens: 1 })
    expect(await client.response()).toMatchObject({ status: 'incomplete' })
  })

  test('has bounds: bytes of a message, and requests that wait', async () => {
    const large = await open(gateway)
    large.send({ ...create, input: 'x'.repeat(70_000) })
    expect(await large.closed).toBe(1009)
    const client = await open(gateway)
    client.socket.send(new Uint8Array([1, 2]))
    expect((await client.error()).status).toBe(400)
    for (let sent = 0; sent < 18; sent += 1) client.send({ ...create, max_output_tokens: 1 })
    const refused = await client.error()
    expect([refused.status, refused.error.code]).toEqual([429, 'too_many_requests'])
    for (let told = 0; told < 17; told += 1) await client.response()
  })

  test('is opened by who may ask, each request counts, and no page of another site opens one', async () => {
    await expect(open(locked)).rejects.toThrow('closed')
    await expect(open(gateway, { origin: 'http://elsewhere.example' })).rejects.toThrow('closed')
    const client = await open(locked, { authorization: `Bearer ${key}` })
    for (let sent = 0; sent < 4; sent += 1) client.send({ ...create, max_output_tokens: 1 })
    for (let told = 0; told < 3; told += 1) await client.response()
    const { status, error } = await client.error()
    expect([status, error.code]).toEqual([429, 'rate_limit_exceeded'])
  })

  test('is offered where somebody asks without one', async () => {
    const { status, body } = await ask(`${gateway.url}/v1/responses`)
    expect([status, body]).toEqual([426, { error: expect.objectContaining({ code: 'upgrade_required' }) }])
  })

  test('ends with its gateway, whose answers under way have their time', { tags: 'slow' }, async () => {
    const third = await servingAll(() => undefined)
    const [idle, busy] = [await open(third), await open(third)]
    busy.send({ ...create, max_output_tokens: 30 })
    await busy.next()
    third.child.kill('SIGTERM')
    expect(await idle.closed).toBe(1001)
    for (;;) if (streamed.parse(await busy.next()).type === 'response.incomplete') break
    expect(await busy.closed).toBe(1001)
    expect((await third.done).code).toBe(0)
  })
})

test('an upgrade that is refused, or leads nowhere, leaves no connection', async () => {
  const third = await servingAll(() => undefined)
  const { host, hostname, port } = new URL(third.url)
  const heads = ['/v1/models', '/nowhere', '/%zz', '/v1/responses/x', '/v1/responses?x=1'].map((path) => [path, host])
  for (const [path, named] of [...heads, ['/v1/responses', 'elsewhere.example']]) {
    const raw = connect(Number(port), hostname)
    raw.on('error', () => undefined)
    raw.write(
      `GET ${path} HTTP/1.1\r\nhost: ${named}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
    )
    await new Promise((resolve) => raw.once('data', resolve))
    raw.end()
  }
  third.child.kill('SIGTERM')
  expect((await third.done).code).toBe(0)
})

test('whatever is sent, the gateway answers others', { timeout: 60_000 }, async () => {
  const message = fc.oneof(
    fc.json({ maxDepth: 3 }),
    fc.string({ unit: 'binary' }),
    fc
      .record({
        ...{ type: fc.constant('response.create'), model: fc.constantFrom('demo', 'x') },
        ...{ input: fc.oneof(fc.constant('x'), fc.jsonValue()), max_output_tokens: fc.constantFrom(1, -1) },
      })
      .map((value) => JSON.stringify(value)),
    fc.uint8Array({ maxLength: 100 }),
  )
  await fc.assert(
    fc.asyncProperty(fc.array(message, { minLength: 1, maxLength: 5 }), async (all) => {
      const client = await open(gateway)
      for (const one of all) client.socket.send(one as string)
      await client.next()
      client.socket.close()
    }),
    { numRuns: 30, seed: 20_261_130 },
  )
  // Frames that are none, behind a handshake.
  const { hostname, port } = new URL(gateway.url)
  for (const bytes of [
    [0xff, 0xff, 0xff],
    [0x81, 0x05, 1, 2, 3],
    [0xc1, 0x80, 0, 0, 0, 0],
  ]) {
    const raw = connect(Number(port), hostname)
    raw.on('error', () => undefined)
    raw.write(
      `GET /v1/responses HTTP/1.1\r\nhost: ${hostname}:${port}\r\nconnection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n\r\n`,
    )
    await new Promise((resolve) => raw.once('data', resolve))
    raw.write(Buffer.from(bytes))
    await new Promise((resolve) => raw.once('close', resolve))
  }
  const client = await open(gateway)
  client.send(create)
  expect(await client.response()).toMatchObject({ status: 'incomplete' })
})
