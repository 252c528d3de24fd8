/**
 * `continuo mcp` as programs use it: started by the SDK's client, with a worker in its process or beside a worker
 * elsewhere.
 */
import { spawn } from 'node:child_process'
import { once } from 'node:events'
import { join } from 'node:path'
import { createInterface } from 'node:readline'
import { Client } from '@modelcontextprotocol/client'
import { StdioClientTransport } from '@modelcontextprotocol/client/stdio'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { continuo, MODEL, ROOT, start, temporary } from './helpers.ts'

const MAIN = join(ROOT, 'src', 'cli', 'main.ts')
const WORKER = ['--with-worker', '--threads', '1', '--commit-interval', '5']
const log = `file:${join(temporary(), 'log.db')}`

const connected = async (args: readonly string[]) => {
  const transport = new StdioClientTransport({
    ...{ command: process.execPath, args: [MAIN, 'mcp', '--model', MODEL, ...args], cwd: ROOT, stderr: 'pipe' },
    env: Object.fromEntries(Object.entries(process.env).map(([name, value]) => [name, value ?? ''])),
  })
  const client = new Client({ name: 'test', version: '1' })
  await client.connect(transport)
  return client
}

let client: Client
beforeAll(async () => {
  client = await connected(['--log', log, ...WORKER])
})
afterAll(() => client.close())

const call = async (name: string, given: object = {}, by = client) => {
  const { content, isError } = await by.callTool({ name, arguments: { ...given } })
  const [first] = content as readonly { readonly type: string; readonly text: string }[]
  return { text: first!.text, isError: isError === true }
}
/** What a tool answers, where it is no error. */
const told = async <T = Record<string, unknown>>(name: string, given: object = {}, by = client): Promise<T> => {
  const { text, isError } = await call(name, given, by)
  if (isError) expect.fail(text)
  return JSON.parse(text) as T
}
/** The sentence of an error. */
const refused = async (name: string, given: object = {}): Promise<string> => {
  const { text, isError } = await call(name, given)
  expect(isError).toBe(true)
  return text
}

test('the tools are listed with their schemas, and what they do to the log', async () => {
  const { tools } = await client.listTools()
  expect(tools.map(({ name }) => name)).toEqual([
    ...['list_sessions', 'read_session', 'append_text', 'generate', 'fork_session', 'delete_session'],
    ...['read_observations', 'verify'],
  ])
  for (const { inputSchema, description } of tools) {
    expect(inputSchema).toMatchObject({ type: 'object', additionalProperties: false })
    expect(description).toMatch(/\.$/)
  }
  const hints = Object.fromEntries(tools.map(({ name, annotations }) => [name, annotations]))
  expect(hints.read_session).toMatchObject({ readOnlyHint: true })
  expect(hints.delete_session).toMatchObject({ readOnlyHint: false, destructiveHint: true })
})

test('a session is fed, read, continued, forked, verified and deleted', async () => {
  const text = 'The harbour was quiet. '
  const fed = await told('append_text', { session: 'book', text })
  expect(fed).toMatchObject({ session: 'book', read: true, state: { tokens: text.length, status: 'open' } })
  const drawn = { session: 'book', prompt: 'At night ', max_tokens: 12, seed: 3 }
  const forked = await told('fork_session', { session: 'book', name: 'copy' })
  expect(forked).toMatchObject({ session: 'copy', from: { session: 'book' } })

  const first = await told<{ text: string; usage: object }>('generate', drawn)
  expect(first).toMatchObject({ session: 'book', finish: 'length', usage: { completion_tokens: 12, prompt_tokens: 9 } })
  expect((await told<{ text: string }>('generate', { ...drawn, session: 'copy' })).text).toBe(first.text)
  expect(await told('read_session', { session: 'book' })).toMatchObject({ generated: 12, tokens: text.length + 9 })
  const alone = await told('generate', { prompt: 'The sea ', max_tokens: 4, temperature: 0 })
  expect(alone).toMatchObject({ finish: 'length', text: expect.stringMatching(/./) })

  const named = await told<{ session: string }>('fork_session', { session: 'book' })
  expect(named.session).toMatch(/^fork-/)
  const page = await told<{ sessions: { session: string }[]; next: string }>('list_sessions', { limit: 2 })
  expect(page.sessions).toHaveLength(2)
  const more = await told<{ sessions: { session: string }[] }>('list_sessions', { after: page.next })
  expect([...page.sessions, ...more.sessions].map((each) => each.session)).toEqual(
    expect.arrayContaining(['book', 'copy', named.session]),
  )

  expect(await told('verify', { session: 'book' })).toMatchObject({ ok: true, sessions: 1, tokens: 12, findings: 0 })
  expect(await told('verify')).toMatchObject({ ok: true, findings: 0 })
  expect(await told('delete_session', { session: 'copy' })).toEqual({ session: 'copy', deleted: true })
  expect(await refused('read_session', { session: 'copy' })).toContain('There is no session "copy"')
})

