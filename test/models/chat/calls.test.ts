/** Calls in an answer: what a grammar of calls lets through is read as what was called, wherever the answer is cut. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { type CallForm, callFormOf, inWords, readCalls, withIds } from '../../../src/models/chat/calls.ts'
import { isRaw, parseExact } from '../../../src/models/chat/exact.ts'
import { grammarOf, reading } from '../../grammar/helpers.ts'

const FORMS: readonly (readonly [string, CallForm])[] = [
  ['Hermes', callFormOf('{{ tools }} <tool_call>')],
  ['Llama', callFormOf('{{ tools }} <|start_header_id|> "parameters"')],
  ['Mistral', callFormOf('{{ tools }} [TOOL_CALLS]')],
  ['words', callFormOf('{{ messages }}')],
]
/** Names that contain each other, and words of the forms. */
const NAMES = ['t', 'tool', 'tool_call', 'name', 'arguments', 'parameters', 'a', 'f-1']
const bound = ({ open, close, between, before, middle, after }: CallForm, most: number) =>
  grammarOf({
    ...{ type: 'calls', open, close, between, before, middle, after, text: true, most },
    tools: NAMES.map((name) => ({ name, schema: {} })),
  })
const hard = fc.oneof(
  fc.string({ unit: 'grapheme' }),
  fc.constantFrom('}', '"}', '\\', '<tool_call>', '{"name": "t', '[', '\n'),
)
const json = fc.dictionary(
  hard,
  fc.oneof(
    hard,
    fc.integer(),
    fc.constantFrom(null, true),
    fc.array(hard, { maxLength: 3 }),
    fc.dictionary(hard, hard, { maxKeys: 2 }),
  ),
  { maxKeys: 3 },
)
const call = fc.record({ name: fc.constantFrom(...NAMES), json: json.map((value) => JSON.stringify(value)) })

/** What a reader says of the text in pieces of these lengths. */
const read = (form: CallForm, text: string, cuts: readonly number[]) => {
  const reader = readCalls(form)
  const calls: { name: string; json: string }[] = []
  let said = ''
  let at = 0
  for (const length of [...cuts, text.length]) {
    const piece = reader.push(text.slice(at, at + length))
    at += length
    said += piece.text
    for (const { index, name, json: more } of piece.calls)
      if (name === undefined) calls[index]!.json += more
      else calls[index] = { name, json: more }
  }
  return { text: `${said}${reader.end()}`, calls }
}

describe.each(FORMS)('in the form of %s', (_, form) => {
  const cuts = fc.array(fc.integer({ min: 0, max: 12 }), { maxLength: 30 })
  test('calls behind a text are read, wherever the answer is cut', () => {
    fc.assert(
      fc.property(
        hard,
        fc.array(call, { minLength: 1, maxLength: Math.min(form.most, 3) }),
        cuts,
        (said, calls, pieces) => {
          const trigger = `${form.open}${form.before}`
          fc.pre(!said.includes(trigger))
          const written = calls.map(({ name, json: args }) => `${form.before}${name}${form.middle}${args}${form.after}`)
          const text = `${said}${form.open}${written.join(form.between)}${form.close}`
          expect(reading(bound(form, 3), text)).toBe('ended')
          expect(read(form, text, pieces)).toEqual({ text: said, calls })
        },
      ),
      { numRuns: 60 },
    )
  })
  test('a text without a call is a text', () => {
    fc.assert(
      fc.property(
        fc.array(
          fc.oneof(
            hard,
            fc.nat(12).map((n) => `${form.open}${form.before}`.slice(0, n)),
          ),
        ),
        cuts,
        (parts, pieces) => {
          const text = parts.join('')
          fc.pre(reading(bound(form, 0), text) === 'ended')
          expect(read(form, text, pieces)).toEqual({ text, calls: [] })
        },
      ),
      { numRuns: 100 },
    )
  })
})

test('numbers of arguments stay as they were written', () => {
  const value = parseExact('{"id": 123456789012345678, "x": 1.0, "n": [7, -0.5]}') as {
    id: unknown
    x: unknown
    n: unknown
  }
  expect([isRaw(value.id), isRaw(value.x), value.n]).toEqual([true, true, [7, -0.5]])
  expect(JSON.stringify(value)).toBe('{"id":123456789012345678,"x":1.0,"n":[7,-0.5]}')
})

test('tools are told in the first message where a template refuses a system message', () => {
  const tool = { type: 'function' as const, function: { name: 'f', parameters: {} } }
  const [first, ...rest] = inWords([{ role: 'user', content: 'Hello' }], [tool], false)
  expect(rest).toEqual([])
  expect(first).toMatchObject({ role: 'user', content: expect.stringMatching(/^You can call these tools:.*Hello$/s) })
})

test('ids of calls have the length that the template wants, the same in call and result', () => {
  const { idLength } = FORMS[2]![1]
  const call = { id: 'call_1', type: 'function' as const, function: { name: 'f', arguments: {} } }
  const [asked, given] = [
    withIds({ role: 'assistant', content: '', tool_calls: [call] }, idLength),
    withIds({ role: 'tool', content: '', tool_call_id: 'call_1' }, idLength),
  ]
  expect(asked.tool_calls![0]!.id).toMatch(/^[a-z0-9]{9}$/)
  expect(given.tool_call_id).toBe(asked.tool_calls![0]!.id)
  expect(withIds({ role: 'tool', content: '', tool_call_id: 'call_1' }, 0).tool_call_id).toBe('call_1')
})
