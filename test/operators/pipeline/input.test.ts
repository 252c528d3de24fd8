/** How the records of an input become events: whose session each is, what it asks for, and what is refused. */
import { describe, expect, test } from 'vitest'
import { differing, homesOf, sessionOf } from '../../../src/operators/pipeline/input.ts'
import { requestOf, ruled, ruleOf } from '../../../src/operators/pipeline/text-requests.ts'
import { type ValidateOptions, validateRecord } from '../../../src/operators/pipeline/validate.ts'
import type { Valid } from '../../../src/operators/types.ts'
import type { StoredRecord } from '../../../src/streams/log.ts'
import { chunks } from '../../../topics/chunks.ts'
import { generateRule, type InputRules, inputRules } from '../../../topics/input.ts'

const record = (value: string | Uint8Array | null, more: Partial<StoredRecord> = {}): StoredRecord => ({
  topic: 'lines',
  partition: 3,
  offset: 7,
  timestamp: 0,
  key: Buffer.from('s'),
  value: value === null ? null : Buffer.from(value),
  headers: [],
  ...more,
})
const headers = (named: Readonly<Record<string, string>>): StoredRecord['headers'] =>
  Object.entries(named).map(([name, text]) => [name, Buffer.from(text)] as const)

const json: ValidateOptions = { format: 'json', vocabSize: 256, readsText: true }
const text: ValidateOptions = { ...json, format: 'text' }
const outcome = (given: StoredRecord, options: ValidateOptions) => {
  const result = validateRecord(given, options)
  return result.kind === 'valid' ? { session: result.session, event: result.event } : result.reason
}

describe('the session of a record', () => {
  const keyless = record('x', { key: null, headers: headers({ device: 'd-1' }) })

  test.each([
    [undefined, { fault: expect.stringContaining('as the record key, got no key') }],
    [{ is: 'partition' }, { session: 'partition-3' }],
    [{ is: 'constant', name: 'all' }, { session: 'all' }],
    [{ is: 'header', name: 'device' }, { session: 'd-1' }],
    [
      { is: 'header', name: 'other' },
      { fault: expect.stringMatching(/in the header "other", got none\. .*--session-from/) },
    ],
  ] as const)('from %o', (session, expected) => {
    expect(sessionOf(keyless, session && { session })).toEqual(expected)
  })

  test('is judged by the same rules wherever it comes from', () => {
    const from = { session: { is: 'header', name: 'h' } } as const
    const judge = (bytes: Uint8Array) => sessionOf(record('x', { headers: [['h', bytes]] }), from)
    expect(judge(Buffer.from('x'.repeat(513)))).toEqual({ fault: expect.stringContaining('this one has 513') })
    expect(judge(Uint8Array.of(0xc3))).toEqual({ fault: expect.stringContaining('in UTF-8 in the header "h"') })
    // Of several headers the last counts, as of members of JSON.
    expect(sessionOf(record('x', { headers: [...headers({ h: 'a' }), ...headers({ h: 'b' })] }), from)).toEqual({
      session: 'b',
    })
  })
})

describe('fields that nobody knows', () => {
  const tolerant = { ...json, input: { unknownFields: 'ignore' } } as const
  const extra = JSON.stringify({ type: 'open', surprisal: true, from: { session: 'p', why: 1 }, meta: { a: [1] } })

  test('are refused, or left out by choice, at every depth', () => {
    expect(outcome(record(extra), json)).toMatch(/Unrecognized key/)
    expect(outcome(record(extra), tolerant)).toEqual({
      session: 's',
      event: {
        type: 'open',
        surprisal: true,
        novelty: false,
        memory: false,
        perspectives: false,
        embedding: false,
        from: { session: 'p' },
      },
    })
  })

  test('change nothing of what is known: the examples are the same events, a wrong value is refused, so is a choice of two', () => {
    for (const example of chunks.examples) {
      const given = record(JSON.stringify({ ...(example as object), unheardOf: true }))
      expect(outcome(given, tolerant)).toEqual(outcome(record(JSON.stringify(example)), json))
    }
    expect(outcome(record('{"type":"generate","requestId":"r","maxTokens":0}'), tolerant)).toMatch(/maxTokens/)
    expect(outcome(record('{"type":"text","text":"a","bytes":"YQ=="}'), tolerant)).toMatch(/A "text" event has/)
    expect(outcome(record('{"type":"shout"}'), tolerant)).toMatch(/Expected an event type/)
  })
})

