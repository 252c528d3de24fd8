/**
 * Responses as work: in the background, cancelled, listed item by item, and deleted, at whatever gateway of the log.
 *
 * @module-tag slow
 */
import { randomBytes } from 'node:crypto'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { temporary } from '../cli/helpers.ts'
import { ask, endWithTest, eventsOf, inSession, logIn, type Refused, type Serving, serving } from './helpers.ts'
import { checkStream, item, type Resource, response } from './open-responses.ts'

const log = logIn(temporary())
let worker: Serving
let other: Serving
beforeAll(async () => {
  worker = await serving(log, '--with-worker', '--threads', '1', '--commit-interval', '5')
  other = await serving(log)
})
afterAll(async () => {
  for (const { child } of [worker, other]) child.kill('SIGTERM')
  await Promise.all([worker.done, other.done])
})

const body = { model: 'demo', input: 'What did the harbour master see?', max_output_tokens: 12, seed: 1 }
const create = async (gateway: Serving, more: object = {}, headers = {}): Promise<Resource> => {
  const told = await ask(`${gateway.url}/v1/responses`, { ...body, ...more }, headers)
  expect(told.status, JSON.stringify(told.body)).toBe(200)
  return response.parse(told.body)
}
const get = async (id: string, gateway = other): Promise<Resource> =>
  response.parse((await ask(`${gateway.url}/v1/responses/${id}`)).body)
const refusedBy = async (path: string, sent?: object) => {
  const { status, body: said } = await ask<Refused>(`${other.url}/v1/responses${path}`, sent)
  return [status, said.error.code]
}
const over = (id: string) => expect.poll(async () => (await get(id)).status, { timeout: 30_000 }).toBe('incomplete')

describe('in the background', () => {
  test('a response is queued at once, and made without a client', async () => {
    const made = await create(worker, { background: true })
    expect(made).toMatchObject({ status: 'queued', background: true, output: [], usage: null })
    await over(made.id)
    const whole = await get(made.id)
    const { output } = await create(worker)
    expect(whole.output).toMatchObject([{ content: (output[0] as { content: object[] }).content }])
    // The session of it goes on.
    expect(await create(other, { input: 'And?', previous_response_id: made.id })).toMatchObject({
      status: 'incomplete',
    })
  })

  test('is made when the gateway that took it is gone', async () => {
    const third = await serving(log)
    endWithTest(third)
    const made = await create(third, { background: true, max_output_tokens: 200 })
    third.child.kill('SIGKILL')
    await third.done
    await over(made.id)
    expect(await get(made.id)).toMatchObject({ usage: { output_tokens: 200 }, max_output_tokens: 200 })
  })

  test('its stream begins at once, is left, and gone on with elsewhere', async () => {
    const sent = { ...body, background: true, stream: true, max_output_tokens: 60 }
    const first = await fetch(`${worker.url}/v1/responses`, {
      method: 'POST',
      headers: { 'content-type': 'application/json' },
      body: JSON.stringify(sent),
    })
    const events: unknown[] = []
    for await (const { data } of eventsOf(first)) {
      events.push(JSON.parse(data))
      if (events.length === 2) break
    }
    const [created, queued] = events as { type: string; response: Resource }[]
    expect([created!.type, queued!.type]).toEqual(['response.created', 'response.queued'])
    const { id } = created!.response
    for await (const { data } of eventsOf(await fetch(`${other.url}/v1/responses/${id}?stream=true&starting_after=1`)))
      if (data !== '[DONE]') events.push(JSON.parse(data))
    expect((events[2] as { type: string }).type).toBe('response.in_progress')
    expect(checkStream(events)).toEqual(await get(id))
  })

  test('is cancelled by its id, also before anything was made', async () => {
    const made = await create(worker, { background: true, max_output_tokens: 4000 })
    const next = { ...body, previous_response_id: made.id }
    expect(await refusedBy('', next)).toEqual([409, expect.stringMatching(/^previous_response_not_(over|last)$/)])
    const ended = await ask(`${other.url}/v1/responses/${made.id}/cancel`, {})
    expect(response.parse(ended.body)).toMatchObject({ id: made.id, status: 'cancelled' })
    expect(await get(made.id, worker)).toEqual(ended.body)
  })

  test('must be kept', async () => {
    const { status, body: said } = await ask<Refused>(`${worker.url}/v1/responses`, {
      ...body,
      ...{ background: true, store: false },
    })
    expect([status, said.error.param]).toEqual([400, 'background'])
  })
})

