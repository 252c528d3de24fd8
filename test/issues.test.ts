/**
 * Every fault of a value that a schema refuses has a place and says what may stand there: no "Invalid input" alone,
 * unions included.
 */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { z } from 'zod'
import { chatRequest, completionRequest, responseRequest } from '../src/gateway/openai/schema.ts'
import { schemaFault } from '../src/issues.ts'
import { decoderConfig } from '../src/models/families/decoder.ts'
import { gpt2Config } from '../src/models/families/gpt2.ts'
import { ngramConfig } from '../src/models/families/ngram.ts'
import { rwkv7Config } from '../src/models/families/rwkv7.ts'
import { ropeParameters } from '../src/models/rope.ts'
import { CHUNK_SCHEMAS, chunk, chunks } from '../topics/chunks.ts'
import { inputRules } from '../topics/input.ts'
import { observation } from '../topics/observations.ts'
import { stateRecord } from '../topics/state.ts'
import { generated } from '../topics/tokens.ts'

const SCHEMAS: readonly (readonly [string, z.ZodType])[] = [
  ...Object.entries(CHUNK_SCHEMAS).map(([name, schema]): [string, z.ZodType] => [`event ${name}`, schema]),
  ['any event', chunk],
  ['observation', observation],
  ['state record', stateRecord],
  ['generated tokens', generated],
  ['rules of an input', inputRules],
  ['completion', completionRequest],
  ['chat', chatRequest],
  ['response', responseRequest],
  ['config of a decoder', decoderConfig],
  ['config of GPT-2', gpt2Config],
  ['config of RWKV-7', rwkv7Config],
  ['config of an ngram memory', ngramConfig],
  ['rope', ropeParameters],
]

/** Names that the schemas know, so that values come near them. */
const NAMES = [
  ...new Set([
    ...chunks.examples.flatMap((example) => Object.keys(Object(example))),
    ...SCHEMAS.flatMap(([, schema]) => (schema instanceof z.ZodObject ? Object.keys(schema.shape) : [])),
    ...['role', 'content', 'is', 'name', 'schema', 'json_schema', 'image_url'],
  ]),
]
const WORDS = ['text', 'generate', 'user', 'assistant', 'json', 'regex', 'json_schema', 'function', 'image_url', '']
const { value: values } = fc.letrec<{ value: unknown }>((tie) => ({
  value: fc.oneof(
    { maxDepth: 3, withCrossShrink: true },
    fc.oneof(fc.constantFrom<unknown>(null, true, 0, -1, 1.5, 3, 1e300, ...WORDS), fc.string({ maxLength: 4 })),
    fc.array(tie('value'), { maxLength: 3 }),
    fc.dictionary(fc.constantFrom(...NAMES), tie('value'), { maxKeys: 6 }),
  ),
}))

/** What stands at a place; undefined: nothing. */
const at = (value: unknown, path: readonly PropertyKey[]): unknown =>
  path.reduce<unknown>((found, key) => (Object(found) as Record<PropertyKey, unknown>)[key], value)

describe.each(SCHEMAS)('%s', (_, schema) => {
  test('says where a fault is and what may stand there', () => {
    fc.assert(
      fc.property(values, (value) => {
        const { error } = schema.safeParse(value)
        if (error === undefined) return
        const { path, message, unknown } = schemaFault(error)
        expect(message).not.toMatch(/^Invalid input\.?$|\(invalid_union\)/)
        expect(message.length).toBeGreaterThan(8)
        // A place that is in the value, or a member of what is there.
        expect(at(value, path.slice(0, -1))).not.toBeUndefined()
        if (unknown.length > 0)
          expect(Object.keys(Object(at(value, path)))).toEqual(expect.arrayContaining([...unknown]))
      }),
      { numRuns: 400, seed: 38 },
    )
  })
})

test.each([
  ['a list of prompts', completionRequest, { model: 'm', prompt: [true] }, 'prompt'],
  ['an empty stop', completionRequest, { model: 'm', prompt: 'a', stop: '' }, 'stop'],
  ['seventeen stops', completionRequest, { model: 'm', prompt: 'a', stop: Array(17).fill('x') }, 'stop'],
  ['no text', chunk, { type: 'text', text: null }, 'text'],
  [
    'a part that is an image',
    chatRequest,
    { model: 'm', messages: [{ role: 'user', content: [{ type: 'image_url', image_url: { url: 'x' } }] }] },
    'messages.0.content.0',
  ],
])('%s: the place inside of the union is named', (_, schema: z.ZodType, value, place) => {
  const { error } = schema.safeParse(value)
  const { path, message } = schemaFault(error!)
  expect(path.join('.').startsWith(place), `${path.join('.')}: ${message}`).toBe(true)
  expect(message).toMatch(/expected|Too (big|small)/i)
})
