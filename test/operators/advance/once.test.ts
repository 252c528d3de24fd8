/**
 * `once`: of all that is sent with one key, one attempt is done, wherever workers were stopped between, and the others
 * are dead letters that name it.
 */
import { describe, expect, test } from 'vitest'
import { verifyLog } from '../../../src/operators/verify/verify.ts'
import { textOf } from '../../../src/text.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import { MOST_CLAIMS } from '../../../topics/state.ts'
import { type Bench, benches, event, onBothLogs, verified } from '../harness.ts'
import { plant } from '../planting.ts'

const { use, model } = benches()

const sent = (session: string, key: string, attempt: string, ...events: readonly ChunkInput[]) =>
  events.map((each) => event(session, { ...each, once: { key, attempt } } as ChunkInput))
const text = (of: string): ChunkInput => ({ type: 'text', text: of })
const request = (requestId: string): ChunkInput => ({ type: 'generate', requestId, maxTokens: 5, seed: 1 })
const letters = async (bench: Bench) =>
  (await bench.records('deadletters')).map(({ headers }) => {
    const header = (name: string) => {
      const found = headers.findLast(([each]) => each === name)
      return found === undefined ? null : textOf(found[1])
    }
    return {
      offset: Number(header(DEAD_LETTER_HEADERS.offset)),
      reason: header(DEAD_LETTER_HEADERS.reason)!,
      first: header(DEAD_LETTER_HEADERS.first),
    }
  })

onBothLogs((fresh) => {
  test('of what is sent three times, one attempt is done, and the others say which', () =>
    use(
      async (bench) => {
        const attempt = (name: string) => sent('s', 'order', name, text('Once upon '), request('r'), { type: 'close' })
        await bench.feed(...attempt('a'), ...attempt('b'), event('alone', text('Once upon ')), ...attempt('a'))
        await bench.settle()
        const head = (await bench.heads()).get('s')!
        expect(head).toMatchObject({ status: 'closed', totals: { tokens: 10, generated: 5 } })
        expect(head.claims).toEqual([{ key: 'order', attempt: 'a', offset: 0 }])
        expect((await bench.generated('s')).flatMap(({ ids }) => ids)).toHaveLength(5)
        const found = await letters(bench)
        expect(found.slice(0, 3).map(({ offset, first }) => [offset, first])).toEqual([
          [3, '0'],
          [4, '0'],
          [5, '0'],
        ])
        expect(found[0]!.reason).toContain('the key "order" of session "s" was sent before, at offset 0')
        // The same attempt once more is judged as any event is: the session is closed.
        expect(found.slice(3, 5).map(({ offset, first }) => [offset, first])).toEqual([
          [7, null],
          [8, null],
        ])
        await verified(bench)
      },
      1,
      fresh(),
    ))

  test('the session remembers it over stops, reopenings and resets, and others know nothing of it', () =>
    use(
      async (bench) => {
        await bench.feed(...sent('s', 'order', 'a', text('Once ')))
        await bench.settle()
        await bench.feed(event('s', { type: 'boundary', reset: true }), event('s', { type: 'close' }))
        await bench.settle()
        await bench.feed(
          event('s', { type: 'open' }),
          ...sent('s', 'order', 'b', text('twice ')),
          ...sent('s', 'another', 'b', text('thrice ')),
          ...sent('t', 'order', 'b', text('elsewhere ')),
          event('child', { type: 'open', from: { session: 's' } }),
          ...sent('child', 'order', 'c', text('again ')),
        )
        await bench.settle()
        const heads = await bench.heads()
        expect(['s', 't', 'child'].map((id) => heads.get(id)!.totals.tokens)).toEqual([12, 10, 18])
        expect(heads.get('s')!.claims!.map(({ key }) => key)).toEqual(['order', 'another'])
        expect(await letters(bench)).toHaveLength(1)
        // A deleted session has done nothing.
        await bench.feed(event('s', { type: 'delete' }), ...sent('s', 'order', 'd', text('anew')))
        await bench.settle()
        expect((await bench.heads()).get('s')!.totals.tokens).toBe(4)
        await verified(bench)
      },
      1,
      fresh(),
    ))
})

describe('a head', () => {
  test('remembers the last of many', () =>
    use(async (bench) => {
      const keys = Array.from({ length: MOST_CLAIMS + 1 }, (_, at) => `k${at}`)
      await bench.feed(
        ...keys.flatMap((key) => sent('s', key, 'a', text('x'))),
        ...sent('s', 'k1', 'b', text('y')),
        ...sent('s', 'k0', 'b', text('y')),
      )
      await bench.settle()
      const { claims, totals } = (await bench.heads()).get('s')!
      expect(totals.tokens).toBe(MOST_CLAIMS + 2)
      expect(claims).toHaveLength(MOST_CLAIMS)
      expect(claims!.at(-1)).toMatchObject({ key: 'k0', attempt: 'b' })
      await verified(bench)
    }))

  test('that remembers what was not, or not what was, is found by verify', () =>
    use(async (bench) => {
      await bench.feed(...sent('s', 'order', 'a', text('Once ')))
      await bench.settle()
      const { log, names, tokenizer } = bench
      for (const claims of [[{ key: 'order', attempt: 'b', offset: 0 }], undefined]) {
        await plant(bench, 's', {
          head: ({ claims: _, ...head }) => ({ ...head, ...(claims !== undefined && { claims }) }),
        })
        const { findings } = await verifyLog({ log, names, model: model(), tokenizer, format: 'json' })
        expect(findings.length).toBeGreaterThan(0)
      }
    }))
})
