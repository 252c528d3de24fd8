/** Answers that may call tools: a text in which no call begins, then calls whose arguments are those of a schema. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import type { GrammarInput } from '../../topics/chunks.ts'
import { fault, grammarOf, reading } from './helpers.ts'

const tool = (name: string, schema: unknown = { type: 'object', properties: {} }) => ({
  ...{ name, schema },
})
const place = { type: 'object', properties: { city: { type: 'string' } }, required: ['city'] }
type Calls = Extract<GrammarInput, { type: 'calls' }>
const calls = (more: Partial<Calls> = {}) =>
  grammarOf({
    ...{ type: 'calls', open: '', close: '', between: '\n', tools: [tool('now'), tool('weather', place)] },
    ...{ before: '<call>{"name": "', middle: '", "arguments": ', after: '}</call>', text: true, most: 3 },
    ...more,
  })
const NOW = '<call>{"name": "now", "arguments": {}}</call>'
const WEATHER = '<call>{"name": "weather", "arguments": {"city": "Oslo"}}</call>'

describe('an answer that may call', () => {
  test.each([
    ['nothing', '', 'ended'],
    ['a text', 'It is late.', 'ended'],
    ['a text that begins like a call, again and again', 'a<<ca<call {"<call', 'ended'],
    ['a call', NOW, 'ended'],
    ['a text, then calls', `Let me see.\n${WEATHER}\n${NOW}`, 'ended'],
    ['a call that is not whole', WEATHER.slice(0, -8), 'open'],
    ['a text behind a call', `${NOW} and`, null],
    ['calls that are too many', [NOW, NOW, NOW, NOW].join('\n'), null],
    ['a tool that nobody has', '<call>{"name": "rain"', null],
    ['arguments that its schema does not have', '<call>{"name": "weather", "arguments": {"town"', null],
    ['a begun call, and a text', '<call>{"name": "x', null],
  ])('%s', (_, text, found) => expect(reading(calls(), text)).toBe(found))

  test('has a text wherever the beginning of a call does not stand in it', () => {
    const trigger = '<call>{"name": "'
    const piece = fc.oneof(
      fc.constantFrom(trigger, '<', 'é', '{"name": "'),
      fc.nat(trigger.length).map((length) => trigger.slice(0, length)),
      fc.nat(trigger.length).map((at) => trigger.slice(at)),
    )
    fc.assert(
      fc.property(fc.array(piece, { maxLength: 8 }), (pieces) => {
        const text = pieces.join('')
        expect(reading(calls({ most: 0 }), text)).toBe(text.includes(trigger) ? null : 'ended')
      }),
      { numRuns: 300 },
    )
  })
})

test('calls can be asked for: then there is no text, and one at least', () => {
  const asked = calls({ text: false, most: 1 })
  expect(reading(asked, NOW)).toBe('ended')
  expect(reading(asked, '')).toBe('open')
  expect(reading(asked, 'It')).toBe(null)
  expect(reading(asked, `${NOW}\n`)).toBe(null)
})

test('calls can stand in a list', () => {
  const around = { open: '[', close: ']', between: ', ', before: '{"name": "', after: '}' }
  const list = calls({ ...around, tools: [tool('now'), tool('later')] })
  const [now, later] = ['now', 'later'].map((name) => `{"name": "${name}", "arguments": {}}`)
  expect(reading(list, `[${now}, ${later}]`)).toBe('ended')
  expect(reading(list, `see [1]: [${later}`)).toBe('open')
  expect(reading(list, `[${now}, `)).toBe('open')
  expect(reading(list, `[${now}]x`)).toBe(null)
})

test('arguments are an object, whatever else the schema lets through', () => {
  const open = calls({
    tools: [tool('any', {}), tool('some', { type: ['object', 'null'], properties: {} }), tool('t', true)],
  })
  const call = (name: string, json: string) => `<call>{"name": "${name}", "arguments": ${json}}</call>`
  for (const name of ['any', 'some', 't']) expect(reading(open, call(name, '{}'))).toBe('ended')
  for (const json of ['5', 'null', '"x"', '[]']) expect(reading(open, call('any', json))).toBe(null)
  expect(reading(open, call('any', '{"a": [5]}'))).toBe('ended')
  expect(fault(calls({ tools: [tool('odd', { type: 'string' })] }))).toContain('expected "object"')
})

test('refuses, by the name of the tool, what cannot be kept', () => {
  expect(fault(calls({ tools: [tool('now'), tool('odd', { not: {} })] }))).toMatch(/^The tool "odd": The schema /)
  expect(fault(calls({ tools: [tool('large', { enum: ['x'.repeat(70_000)] })] }))).toMatch(/^The tool "large": .*65536/)
  const half = 'x'.repeat(40_000)
  expect(fault(calls({ tools: [tool('one', { enum: [half] }), tool('two', { enum: [half] })] }))).toContain('65536')
  expect(fault(calls({ before: 'aba' }))).toContain('stands nowhere else')
})
