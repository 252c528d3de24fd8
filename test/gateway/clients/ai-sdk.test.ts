/**
 * Vercel's AI SDK, as it is, against a gateway with a worker: tools over several steps, streams, turns, and a chat that
 * is taken up again.
 *
 * @module-tag slow
 */
import { createOpenAI } from '@ai-sdk/openai'
import { createOpenAICompatible } from '@ai-sdk/openai-compatible'
import {
  AbstractChat,
  type ChatInit,
  convertToModelMessages,
  DefaultChatTransport,
  generateText,
  isStepCount,
  type ModelMessage,
  Output,
  streamText,
  tool,
  type UIMessage,
} from 'ai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { ask, type Serving, servingAll } from '../helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
beforeAll(async () => {
  gateway = await servingAll((end) => ends.push(end))
})
afterAll(() => Promise.all(ends.map((end) => end())))

const chats = () =>
  createOpenAICompatible({
    ...{ name: 'continuo', baseURL: `${gateway.url}/v1` },
    ...{ includeUsage: true, supportsStructuredOutputs: true },
  })('demo')
const responses = () => createOpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none' }).responses('demo')
const models = [
  ['chats', chats],
  ['responses', responses],
] as const

const tools = {
  weather: tool({
    description: 'Of tomorrow.',
    inputSchema: z.object({ city: z.enum(['Oslo', 'Bergen']) }),
    execute: ({ city }) => `In ${city} it rains.`,
  }),
  pack: tool({
    description: 'Puts a thing into the bag.',
    inputSchema: z.object({ thing: z.enum(['umbrella', 'hat']), count: z.int().min(1).max(3) }),
    execute: ({ thing, count }) => ({ packed: `${count} ${thing}` }),
  }),
}
/** One call an answer, by the names of both providers: the model here would call until its tokens are spent. */
const providerOptions = { continuo: { parallel_tool_calls: false }, openai: { parallelToolCalls: false } }
const prompt = 'Shall I take an umbrella?'

describe.each(models)('with the model of %s', (_name, model) => {
  test('tools are called over several steps, and the last one is a text', async () => {
    const { steps, text, totalUsage, responseMessages } = await generateText({
      ...{ model: model(), prompt, tools, providerOptions, maxOutputTokens: 200, temperature: 0 },
      stopWhen: isStepCount(3),
      // A model that learned to call needs none of this.
      prepareStep: ({ stepNumber }) =>
        stepNumber === 2
          ? { toolChoice: 'none' }
          : { toolChoice: { type: 'tool', toolName: stepNumber === 0 ? 'weather' : 'pack' } },
    })
    expect(steps.map(({ finishReason }) => finishReason)).toEqual(['tool-calls', 'tool-calls', 'length'])
    const [first, second] = steps
    expect(first!.toolResults[0]).toMatchObject({ output: expect.stringMatching(/^In (Oslo|Bergen) it rains\.$/) })
    expect(second!.toolResults[0]).toMatchObject({
      output: { packed: expect.stringMatching(/^[123] (umbrella|hat)$/) },
    })
    expect(text).toMatch(/./)
    expect(totalUsage.outputTokens).toBe(steps.reduce((sum, { usage }) => sum + usage.outputTokens!, 0))
    const kinds = responseMessages.map(({ role }) => role)
    expect(kinds).toEqual(['assistant', 'tool', 'assistant', 'tool', 'assistant'])
  })

  test('a stream is the text that comes whole, and a second turn takes it back', async () => {
    const asked = { model: model(), maxOutputTokens: 20, temperature: 0 }
    const messages: ModelMessage[] = [{ role: 'user', content: prompt }]
    const whole = await generateText({ ...asked, messages })
    const stream = streamText({ ...asked, messages })
    const pieces: string[] = []
    for await (const piece of stream.textStream) pieces.push(piece)
    expect(pieces.join('')).toBe(whole.text)
    expect(pieces.length).toBeGreaterThan(2)
    expect(await stream.usage).toMatchObject({ outputTokens: 20, inputTokens: whole.usage.inputTokens })
    messages.push(...(await stream.responseMessages), { role: 'user', content: 'And then?' })
    const second = await generateText({ ...asked, messages })
    expect(second.text).toMatch(/./)
    expect(second.finishReason).toBe('length')
  })

  test('calls come in a stream, with their inputs', async () => {
    const stream = streamText({
      ...{ model: model(), prompt, tools, providerOptions, maxOutputTokens: 200, temperature: 0 },
      toolChoice: { type: 'tool', toolName: 'pack' },
    })
    let json = ''
    for await (const part of stream.stream) if (part.type === 'tool-input-delta') json += part.delta
    const [call] = await stream.toolCalls
    expect(JSON.parse(json)).toEqual(call!.input)
    expect((await stream.toolResults)[0]).toMatchObject({ toolName: 'pack', output: { packed: expect.anything() } })
  })

  test('an object has the form of its schema', async () => {
    const schema = z.object({ cargo: z.enum(['salt', 'coal']), crew: z.int().min(3).max(40) })
    const { output } = await generateText({
      ...{ model: model(), prompt: 'Which ship came in?', maxOutputTokens: 200, temperature: 0 },
      output: Output.object({ schema }),
    })
    schema.parse(output)
  })
})