describe('the items of an input', () => {
  const input = [
    { role: 'system', content: 'Be brief.' },
    { type: 'message', id: 'msg_mine', role: 'user', content: [{ type: 'input_text', text: 'Who?' }] },
    { type: 'function_call', call_id: 'c1', name: 'who', arguments: '{}' },
    { type: 'function_call_output', call_id: 'c1', output: 'Nobody.' },
    { role: 'assistant', content: 'Nobody.' },
    { role: 'user', content: 'And then?' },
  ]
  const list = async (id: string, query = '') =>
    (
      await ask<{ data: { id: string }[]; first_id: string; last_id: string; has_more: boolean }>(
        `${other.url}/v1/responses/${id}/input_items${query}`,
      )
    ).body

  test('are told as they were asked, in pages, and are taken by reference', async () => {
    const made = await create(worker, { input, instructions: 'x' })
    const { data, first_id, last_id, has_more } = await list(made.id, '?order=asc')
    expect(data.map((each) => item.parse(each))).toMatchObject([
      { type: 'message', role: 'system', content: [{ type: 'input_text', text: 'Be brief.' }], status: 'completed' },
      { id: 'msg_mine', role: 'user' },
      { type: 'function_call', name: 'who' },
      { type: 'function_call_output', output: 'Nobody.' },
      { role: 'assistant', content: [{ type: 'output_text', text: 'Nobody.' }] },
      { role: 'user' },
    ])
    expect([first_id, last_id, has_more]).toEqual([data[0]!.id, data[5]!.id, false])
    expect((await list(made.id)).data).toEqual([...data].reverse())
    const page = await list(made.id, `?limit=2&after=${data[4]!.id}`)
    expect([page.data, page.has_more]).toEqual([[data[3], data[2]], true])
    expect(await refusedBy(`/${made.id}/input_items?after=x`)).toEqual([400, null])
    expect(await refusedBy(`/${made.id}/input_items?limit=0`)).toEqual([400, null])

    const named = [{ type: 'item_reference', id: data[0]!.id }, input[5]]
    const referred = await create(worker, { input: named })
    const { output } = await create(worker, { input: [input[0], input[5]] })
    expect(referred.output).toMatchObject([{ content: (output[0] as { content: object[] }).content }])
    expect((await list(referred.id, '?order=asc')).data[0]).toEqual(data[0])
  })
})

describe('a response that is deleted', () => {
  test('is not found any more, at any gateway', async () => {
    const made = await create(worker)
    const deleted = await fetch(`${other.url}/v1/responses/${made.id}`, { method: 'DELETE' })
    expect(await deleted.json()).toEqual({ id: made.id, object: 'response', deleted: true })
    for (const path of ['', '/input_items'])
      expect(await refusedBy(`/${made.id}${path}`)).toEqual([404, 'response_not_found'])
    await expect.poll(async () => (await ask(`${worker.url}/v1/responses/${made.id}`)).status).toBe(404)
    expect((await fetch(`${other.url}/v1/responses/${made.id}`, { method: 'DELETE' })).status).toBe(404)
  })

  test('is one of its own session, and over', async () => {
    const first = await create(worker, {}, inSession('two').headers)
    const second = await create(worker, { input: 'And?', previous_response_id: first.id })
    const remove = async (id: string) => {
      const told = await fetch(`${worker.url}/v1/responses/${id}`, { method: 'DELETE' })
      return [told.status, ((await told.json()) as Refused).error.code]
    }
    expect(await remove(first.id)).toEqual([409, 'response_not_alone'])
    expect(await remove(second.id)).toEqual([409, 'response_not_alone'])
    const made = await create(worker, { background: true, max_output_tokens: 4000 })
    expect(await remove(made.id)).toEqual([409, 'response_not_over'])
    await ask(`${other.url}/v1/responses/${made.id}/cancel`, {})
    const gone = await fetch(`${worker.url}/v1/responses/${made.id}`, { method: 'DELETE' })
    expect(gone.status).toBe(200)
  })
})

test('what is asked is kept however long it is, and refused where a record cannot take it', async () => {
  const noise = (bytes: number) => randomBytes(bytes).toString('base64')
  const made = await create(worker, { metadata: { noise: noise(300_000) } })
  expect((await get(made.id)).metadata).toEqual(made.metadata)
  const { status, body: said } = await ask<Refused>(`${worker.url}/v1/responses`, {
    ...body,
    metadata: { noise: noise(700_000) },
  })
  expect([status, said.error.param]).toEqual([413, 'input'])
})
