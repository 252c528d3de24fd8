/** Vectors of texts, as OpenAI's client for JavaScript and others ask for them. */
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { continuo, MODEL, temporary } from '../cli/helpers.ts'
import { openFamily } from '../families.ts'
import { ask, logIn, type Refused, type Serving, serving, servingAll } from './helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
let client: OpenAI
let log: string
/** Of the engine itself: the mean of the vectors behind a text's bytes, and the last one. */
let vectorsOf: (text: string) => Promise<{ readonly mean: number[]; readonly last: number[] }>
beforeAll(async () => {
  log = logIn(temporary())
  gateway = await serving(log, '--with-worker', '--threads', '1', '--commit-interval', '5')
  ends.push(() => {
    gateway.child.kill('SIGTERM')
    return gateway.done
  })
  client = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', maxRetries: 0 })
  const { model } = await openPackage(MODEL, { threads: 1 })
  ends.push(async () => model.close())
  vectorsOf = async (text) => {
    const context = model.createContext()
    const tokens = Int32Array.from(Buffer.from(text))
    const [result] = await model.process([{ context, tokens, nats: false, hidden: true }])
    context.close()
    const { sum, last } = result!.hidden!
    return { mean: [...Float32Array.from(sum, (value) => value / tokens.length)], last: [...last] }
  }
})
afterAll(() => Promise.all(ends.map((end) => end())))

const asked = { model: 'demo' } as const
const texts = ['The harbour master saw a light.', 'a', 'naïve café — größe']
const lengthOf = (vector: readonly number[]): number => Math.sqrt(vector.reduce((sum, value) => sum + value * value, 0))
/** Beside what OpenAI's client knows. */
const raw = async (more: object) => {
  const { status, body } = await ask<{ data: { embedding: number[]; index: number }[]; usage: object }>(
    `${gateway.url}/v1/embeddings`,
    { ...asked, ...more },
  )
  expect(status).toBe(200)
  return body
}

describe('a vector', () => {
  test('is the mean of the hidden vectors behind the tokens, of length 1, and tells what was read', async () => {
    const { mean } = await vectorsOf(texts[0]!)
    const { data, model, usage, object } = await client.embeddings.create({ ...asked, input: texts[0]! })
    expect([object, model, data.length]).toEqual(['list', 'demo', 1])
    expect(usage).toEqual({ prompt_tokens: texts[0]!.length, total_tokens: texts[0]!.length })
    const { embedding } = data[0]!
    expect(lengthOf(embedding)).toBeCloseTo(1, 5)
    const length = lengthOf(mean)
    expect(embedding).toEqual(mean.map((value) => Math.fround(value / length)))
  })

  test('is as it is with normalize: false, the last one with pooling: last, to the bit, in either encoding', async () => {
    const { mean, last } = await vectorsOf(texts[2]!)
    const one = async (more: object) => (await raw({ input: texts[2], ...more })).data[0]!.embedding
    expect(await one({ normalize: false })).toEqual(mean)
    expect(await one({ normalize: false, pooling: 'last' })).toEqual(last)
    const base64 = String(await one({ normalize: false, encoding_format: 'base64' }))
    expect([...new Float32Array(Uint8Array.from(Buffer.from(base64, 'base64')).buffer)]).toEqual(mean)
  })

  test('of many inputs has each its own, in their order; ids are the same as their text', async () => {
    const input = Array.from({ length: 40 }, (_, at) => `${texts[at % 3]} ${at}`)
    const { data } = await client.embeddings.create({ ...asked, input })
    expect(data.map(({ index }) => index)).toEqual(input.map((_, at) => at))
    const alone = await client.embeddings.create({ ...asked, input: input[17]! })
    expect(data[17]!.embedding).toEqual(alone.data[0]!.embedding)
    const ids = input.map((text) => [...Buffer.from(text)])
    expect((await client.embeddings.create({ ...asked, input: ids })).data).toEqual(data)
    expect((await client.embeddings.create({ ...asked, input: ids[17]! })).data).toEqual(alone.data)
  })

  test('is told by the log, which verify recomputes', async () => {
    const { code, out } = await continuo(['verify', '--log', log, '--model', MODEL])
    expect([code, out]).toEqual([0, expect.stringContaining('agree')])
  })
})

describe('a request', () => {
  const refused = async (body: object, url = gateway.url, headers = {}) => {
    const told = await ask<Refused>(`${url}/v1/embeddings`, { ...asked, ...body }, headers)
    return [told.status, told.body.error.param, told.body.error.message]
  }

  test('that cannot be answered is refused with a sentence that names its place', async () => {
    expect(await refused({ input: ['a', ''] })).toEqual([400, 'input', expect.stringContaining('Input 1 is empty')])
    expect(await refused({ input: [] })).toEqual([400, 'input', expect.any(String)])
    expect(await refused({ input: 'a', dimensions: 8 })).toEqual([400, 'dimensions', expect.any(String)])
    expect(await refused({ input: 'a', pooling: 'first' })).toEqual([400, 'pooling', expect.any(String)])
    expect(await refused({ input: [3, 256] })).toEqual([400, 'input', expect.stringContaining('256')])
    expect(await refused({ input: 'a', model: 'other' })).toEqual([404, 'model', expect.any(String)])
    expect(await refused({ input: 'a' }, gateway.url, { 'x-session': 'mine' })).toEqual([
      ...[400, 'x-session', expect.stringContaining('session of its own')],
    ])
    expect(await refused({ input: Array.from({ length: 65_537 }, () => 1) })).toEqual([
      ...[400, 'input', expect.stringContaining('65537 tokens')],
    ])
  })

  test('for more than a context holds is refused whole', { tags: 'slow' }, async () => {
    const { dir } = await openFamily('gpt2-refuse', temporary())
    const other = await servingAll((end) => ends.push(end), '--model', dir, '--model-name', 'demo')
    const long = 'x'.repeat(4096)
    expect(await refused({ input: ['a', long] }, other.url)).toEqual([400, 'input', expect.stringContaining('4096')])
  })
})
