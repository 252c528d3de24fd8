/**
 * Whatever is sent, the gateway answers within its time, never with a fault of its own, and goes on.
 *
 * @module-tag slow
 */
import { connect } from 'node:net'
import fc from 'fast-check'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { calledTurns, chatTool, messageTools, responseTool, toolsOf, value, word } from './fuzz-tools.ts'
import { ask, type Refused, type Serving, servingAll } from './helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
beforeAll(async () => {
  gateway = await servingAll(
    (end) => ends.push(end),
    '--rate-limit',
    '0',
    '--answer-timeout',
    '20',
    '--max-tokens',
    '8',
  )
})
afterAll(() => Promise.all(ends.map((end) => end())))

const PATIENCE = 30_000

/** The status and the body of any answer; a stream is left after its head. */
const send = async (path: string, init: RequestInit): Promise<{ readonly status: number; readonly text: string }> => {
  const response = await fetch(`${gateway.url}${path}`, {
    ...init,
    redirect: 'manual',
    signal: AbortSignal.timeout(PATIENCE),
  })
  if (response.headers.get('content-type')?.startsWith('text/event-stream') && init.method === 'GET') {
    await response.body?.cancel()
    return { status: response.status, text: '' }
  }
  return { status: response.status, text: await response.text() }
}

/** How many requests were taken: a fuzzer that is refused everywhere tests one line. */
let taken = 0
const takesSome = async (some: number, test: () => Promise<void>): Promise<void> => {
  taken = 0
  await test()
  expect(taken).toBeGreaterThanOrEqual(some)
}

const check = ({ status, text }: Awaited<ReturnType<typeof send>>): void => {
  if (status < 300) taken += 1
  expect(status, text).toBeLessThan(500)
  if (status < 400) return
  const { error } = JSON.parse(text) as Refused
  expect(error.message).toMatch(/^\S.* .*\S$/s)
  expect(error.type).toMatch(/_error$/)
}

const id = fc.oneof(
  fc.string({ unit: 'binary', minLength: 1, maxLength: 40 }),
  fc.string({ minLength: 1, maxLength: 600 }),
)
const token = fc.oneof(fc.nat(300), fc.integer(), fc.double())
const event = fc.oneof(
  fc.record({ type: fc.constant('text'), text: word }),
  fc.record({ type: fc.constant('text'), bytes: value(['YQ=='], ['é', '===']) }),
  fc.record({ type: fc.constant('tokens'), tokens: fc.array(token, { maxLength: 20 }) }),
  fc.record({
    type: fc.constant('generate'),
    maxTokens: value([1, 3], [0]),
    temperature: value([0, 1], [1e-9]),
    stop: value([[], ['a']]),
    repetitionPenalty: value([1, 1.1], [0]),
    logitBias: value([{}, { 7: -5 }], [{ 256: 1 }, { '-1': 1 }]),
    topLogprobs: value([0, 2], [21]),
  }),
  fc.record(
    {
      type: fc.constantFrom('open', 'close', 'boundary', 'archive', 'retrieve', 'adapt', 'cancle'),
      reset: value([true]),
      from: value([{ session: 'x' }]),
    },
    { requiredKeys: ['type'] },
  ),
  fc.jsonValue({ maxDepth: 4 }),
)

