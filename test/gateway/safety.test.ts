/** Who is let in, how much one may ask, and how a gateway ends. */
import { readdirSync, readFileSync, statSync, writeFileSync } from 'node:fs'
import { request as httpRequest } from 'node:http'
import { request as httpsRequest } from 'node:https'
import { join } from 'node:path'
import { text as textOf } from 'node:stream/consumers'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { continuo, MODEL, start, temporary } from '../cli/helpers.ts'
import { certify } from '../kafka/certificates.ts'
import { ask, endWithTest, eventsOf, logIn, type Refused, type Serving, serving, servingAll } from './helpers.ts'

const folder = temporary()
const made = async (name: string): Promise<string> => {
  const log = logIn(folder, `${name}.db`)
  const { code, err } = await continuo(['topics', 'apply', '--log', log])
  expect(code, err).toBe(0)
  return log
}

/** The status of a request with headers that fetch does not let be set. */
const statusWith = (url: string, headers: Readonly<Record<string, string>>): Promise<number> =>
  new Promise((resolve, reject) => {
    httpRequest(url, { headers }, (response) => {
      response.resume()
      resolve(response.statusCode!)
    })
      .on('error', reject)
      .end()
  })

describe('with keys', () => {
  const file = join(folder, 'keys.json')
  const keys = (...args: readonly string[]) => continuo(['keys', ...args, '--keys', file])
  let alice = ''
  let bob = ''
  let gateway: Serving
  beforeAll(async () => {
    alice = (await keys('add', 'alice')).out.trim()
    bob = (await keys('add', 'bob')).out.trim()
    gateway = await serving(await made('keys'), '--keys', file, '--rate-limit', '50', '--log-level', 'trace')
  })
  afterAll(async () => {
    gateway.child.kill('SIGKILL')
    await gateway.done
  })
  const models = (key?: string) =>
    ask<Refused>(`${gateway.url}/v1/models`, undefined, key === undefined ? {} : { authorization: `Bearer ${key}` })

  test('the file has hashes alone, and nobody else may read it', () => {
    const text = readFileSync(file, 'utf8')
    expect(alice).toMatch(/^ck_[\w-]{43}$/)
    expect(text).not.toContain(alice)
    expect(text).not.toContain(alice.slice(3))
    expect(statSync(file).mode & 0o777).toBe(0o600)
  })

  test('who shows one is let in, others are not, whatever they ask for', async () => {
    expect((await models(alice)).status).toBe(200)
    for (const key of [undefined, `${alice}x`, alice.slice(0, -1), 'ck_', 'none']) {
      const refused = await models(key)
      expect(refused).toMatchObject({ status: 401, body: { error: { code: 'invalid_api_key' } } })
      expect(refused.headers.get('www-authenticate')).toBe('Bearer')
    }
    for (const path of ['/v1/sessions', '/v1/sessions/x/tokens', '/v1/nothing', '/v1/console/events', '/nothing'])
      expect((await ask(`${gateway.url}${path}`)).status).toBe(401)
    expect((await ask(`${gateway.url}/healthz`)).status).toBe(200)
  })

  test('one that was removed is let in no longer, while the gateway runs', async () => {
    expect((await models(bob)).status).toBe(200)
    expect((await keys('remove', 'bob')).code).toBe(0)
    await expect.poll(async () => (await models(bob)).status, { timeout: 10_000 }).toBe(401)
    expect((await models(alice)).status).toBe(200)
    expect((await keys('remove', 'bob')).code).toBe(1)
  })

  test('each has its own number of requests a minute', async () => {
    const carol = (await keys('add', 'carol')).out.trim()
    await expect.poll(async () => (await models(carol)).status, { timeout: 10_000 }).toBe(200)
    const statuses = await Promise.all(Array.from({ length: 60 }, async () => (await models(carol)).status))
    expect(statuses.filter((status) => status === 200).length).toBeLessThan(50)
    const refused = await models(carol)
    expect(refused).toMatchObject({
      status: 429,
      body: { error: { type: 'rate_limit_error', code: 'rate_limit_exceeded' } },
    })
    expect(Number(refused.headers.get('retry-after'))).toBeGreaterThan(0)
    expect((await models(alice)).status).toBe(200)
  })

  test('no log line has a key, a header, a session or a text', async () => {
    await ask(
      `${gateway.url}/v1/sessions/secret-session/chunks?key=${alice}`,
      { type: 'text', text: 'secret-text' },
      { authorization: `Bearer ${alice}` },
    )
    await ask(`${gateway.url}/v1/completions`, '{"secret-text', {
      authorization: `Bearer ${alice}`,
      'x-session': 'secret-session',
    })
    gateway.child.kill('SIGTERM')
    const { out, err } = await gateway.done
    expect(err).toContain('/v1/sessions/:id/chunks')
    expect(err).toContain('"key":"alice"')
    for (const secret of [alice, alice.slice(3), bob, 'secret-session', 'secret-text', 'Bearer'])
      expect(out + err).not.toContain(secret)
  })
})

