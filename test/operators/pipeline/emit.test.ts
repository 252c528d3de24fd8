import { firstValueFrom, of } from 'rxjs'
import { describe, expect, test } from 'vitest'
import { ASKED_HEADER } from '../../../src/operators/pipeline/asked.ts'
import { emit } from '../../../src/operators/pipeline/emit.ts'
import type { Output, Step } from '../../../src/operators/types.ts'
import type { StoredRecord } from '../../../src/streams/log.ts'
import { topicNames } from '../../../topics/index.ts'
import { PART_BYTES } from '../../../topics/snapshots.ts'

const names = topicNames('p')
const text = (bytes: Uint8Array | null): string => Buffer.from(bytes ?? []).toString()

const emitted = (record: Partial<StoredRecord>, ...outputs: readonly Output[]) => emittedAs(false, record, ...outputs)

const emittedAs = (cloudEvents: boolean, record: Partial<StoredRecord>, ...outputs: readonly Output[]) => {
  const step: Step = {
    record: {
      topic: 'p.chunks',
      partition: 2,
      offset: 41,
      timestamp: 1234,
      key: Buffer.from('s'),
      value: Buffer.from('{"type":"close"}'),
      headers: [],
      ...record,
    },
    session: 's',
    outputs,
    head: null,
    done: true,
  }
  return firstValueFrom(of(step).pipe(emit(names, cloudEvents)))
}

const opened: Output = {
  to: 'observations',
  value: {
    type: 'opened',
    version: 1,
    session: 's',
    pulse: 0,
    cause: { topic: 'p.chunks', partition: 2, offset: 41, id: null },
  },
}

describe('emit', () => {
  test('an output carries the event time and the headers of its cause, in order, repeated names too', async () => {
    const headers = [
      ['trace', Buffer.from('1')],
      ['trace', Buffer.from('2')],
    ] as const
    const { records } = await emitted({ headers }, opened)
    expect(records).toHaveLength(1)
    expect(records[0]).toMatchObject({ topic: 'p.observations', timestamp: 1234, headers })
    expect(text(records[0]!.key)).toBe('s')
    expect(JSON.parse(text(records[0]!.value))).toEqual(opened.value)
  })

  test('what a client asked for goes into no output, a dead letter included, however long it is', async () => {
    const trace = ['trace', Buffer.from('1')] as const
    const headers = [trace, [ASKED_HEADER, Buffer.alloc(200_000)] as const]
    const letter: Output = { to: 'deadletters', reason: 'Why.' }
    const { records } = await emitted({ headers }, opened, letter)
    expect(records[0]!.headers).toEqual([trace])
    expect(records).toHaveLength(2)
    expect(text(records[1]!.key)).toBe('s')
    expect(records[1]!.headers!.map(([name]) => name)).not.toContain(ASKED_HEADER)
    expect(text(records[1]!.value)).toBe('{"type":"close"}')
  })

  const named = (headers: StoredRecord['headers'] | undefined) => headers?.map(([name, value]) => [name, text(value)])
  const cloudEvent: StoredRecord['headers'] = [
    ['ce_specversion', Buffer.from('1.0')],
    ['ce_id', Buffer.from('e-1')],
    ['ce_source', Buffer.from('/shop')],
    ['content-type', Buffer.from('application/json')],
    ['traceparent', Buffer.from('00-1')],
  ]

  test('an output is not the CloudEvent that caused it: it has neither its identity nor the type of its data', async () => {
    const { records } = await emitted({ headers: cloudEvent }, opened)
    expect(named(records[0]!.headers)).toEqual([['traceparent', '00-1']])
    const structured = [['content-type', Buffer.from('application/cloudevents+json')] as const]
    expect((await emitted({ headers: structured }, opened)).records[0]!.headers).toEqual([])
    // A record that is none keeps what it has, also a header that another specification put there.
    const other = [['content-type', Buffer.from('text/plain')] as const]
    expect((await emitted({ headers: other }, opened)).records[0]!.headers).toEqual(other)
    // The dead letter is the event itself, moved.
    const letter = (await emitted({ headers: cloudEvent }, { to: 'deadletters', reason: 'r' })).records[0]!
    expect(named(letter.headers)!.slice(0, 5)).toEqual(named(cloudEvent))
  })

  test('as a CloudEvent it has an identity of its own: two outputs never share one, and the same output has it again', async () => {
    const value = { ...(opened as Extract<Output, { to: 'observations' }>).value, type: 'opened', pulse: 1 } as const
    const other: Output = { to: 'observations', value }
    const { records } = await emittedAs(true, { headers: cloudEvent }, opened, other, opened)
    const [one, two, again] = records.map(({ headers }) => Object.fromEntries(named(headers)!))
    expect(one).toEqual({
      traceparent: '00-1',
      ce_specversion: '1.0',
      ce_id: expect.stringMatching(/^[0-9a-f]{64}$/),
      ce_source: 'urn:continuo:topic:p.chunks',
      ce_type: 'continuo.opened.v1',
      ce_subject: 's',
      ce_dataschema: 'urn:continuo:schema:observations:v1',
      'content-type': 'application/json',
    })
    expect(two!.ce_id).not.toBe(one!.ce_id)
    expect(again).toEqual(one)
    expect(JSON.parse(text(records[0]!.value))).toEqual(opened.to === 'observations' && opened.value)
  })

  test('a dead letter is the original with where it stood and why', async () => {
    const { records } = await emitted(
      { headers: [['trace', Buffer.from('1')]] },
      { to: 'deadletters', reason: 'It is closed.' },
    )
    expect(records).toHaveLength(1)
    const [letter] = records
    expect(letter).toMatchObject({ topic: 'p.deadletters', timestamp: 1234 })
    expect(text(letter!.value)).toBe('{"type":"close"}')
    expect(letter!.headers!.map(([name, value]) => [name, text(value)])).toEqual([
      ['trace', '1'],
      ['continuo-reason', 'It is closed.'],
      ['continuo-topic', 'p.chunks'],
      ['continuo-partition', '2'],
      ['continuo-offset', '41'],
      ['continuo-timestamp', '1234'],
    ])
  })

  test.each([
    [0, 1],
    [1, 1],
    [PART_BYTES, 1],
    [PART_BYTES + 1, 2],
    [3 * PART_BYTES, 3],
  ])('a dead letter of %i bytes takes %i records', async (size, count) => {
    const value = Buffer.alloc(size, 'x')
    const { records } = await emitted({ value }, { to: 'deadletters', reason: 'r' })
    expect(records).toHaveLength(count)
    expect(Buffer.concat(records.map((record) => record.value!)).equals(value)).toBe(true)
  })

  test('neither key nor value stays neither', async () => {
    const { records } = await emitted({ key: null, value: null }, { to: 'deadletters', reason: 'r' })
    expect(records[0]).toMatchObject({ key: null, value: null })
  })
})
