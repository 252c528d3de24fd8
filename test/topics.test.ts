/** The contract as others take it: schemas that a registry can keep, and a document that tools of AsyncAPI read. */
import { createRequire } from 'node:module'
import { Ajv } from 'ajv'
import { Ajv2020 } from 'ajv/dist/2020.js'
import formats from 'ajv-formats'
import { describe, expect, test } from 'vitest'
import { asyncApi } from '../topics/asyncapi.ts'
import { jsonSchema, schemaId, TOPICS } from '../topics/index.ts'

const addFormats = formats.default
const withSchema = TOPICS.filter(({ value }) => value !== null)

/** The published schema of AsyncAPI 3.0 documents. */
const specification = createRequire(import.meta.url)('@asyncapi/specs/schemas/3.0.0-without-$id.json') as object
const compile = () => {
  const ajv = new Ajv({ strict: false })
  addFormats(ajv)
  return ajv.compile(specification)
}
const plain = <T>(value: T): T => JSON.parse(JSON.stringify(value)) as T

describe('the schema of a topic', () => {
  test('has a name of its own, refers to nothing outside of itself, and takes the examples', () => {
    expect(new Set(withSchema.map(({ name }) => schemaId(name))).size).toBe(withSchema.length)
    for (const topic of withSchema) {
      const schema = jsonSchema(topic)!
      expect(schema.$id).toBe(`urn:continuo:schema:${topic.name}:v1`)
      for (const [, to] of JSON.stringify(schema).matchAll(/"\$ref":"([^"]*)"/g)) expect(to).toMatch(/^#/)
      const ajv = new Ajv2020({ strict: false, formats: { base64: true } })
      addFormats(ajv)
      const validate = ajv.compile(schema)
      for (const example of topic.examples) expect(validate(example), ajv.errorsText(validate.errors)).toBe(true)
      expect(validate({ type: 'unheard of' })).toBe(false)
    }
  })
})

describe('the AsyncAPI document', () => {
  test('is one by the published schema, under any prefix, and with an input of another name', () => {
    const validate = compile()
    for (const document of [asyncApi('continuo'), asyncApi('shop.eu_1', 'orders')])
      expect(validate(plain(document)), JSON.stringify(validate.errors)).toBe(true)
    // A schema that takes everything would say so too.
    expect(validate({ ...plain(asyncApi('p')), channels: { chunks: { address: 7 } } })).toBe(false)
    expect(validate({ ...plain(asyncApi('p')), operations: { x: { action: 'shout' } } })).toBe(false)
  })

  test('has every topic under its full name, each with the schema that the log keeps to, and refers to what is there', () => {
    const document = asyncApi('shop', 'orders')
    expect(Object.values(document.channels).map(({ address }) => address)).toEqual([
      'orders',
      ...['tokens', 'observations', 'state', 'snapshots', 'blobs', 'deadletters', 'alerts'].map(
        (name) => `shop.${name}`,
      ),
    ])
    const payloads = Object.values(plain(document).components.messages).flatMap(({ payload }) => payload ?? [])
    expect(payloads.map(({ schema }) => schema.$id)).toEqual(withSchema.map(({ name }) => schemaId(name)))
    for (const [, to] of JSON.stringify(document).matchAll(/"\$ref":"#\/([^"]*)"/g)) {
      const found = to!
        .split('/')
        .reduce<unknown>((at, key) => (at as Record<string, unknown> | undefined)?.[key], document)
      expect(found, to).toBeDefined()
    }
    expect(Object.keys(document.operations)).toEqual([
      'receive-chunks',
      'send-tokens',
      'send-observations',
      'send-deadletters',
      'send-alerts',
    ])
  })
})