describe('without keys', () => {
  let gateway: Serving
  beforeAll(async () => {
    gateway = await serving(await made('open'), '--body-limit', '2048', '--max-open', '3', '--grace', '0')
  })
  afterAll(async () => {
    gateway.child.kill('SIGKILL')
    await gateway.done
  })

  const served = (log: string, ...flags: string[]) =>
    continuo(['serve', '--log', logIn(folder, log), '--model', MODEL, ...flags])

  test('an address that others reach is refused', async () => {
    const { code, err } = await served('x.db', '--host', '0.0.0.0')
    expect(code).toBe(2)
    expect(err).toContain('needs --keys FILE')
  })

  test('a log that is not there is not made', async () => {
    const { code, err } = await served('typo.db')
    expect(code).toBe(1)
    expect(err).toContain('There is no log at')
  })

  test('a flag of the worker does nothing without it, and is refused', async () => {
    const { code, err } = await served('x.db', '--commit-interval', '5')
    expect(code).toBe(2)
    expect(err).toContain('--with-worker')
  })

  test('a page of another site is refused, by its origin and by a name that leads here', async () => {
    const url = `${gateway.url}/v1/models`
    const { port, host } = new URL(gateway.url)
    expect(await statusWith(url, { origin: 'https://evil.example' })).toBe(403)
    expect(await statusWith(url, { origin: 'null' })).toBe(403)
    expect(await statusWith(url, { host: `evil.example:${port}` })).toBe(403)
    expect(await statusWith(url, { host: `localhost:${port}` })).toBe(200)
    expect(await statusWith(url, { origin: `http://${host}` })).toBe(200)
    // What a form of a page may send without asking is no JSON.
    const plain = await ask<{ error: { message: string } }>(`${gateway.url}/v1/sessions/x/chunks`, '{}', {
      'content-type': 'text/plain',
    })
    expect(plain.status).toBe(415)
    expect(plain.body.error.message).toBe(
      'The body has no content type that is read here. Send JSON with the header content-type: application/json.',
    )
  })

  test('what a client sends by mistake has its sentence', async () => {
    const json = { 'content-type': 'application/json' }
    // By a client that leaves paths as they are.
    const said = (body: string, path = '/v1/completions'): Promise<unknown> =>
      new Promise((resolve, reject) => {
        const { port } = new URL(gateway.url)
        httpRequest({ host: '127.0.0.1', port, path, method: 'POST', headers: json }, async (response) => {
          const { error } = JSON.parse(await textOf(response)) as { error: { message: string } }
          resolve([response.statusCode, error.message])
        })
          .on('error', reject)
          .end(body)
      })
    expect(await said('{"prompt": "a",}')).toEqual([
      400,
      'The body is no JSON: Expected double-quoted property name in JSON at position 15 (line 1 column 16).',
    ])
    expect(await said('')).toEqual([400, 'The body is empty, expected JSON.'])
    expect(await said('{"model": "demo", "__proto__": {"a": 1}, "prompt": "a"}')).toEqual([400, expect.any(String)])
    expect(await said('{"model": "demo", "prompt": ["a", "b"]}')).toEqual([
      400,
      '"prompt" cannot be taken: Too big: expected array to have exactly 1 items, or string.',
    ])
    // A path with a slash too many is the path.
    expect(await said('{"model": "demo"}', '//v1/completions/')).toEqual([
      400,
      expect.stringContaining('The prompt is empty'),
    ])
    for (const id of ['%2e', '%2e%2e'])
      expect(await said('{"type": "text", "text": "a"}', `/v1/sessions/${id}/chunks`)).toEqual([
        400,
        expect.stringMatching(/^A session id that stands in paths cannot be "\.{1,2}"\. Choose another\.$/),
      ])
  })

  test('a second gateway at the same port ends before it makes a log or reads a model', async () => {
    const folder = temporary()
    const { port } = new URL(gateway.url)
    const nowhere = join(folder, 'no-model')
    const second = await continuo([
      'serve',
      '--log',
      logIn(folder),
      '--model',
      nowhere,
      '--with-worker',
      '--port',
      port,
    ])
    expect(second).toMatchObject({ code: 1, out: '' })
    expect(second.err).toMatch(
      new RegExp(`The gateway cannot listen at 127\\.0\\.0\\.1, port ${port}: .*EADDRINUSE.* Choose another --port`),
    )
    expect(readdirSync(folder)).toEqual([])
  })

  test('a body over the limit is refused', async () => {
    const refused = await ask<Refused>(`${gateway.url}/v1/sessions/x/chunks`, { type: 'text', text: 'x'.repeat(3000) })
    expect(refused.status).toBe(413)
    expect(refused.body.error.type).toBe('invalid_request_error')
  })

  test('one stream more than may be open is refused, until one ends', async () => {
    const url = `${gateway.url}/v1/sessions/x/tokens`
    const leaving = new AbortController()
    const open = await Promise.all([1, 2, 3].map(() => fetch(url, { signal: leaving.signal })))
    expect(open.map(({ status }) => status)).toEqual([200, 200, 200])
    const refused = await ask<Refused>(url)
    expect(refused).toMatchObject({ status: 503, body: { error: { code: 'overloaded' } } })
    leaving.abort()
    await expect
      .poll(async () => {
        const again = new AbortController()
        const { status } = await fetch(url, { signal: again.signal })
        again.abort()
        return status
      })
      .toBe(200)
  })
})

