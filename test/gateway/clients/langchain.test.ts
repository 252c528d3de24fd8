/**
 * LangChain.js, as it is, against a gateway with a worker: whole and in pieces, tools, answers of a form, and second
 * turns.
 *
 * @module-tag slow
 */
import { type AIMessageChunk, HumanMessage, ToolMessage } from '@langchain/core/messages'
import { tool } from '@langchain/core/tools'
import { ChatOpenAI } from '@langchain/openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { type Serving, servingAll } from '../helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
beforeAll(async () => {
  gateway = await servingAll((end) => ends.push(end))
})
afterAll(() => Promise.all(ends.map((end) => end())))

const modelOf = (useResponsesApi: boolean, maxTokens = 20) =>
  new ChatOpenAI({
    ...{ model: 'demo', apiKey: 'none', temperature: 0, maxTokens, maxRetries: 0, useResponsesApi },
    configuration: { baseURL: `${gateway.url}/v1` },
  })
const weather = tool(({ city }) => `In ${city} it rains.`, {
  ...{ name: 'weather', description: 'Of tomorrow.' },
  schema: z.object({ city: z.enum(['Oslo', 'Bergen']) }),
})
/** The types of the package have none for a model whose protocol is chosen later. */
const readBy = ({ usage_metadata }: object & { usage_metadata?: unknown }) =>
  (usage_metadata as { readonly input_tokens: number }).input_tokens
const question = new HumanMessage('Shall I take an umbrella?')

describe.each([
  ['chats', false],
  ['responses', true],
])('by %s', (_name, useResponsesApi) => {
  test('a stream is what an invocation gives, and a second turn takes it back', async () => {
    const model = modelOf(useResponsesApi)
    const whole = await model.invoke([question])
    expect(whole.text).toMatch(/./)
    expect(whole.usage_metadata).toMatchObject({ output_tokens: 20 })
    let streamed: AIMessageChunk | undefined
    let pieces = 0
    for await (const piece of await model.stream([question])) {
      streamed = streamed?.concat(piece) ?? piece
      pieces += 1
    }
    expect(streamed!.text).toBe(whole.text)
    expect(pieces).toBeGreaterThan(2)
    expect(streamed!.usage_metadata).toMatchObject({
      ...{ output_tokens: 20, input_tokens: readBy(whole) },
    })
    for (const answer of [whole, streamed!]) {
      const second = await model.invoke([question, answer, new HumanMessage('And then?')])
      expect(second.text).toMatch(/./)
    }
  })

  test('a tool is called, whole and in a stream, and its result is read', async () => {
    const model = modelOf(useResponsesApi, 200)
    const calling = model.bindTools([weather], { tool_choice: 'weather', parallel_tool_calls: false })
    const first = await calling.invoke([question])
    expect(first.tool_calls).toMatchObject([
      { name: 'weather', args: { city: expect.stringMatching(/^(Oslo|Bergen)$/) } },
    ])
    let streamed: AIMessageChunk | undefined
    for await (const piece of await calling.stream([question])) streamed = streamed?.concat(piece) ?? piece
    const { args } = first.tool_calls![0]!
    expect(streamed!.tool_calls).toMatchObject([{ name: 'weather', args }])

    const results = await Promise.all(first.tool_calls!.map((call) => weather.invoke(call)))
    expect(results[0]).toBeInstanceOf(ToolMessage)
    const second = await modelOf(useResponsesApi)
      .bindTools([weather], { tool_choice: 'none' })
      .invoke([question, first, ...(results as ToolMessage[])])
    expect(second.text).toMatch(/./)
    expect(readBy(second)).toBeGreaterThan(0)
  })

  test('an answer of a form is parsed', async () => {
    const ship = z.object({ cargo: z.enum(['salt', 'coal']), crew: z.int().min(3).max(40) })
    const found = await modelOf(useResponsesApi, 200)
      .withStructuredOutput(ship, { name: 'ship', method: 'jsonSchema' })
      .invoke('Which ship came in?')
    expect(ship.parse(found)).toEqual(found)
  })
})