test('lines that stand out are read, and each once', { tags: 'slow' }, async () => {
  const line = (at: number): string => `2026-11-30 worker ${at % 7} finished job ${at} in ${10 + (at % 5)} ms\n`
  const lines = Array.from({ length: 240 }, (_, at) => line(at)).join('')
  const text = `${lines}FATAL kernel panic: cannot mount /dev/sda1\n${line(240)}`
  expect(await told('append_text', { session: 'app', text, novelty: true })).toMatchObject({ read: true })
  type Answer = { lines: { text: string; standsOut: string[]; position: string }[]; read: number; next: string[] }
  const found = await told<Answer>('read_observations', { session: 'app' })
  expect(found.read).toBe(242)
  expect(found.lines.map((each) => each.text)).toContain('FATAL kernel panic: cannot mount /dev/sda1')
  expect(found.lines[0]!.standsOut).toContain('structure')
  const again = await told<Answer>('read_observations', { session: 'app', after: found.next })
  expect(again).toMatchObject({ lines: [], read: 0, next: found.next })
  expect(await refused('append_text', { session: 'app', text, novelty: true })).toContain('has begun')
})

test('an answer ends when its client does not want it any more, and the session goes on', async () => {
  const leaving = new AbortController()
  const given = { session: 'left', prompt: 'The sea ', max_tokens: 60_000, seed: 1 }
  const asked = client.callTool({ name: 'generate', arguments: given }, { signal: leaving.signal })
  await expect.poll(async () => (await call('read_session', { session: 'left' })).text).toContain('"generating":true')
  leaving.abort()
  await expect(asked).rejects.toThrow()
  const next = { session: 'left', max_tokens: 2, seed: 1 }
  expect(await told('generate', next)).toMatchObject({ finish: 'length', usage: { completion_tokens: 2 } })
  expect((await told<{ generated: number }>('read_session', { session: 'left' })).generated).toBeLessThan(60_000)
})

test('one verification runs at a time', { tags: 'slow' }, async () => {
  const [first, second] = await Promise.all([call('verify'), call('verify')])
  expect(first.isError).toBe(false)
  expect(second).toEqual({ isError: true, text: 'A verification is under way; wait for its end.' })
})

test('calls are bounded', { tags: 'slow' }, async () => {
  // Nobody answers what is asked of this log, so all calls that are taken are under way.
  const quiet = `file:${join(temporary(), 'log.db')}`
  expect((await continuo(['topics', 'apply', '--log', quiet])).code).toBe(0)
  const alone = await connected(['--log', quiet])
  const texts: string[] = []
  const asked = Array.from({ length: 70 }, () =>
    call('generate', { prompt: 'The sea', max_tokens: 1 }, alone).then(
      ({ text }) => texts.push(text),
      // Closed below.
      () => 0,
    ),
  )
  await expect.poll(() => texts.length, { timeout: 60_000 }).toBe(6)
  await alone.close()
  await Promise.all(asked)
  expect(texts.every((text) => text.includes('64 calls are under way'))).toBe(true)
})