test('by TLS, with the files of a certificate, and with both of them', { tags: 'slow' }, async () => {
  const authority = certify('authority', { authority: true })
  const own = certify('gateway', { issuer: authority, hosts: ['localhost', '127.0.0.1'] })
  const [serverCert, serverKey] = [join(folder, 'cert.pem'), join(folder, 'key.pem')]
  writeFileSync(serverCert, own.certificate)
  writeFileSync(serverKey, own.key)
  const log = await made('tls')
  const half = await continuo(['serve', '--log', log, '--model', MODEL, '--https-cert', serverCert])
  expect(half.code).toBe(2)
  const gateway = await serving(log, '--https-cert', serverCert, '--https-key', serverKey)
  endWithTest(gateway)
  expect(gateway.url).toMatch(/^https:/)
  const status = await new Promise((resolve, reject) => {
    httpsRequest(`${gateway.url}/v1/models`, { ca: authority.certificate }, (response) => {
      response.resume()
      resolve(response.statusCode)
    })
      .on('error', reject)
      .end()
  })
  expect(status).toBe(200)
})

test('a log whose events are plain text is not ready for events as JSON', { tags: 'slow' }, async () => {
  const log = await made('plain')
  const text = ['--input-format', 'text', '--log-level', 'warn', '--until-idle', '20']
  expect((await continuo(['run', '--log', log, '--model', MODEL, ...text])).code).toBe(0)
  const gateway = await serving(log)
  endWithTest(gateway)
  await expect.poll(async () => (await ask(`${gateway.url}/readyz`)).body).toMatchObject({ ready: false })
  await gateway.saw(/would be read as text/)
  const { code } = await continuo(['serve', '--log', log, '--model', MODEL, '--with-worker', '--input-format', 'text'])
  expect(code).toBe(2)
})

test('a gateway sends where the worker says that sessions belong, and before sessions that are not the keys it is not ready', {
  tags: 'slow',
}, async () => {
  const log = logIn(folder, 'crc32.db')
  expect((await continuo(['topics', 'apply', '--log', log, '--partitions', '8'])).code).toBe(0)
  const run = ['run', '--log', log, '--model', MODEL, '--log-level', 'warn', '--until-idle', '20']
  expect((await continuo([...run, '--key-partitioner', 'crc32'])).code).toBe(0)
  const gateway = await serving(log)
  endWithTest(gateway)
  await expect.poll(async () => (await ask(`${gateway.url}/readyz`)).body).toMatchObject({ ready: true })
  const events = [{ type: 'text', text: 'Hello' }]
  const sent = await ask(`${gateway.url}/v1/sessions/user1/chunks`, events)
  // That of CRC32; murmur2 would say 2.
  expect(sent.body).toMatchObject({ partition: 5 })

  const other = await made('lines')
  const lines = ['--session-from', 'partition', '--log-level', 'warn', '--until-idle', '20']
  expect((await continuo(['run', '--log', other, '--model', MODEL, ...lines])).code).toBe(0)
  const late = await serving(other)
  endWithTest(late)
  await expect.poll(async () => (await ask(`${late.url}/readyz`)).body).toMatchObject({ ready: false })
  await late.saw(/do not come from the record keys/)
  const { code } = await continuo(['serve', '--log', other, '--model', MODEL, '--with-worker', ...lines.slice(0, 2)])
  expect(code).toBe(2)
})

