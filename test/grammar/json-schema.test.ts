import * as fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { faultOfGrammar } from '../../src/grammar/index.ts'
import { inBothTiers } from '../rounds.ts'
import { drawn, fault, reading, schemaGrammar } from './helpers.ts'
import { judge, schemas } from './schemas.ts'

/** mulberry32 */
const randomOf = (seed: number): (() => number) => {
  let at = seed
  return () => {
    at = (at + 0x6d2b79f5) | 0
    let z = Math.imul(at ^ (at >>> 15), at | 1)
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61)
    return ((z ^ (z >>> 14)) >>> 0) / 2 ** 32
  }
}

const object = (properties: object, more: object = {}) => ({
  type: 'object',
  properties,
  required: Object.keys(properties),
  additionalProperties: false,
  ...more,
})

describe('an answer bound by a schema', () => {
  for (const { rounds, says, options } of inBothTiers(300))
    test(`is valid, whatever the schema and whatever is drawn, ${says}`, options, () => {
      let judged = 0
      fc.assert(
        fc.property(schemas, fc.array(fc.integer(), { minLength: 3, maxLength: 3 }), (schema, seeds) => {
          const grammar = schemaGrammar(schema)
          // A schema that no value fits is refused, which is another test.
          if (faultOfGrammar(grammar) !== null) {
            expect(fault(grammar)).toMatch(/^No answer fits/)
            return
          }
          const wrong = judge(schema)
          for (const seed of seeds) {
            const text = drawn(grammar, randomOf(seed))
            if (text === null) continue
            judged += 1
            expect({ text, wrong: wrong(JSON.parse(text)) }).toEqual({ text, wrong: null })
          }
        }),
        { numRuns: rounds },
      )
      expect(judged).toBeGreaterThan(rounds)
    })

  test.each<[string, unknown, readonly string[], readonly string[]]>([
    [
      'white space between parts',
      object({ a: { type: 'boolean' } }),
      ['{"a":true}', '{ "a" : true }', '{\n  "a": true\n}'],
      ['{  "a":true}', ' {"a":true}'],
    ],
    ['members in the order of the schema', object({ b: {}, a: {} }), ['{"b":1,"a":{}}'], ['{"a":1,"b":1}']],
    [
      'optional members',
      object({ a: { const: 1 }, b: { const: 2 }, c: { const: 3 } }, { required: ['b'] }),
      ['{"b":2}', '{"a":1,"b":2}', '{"b":2,"c":3}', '{"a":1,"b":2,"c":3}'],
      ['{}', '{"a":1}', '{"a":1,"c":3}', '{,"b":2}', '{"b":2,}'],
    ],
    ['no other members beside named ones', { properties: { a: {} } }, ['{}', '{"a":[]}'], ['{"b":1}']],
    ['any members where none is named', { type: 'object' }, ['{}', '{"x":{"y":[1,"z"]}}'], ['[]']],
    [
      'other members where they are asked for, under other names',
      { properties: { ab: { const: 1 } }, additionalProperties: { const: 2 } },
      ['{"ab":1,"a":2,"abc":2,"":2}', '{"b":2}'],
      ['{"ab":2}', '{"b":1}', '{"b":2,"ab":1}'],
    ],
    [
      'a required member that is not described',
      { type: 'object', required: ['x'] },
      ['{"x":[null]}'],
      ['{}', '{"y":1}'],
    ],
    [
      'integers',
      { type: 'integer', minimum: -12, exclusiveMaximum: 105 },
      ['-12', '-9', '0', '9', '99', '104'],
      ['-13', '105', '-0', '07', '1.0'],
    ],
    ['integers below zero', { type: 'integer', maximum: -3 }, ['-3', '-4', '-123456789'], ['-2', '0', '3']],
    [
      'numbers',
      { type: 'number', minimum: 0.5, exclusiveMaximum: 1.25 },
      ['0.5', '0.50', '1', '1.0', '1.2499'],
      ['0.49', '0', '1.25', '1e0'],
    ],
    [
      'numbers around zero',
      { type: 'number', exclusiveMinimum: -0.5, maximum: 0 },
      ['0', '0.0', '-0.4', '-0.499'],
      ['-0.5', '0.1', '-0', '-0.0'],
    ],
    [
      'lengths in characters',
      { type: 'string', minLength: 2, maxLength: 3 },
      ['"aé"', '"😀\\n\\ud83d\\ude00"'],
      ['"a"', '"abcd"'],
    ],
    ['no halves of a pair', { type: 'string' }, ['"\\ud83d\\ude00"'], ['"\\ud83d"', '"\\ude00"']],
    ['a pattern, searched for', { type: 'string', pattern: 'b"' }, ['"ab\\"c"'], ['"ab"']],
    ['a pattern with both ends', { type: 'string', pattern: '^a|b$' }, ['"axx"', '"xxb"'], ['"xx"']],
    [
      'lists',
      { type: 'array', items: { const: 1 }, minItems: 1, maxItems: 2 },
      ['[1]', '[1, 1]'],
      ['[]', '[1,1,1]', '[2]'],
    ],
    [
      'beginnings of lists',
      { type: 'array', prefixItems: [{ const: 1 }, { const: 2 }], items: false, minItems: 1 },
      ['[1]', '[1,2]'],
      ['[]', '[2]', '[1,2,3]'],
    ],
    ['values', { enum: ['a', 1, null, { x: [1] }] }, ['"a"', '1', 'null', '{"x":[1]}'], ['"b"', '{"x": [1]}']],
    ['values of a type', { type: 'string', enum: ['a', 1] }, ['"a"'], ['1']],
    [
      'a reference to the whole',
      { anyOf: [{ type: 'null' }, { type: 'array', items: { $ref: '#' } }] },
      ['[[null],[[]]]'],
      ['[1]'],
    ],
    ['escapes of references', { $ref: '#/$defs/a~1b%20c', $defs: { 'a/b c': { const: 1 } } }, ['1'], ['2']],
    [
      'alternatives that a member tells apart',
      {
        oneOf: [object({ t: { const: 'a' } }), { $ref: '#/$defs/b' }, { type: 'null' }],
        $defs: { b: object({ t: { enum: ['b', 'c'] }, x: { type: 'integer' } }) },
      },
      ['{"t":"a"}', '{"t":"c","x":1}', 'null'],
      ['{"t":"b"}', '{"t":"d"}', '1'],
    ],
    [
      'what zod writes',
      z.toJSONSchema(
        z.object({
          when: z.iso.date(),
          mail: z.email(),
          hand: z.discriminatedUnion('t', [
            z.object({ t: z.literal('l') }),
            z.object({ t: z.literal('r'), n: z.int() }),
          ]),
          more: z.record(z.string(), z.number()),
        }),
      ),
      ['{"when":"2024-02-29","mail":"a@b.de","hand":{"t":"r","n":1},"more":{"x":1}}'],
      ['{"when":"2023-02-29","mail":"a@b.de","hand":{"t":"l"},"more":{}}'],
    ],
    ['one schema of allOf', { allOf: [{ type: 'null' }] }, ['null'], ['1']],
    ['keywords without a type', { minLength: 2 }, ['"ab"'], ['"a"', '12']],
  ])('knows %s', (_, schema, right, wrong) => {
    const grammar = schemaGrammar(schema)
    for (const text of right) expect([text, reading(grammar, text)]).toEqual([text, 'ended'])
    for (const text of wrong) expect([text, reading(grammar, text)]).not.toEqual([text, 'ended'])
  })

  test('ends by itself: a number has at most 15 digits before and behind its point', () => {
    const grammar = schemaGrammar({ type: 'number' })
    expect(reading(grammar, `${'9'.repeat(15)}.${'9'.repeat(15)}e-99`)).toBe('ended')
    expect(reading(grammar, '9'.repeat(16))).toBeNull()
  })
})

