/**
 * A compaction stands for all that was said: what is answered behind it is what would have been answered behind the
 * whole.
 *
 * @module-tag slow
 */
import { cpSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { MODEL, temporary } from '../cli/helpers.ts'
import { ask, inSession, logIn, type Refused, type Serving, serving } from './helpers.ts'
import { compaction, type Resource, response } from './open-responses.ts'

/** As most templates are: a message is written alike whatever follows it. */
const TEMPLATE = `{%- if tools %}Tools:{% for tool in tools %} {{ tool | tojson }}{% endfor %}
{% endif %}{% for m in messages %}<|{{ m.role }}|>{{ m.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}`

let worker: Serving
let other: Serving
beforeAll(async () => {
  const dir = join(temporary(), 'chats')
  cpSync(MODEL, dir, { recursive: true })
  writeFileSync(join(dir, 'chat_template.jinja'), TEMPLATE)
  const log = logIn(temporary())
  const model = ['--model', dir, '--model-name', 'demo']
  // Several partitions: a fork must stand beside its parent.
  worker = await serving(
    log,
    ...model,
    '--with-worker',
    '--threads',
    '1',
    '--commit-interval',
    '5',
    '--partitions',
    '3',
  )
  other = await serving(log, ...model)
})
afterAll(async () => {
  for (const { child } of [worker, other]) child.kill('SIGTERM')
  await Promise.all([worker.done, other.done])
})

const user = (content: string) => ({ type: 'message', role: 'user', content })
const assistant = (content: string) => ({ type: 'message', role: 'assistant', content })
const talk = [user('What did the harbour master see, and when was it that he saw it?'), assistant('A sail, at noon.')]
const next = user('Whose was it?')
const asked = { model: 'demo', temperature: 0, max_output_tokens: 16 }

const create = async (more: object, gateway = worker): Promise<Resource> => {
  const told = await ask(`${gateway.url}/v1/responses`, { ...asked, ...more })
  expect(told.status, JSON.stringify(told.body)).toBe(200)
  return response.parse(told.body)
}
const compact = async (more: object, gateway = worker) => {
  const told = await ask(`${gateway.url}/v1/responses/compact`, { model: 'demo', ...more })
  expect(told.status, JSON.stringify(told.body)).toBe(200)
  return compaction.parse(told.body)
}
const textOf = ({ output }: Resource): string =>
  output
    .flatMap((item) => (item.type === 'message' ? item.content.map((part) => ('text' in part ? part.text : '')) : []))
    .join('')
const refusedBy = async (path: string, body: object, headers = {}) => {
  const { status, body: said } = await ask<Refused>(`${worker.url}${path}`, { model: 'demo', ...body }, headers)
  return [status, said.error.param ?? said.error.code]
}

describe('a conversation that was sent', () => {
  test('is read once, and gone on with as often as one likes, at any gateway', async () => {
    const whole = await create({ input: [...talk, next] })
    const { output, usage } = await compact({ input: talk })
    expect(output).toMatchObject([{ type: 'compaction' }])
    expect(usage.input_tokens).toBeGreaterThan(50)
    for (const gateway of [worker, other]) {
      const behind = await create({ input: [...output, next] }, gateway)
      expect(textOf(behind)).toBe(textOf(whole))
      // What is read for it is what comes behind.
      expect(behind.usage!.input_tokens).toBe(whole.usage!.input_tokens - usage.input_tokens)
    }
    const listed = await ask<{ data: object[] }>(
      `${worker.url}/v1/responses/${(await create({ input: [...output, next] })).id}/input_items?order=asc`,
    )
    expect(listed.body.data[0]).toEqual(output[0])
  })

  test('is compacted again with what came behind', async () => {
    const first = await compact({ input: talk })
    const more = [next, assistant('Nobody knows.')]
    const second = await compact({ input: [...first.output, ...more] })
    expect(second.usage.input_tokens).toBeLessThan(first.usage.input_tokens)
    const last = user('And then?')
    const behind = await create({ input: [...second.output, last] })
    expect(textOf(behind)).toBe(textOf(await create({ input: [...talk, ...more, last] })))
  })

  test('is read again, and answered the same, where something comes before it', async () => {
    const { output, usage } = await compact({ input: talk })
    const told = { instructions: 'Be brief.', tools: [{ type: 'function', name: 'look' }], tool_choice: 'none' }
    const behind = await create({ ...told, input: [...output, next] })
    const whole = await create({ ...told, input: [...talk, next] })
    expect(textOf(behind)).toBe(textOf(whole))
    expect(behind.usage).toEqual(whole.usage)
    expect(usage.output_tokens).toBe(0)
  })

  test('has its instructions', async () => {
    const { output } = await compact({ instructions: 'Be brief.', input: talk })
    const whole = await create({ instructions: 'Be brief.', input: [...talk, next] })
    expect(textOf(await create({ input: [...output, next] }))).toBe(textOf(whole))
  })
})

describe('a conversation by its last response', () => {
  test('is not read again: a fork of its session goes on where that stood', async () => {
    const first = await create({ input: talk[0] === undefined ? '' : [talk[0]] })
    const { output, usage } = await compact({ previous_response_id: first.id })
    expect(usage.total_tokens).toBe(0)
    const straight = await create({ input: [next], previous_response_id: first.id })
    // The session went on, and the compaction did not.
    const behind = await create({ input: [...output, next] }, other)
    expect(textOf(behind)).toBe(textOf(straight))
    expect(behind.usage!.input_tokens).toBe(straight.usage!.input_tokens)
    expect(await refusedBy('/v1/responses/compact', { previous_response_id: first.id })).toEqual([
      409,
      'previous_response_id',
    ])
    const third = await compact({ input: [...output, next, assistant('Aye.')] })
    const last = [user('And then?')]
    expect((await create({ input: [...third.output, ...last] })).status).toBe('incomplete')
    // Of a fork, too.
    const gone = await fetch(`${worker.url}/v1/responses/${behind.id}`, { method: 'DELETE' })
    expect(gone.status).toBe(200)
  })

  test('with what was said since', async () => {
    const first = await create({ input: [talk[0]!] })
    const { output } = await compact({ previous_response_id: first.id, input: [next] })
    const straight = await create({ input: [next, user('Well?')], previous_response_id: first.id })
    expect(textOf(await create({ input: [...output, user('Well?')] }))).toBe(textOf(straight))
  })
})

describe('refused by name', () => {
  const item = (encrypted_content: string) => ({ type: 'compaction', encrypted_content })
  test.each<[string, string, object, string]>([
    ['nothing', '/v1/responses/compact', {}, 'input'],
    ['a parameter that it does not have', '/v1/responses/compact', { input: 'x', temperature: 1 }, 'temperature'],
    ['a compaction that is none', '/v1/responses', { input: [item('x'), next] }, 'input.0'],
    [
      'one of a record that is none',
      '/v1/responses',
      { input: [item(Buffer.from('["0123456789abcdef",0,0,1,0,"s"]').toString('base64url')), next] },
      'input.0',
    ],
    ['one behind a message', '/v1/responses', { input: [next, item('x')] }, 'input.1'],
    ['two', '/v1/responses', { input: [item('x'), item('x'), next] }, 'input.1'],
    ['one that is counted', '/v1/responses/input_tokens', { input: [item('x'), next] }, 'input.0'],
  ])('%s', async (_, path, body, param) => {
    const [status, said] = await refusedBy(path, body)
    expect([400, 404]).toContain(status)
    expect(said).toBe(param)
  })

  test('one beside another session', async () => {
    const { output } = await compact({ input: talk })
    const input = [...output, next]
    const first = await create({ input: [next] })
    expect(await refusedBy('/v1/responses', { input, previous_response_id: first.id })).toEqual([
      400,
      'previous_response_id',
    ])
    expect(await refusedBy('/v1/responses', { input, truncation: 'auto' })).toEqual([400, 'truncation'])
    expect(await refusedBy('/v1/responses', { input }, inSession('s').headers)).toEqual([400, 'x-session'])
    // Its session may be deleted, as any other.
    const { encrypted_content: content } = output[0] as { encrypted_content: string }
    const session = (JSON.parse(Buffer.from(content, 'base64url').toString()) as unknown[]).at(-1) as string
    expect((await fetch(`${worker.url}/v1/sessions/${session}`, { method: 'DELETE' })).status).toBe(200)
    expect(await refusedBy('/v1/responses', { input })).toEqual([400, 'event_refused'])
  })
})