const sampling = {
  max_tokens: value([1, 2, 8], [9, 0]),
  temperature: value([0, 1, 0.5], [-1]),
  top_p: value([1, 0.5], [0]),
  top_k: value([0, 5], [-5]),
  seed: value([0, 7], [-1]),
  stop: value(['a', ['b', 'c']], ['']),
  stream: value([false, true]),
  stream_options: value([{ include_usage: true }]),
  user: fc.oneof(fc.constantFrom('a', 'b', 'c'), word),
  n: value([1, 1, 2], [9]),
  logit_bias: value([{}, null, { 5: 1 }], [{ 300: 1 }, { x: 1 }, { 5: 1000 }]),
  presence_penalty: value([0, 1, -2], [3]),
  frequency_penalty: value([0, 0.5], ['1']),
  repetition_penalty: value([1, 1.3], [0]),
  repeat_last_n: value([0, 64], [-1]),
  min_p: value([0, 0.1, 1], [2]),
  stop_token_ids: value([[], [10]], [[-1], [256]]),
  ignore_eos: value([true]),
}
const completion = fc.record(
  {
    model: value(['demo'], ['other']),
    prompt: fc.oneof(
      { weight: 8, arbitrary: fc.string({ minLength: 1, maxLength: 40 }) },
      word,
      fc.array(token, { maxLength: 10 }),
      fc.jsonValue({ maxDepth: 2 }),
    ),
    logprobs: value([0, null, 2], [9]),
    echo: value([false, false, true]),
    ...sampling,
  },
  { requiredKeys: ['model'] },
)
const thinking = {
  enable_thinking: value([false, null], [true]),
  chat_template_kwargs: value([{}, { enable_thinking: false }], [{ enable_thinking: true }, { x: 1 }]),
}
const message = fc.record(
  {
    role: value(['user', 'assistant', 'system', 'developer'], ['owner', 'tool']),
    content: fc.oneof(
      { weight: 20, arbitrary: fc.string({ maxLength: 40 }) },
      word,
      fc.constant([{ type: 'text', text: 'x' }]),
      fc.jsonValue({ maxDepth: 2 }),
    ),
    tool_calls: fc.oneof(
      fc.constantFrom([], null, [{ id: 'c', type: 'function', function: { name: 'f', arguments: '{"a":1}' } }]),
      fc.jsonValue({ maxDepth: 3 }),
    ),
    tool_call_id: value(['c'], ['']),
  },
  { requiredKeys: ['role', 'content'] },
)
const conversation = fc.record(
  {
    model: value(['demo'], ['other']),
    messages: fc.oneof(
      {
        weight: 8,
        arbitrary: fc
          .tuple(fc.array(message, { maxLength: 3 }), fc.constant({ role: 'user', content: 'x' }))
          .map(([before, last]) => [...before, last]),
      },
      fc.array(message, { maxLength: 5 }),
      fc.jsonValue(),
    ),
    logprobs: value([true]),
    top_logprobs: value([0, 3], [21]),
    ...toolsOf(chatTool, { type: 'function', function: { name: 'f' } }),
    ...thinking,
    ...sampling,
  },
  { requiredKeys: ['model', 'messages'] },
)

const thoughtItem = fc.record({
  type: fc.constant('reasoning'),
  summary: value([[], [{ type: 'summary_text', text: 'x' }]]),
  content: value([[{ type: 'reasoning_text', text: 'x' }], null], [[{}]]),
})
const response = fc.record(
  {
    model: value(['demo'], ['other']),
    input: fc.oneof(
      { weight: 8, arbitrary: fc.string({ minLength: 1, maxLength: 40 }) },
      fc.array(message, { maxLength: 3 }),
      fc.array(fc.oneof(message, thoughtItem), { minLength: 1, maxLength: 3 }),
      fc.jsonValue(),
    ),
    instructions: word,
    max_output_tokens: value([1, 8], [9]),
    store: value([true, false]),
    background: value([true, false]),
    truncation: value(['auto', 'disabled'], ['cut']),
    max_tool_calls: value([1, 64], [0]),
    seed: sampling.seed,
    metadata: value([{}, { run: '7' }], [{ run: 7 }]),
    previous_response_id: fc.oneof(
      { weight: 3, arbitrary: fc.constant(null) },
      fc.constantFrom('resp_', 'resp_W10', 'x'),
    ),
    user: fc.oneof(fc.constantFrom('a', 'b'), word),
    ...toolsOf(responseTool, { type: 'function', name: 'f' }),
    ...thinking,
    ...{ temperature: sampling.temperature, stream: sampling.stream },
  },
  { requiredKeys: ['model', 'input', 'max_output_tokens'] },
)

const turn = fc.record({
  role: value(['user', 'assistant'], ['system']),
  content: fc.oneof(
    { weight: 20, arbitrary: fc.string({ maxLength: 40 }) },
    word,
    fc.constantFrom([{ type: 'text', text: 'x', cache_control: { type: 'ephemeral' } }], [{ type: 'image' }]),
    fc.jsonValue({ maxDepth: 2 }),
  ),
})
const talk = fc.record(
  {
    model: value(['demo'], ['other']),
    max_tokens: sampling.max_tokens,
    messages: fc.oneof(
      { weight: 20, arbitrary: fc.array(turn, { minLength: 1, maxLength: 6 }) },
      { weight: 10, arbitrary: calledTurns.map((turns) => [{ role: 'user', content: 'x' }, ...turns]) },
      fc.jsonValue(),
    ),
    system: fc.oneof(fc.constantFrom('Be brief.', null, [{ type: 'text', text: 'x' }]), word),
    stop_sequences: value([[], ['a']], [[''], ['\n\nUser:']]),
    metadata: value([{ user_id: 'a' }, {}], [{ user_id: 1 }]),
    thinking: value([{ type: 'disabled' }], [{ type: 'enabled' }]),
    ...{ temperature: sampling.temperature, top_p: sampling.top_p, top_k: sampling.top_k },
    ...{ stream: sampling.stream, ...messageTools },
  },
  { requiredKeys: ['model', 'messages', 'max_tokens'] },
)
/** A path, and a body for it. */
const tokenizing = fc.oneof(
  fc.tuple(
    fc.constant('/v1/tokenize'),
    fc.record({
      model: value(['demo'], ['other']),
      prompt: fc.oneof(word, fc.jsonValue({ maxDepth: 1 })),
      add_special_tokens: value([true], [false]),
    }),
  ),
  fc.tuple(
    fc.constant('/v1/tokenize'),
    fc.record({
      model: value(['demo'], ['other']),
      messages: fc.array(message, { minLength: 1, maxLength: 3 }),
      add_generation_prompt: value([true, false]),
    }),
  ),
  fc.tuple(fc.constant('/v1/detokenize'), fc.record({ tokens: fc.array(value([7, 200, 255], [256, -1])) })),
)