/** What `useChat` is in each framework: the state is the framework's. */
class Chat extends AbstractChat<UIMessage> {
  constructor({ messages = [], ...init }: ChatInit<UIMessage>) {
    super({
      ...init,
      state: {
        ...{ status: 'ready' as const, error: undefined, messages },
        pushMessage(message) {
          this.messages = [...this.messages, message]
        },
        popMessage() {
          this.messages = this.messages.slice(0, -1)
        },
        replaceMessage(index, message) {
          this.messages = this.messages.with(index, message)
        },
        snapshot: structuredClone,
      },
    })
  }
}

const textOf = (message: UIMessage | undefined): string =>
  message?.parts.map((part) => (part.type === 'text' ? part.text : '')).join('') ?? ''

/**
 * The routes of a page that has a chat. It remembers the id of each chat's last response; the text of that one is in
 * the log.
 */
const app = () => {
  const responseOf = new Map<string, string>()
  const provider = (fetchAgain?: () => Promise<Response>) =>
    createOpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', ...(fetchAgain && { fetch: fetchAgain }) })
  const route = async (request: Request): Promise<Response> => {
    const [, resumed] = /^\/api\/chat\/(\w+)\/stream$/.exec(new URL(request.url).pathname) ?? []
    if (resumed !== undefined) {
      const found = responseOf.get(resumed)
      if (found === undefined) return new Response(null, { status: 204 })
      const again = provider(() => fetch(`${gateway.url}/v1/responses/${found}?stream=true`))
      return streamText({ model: again.responses('demo'), prompt: 'again' }).toUIMessageStreamResponse()
    }
    const { id, messages } = (await request.json()) as { readonly id: string; readonly messages: UIMessage[] }
    const stream = streamText({
      ...{ model: provider().responses('demo'), messages: await convertToModelMessages(messages) },
      ...{ maxOutputTokens: 60, temperature: 0, includeRawChunks: true, abortSignal: request.signal },
      onChunk({ chunk }) {
        const raw = chunk.type === 'raw' ? (chunk.rawValue as { type: string; response?: { id: string } }) : null
        if (raw?.type === 'response.created') responseOf.set(id, raw.response!.id)
      },
    })
    return stream.toUIMessageStreamResponse()
  }
  return {
    responseOf,
    transport: () =>
      new DefaultChatTransport<UIMessage>({
        api: 'http://page.test/api/chat',
        fetch: (url, init) => route(new Request(url, init)),
      }),
  }
}

test('a chat that is left in the middle of an answer is taken up again by another page, and goes on', async () => {
  const { transport, responseOf } = app()
  const left = new Chat({ id: 'c', transport: transport() })
  const sent = left.sendMessage({ text: 'What did the harbour master see?' })
  await expect.poll(() => textOf(left.messages[1]), { interval: 2 }).toMatch(/./)
  await left.stop()
  await sent
  const seen = textOf(left.messages[1])

  const messages = left.messages.slice(0, 1)
  const chat = new Chat({ id: 'c', transport: transport(), messages })
  await chat.resumeStream()
  expect(chat.status).toBe('ready')
  const whole = textOf(chat.messages[1])
  expect(whole.startsWith(seen)).toBe(true)
  const kept = await ask<{ output: { content: { text: string }[] }[]; usage: { output_tokens: number } }>(
    `${gateway.url}/v1/responses/${responseOf.get('c')}`,
  )
  expect(whole).toBe(kept.body.output[0]!.content[0]!.text)
  expect(kept.body.usage.output_tokens).toBe(60)

  await chat.sendMessage({ text: 'And then?' })
  expect(chat.error).toBeUndefined()
  expect(textOf(chat.messages[3])).toMatch(/./)
})