describe('a request of plain text', () => {
  const asks = (rule: object): ValidateOptions => ({ ...text, input: { generate: generateRule.parse(rule) } })
  const byHeader = asks({ header: 'ask' })

  test('in a header is read with the text as one event', () => {
    const given = record('once', { headers: headers({ ask: '{"maxTokens":20,"temperature":0,"requestId":"r"}' }) })
    expect(outcome(given, byHeader)).toMatchObject({
      event: { type: 'generate', bytes: 'b25jZQ==', requestId: 'r', maxTokens: 20, temperature: 0, topP: 1 },
    })
    const unnamed = record(null, { headers: headers({ ask: '{"maxTokens":2}' }) })
    expect(outcome(unnamed, byHeader)).toMatchObject({ event: { type: 'generate', bytes: '', requestId: '3/7' } })
    expect(outcome(given, text)).toEqual({ session: 's', event: { type: 'text', bytes: 'b25jZQ==' } })
  })

  test.each([
    ['20', /in the header "ask", got no object/],
    ['{', /got 1 bytes that are not JSON\. Send \{"maxTokens":20\}/],
    ['{"maxTokens":0}', /maxTokens: Too small/],
    ['{"max":1}', /maxTokens: Invalid input/],
    ['{"maxTokens":1,"tempo":2}', /Unrecognized key/],
  ])('in a header that says %s is a dead letter', (value, reason) => {
    expect(requestOf(record('x', { headers: headers({ ask: value }) }), { header: 'ask' })).toMatch(reason)
  })

  test('by rule follows from the text and the records before it, and from nothing else', () => {
    const rule = generateRule.parse({ every: 3, after: '.\n', request: { maxTokens: 5 } })
    const valid = (value: string): Valid => {
      const result = validateRecord(record(value), asks(rule))
      if (result.kind !== 'valid') throw new Error(result.reason)
      return result
    }
    expect([0, 1, 2, 3].map((before) => ruled(valid('a'), before).type)).toEqual([
      'text',
      'text',
      'generate',
      'generate',
    ])
    expect(ruled(valid('a.\n'), 0)).toMatchObject({ type: 'generate', requestId: '3/7', maxTokens: 5, bytes: 'YS4K' })
    expect(ruled(valid('\n'), 0).type).toBe('text')
    expect(ruleOf(record('x'), Buffer.from('x'), undefined)).toBeUndefined()
  })
})