const post = (path: string, body: string, headers: Readonly<Record<string, string>> = {}) =>
  send(path, { method: 'POST', body, headers: { 'content-type': 'application/json', ...headers } })

const runs = (numRuns: number) => ({
  numRuns,
  seed: 20_261_125,
  interruptAfterTimeLimit: 20_000,
  markInterruptAsFailure: false,
})

describe('never a fault, a crash or silence', () => {
  test('for events', async () => {
    await takesSome(10, () =>
      fc.assert(
        fc.asyncProperty(id, fc.oneof(event, fc.array(event, { maxLength: 5 })), async (session, events) => {
          check(await post(`/v1/sessions/${encodeURIComponent(session.toWellFormed())}/chunks`, JSON.stringify(events)))
        }),
        runs(150),
      ),
    )
  })

  test('for completions', async () => {
    await takesSome(10, () =>
      fc.assert(
        fc.asyncProperty(completion, async (body) => check(await post('/v1/completions', JSON.stringify(body)))),
        runs(100),
      ),
    )
  })

  test('for chats', async () => {
    await takesSome(10, () =>
      fc.assert(
        fc.asyncProperty(conversation, async (body) => check(await post('/v1/chat/completions', JSON.stringify(body)))),
        runs(200),
      ),
    )
  })

  test('for responses', async () => {
    await takesSome(10, () =>
      fc.assert(
        fc.asyncProperty(response, async (body) => check(await post('/v1/responses', JSON.stringify(body)))),
        runs(200),
      ),
    )
  })

  test('for conversations to compact, and what is answered behind one', async () => {
    const compaction = fc.record(
      {
        type: fc.constant('compaction'),
        encrypted_content: value(['x', 'WyIwMTIzNDU2Nzg5YWJjZGVmIiwwLDAsMSwwLCJzIl0'], ['']),
        id: value(['cmp_x', null]),
      },
      { requiredKeys: ['type', 'encrypted_content'] },
    )
    const said = fc.record({
      role: value(['user', 'assistant'], ['owner']),
      content: fc.string({ minLength: 1, maxLength: 40 }),
    })
    const input = fc.oneof(
      { weight: 4, arbitrary: fc.array(said, { minLength: 1, maxLength: 3 }) },
      fc.tuple(compaction, said),
      fc.array(fc.oneof(compaction, message, thoughtItem), { maxLength: 3 }),
      fc.jsonValue(),
    )
    const body = fc.record(
      { model: value(['demo'], ['other']), input, instructions: word, prompt_cache_key: value(['k'], [7]) },
      { requiredKeys: ['model', 'input'] },
    )
    const path = fc.constantFrom('/v1/responses/compact', '/v1/responses/compact', '/v1/responses/input_tokens')
    await takesSome(5, () =>
      fc.assert(
        fc.asyncProperty(path, body, async (to, one) => check(await post(to, JSON.stringify(one)))),
        runs(150),
      ),
    )
  })

  test("for messages of Anthropic's clients, answered and counted", async () => {
    const path = fc.constantFrom('/v1/messages', '/v1/messages', '/v1/messages/count_tokens')
    await takesSome(10, () =>
      fc.assert(
        fc.asyncProperty(path, talk, async (to, body) => check(await post(to, JSON.stringify(body)))),
        runs(200),
      ),
    )
  })

  test('for texts and ids to tokenize', async () => {
    await takesSome(10, () =>
      fc.assert(
        fc.asyncProperty(tokenizing, async ([path, body]) => check(await post(path, JSON.stringify(body)))),
        runs(300),
      ),
    )
  })

  test('for bodies that are not what they say', async () => {
    const path = fc.constantFrom(
      ...['/v1/completions', '/v1/chat/completions', '/v1/responses', '/v1/sessions/x/chunks', '/v1/messages'],
      ...['/v1/messages/count_tokens', '/v1/tokenize', '/v1/detokenize', '/v1/responses/input_tokens'],
      '/v1/responses/compact',
    )
    const type = fc.constantFrom(
      'application/json',
      'text/plain',
      'application/json; charset=utf-16',
      'multipart/form-data',
      'x',
    )
    const deep = fc.nat(60_000).map((depth) => '['.repeat(depth) + ']'.repeat(depth))
    const named = fc.constantFrom(
      '{"__proto__":{"x":1}}',
      '{"constructor":{"prototype":{}}}',
      '{"model":"demo","tools":',
      '\ufeff{}',
      '{}',
    )
    const tools = deep.map((nested) => `{"model":"demo","prompt":"x","tools":${nested},"text":${nested}}`)
    const body = fc.oneof(fc.string({ unit: 'binary' }), fc.json(), deep, named, tools)
    await fc.assert(
      fc.asyncProperty(path, type, body, async (to, as, what) =>
        check(await post(to, what.toWellFormed(), { 'content-type': as })),
      ),
      runs(200),
    )
  })

  test('for paths, methods, queries and headers', async () => {
    const part = fc.oneof(
      fc.constantFrom(
        'v1',
        'sessions',
        'x',
        'tokens',
        'chunks',
        'models',
        'demo',
        'observations',
        'deadletters',
        '..',
        '%',
        '%zz',
        '%00',
        '%ff',
      ),
      fc.webSegment(),
    )
    const path = fc.array(part, { maxLength: 6 }).map((parts) => `/${parts.join('/')}`)
    const known = fc.constantFrom(
      '/v1/sessions',
      '/v1/sessions/x',
      '/v1/sessions/x/tokens',
      '/v1/models',
      '/v1/responses/resp_W10',
      '/readyz',
    )
    const query = fc.oneof(
      fc.webQueryParameters(),
      fc
        .record(
          {
            limit: value(['1'], ['0', 'x']),
            after: word,
            from: value(['end', 'beginning']),
            starting_after: value(['0:-1', '0:1'], ['x:y', '0:99999999999999']),
          },
          { requiredKeys: [] },
        )
        .map((of) =>
          new URLSearchParams(
            Object.entries(of).map(([name, text]): [string, string] => [name, String(text)]),
          ).toString(),
        ),
    )
    // fetch sends no header that is empty.
    const letter = fc
      .oneof(fc.integer({ min: 0x21, max: 0x7e }), fc.integer({ min: 0xa0, max: 0xff }))
      .map((code) => String.fromCharCode(code))
    const header = fc.string({ unit: letter, minLength: 1, maxLength: 60 })
    const headers = fc.record(
      {
        'last-event-id': fc.oneof(header, fc.constantFrom('0:-1', '1:0', '0:-2')),
        'x-session': header,
        authorization: header,
      },
      { requiredKeys: [] },
    )
    await fc.assert(
      fc.asyncProperty(
        fc.oneof(path, known),
        query,
        fc.constantFrom('GET', 'POST', 'PUT', 'DELETE', 'OPTIONS', 'HEAD', 'PATCH'),
        headers,
        async (at, asked, method, more) => {
          const found = await send(`${at}?${asked}`, { method, headers: more as Record<string, string> })
          if (method === 'HEAD') expect(found.status).toBeLessThan(500)
          else check(found)
        },
      ),
      runs(250),
    )
  })

  test('for bytes that are no HTTP', async () => {
    const { port } = new URL(gateway.url)
    const written = fc.oneof(
      fc.uint8Array({ minLength: 1, maxLength: 300 }),
      fc.string({ unit: 'binary' }).map((text) => `POST /v1/completions HTTP/1.1\r\n${text}\r\n\r\n`),
      // Bytes of one header.
      fc.nat(100_000),
    )
    await fc.assert(
      fc.asyncProperty(written, async (sent) => {
        const socket = connect({ port: Number(port), host: '127.0.0.1' })
        socket.on('error', () => undefined)
        let answer = ''
        socket.setEncoding('latin1').on('data', (text: string) => {
          answer += text
        })
        socket.end(
          typeof sent === 'number' ? `GET / HTTP/1.1\r\nhost: 127.0.0.1\r\nx: ${'a'.repeat(sent)}\r\n\r\n` : sent,
        )
        await new Promise((resolve) => socket.once('close', resolve))
        expect(answer).not.toMatch(/^HTTP\/1\.1 5/)
        // Node itself answers a request without a Host, with no body.
        const told = /\r\n\r\n(\{"error":\{"message":"\S.* .*"|0\r\n\r\n$)/
        if (answer.startsWith('HTTP/1.1 4')) expect(answer).toMatch(told)
      }),
      runs(80),
    )
  })
})

test('after all that it is ready, answers, and its worker has refused nothing but events', async () => {
  expect((await ask(`${gateway.url}/readyz`)).body).toEqual({ ready: true })
  const answered = await ask(`${gateway.url}/v1/completions`, { model: 'demo', prompt: 'The sea', max_tokens: 3 })
  expect(answered.status).toBe(200)
  expect(gateway.child.exitCode).toBeNull()
})
