/** Random schemas of the part of JSON Schema that grammars keep, and the judge of their values. */
import { Ajv2020 } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import * as fc from 'fast-check'
import { FORMATS } from '../../src/grammar/json-formats.ts'

type Schema = boolean | { readonly [key: string]: unknown }

const name = fc.oneof(
  { weight: 4, arbitrary: fc.constantFrom('a', 'b', 'ab', 'abc', 'name', 'é', 'x"y', '1', '\\', 'two words') },
  {
    weight: 1,
    arbitrary: fc
      .string({ unit: 'grapheme', maxLength: 6 })
      .filter((text) => text.isWellFormed() && text !== '__proto__'),
  },
)
const sized = (least: string, most: string, max: number) =>
  fc
    .record({ [least]: fc.nat({ max }), [most]: fc.nat({ max }) }, { requiredKeys: [] })
    .filter((found: Record<string, number | undefined>) => (found[least] ?? 0) <= (found[most] ?? max))

/** A bound as people write one: few digits. */
const bound = fc.oneof(
  fc.integer({ min: -2000, max: 2000 }),
  fc
    .tuple(fc.integer({ min: -99_999, max: 99_999 }), fc.nat({ max: 4 }))
    .map(([digits, places]) => Number(`${digits}e-${places}`)),
)
const range = (whole: boolean) =>
  fc
    .tuple(
      bound,
      bound,
      fc.constantFrom('minimum', 'exclusiveMinimum', null),
      fc.constantFrom('maximum', 'exclusiveMaximum', null),
    )
    .map(([one, other, least, most]) => ({
      ...(least !== null && { [least]: Math.min(one, other) }),
      ...(most !== null && { [most]: Number((Math.max(one, other) + (whole ? 2 : 0.5)).toFixed(4)) }),
    }))

const PATTERNS = ['^[a-z]{2,5}$', 'x+', '^(foo|bar)\\d?', '"\\\\$', '^[^a-z]*$', '\\n', '^\\w+@\\w+$', '^.{3}$|^$']

/** The judge compares values with fast-deep-equal, which calls these two members where a value has them. */
const jsonValue = (maxDepth: number) =>
  fc.jsonValue({ maxDepth }).filter((value) => !/"(valueOf|toString)":/.test(JSON.stringify(value)))

const leaf: fc.Arbitrary<Schema> = fc.oneof(
  sized('minLength', 'maxLength', 12).map((length) => ({ type: 'string', ...length })),
  fc.constantFrom(...PATTERNS).map((pattern) => ({ type: 'string', pattern })),
  fc.constantFrom(...Object.keys(FORMATS)).map((format) => ({ type: 'string', format })),
  range(true).map((bounds) => ({ type: 'integer', ...bounds })),
  range(false).map((bounds) => ({ type: 'number', ...bounds })),
  fc.constantFrom<Schema>(
    { type: 'boolean' },
    { type: 'null' },
    { type: ['string', 'null'] },
    { type: ['integer', 'boolean'] },
    true,
    {},
  ),
  fc.array(jsonValue(1), { minLength: 1, maxLength: 4 }).map((values) => ({ enum: values })),
  jsonValue(2).map((value) => ({ const: value })),
  fc.constant({ $ref: '#/$defs/tree' }),
)

const inner: fc.Arbitrary<Schema> = fc.letrec<{ any: Schema }>((tie) => ({
  any: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    leaf,
    fc
      .record({
        properties: fc.dictionary(name, tie('any'), { maxKeys: 4, noNullPrototype: true }),
        others: fc.option(fc.oneof(fc.boolean(), tie('any')), { nil: undefined }),
        optional: fc.array(fc.boolean(), { minLength: 4, maxLength: 4 }),
      })
      .map(({ properties, others, optional }) => ({
        type: 'object',
        properties,
        required: Object.keys(properties).filter((_, at) => optional[at]),
        ...(others !== undefined && { additionalProperties: others }),
      })),
    fc
      .record({ items: tie('any'), size: sized('minItems', 'maxItems', 4) })
      .map(({ items, size }) => ({ type: 'array', items, ...size })),
    fc
      .record({
        prefixItems: fc.array(tie('any'), { minLength: 1, maxLength: 3 }),
        items: fc.oneof(fc.constant(false), tie('any')),
      })
      .map((both) => ({ type: 'array', ...both })),
    fc.array(tie('any'), { minLength: 1, maxLength: 3 }).map((anyOf) => ({ anyOf })),
  ),
})).any

const tree = {
  type: 'object',
  properties: {
    value: { type: 'integer' },
    left: { anyOf: [{ $ref: '#/$defs/tree' }, { type: 'null' }] },
    right: { anyOf: [{ $ref: '#/$defs/tree' }, { type: 'null' }] },
  },
  required: ['value', 'left'],
  additionalProperties: false,
}

export const schemas: fc.Arbitrary<{ readonly [key: string]: unknown }> = inner.map((schema) => ({
  ...(typeof schema === 'boolean' ? { anyOf: [schema] } : schema),
  $defs: { tree },
}))

/** What is wrong with the value; null: it is valid. */
export const judge = (schema: object): ((value: unknown) => string | null) => {
  const ajv = new Ajv2020({ strict: false, allErrors: false })
  formats.default(ajv)
  const valid = ajv.compile(schema)
  return (value) => (valid(value) ? null : ajv.errorsText(valid.errors))
}
