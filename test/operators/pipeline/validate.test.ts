import { describe, expect, test } from 'vitest'
import { type ValidateOptions, validateRecord } from '../../../src/operators/pipeline/validate.ts'
import type { StoredRecord } from '../../../src/streams/log.ts'
import { CHUNK_TYPES, chunks, MAX_EVALUATIONS, MAX_GENERATE_TOKENS, MAX_RUN } from '../../../topics/chunks.ts'

const options: ValidateOptions = { format: 'json', vocabSize: 256, readsText: true }

const record = (value: string | Uint8Array | null, key: string | Uint8Array | null = 's'): StoredRecord => ({
  topic: 'continuo.chunks',
  partition: 0,
  offset: 7,
  timestamp: 0,
  key: key === null ? null : Buffer.from(key),
  value: value === null ? null : Buffer.from(value),
  headers: [],
})

const reasonOf = (value: unknown, key?: string | Uint8Array | null, use = options): string => {
  const raw = typeof value === 'string' || value instanceof Uint8Array || value === null ? value : JSON.stringify(value)
  const result = validateRecord(record(raw as string, key), use)
  if (result.kind !== 'rejected') throw new Error(`accepted: ${JSON.stringify(result.event)}`)
  return result.reason
}

describe('validate', () => {
  test('accepts every example of the contract', () => {
    for (const example of chunks.examples)
      expect(validateRecord(record(JSON.stringify(example)), options).kind).toBe('valid')
  })

  test('says what was expected, what arrived and what to do', () => {
    expect(reasonOf('{"type":"text"')).toMatch(
      /Expected a JSON event, got 14 bytes that are not JSON .*--input-format text/,
    )
    expect(reasonOf(null)).toMatch(/got a record without a value \(a tombstone\)\. .*"delete"/)
    expect(reasonOf(Uint8Array.of(0xff, 0xfe))).toMatch(/not JSON/)
    expect(reasonOf([1, 2])).toBe('Expected a JSON object with a "type", got [1,2].')
    expect(reasonOf({ type: 'shout' })).toBe(`Expected an event type of ${CHUNK_TYPES.join(', ')}; got "shout".`)
    expect(reasonOf({ type: 'boundary', rest: true })).toMatch(
      /"boundary" event has the fields type, id, once, reset.*rest/,
    )
    expect(reasonOf({ type: 'generate', requestId: 'r', maxTokens: 'many' })).toMatch(/Field "maxTokens".*got "many"/)
  })

  test('names what producers write that were set up for other consumers', () => {
    const event = Buffer.from('{"type":"text","text":"a"}')
    expect(reasonOf(Buffer.concat([Buffer.from([0, 0, 0, 1, 2]), event]))).toBe(
      'Expected a JSON event, got 31 bytes as a serializer with a schema registry writes them (a zero byte, schema id 258). Let the producer write the JSON alone.',
    )
    expect(reasonOf({ schema: { type: 'struct' }, payload: { type: 'text', text: 'a' } })).toMatch(
      /got the envelope of a Kafka Connect converter .*value\.converter\.schemas\.enable=false\.$/,
    )
    expect(reasonOf({ before: null, after: { text: 'a' }, op: 'c', source: {}, ts_ms: 1 })).toMatch(
      /got a change event of Debezium .*ExtractNewRecordState/,
    )
    // A member that is wrong is named, in whichever form of the event.
    expect(reasonOf({ type: 'text', text: null })).toMatch(/Field "text": .*expected string.*, got null\.$/)
    expect(reasonOf({ type: 'text', bytes: 5 })).toMatch(/Field "bytes": .*expected string.*, got 5\.$/)
  })

  test.each([
    ['maxTokens', { maxTokens: 0 }],
    ['maxTokens', { maxTokens: MAX_GENERATE_TOKENS + 1 }],
    ['maxTokens', { maxTokens: 1.5 }],
    ['maxTokens', { maxTokens: 1e308 }],
    ['temperature', { maxTokens: 1, temperature: -1 }],
    ['temperature', { maxTokens: 1, temperature: 1e9 }],
    ['topP', { maxTokens: 1, topP: 0 }],
    ['topP', { maxTokens: 1, topP: 1.01 }],
    ['topK', { maxTokens: 1, topK: -1 }],
    ['seed', { maxTokens: 1, seed: 0.5 }],
    ['stop', { maxTokens: 1, stop: [''] }],
    ['run', { maxTokens: 1, run: 0 }],
    ['run', { maxTokens: 1, run: MAX_RUN + 1 }],
    ['run', { maxTokens: 1, run: 2.5 }],
  ])('refuses generate with an absurd %s', (field, settings) => {
    expect(reasonOf({ type: 'generate', requestId: 'r', ...settings })).toContain(`Field "${field}`)
  })

  test.each([
    ['evaluations', {}],
    ['evaluations', { evaluations: 0 }],
    ['evaluations', { evaluations: 2.5 }],
    ['evaluations', { evaluations: MAX_EVALUATIONS + 1 }],
    ['seed', { evaluations: 1, seed: -1 }],
    ['seed', { evaluations: 1, seed: 2 ** 53 }],
  ])('refuses adapt with an absurd %s', (field, settings) => {
    expect(reasonOf({ type: 'adapt', ...settings })).toContain(`Field "${field}`)
  })

  test('gives adapt its seed, and open its wishes, where they are left out', () => {
    const eventOf = (value: object) => {
      const valid = validateRecord(record(JSON.stringify(value)), options)
      return valid.kind === 'valid' ? valid.event : null
    }
    expect(eventOf({ type: 'adapt', evaluations: MAX_EVALUATIONS })).toEqual({
      ...{ type: 'adapt', evaluations: MAX_EVALUATIONS, seed: 0 },
    })
    expect(eventOf({ type: 'open' })).toEqual({
      type: 'open',
      surprisal: false,
      novelty: false,
      memory: false,
      perspectives: false,
      embedding: false,
    })
  })

  test('refuses token ids outside the vocabulary by position, and negative ones by the schema', () => {
    expect(reasonOf({ type: 'tokens', tokens: [1, 256] })).toBe(
      "Token ids go from 0 to 255 for this model; tokens[1] is 256. None of the event's 2 tokens was read.",
    )
    expect(reasonOf({ type: 'tokens', tokens: [-1] })).toContain('tokens.0')
  })

  test('a key must name a session', () => {
    expect(reasonOf({ type: 'close' }, null)).toMatch(/Expected the session id as the record key/)
    expect(reasonOf({ type: 'close' }, '')).toMatch(/Expected the session id/)
    expect(reasonOf({ type: 'close' }, Uint8Array.of(0xc3))).toMatch(/in UTF-8/)
    expect(reasonOf({ type: 'close' }, 'x'.repeat(600))).toMatch(/1 to 512 characters, this one has 600/)
  })

  test('text is refused by a model without a tokenizer', () => {
    expect(reasonOf({ type: 'text', text: 'a' }, 's', { ...options, readsText: false })).toMatch(/no tokenizer/)
  })

  test('as plain text every value is an event, whatever its bytes', () => {
    const result = validateRecord(record(Uint8Array.of(0xff, 0x00, 0x7b)), { ...options, format: 'text' })
    expect(result).toMatchObject({ kind: 'valid', event: { type: 'text', bytes: '/wB7' } })
  })
})
