import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { buildGraph } from '../../src/engine/builder.ts'
import { stateLayout } from '../../src/engine/layout.ts'
import { sha256 } from '../../src/hash.ts'
import { cancelledOffset, checkFits, faultOfHead, sameHead, seal, unseal } from '../../src/state/head.ts'
import { createLiveIndex } from '../../src/state/live-index.ts'
import { decodeSnapshot, encodeSnapshot, joinParts, splitParts } from '../../src/state/snapshot.ts'
import type { Head } from '../../topics/state.ts'
import { head, model } from './heads.ts'

const persistents = (p: readonly number[], names: readonly [string, string] = ['p', 'S']) => {
  const g = buildGraph()
  g.table(names[0], p)
  g.table(names[1], [3, 2])
  return stateLayout(g.finish())
}
const layout = persistents([2])

describe('state records', () => {
  test('a sealed record opens to itself', () => {
    const { key, value, headers } = seal(head())
    expect(sameHead(unseal('here', key, value, headers) as Head, head())).toBe(true)
  })

  test('a head that does not count the bytes of its observation is one in which every token was a byte', () => {
    const { bytes: _, ...span } = { ...head().span, tokens: 5, predictions: 4 }
    const value = Buffer.from(JSON.stringify({ ...head(), span }))
    const opened = unseal('here', Buffer.from('log-7'), value, [['sha256', Buffer.from(sha256(value))]]) as Head
    expect(opened.span.bytes).toBe(4)
    expect(sameHead(opened, { ...head(), span: { ...span, bytes: 4 } })).toBe(true)
  })

  test('any flipped bit of value, key or seal is noticed', () => {
    const sealed = seal(head())
    const bits = fc.record({ part: fc.constantFrom('value', 'key', 'seal'), at: fc.nat(), bit: fc.nat(7) })
    fc.assert(
      fc.property(bits, ({ part, at, bit }) => {
        const copy = { key: sealed.key.slice(), value: sealed.value.slice(), seal: sealed.headers[0]![1].slice() }
        const bytes = copy[part as 'value']
        bytes[at % bytes.length]! ^= 1 << bit
        expect(() => unseal('here', copy.key, copy.value, [['sha256', copy.seal]])).toThrow(/at here/)
      }),
    )
  })

  test('another layout version is refused by number', () => {
    const value = Buffer.from(JSON.stringify({ ...head(), version: 2 }))
    expect(() => unseal('here', null, value, [['sha256', Buffer.from(sha256(value))]])).toThrow(
      /layout version 2; this Continuo reads version 1/,
    )
  })

  test('another model, another layout and two pulses are refused, naming both', () => {
    expect(() => checkFits(head(), model)).not.toThrow()
    expect(() => checkFits(head(), { ...model, fingerprint: 'd'.repeat(64) })).toThrow(/aaaaaaaaaaaa….*dddddddddddd…/)
    expect(() => checkFits(head(), { ...model, layoutFingerprint: 'd'.repeat(64) })).toThrow(
      /state layout bbbbbbbbbbbb/,
    )
    const asking = { ...head(), settings: { surprisal: false, perspectives: true as const } }
    expect(faultOfHead(asking, { positions: null, perspectives: { layers: 4, ranks: 1 } })).toBeNull()
    expect(faultOfHead(asking, { positions: null })).toBeNull()
    expect(faultOfHead(head(), { positions: null, perspectives: null })).toBeNull()
    expect(faultOfHead(asking, { positions: null, perspectives: null })).toBe(
      'it asks what perspectives find, and the model does not draw from several',
    )
    const split = { ...head(808), cursor: { ...head().cursor, pulse: 812 } }
    expect(faultOfHead(split)).toBe(
      'Stream/model pulse mismatch: stream at pulse 812, model at pulse 808. The continuum of memory is broken. Cannot resume.',
    )
  })
})

