/** Thoughts before an answer: apart from its text, counted, taken back, and asked for or not. */
import { cpSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { MODEL, temporary } from '../cli/helpers.ts'
import { ask, type Refused, type Serving, servingAll } from './helpers.ts'

/** As Qwen 3 has it: thoughts are left out by an empty pair of tags. */
const HYBRID = `{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}<think>{{ m.reasoning_content }}</think>{% endif %}{{ m.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|>{% if enable_thinking is defined and enable_thinking is false %}<think>

</think>

{% endif %}{% endif %}`
/** As DeepSeek R1 has it: they are opened in any case. */
const ALWAYS = `{% for m in messages %}<|{{ m.role }}|>{{ m.content }}
{% endfor %}{% if add_generation_prompt %}<|assistant|><think>
{% endif %}`

const ends: (() => Promise<unknown>)[] = []
let plain: Serving
let hybrid: Serving
let always: Serving
const clientOf = ({ url }: Serving) => new OpenAI({ baseURL: `${url}/v1`, apiKey: 'none', maxRetries: 0 })
beforeAll(async () => {
  const packaged = (name: string, template: string): readonly string[] => {
    const dir = join(temporary(), name)
    cpSync(MODEL, dir, { recursive: true })
    writeFileSync(join(dir, 'chat_template.jinja'), template)
    return ['--model', dir, '--model-name', 'demo']
  }
  const end = (each: () => Promise<unknown>) => ends.push(each)
  ;[plain, hybrid, always] = await Promise.all([
    servingAll(end),
    servingAll(end, ...packaged('hybrid', HYBRID)),
    servingAll(end, ...packaged('always', ALWAYS)),
  ])
})
afterAll(() => Promise.all(ends.map((end) => end())))

const question = { role: 'user' as const, content: 'Why?' }
/** Members that the client's types do not have. */
interface Thinking {
  readonly enable_thinking?: boolean
  readonly grammar?: string
}
/** An answer whose text is known: its grammar has no other. */
const written = (text: string): Thinking => ({ enable_thinking: true, grammar: `root ::= ${JSON.stringify(text)}` })
const THOUGHT = '<think>\nA sail?\n\nNo.\n</think>\n\nIt was a gull.'
const INSIDE = 'A sail?\n</think>\nNo.'
type Create = OpenAI.Chat.ChatCompletionCreateParamsNonStreaming
const chat = (more: object = {}): Create => ({
  ...{ model: 'demo', messages: [question], max_tokens: 80, temperature: 0 },
  ...more,
})
const messageIn = ({ choices }: OpenAI.Chat.ChatCompletion) =>
  choices[0]!.message as OpenAI.Chat.ChatCompletionMessage & { readonly reasoning_content?: string }
const thoughtTokens = (text: string): number => text.indexOf('</think>') + '</think>'.length

describe('a chat', () => {
  test.each([
    ['that the model begins', () => hybrid, THOUGHT, 'A sail?\n\nNo.', 'It was a gull.'],
    ['that the prompt begins', () => always, INSIDE, 'A sail?', 'No.'],
  ])('has thoughts %s, whole and in pieces', async (_, serving, text, thought, said) => {
    const client = clientOf(serving())
    const asked = chat(written(text))
    const whole = await client.chat.completions.create(asked)
    expect(messageIn(whole)).toEqual({ role: 'assistant', content: said, refusal: null, reasoning_content: thought })
    expect(whole.choices[0]!.finish_reason).toBe('stop')
    expect(whole.usage).toMatchObject({
      completion_tokens: text.length,
      completion_tokens_details: { reasoning_tokens: thoughtTokens(text) },
    })
    const told = { content: '', reasoning_content: '' }
    const stream = { ...asked, stream: true as const, stream_options: { include_usage: true } }
    for await (const { choices, usage } of await client.chat.completions.create(stream)) {
      const delta: Partial<typeof told> = (choices[0]?.delta ?? {}) as Partial<typeof told>
      told.content += delta.content ?? ''
      told.reasoning_content += delta.reasoning_content ?? ''
      if (usage) expect(usage).toEqual(whole.usage)
    }
    expect(told).toEqual({ content: said, reasoning_content: thought })
  })

  test('that is cut off within thoughts has no text', async () => {
    const cut = await clientOf(always).chat.completions.create(chat({ max_tokens: 20 }))
    expect(messageIn(cut)).toMatchObject({ content: '', reasoning_content: expect.stringMatching(/./) })
    expect(cut.usage!.completion_tokens_details!.reasoning_tokens).toBe(20)
  })

  test('has none where it shall not, by either name', async () => {
    for (const serving of [hybrid, always]) {
      const client = clientOf(serving)
      const thinks = await client.chat.completions.create(chat({ max_tokens: 5 }))
      for (const off of [{ enable_thinking: false }, { chat_template_kwargs: { enable_thinking: false } }]) {
        const told = await client.chat.completions.create(chat({ max_tokens: 20, ...off }))
        expect(messageIn(told).content).not.toBe('')
        expect(messageIn(told).reasoning_content).toBeUndefined()
        expect(told.usage!.prompt_tokens).toBeGreaterThan(thinks.usage!.prompt_tokens)
      }
    }
  })

  test('that is bound has none, though its prompt would open them', async () => {
    const schema = { type: 'object', properties: { a: { const: 1 } }, required: ['a'], additionalProperties: false }
    const format = { type: 'json_schema', json_schema: { name: 'x', schema } }
    for (const serving of [hybrid, always]) {
      const told = await clientOf(serving).chat.completions.create(chat({ response_format: format, max_tokens: 100 }))
      expect(JSON.parse(messageIn(told).content!)).toEqual({ a: 1 })
    }
    const { body } = await ask<Refused>(`${hybrid.url}/v1/chat/completions`, {
      ...chat({ response_format: format, enable_thinking: true }),
    })
    expect(body.error).toMatchObject({ param: 'enable_thinking', message: expect.stringContaining('no thoughts') })
  })

  test('may think, and then call', async () => {
    const tools = [{ type: 'function', function: { name: 'now' } }]
    const told = await clientOf(always).chat.completions.create(chat({ tools, max_tokens: 20 }))
    expect(messageIn(told)).toMatchObject({ content: '', reasoning_content: expect.stringMatching(/./) })
    const call = await clientOf(always).chat.completions.create(chat({ tools, tool_choice: 'required' }))
    expect(messageIn(call)).toMatchObject({ tool_calls: [{ function: { name: 'now' } }] })
    expect(messageIn(call).reasoning_content).toBeUndefined()
  })

  test('is as before where the package knows of no thoughts', async () => {
    const { enable_thinking: _, ...grammar } = written(THOUGHT)
    const told = await clientOf(plain).chat.completions.create(chat(grammar))
    expect(messageIn(told)).toEqual({ role: 'assistant', content: THOUGHT, refusal: null })
    expect(told.usage).not.toHaveProperty('completion_tokens_details')
  })

  test.each([
    ['two answers', { enable_thinking: true, chat_template_kwargs: { enable_thinking: false } }, 'enable_thinking'],
    ['what nobody knows', { chat_template_kwargs: { think: true } }, 'chat_template_kwargs.think'],
    ['a word', { enable_thinking: 'yes' }, 'enable_thinking'],
  ])('refuses %s by name', async (_, more, param) => {
    const { status, body } = await ask<Refused>(`${hybrid.url}/v1/chat/completions`, chat(more))
    expect([status, body.error.param]).toEqual([400, param])
  })
})

describe('a response', () => {
  type Asked = OpenAI.Responses.ResponseCreateParamsNonStreaming
  const asked = (more: object = {}): Asked & { stream?: false } => ({
    ...{ model: 'demo', input: [question], max_output_tokens: 80, temperature: 0 },
    ...more,
  })

  /** The stream's parameters have no `stream`. */
  const streamed = (more: object = {}) => asked(more) as Omit<Asked, 'stream'>

  test.each([
    ['that the model begins', () => hybrid, THOUGHT, 'A sail?\n\nNo.', 'It was a gull.'],
    ['that the prompt begins', () => always, INSIDE, 'A sail?', 'No.'],
  ])('has thoughts %s as an item, found again, and the same in pieces', async (_, serving, text, thought, said) => {
    const client = clientOf(serving())
    const whole = await client.responses.create(asked(written(text)))
    expect(whole.output).toEqual([
      {
        ...{ type: 'reasoning', id: expect.stringMatching(/^rs_/), status: 'completed', summary: [] },
        content: [{ type: 'reasoning_text', text: thought }],
      },
      expect.objectContaining({ type: 'message', status: 'completed' }),
    ])
    expect(whole.output_text).toBe(said)
    expect(whole.usage!.output_tokens_details.reasoning_tokens).toBe(thoughtTokens(text))
    expect(await client.responses.retrieve(whole.id)).toEqual(whole)

    const stream = client.responses.stream(streamed(written(text)))
    const events: OpenAI.Responses.ResponseStreamEvent[] = []
    for await (const event of stream) events.push(event)
    const deltas = events.flatMap((event) => (event.type === 'response.reasoning_text.delta' ? [event.delta] : []))
    expect(deltas.join('')).toBe(thought)
    const final = await stream.finalResponse()
    expect(final.output.map(({ type }) => type)).toEqual(['reasoning', 'message'])
    expect(final.output_text).toBe(said)
    const added = events.flatMap((event) => (event.type === 'response.output_item.added' ? [event.output_index] : []))
    expect(added).toEqual([0, 1])
    const again: unknown[] = []
    for await (const event of await client.responses.retrieve(final.id, { stream: true })) again.push(event)
    expect(again).toHaveLength(events.length)
  })

  test('takes them back as they are, and by reference', async () => {
    const client = clientOf(hybrid)
    const first = await client.responses.create(asked(written(THOUGHT)))
    const messages = [
      { role: 'assistant', content: 'It was a gull.', reasoning_content: 'A sail?\n\nNo.' },
      { role: 'user', content: 'Sure?' },
    ]
    const known = await client.chat.completions.create(
      chat({ messages: [question, ...messages], max_tokens: 16, enable_thinking: false }),
    )
    const behind = { role: 'user' as const, content: 'Sure?' }
    const more = { max_output_tokens: 16, enable_thinking: false }
    for (const items of [first.output, first.output.map(({ id }) => ({ type: 'item_reference', id }))]) {
      const input = [question, ...items, behind] as OpenAI.Responses.ResponseInput
      const told = await client.responses.create(asked({ input, ...more }))
      expect(told.output_text).toBe(messageIn(known).content)
      expect(told.usage!.input_tokens).toBe(known.usage!.prompt_tokens)
    }
  })

  test('is refused to an item of thoughts that has none', async () => {
    const input = [{ type: 'reasoning', summary: [] }]
    const { status, body } = await ask<Refused>(`${hybrid.url}/v1/responses`, asked({ input }))
    expect([status, body.error.param, body.error.message]).toEqual([400, 'input', expect.stringContaining('Nothing')])
  })

  test('that is cut off within thoughts has them alone', async () => {
    const client = clientOf(always)
    const cut = await client.responses.create(asked({ max_output_tokens: 20 }))
    expect(cut.output).toMatchObject([{ type: 'reasoning', status: 'incomplete' }])
    const final = await client.responses.stream(streamed({ max_output_tokens: 20 })).finalResponse()
    expect(final.output).toMatchObject([{ type: 'reasoning', status: 'incomplete' }])
  })
})

test("Anthropic's clients, who have not asked for thoughts, have none", async () => {
  const body = { model: 'demo', max_tokens: 20, temperature: 0, messages: [question] }
  for (const serving of [hybrid, always]) {
    const told = await ask<{ content: unknown; usage: unknown }>(`${serving.url}/v1/messages`, body)
    const same = await clientOf(serving).chat.completions.create(chat({ max_tokens: 20, enable_thinking: false }))
    expect(told.body).toMatchObject({
      content: [{ type: 'text', text: messageIn(same).content }],
      usage: { input_tokens: same.usage!.prompt_tokens },
    })
  }
})