describe('a CloudEvent', () => {
  const said: InputRules = { cloudEvents: true }
  const attributes = { ce_specversion: '1.0', ce_id: 'e-1', ce_source: '/shop', ce_type: 'shop.page' }
  const event = { type: 'text', text: 'Hello' }
  const structured = { specversion: '1.0', id: 'e-1', source: '/shop', type: 'shop.page', data: event }
  const inMode = (value: unknown, type = 'application/cloudevents+json; charset=UTF-8'): StoredRecord =>
    record(JSON.stringify(value), { headers: headers({ 'content-type': type }) })
  const expected = { session: 's', event: { id: 'e-1', type: 'text', text: 'Hello' } }

  test('is read in both modes, and its id is that of the event, unless that has its own', () => {
    const binary = record(JSON.stringify(event), {
      headers: headers({ ...attributes, 'content-type': 'application/json' }),
    })
    expect(outcome(binary, { ...json, input: said })).toEqual(expected)
    expect(outcome(inMode(structured), { ...json, input: said })).toEqual(expected)
    const { data: _, ...bare } = structured
    const inBytes = { ...bare, data_base64: Buffer.from(JSON.stringify(event)).toString('base64') }
    expect(outcome(inMode(inBytes), { ...json, input: said })).toEqual(expected)
    const own = { ...structured, data: { ...event, id: 'mine' } }
    expect(outcome(inMode(own), { ...json, input: said })).toMatchObject({ event: { id: 'mine' } })
    // What is none is read as ever.
    expect(outcome(record(JSON.stringify(event)), { ...json, input: said })).toEqual({ session: 's', event })
  })

  test('may carry plain text', () => {
    const options = { ...text, input: said }
    const read = { session: 's', event: { type: 'text', id: 'e-1', bytes: Buffer.from('Hello').toString('base64') } }
    expect(outcome(inMode({ ...structured, data: 'Hello' }), options)).toEqual(read)
    const plain = headers({ ...attributes, 'content-type': 'text/plain' })
    expect(outcome(record('Hello', { headers: plain }), options)).toEqual(read)
    expect(outcome(inMode(structured), options)).toMatch(/Expected text in the CloudEvent .*"Hello"/)
  })

  test.each([
    [
      'of another version',
      inMode({ ...structured, specversion: '0.3' }),
      /specversion "1\.0", id, source and type: specversion/,
    ],
    ['without a source', inMode({ ...structured, source: undefined }), /: source: /],
    ['whose id is empty', inMode({ ...structured, id: '' }), /: id: /],
    ['with data twice', inMode({ ...structured, data_base64: 'YQ==' }), /data or data_base64, got both/],
    ['in a batch', inMode([structured], 'application/cloudevents-batch+json'), /one a record, as JSON/],
    ['as Avro', inMode(structured, 'application/cloudevents+avro'), /"application\/cloudevents\+avro"/],
    [
      'that is no JSON',
      record('{', { headers: headers({ 'content-type': 'application/cloudevents+json' }) }),
      /1 bytes that are not JSON/,
    ],
    [
      'with data of another type',
      record('<a/>', { headers: headers({ ...attributes, 'content-type': 'text/xml' }) }),
      /data of the type "text\/xml"/,
    ],
    ['that is no event', inMode({ ...structured, data: 7 }), /Expected a JSON object with a "type", got 7/],
    [
      'with an attribute missing',
      record('{}', { headers: headers({ ce_specversion: '1.0', ce_id: 'x' }) }),
      /: source: /,
    ],
  ])('%s is a dead letter that says why', (_, given, reason) => {
    expect(outcome(given, { ...json, input: said })).toMatch(reason)
  })
})

describe('rules', () => {
  test('are the same, whether their first values are said or not', () => {
    expect(differing({ since: 12 }, { partitioner: 'murmur2' })).toBeNull()
    expect(differing({ partitioner: 'murmur2', since: 12 }, {})).toBeNull()
  })

  test('that differ are named as the flags that say them', () => {
    const given = inputRules.parse({
      session: { is: 'header', name: 'h' },
      unknownFields: 'ignore',
      cloudEvents: true,
      generate: { every: 4, header: 'g', request: { maxTokens: 2 } },
    })
    expect(differing({ partitioner: 'crc32', since: 0 }, given)).toEqual({
      kept: '--key-partitioner crc32 --session-from key --unknown-fields refuse',
      given: expect.stringMatching(
        /^--key-partitioner murmur2 --session-from header:h --unknown-fields ignore --cloudevents --generate-every 4 --generate-header g --generate-request '\{"maxTokens":2,/,
      ),
    })
  })

  test('say where sessions belong: nowhere in particular where each partition has its own, or an older version wrote the log', () => {
    expect(homesOf({ partitioner: 'crc32', since: 5 }, 8).home('user1')).toBe(5)
    expect(homesOf({ session: { is: 'partition' }, since: 0 }, 8).home('partition-1')).toBeNull()
    expect(homesOf(undefined, 8)).toMatchObject({ since: Number.POSITIVE_INFINITY, partitioner: 'murmur2' })
  })
})