test('an answer that no worker gives ends with a sentence, and a reader that is waiting costs nothing', {
  tags: 'slow',
}, async () => {
  const gateway = await serving(await made('nobody'), '--answer-timeout', '1')
  endWithTest(gateway)
  const late = await ask<Refused>(`${gateway.url}/v1/completions`, { model: 'demo', prompt: 'x' })
  expect(late).toMatchObject({ status: 504, body: { error: { code: 'timeout', type: 'server_error' } } })
})

/** A stream as it comes, its comments included. */
const streamed = async (
  url: string,
  patience: string,
): Promise<{ readonly response: Response; readonly text: string }> => {
  const gateway = await serving(url, '--answer-timeout', patience)
  endWithTest(gateway)
  const response = await fetch(`${gateway.url}/v1/completions`, {
    method: 'POST',
    headers: { 'content-type': 'application/json', 'x-session': 'long' },
    body: JSON.stringify({ model: 'demo', prompt: 'x', stream: true, seed: 7 }),
  })
  return { response, text: await response.text() }
}

test('a stream begins before its prompt was read, by whomever; what fails then is its last event', {
  tags: 'slow',
}, async () => {
  const { response, text } = await streamed(await made('unread'), '3')
  expect(response.status).toBe(200)
  expect(response.headers.get('content-type')).toContain('text/event-stream')
  expect([response.headers.get('x-session'), response.headers.get('x-seed')]).toEqual(['long', '7'])
  const [event, ...more] = text.split('\n\n')
  expect(JSON.parse(event!.slice('data: '.length))).toMatchObject({ error: { code: 'timeout' } })
  expect(more).toEqual([''])
})

test('a stream that says nothing has a comment line now and then', { tags: 'slow', timeout: 60_000 }, async () => {
  const { text } = await streamed(await made('silent'), '20')
  expect(text).toMatch(/^:\n\ndata: .*"code":"timeout".*\n\n$/)
})

describe('a signal', () => {
  test('ends streams at once, and answers under way come to their end', { tags: 'slow' }, async () => {
    const gateway = await servingAll(() => undefined, '--grace', '100')
    const stream = await fetch(`${gateway.url}/v1/sessions/x/tokens`)
    const events = eventsOf(stream)
    expect((await events.next()).value).toMatchObject({ event: 'position' })
    const body = { model: 'demo', prompt: 'The sea', max_tokens: 600, stream: true }
    const answer = await fetch(`${gateway.url}/v1/completions`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(body),
    })
    const pieces = eventsOf(answer)
    await pieces.next()
    gateway.child.kill('SIGTERM')
    expect(await events.next()).toMatchObject({ done: true })
    const rest: string[] = []
    for await (const { data } of pieces) rest.push(data)
    expect(rest.at(-1)).toBe('[DONE]')
    expect(rest.at(-2)).toContain('"finish_reason":"length"')
    expect((await gateway.done).code).toBe(0)
  })

  test('ends a gateway whose answers do not come to an end', { tags: 'slow' }, async () => {
    const gateway = await serving(await made('ending'), '--grace', '1')
    const asked = ask<Refused>(`${gateway.url}/v1/completions`, { model: 'demo', prompt: 'x' })
    await expect.poll(async () => (await ask(`${gateway.url}/v1/sessions`)).status).toBe(200)
    const sent = start(['tail', '--log', logIn(folder, 'ending.db'), '--topic', 'chunks', '--from-beginning', '--json'])
    endWithTest(sent)
    await sent.saw(/"generate"/)
    gateway.child.kill('SIGTERM')
    expect(await asked).toMatchObject({ status: 503, body: { error: { code: 'ending' } } })
    expect((await gateway.done).code).toBe(0)
  })
})
