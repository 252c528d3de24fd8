/**
 * OpenAI's Agents SDK, as it is, against a gateway with a worker: an agent with two tools, run to its end, by both
 * protocols.
 *
 * @module-tag slow
 */
import { Agent, OpenAIProvider, Runner, tool } from '@openai/agents'
import OpenAI from 'openai'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { z } from 'zod'
import { type Serving, servingAll } from '../helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
beforeAll(async () => {
  gateway = await servingAll((end) => ends.push(end))
})
afterAll(() => Promise.all(ends.map((end) => end())))

const runnerOf = (useResponses: boolean) => {
  const openAIClient = new OpenAI({ baseURL: `${gateway.url}/v1`, apiKey: 'none', maxRetries: 0 })
  return new Runner({ modelProvider: new OpenAIProvider({ openAIClient, useResponses }), tracingDisabled: true })
}

/** `done` holds the names of the tools that ran. A model that learned to call would know itself which one is next. */
const umbrellas = (done: string[]) => {
  const weather = tool({
    ...{ name: 'weather', description: 'Of tomorrow.', parameters: z.object({ city: z.enum(['Oslo', 'Bergen']) }) },
    isEnabled: () => done.length === 0,
    execute({ city }) {
      done.push('weather')
      return `In ${city} it rains.`
    },
  })
  const pack = tool({
    ...{ name: 'pack', description: 'Puts a thing into the bag.' },
    parameters: z.object({ thing: z.enum(['umbrella', 'hat']), count: z.int().min(1).max(3) }),
    isEnabled: () => done.length > 0,
    execute({ thing, count }) {
      done.push('pack')
      return `${count} ${thing}`
    },
  })
  return { weather, pack }
}
const QUESTION = 'Shall I take an umbrella to Oslo?'
const settings = { temperature: 0, maxTokens: 200, parallelToolCalls: false }

describe.each([
  ['responses', true],
  ['chats', false],
])('by %s', (_name, useResponses) => {
  test.each([
    false,
    true,
  ])('an agent calls two tools one after the other, and is through (stream: %s)', async (stream) => {
    const done: string[] = []
    const { weather, pack } = umbrellas(done)
    const agent = new Agent({
      ...{ name: 'Packer', instructions: 'Pack what the weather asks for.', model: 'demo', tools: [weather, pack] },
      ...{ modelSettings: { ...settings, toolChoice: 'required' }, resetToolChoice: false },
      toolUseBehavior: { stopAtToolNames: ['pack'] },
    })
    const runner = runnerOf(useResponses)
    let deltas = 0
    const run = async () => {
      if (!stream) return runner.run(agent, QUESTION)
      const streamed = await runner.run(agent, QUESTION, { stream: true })
      for await (const event of streamed) if (event.type === 'raw_model_stream_event') deltas += 1
      await streamed.completed
      return streamed
    }
    const { finalOutput, rawResponses, newItems } = await run()
    expect(done).toEqual(['weather', 'pack'])
    expect(finalOutput).toMatch(/^[123] (umbrella|hat)$/)
    expect(rawResponses).toHaveLength(2)
    expect(newItems.map(({ type }) => type)).toEqual([
      ...['tool_call_item', 'tool_call_output_item', 'tool_call_item', 'tool_call_output_item'],
    ])
    if (stream) expect(deltas).toBeGreaterThan(10)
  })

  test('an agent answers in a form, and takes its call and its answer back in later turns', async () => {
    const { weather } = umbrellas([])
    const asking = new Agent({
      ...{ name: 'Teller', instructions: 'Say what to wear.', model: 'demo', tools: [weather] },
      ...{ modelSettings: { ...settings, toolChoice: 'weather' }, toolUseBehavior: 'stop_on_first_tool' },
    })
    const runner = runnerOf(useResponses)
    const first = await runner.run(asking, QUESTION)
    expect(first.finalOutput).toMatch(/^In (Oslo|Bergen) it rains\.$/)
    expect(first.rawResponses[0]!.usage.outputTokens).toBeGreaterThan(0)
    const hat = z.object({ hat: z.enum(['none', 'straw', 'felt']), gloves: z.boolean() })
    const telling = new Agent({ name: 'Teller', model: 'demo', outputType: hat, modelSettings: settings })
    const second = await runner.run(telling, [...first.history, { role: 'user', content: 'And then?' }])
    expect(hat.parse(second.finalOutput)).toEqual(second.finalOutput)
    const third = await runner.run(telling, [...second.history, { role: 'user', content: 'And then?' }])
    expect(hat.parse(third.finalOutput)).toEqual(third.finalOutput)
    const read = ({ rawResponses }: { readonly rawResponses: typeof third.rawResponses }) =>
      rawResponses[0]!.usage.inputTokens
    expect(read(third)).toBeGreaterThan(read(second))
    if (!useResponses) return
    const goesOn = await runner.run(telling, 'And then?', { previousResponseId: third.lastResponseId! })
    expect(read(goesOn)).toBeLessThan(read(second))
  })
})
