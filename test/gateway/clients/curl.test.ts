/**
 * Scripts of a shell, with the curl of the machine: whole answers, streams, tools, and a conversation in a session.
 *
 * @module-tag slow
 */
import { execFile, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { ROOT } from '../../cli/helpers.ts'
import { ask, type Serving, servingAll } from '../helpers.ts'

const ends: (() => Promise<unknown>)[] = []
let gateway: Serving
beforeAll(async () => {
  gateway = await servingAll((end) => ends.push(end))
})
afterAll(() => Promise.all(ends.map((end) => end())))

const has = (command: string): boolean => spawnSync(command, ['--version']).status === 0
const run = promisify(execFile)
const curl = async (path: string, body: object, ...more: readonly string[]): Promise<string> => {
  const sent = ['-H', 'content-type: application/json', '-d', JSON.stringify(body)]
  return (await run('curl', ['-sS', `${gateway.url}${path}`, ...sent, ...more])).stdout
}
const messages = [{ role: 'user', content: 'Shall I take an umbrella?' }]
const chat = { model: 'demo', messages, temperature: 0, max_tokens: 20 }
const function_ = {
  ...{ name: 'weather' },
  parameters: {
    ...{ type: 'object', additionalProperties: false, required: ['city'] },
    properties: { city: { enum: ['Oslo', 'Bergen'] } },
  },
}

test.skipIf(!has('curl'))('curl has an answer whole and in pieces, a call, and the turn behind it', async () => {
  const whole = JSON.parse(await curl('/v1/chat/completions', chat))
  const events = (await curl('/v1/chat/completions', { ...chat, stream: true }, '-N')).split('\n\n')
  expect(events.slice(-2)).toEqual(['data: [DONE]', ''])
  const deltas = events.slice(0, -2).map((event) => JSON.parse(event.slice('data: '.length)).choices[0].delta.content)
  expect(deltas.join('')).toBe(whole.choices[0].message.content)

  const tools = [{ type: 'function', function: function_ }]
  const asked = { ...chat, tools, max_tokens: 200, tool_choice: 'required', parallel_tool_calls: false }
  const { message } = JSON.parse(await curl('/v1/chat/completions', asked)).choices[0]
  const [call] = message.tool_calls
  expect(['Oslo', 'Bergen']).toContain(JSON.parse(call.function.arguments).city)
  const result = { role: 'tool', tool_call_id: call.id, content: 'It rains.' }
  const next = await curl('/v1/chat/completions', { ...chat, tools, messages: [...messages, message, result] })
  expect(JSON.parse(next).choices[0].message.content).toMatch(/./)
})

const script = (turns: readonly string[], session: string, env: Readonly<Record<string, string>> = {}) =>
  new Promise<{ code: unknown; out: string; err: string }>((resolve) => {
    const child = execFile(
      ...(['sh', [join(ROOT, 'examples', 'ask.sh'), gateway.url, session]] as const),
      { env: { ...process.env, MAX_TOKENS: '12', ...env } },
      (error, out, err) => resolve({ code: error?.code ?? 0, out, err }),
    )
    child.stdin!.end(turns.map((turn) => `${turn}\n`).join(''))
  })

test.skipIf(!has('curl') || !has('jq'))('a loop of a shell holds a conversation in a session', async () => {
  const session = 'a shell’s "1"'
  const first = await script(['Shall I take an "umbrella"?', 'And a hat?'], session)
  expect(first).toMatchObject({ code: 0, err: '' })
  const head = async () => (await ask(`${gateway.url}/v1/sessions/${encodeURIComponent(session)}`)).body
  await expect.poll(head).toMatchObject({ status: 'open', generated: 24 })
  const { code, out } = await script(['And then?'], session)
  expect({ code, text: out.trimEnd() }).toEqual({ code: 0, text: expect.stringMatching(/\S/) })
  await expect.poll(head).toMatchObject({ generated: 36 })

  const refused = await script(['And then?'], session, { MODEL: 'nobody' })
  expect(refused.err).toContain('The model "nobody" is not served here')
})
