/** Records made to stop a partition: each becomes a dead letter that holds all of it, and the stream goes on. */
import { expect, test } from 'vitest'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import type { Headers, RecordIn } from '../../../src/streams/log.ts'
import { benches, event, onBothLogsWith } from '../harness.ts'

const { open } = benches()

const nested = (levels: number): string => '['.repeat(levels) + ']'.repeat(levels)
const headers = (bytes: number): Headers => [
  ['trace', Buffer.from('t1')],
  ['large', Buffer.alloc(bytes, 'h')],
]
const fields = (count: number): string =>
  JSON.stringify(Object.fromEntries([['type', 'close'], ...Array.from({ length: count }, (_, n) => [`f${n}`, 1])]))

const hostile: readonly (readonly [name: string, record: RecordIn, reason: RegExp])[] = [
  ['an array nested 20,000 deep', event('s', nested(20_000)), /Expected a JSON object with a "type"/],
  ['a type nested 20,000 deep', event('s', `{"type":${nested(20_000)}}`), /got a value nested too deeply/],
  [
    'a field nested 20,000 deep',
    event('s', `{"type":"generate","maxTokens":1,"requestId":${nested(20_000)}}`),
    /Field "requestId"/,
  ],
  ['a field with a name of 600 kB', event('s', `{"type":"close","${'k'.repeat(600_000)}":1}`), /fields type, id/],
  ['60,000 unknown fields', event('s', fields(60_000)), /fields type, id/],
  ['1 MB of headers on a bad event', { ...event('s', '{'), headers: headers(1_040_000) }, /may take 65536 bytes/],
  [
    '1 MB of headers on a good event',
    { ...event('s', { type: 'generate', requestId: 'r', maxTokens: 40 }), headers: headers(1_040_000) },
    /these take 10400/,
  ],
  [
    'a key of 1 MB that is not UTF-8',
    { key: Buffer.alloc(1_040_000, 0xff), value: Buffer.from('{"type":"close"}') },
    /session id in UTF-8/,
  ],
  [
    'a key of 1 MB',
    { key: Buffer.alloc(1_040_000, 'k'), value: Buffer.from('{"type":"close"}') },
    /1 to 512 characters/,
  ],
]

const header = (all: Headers, name: string): string | undefined => {
  const found = all.findLast(([key]) => key === name)
  return found && Buffer.from(found[1]).toString()
}

const bytes = (base64: string | null): Buffer | null => (base64 === null ? null : Buffer.from(base64, 'base64'))

onBothLogsWith({ tags: 'slow' })((fresh) => {
  test.each(hostile)('%s', async (_, record, reason) => {
    const bench = await open(1, fresh())
    try {
      await bench.feed(event('s', { type: 'text', text: 'before ' }))
      await bench.log.append(bench.names.chunks, [record])
      await bench.feed(event('s', { type: 'text', text: 'after' }))
      const { worker } = await bench.settle()
      expect([...worker.refused]).toEqual([])
      expect((await bench.heads()).get('s')!.totals.tokens).toBe(12)

      const letters = await bench.records('deadletters')
      expect(header(letters[0]!.headers, 'continuo-reason')).toMatch(reason)
      expect(header(letters[0]!.headers, 'continuo-reason')!.length).toBeLessThanOrEqual(1000)
      const content = Buffer.concat(letters.map(({ value }) => value ?? Buffer.alloc(0)))
      if (header(letters[0]!.headers, 'continuo-envelope') === 'json') {
        const held = JSON.parse(content.toString())
        expect(bytes(held.key)!.equals(record.key!)).toBe(true)
        expect(bytes(held.value)!.equals(record.value!)).toBe(true)
        for (const [at, [name, value]] of (record.headers ?? []).entries()) {
          expect(held.headers[at][0]).toBe(name)
          expect(bytes(held.headers[at][1])!.equals(value)).toBe(true)
        }
      } else {
        expect(content.equals(record.value!)).toBe(true)
        expect(Buffer.from(letters[0]!.key!).equals(record.key!)).toBe(true)
      }
      const { findings } = await verifyLog({ ...bench, format: 'json' })
      expect(findings).toEqual([])
    } finally {
      await bench.close()
    }
  })

  test('keys that begin with a byte order mark are sessions of their own, and resume', async () => {
    const bench = await open(1, fresh())
    try {
      const keys = ['a', '\ufeffa', '\ufeff\ufeffa']
      for (const [n, key] of keys.entries())
        await bench.feed(event(key, { type: 'text', text: 'x'.repeat(n + 1) }), event(key, { type: 'text', text: 'y' }))
      await bench.settle()
      for (const key of keys) await bench.feed(event(key, { type: 'generate', requestId: 'r', maxTokens: 3 }))
      const { worker, restored } = await bench.settle()
      expect([...worker.refused]).toEqual([])
      expect([...restored].sort()).toEqual([...keys].sort())
      const heads = await bench.heads()
      expect(keys.map((key) => heads.get(key)!.totals)).toMatchObject([{ tokens: 2 }, { tokens: 3 }, { tokens: 4 }])
      const { findings } = await verifyLog({ ...bench, format: 'json' })
      expect(findings).toEqual([])
    } finally {
      await bench.close()
    }
  })
})