describe('snapshots', async () => {
  const state = Uint8Array.from({ length: 32 }, (_, index) => index)
  const file = await encodeSnapshot(head(), state, layout)

  test('carry state and head through parts of any size', async () => {
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: file.length + 5 }), async (size) => {
        const parts = splitParts(file, size)
        const ref = { pulse: 12, first: 0, last: 0, parts: parts.length, bytes: file.length, sha256: sha256(file) }
        const back = await decodeSnapshot(await joinParts('log-7', parts, ref), layout)
        expect(Buffer.from(back.state)).toEqual(Buffer.from(state))
        expect(sameHead(back.head, head())).toBe(true)
      }),
    )
  })

  test('any flipped bit is noticed by the checksum that the head names', async () => {
    const ref = { pulse: 12, first: 0, last: 0, parts: 1, bytes: file.length, sha256: sha256(file) }
    await fc.assert(
      fc.asyncProperty(fc.nat(file.length - 1), fc.nat(7), async (at, bit) => {
        const bad = file.slice()
        bad[at]! ^= 1 << bit
        await expect(joinParts('log-7', [bad], ref)).rejects.toThrow(/fails its checksum/)
      }),
    )
  })

  test('hostile files are refused with a sentence', async () => {
    await fc.assert(
      fc.asyncProperty(fc.uint8Array({ maxLength: 64 }), async (bytes) => {
        await expect(decodeSnapshot(bytes, layout)).rejects.toThrow(/^The snapshot /)
      }),
    )
    await expect(decodeSnapshot(file.subarray(0, file.length - 1), layout)).rejects.toThrow(
      /state has 31 bytes, expected 32/,
    )
    await expect(decodeSnapshot(file, persistents([2], ['S', 'p']))).rejects.toThrow(/has S as/)
    await expect(decodeSnapshot(file, persistents([1, 2]))).rejects.toThrow(/has p as/)
  })
})

describe('records of cancels', () => {
  const cause = { topic: 'c.chunks', partition: 0, offset: 9, id: null }
  const one = { type: 'cancelled', version: 1, session: 'log-7', requestId: 'r', offset: 4, index: 32, cause } as const
  const opened = (key: Uint8Array, value: Uint8Array, headers: Parameters<typeof unseal>[3]) =>
    unseal('here', key, value, headers)

  test('say by a header which request they speak of, with every kind of seal', () => {
    for (const keys of [undefined, { key: Buffer.alloc(32, 1), old: null }]) {
      const place = { topic: 'c.state', partition: 0, keys }
      const { key, value, headers } = seal(one, place)
      expect(cancelledOffset(headers)).toBe(4)
      expect(unseal('here', key, value, headers, place)).toEqual(one)
    }
    expect(cancelledOffset(seal(head()).headers)).toBeNull()
  })

  test('are refused where header and content disagree: a head cannot be hidden, nor a cancel stand for a head', () => {
    const { key, value, headers } = seal(one)
    const [sealed] = headers
    const named = (offset: string) => ['cancelled', Buffer.from(offset)] as const
    expect(() => opened(key, value, [sealed!])).toThrow(/type "cancelled" and has no header/)
    expect(() => opened(key, value, [sealed!, named('5')])).toThrow(/has the header "5" of a cancelled request/)
    const other = seal(head())
    expect(() => opened(other.key, other.value, [...other.headers, named('4')])).toThrow(
      /type "head" and has the header "4"/,
    )
  })
})

describe('the live index', () => {
  test('counts the living and the dead, compacts the oldest and trims behind them', () => {
    const index = createLiveIndex(100)
    index.put('idle', { offset: 0, bytes: 50 })
    for (let offset = 1; offset <= 10; offset += 1) index.put('busy', { offset, bytes: 30 })
    expect(index.live).toBe(80)
    expect(index.total).toBe(350)
    expect(index.reclaimable().before).toBe(0)
    expect(index.toCompact(60)).toEqual(['idle'])
    index.put('idle', { offset: 11, bytes: 50 })
    expect(index.reclaimable().before).toBe(10)
    index.trimmed(10)
    expect(index.total).toBeLessThanOrEqual(80 + 30)
    expect(index.toCompact(60)).toEqual([])
  })

  test('with nothing alive, frees what it was told of and no more: behind it a newer owner may write', () => {
    const index = createLiveIndex(100)
    expect(index.reclaimable()).toEqual({ before: 0, bytes: 0 })
    index.put('a', { offset: 7, bytes: 200 })
    index.drop('a')
    expect(index.reclaimable()).toEqual({ before: 8, bytes: 200 })
  })

  test('the total stays below twice the living plus the floor, whatever happens', () => {
    const operations = fc.array(fc.tuple(fc.nat(20), fc.integer({ min: 1, max: 100 })), { maxLength: 500 })
    fc.assert(
      fc.property(operations, (writes) => {
        const index = createLiveIndex(1000)
        let offset = 0
        for (const [key, bytes] of writes) {
          index.put(String(key), { offset: offset++, bytes })
          for (const old of index.toCompact(500)) index.put(old, { offset: offset++, bytes: index.get(old)!.bytes })
          const { before } = index.reclaimable()
          index.trimmed(before)
        }
        // Stretches are trimmed whole, so up to one more of them may stand; one budget may be on its way.
        expect(index.total).toBeLessThanOrEqual(2 * index.live + 1000 + 125 + 100 + 600)
      }),
    )
  })
})