describe('what cannot be taken is refused by a sentence, and the next call is answered', () => {
  test.each<[name: string, given: object, sentence: RegExp]>([
    ['read_session', {}, /"session" cannot be taken: .*text/],
    ['read_session', { session: 'nobody' }, /There is no session "nobody" yet/],
    ['read_session', { session: '..' }, /A session id that stands in paths cannot be/],
    ['generate', { session: 'half a character: \ud800', prompt: 'a' }, /half a surrogate pair/],
    ['read_session', { session: 'a', extra: 1 }, /"extra" is not known here/],
    ['list_sessions', { limit: 'many' }, /"limit" cannot be taken/],
    ['append_text', { session: 'book', text: '' }, /"text" cannot be taken/],
    ['append_text', { session: 'x'.repeat(513), text: 'a' }, /"session" cannot be taken/],
    ['generate', {}, /A session or a prompt is needed/],
    ['generate', { session: 'nobody-yet' }, /The prompt is empty, and so is the session/],
    ['generate', { prompt: 'a', max_tokens: 1e9 }, /At most 65536 tokens/],
    ['fork_session', { session: 'nobody' }, /nobody/],
    ['delete_session', { session: 'nobody' }, /nobody/],
    ['read_observations', { after: ['here'] }, /"after\.0" cannot be taken: expected positions/],
    ['read_observations', { after: ['77:3'] }, /this log has 1/],
    ['verify', { session: 'nobody' }, /There is no session "nobody" in this log/],
  ])('%s of %j', async (name, given, sentence) => {
    expect(await refused(name, given)).toMatch(sentence)
    expect(await told('list_sessions', { limit: 1 })).toMatchObject({ total: expect.any(Number) })
  })

  test('names of others command no terminal', async () => {
    const session = 'a\u009b31mred\u202e'
    expect((await call('append_text', { session, text: 'x' })).text).toContain('\\u009b31mred\\u202e')
    const listed = (await call('list_sessions')).text
    expect(listed).not.toMatch(/[\u0080-\u009f\u202a-\u202e]/)
    expect(JSON.parse(listed).sessions.map((each: { session: string }) => each.session)).toContain(session)
    expect(await refused('fork_session', { session: 'no\u009bbody' })).not.toContain('\u009b')
  })
})

test('what is no message, or too long for one, is left out, and the end of the input is the end', {
  tags: 'slow',
}, async () => {
  const child = spawn(process.execPath, [MAIN, 'mcp', '--model', MODEL, '--log', log], { cwd: ROOT })
  let err = ''
  child.stderr.setEncoding('utf8').on('data', (text: string) => {
    err += text
  })
  const lines = createInterface({ input: child.stdout })[Symbol.asyncIterator]()
  const next = async () => JSON.parse((await lines.next()).value ?? expect.fail(err)) as Record<string, unknown>
  child.stdin.write('this is no JSON\n{"jsonrpc":"2.0"}\n[]\nnull\n\u0000\n')
  child.stdin.write(`{"jsonrpc":"2.0","id":1,"method":"ping","params":{"_meta":{"x":"${'x'.repeat(5 << 20)}"}}}\n`)
  const seen: Record<string, unknown>[] = [await next()]
  while (!('error' in seen.at(-1)! && JSON.stringify(seen.at(-1)).includes('at most'))) seen.push(await next())
  const params = { protocolVersion: '2025-06-18', capabilities: {}, clientInfo: { name: 't', version: '1' } }
  child.stdin.write(`${JSON.stringify({ jsonrpc: '2.0', id: 'first', method: 'initialize', params })}\n`)
  let answer = await next()
  while (answer.id !== 'first') answer = await next()
  expect(answer).toMatchObject({ result: { serverInfo: { name: 'continuo' } } })
  child.stdin.end()
  expect(await once(child, 'exit')).toEqual([0, null])
})

test('beside a worker elsewhere it does the same, and a log that is not there is none', { tags: 'slow' }, async () => {
  const other = `file:${join(temporary(), 'log.db')}`
  const missing = await continuo(['mcp', '--model', MODEL, '--log', other])
  expect(missing).toMatchObject({ code: 1, out: '' })
  expect(missing.err).toContain('There is no log at')
  const worker = start(['run', '--log', other, '--model', MODEL, '--threads', '1', '--commit-interval', '5'])
  await worker.saw(/ready|Reading|partition/i)
  const beside = await connected(['--log', other])
  try {
    expect(await told('append_text', { session: 's', text: 'A sail.' }, beside)).toMatchObject({ read: true })
    expect(await told('generate', { session: 's', max_tokens: 3 }, beside)).toMatchObject({ finish: 'length' })
  } finally {
    await beside.close()
    worker.child.kill('SIGTERM')
    await worker.done
  }
})