describe('a schema that cannot be kept', () => {
  const deep = (levels: number): unknown => (levels === 0 ? {} : { items: deep(levels - 1) })
  test.each<[unknown, RegExp]>([
    [{ type: 'string', not: {} }, /the keyword "not" is not among those .*, at #\.$/],
    [
      { oneOf: [{ type: 'integer' }, { type: ['null', 'number'] }] },
      /may fit both 0 and 1 of "oneOf".*, at #\/oneOf\.$/,
    ],
    [{ oneOf: [object({ t: { const: 'a' } }), object({ t: { enum: ['b', 'a'] } })] }, /may fit both 0 and 1/],
    [{ oneOf: [{ properties: { t: { const: 'a' } } }, { properties: { t: { const: 'b' } } }] }, /may fit both/],
    [{ oneOf: [{ $ref: '#' }, { $ref: '#' }] }, /may fit both/],
    [{ oneOf: Array.from({ length: 257 }, (_, at) => ({ const: at })) }, /257 schemas, expected at most 256/],
    [object({ 'a/b': { if: {} } }), /"if" .* at #\/properties\/a~1b\.$/],
    [{ type: 'object', propertyNames: { pattern: 'a' } }, /expected \{"type":"string"\}/],
    [{ type: 'number', multipleOf: 3 }, /"multipleOf"/],
    [{ type: 'array', uniqueItems: true }, /"uniqueItems"/],
    [{ patternProperties: {} }, /"patternProperties"/],
    [{ type: 'text' }, /expected one of the types object, array, .* at #\/type/],
    [{ $ref: 'other.json#/a' }, /a "\$ref" leads to a place in this schema/],
    [{ $ref: '#/$defs/a' }, /there is nothing at "#\/\$defs\/a", at #\/\$ref/],
    [{ $ref: '#/__proto__' }, /there is nothing at/],
    [{ $ref: '#', type: 'string' }, /"type" stands beside "\$ref"/],
    [{ anyOf: [] }, /expected a list that is not empty, at #\/anyOf/],
    [{ allOf: [{}, {}] }, /of "allOf" only a list of one/],
    [{ properties: { a: 3 } }, /expected a schema, an object or a boolean, at #\/properties\/a/],
    [{ properties: [] }, /expected an object, at #\/properties/],
    [{ required: 'a' }, /expected a list of names/],
    [{ required: ['a'], additionalProperties: false }, /"a" is required and no member may have that name/],
    [{ minLength: -1 }, /expected a whole number that is not negative, at #\/minLength/],
    [{ minLength: 1, pattern: 'a' }, /both together are not supported/],
    [{ format: 'uri' }, /expected one of the formats date, time/],
    [{ pattern: '(?=a)' }, /The pattern at # cannot be used: it looks around itself/],
    [{ type: 'number', minimum: 0.1234567890123456 }, /a bound has more than 15 digits/],
    [{ minimum: true }, /expected a number, at #\/minimum/],
    [false, /No answer fits/],
    [{ type: 'integer', minimum: 5, maximum: 4 }, /No answer fits/],
    [{ type: 'string', enum: [1] }, /No answer fits/],
    [object({ a: { $ref: '#' } }), /No answer fits/],
    [{ anyOf: [{ $ref: '#' }, {}] }, /leads to itself before it has read a character/],
    [{ enum: ['x'.repeat(70_000)] }, /has 70013 bytes of JSON, expected at most 65536/],
    [deep(100), /nested deeper than 64 levels/],
    [deep(1_000), /nested deeper than 64 levels/],
    [{ type: 'string', maxLength: 1_000_000_000 }, /more than 65536 nodes/],
    [{ items: { type: 'array', minItems: 9_007_199_254_740_991 } }, /more than 65536 nodes/],
  ])('is refused with a sentence: %#', (schema, sentence) => {
    expect(fault(schemaGrammar(schema))).toMatch(sentence)
  })

  test('is refused before anything of it is walked recursively', () => {
    const nested = `${'{"items":'.repeat(100_000)}{}${'}'.repeat(100_000)}`
    expect(fault(schemaGrammar(JSON.parse(nested)))).toMatch(/nested deeper/)
  })
})
