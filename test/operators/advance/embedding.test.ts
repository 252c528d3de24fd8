/**
 * The hidden vectors behind what a session read: their mean and the last of them, with each observation that was asked
 * for them.
 */
import { describe, expect, onTestFinished, test } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import type { Head } from '../../../src/state/head.ts'
import { faultOf } from '../../../src/state/head-rules.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { temporary } from '../../cli/helpers.ts'
import { FAMILIES, KINDS, openFamily } from '../../families.ts'
import { type Bench, benches, createBench, event, verified } from '../harness.ts'

const floats = (base64: string): Float32Array => new Float32Array(Uint8Array.from(Buffer.from(base64, 'base64')).buffer)

/** What was told of the vectors, by the tokens of each observation. */
const told = async (bench: Bench, session: string) =>
  (await bench.observations(session)).flatMap((each) =>
    each.type === 'observed' ? [{ tokens: each.tokens, embedding: each.embedding }] : [],
  )

/** The hidden vector behind each token of a new context, fed one at a time. */
const hiddenOf = async (model: Model, ids: readonly number[]): Promise<Float32Array[]> => {
  const context = model.createContext()
  const all: Float32Array[] = []
  for (const id of ids) {
    const [result] = await model.process([{ context, tokens: Int32Array.of(id), nats: false, hidden: true }])
    expect([...result!.hidden!.sum]).toEqual([...result!.hidden!.last])
    all.push(result!.hidden!.last)
  }
  context.close()
  return all
}

/**
 * Their mean as it is defined: added in double precision in runs of 256 tokens from the record's first, then run by
 * run, and rounded once.
 */
const meanOf = (vectors: readonly Float32Array[]): Float32Array => {
  const runs: Float64Array[] = []
  for (const [at, vector] of vectors.entries()) {
    if (at % 256 === 0) runs.push(new Float64Array(vector.length))
    vector.forEach((value, channel) => {
      runs.at(-1)![channel]! += value
    })
  }
  const sum = runs.reduce((all, run) => all.map((value, channel) => value + run[channel]!))
  return Float32Array.from(sum, (value) => value / vectors.length)
}

const ids = (count: number, from = 0): number[] =>
  Array.from({ length: count }, (_, at) => (31 * (at + from) + 7) % 256)
const reads = (count: number, from = 0): ChunkInput => ({ type: 'tokens', tokens: ids(count, from) })
const wish: ChunkInput = { type: 'open', embedding: true }

describe('a session that asks for the vectors behind what it reads', () => {
  const { model, use } = benches()

  test('has the mean and the last one told with each record, and nothing else changes', () =>
    use(async (bench) => {
      for (const [session, open] of [
        ['loud', wish],
        ['quiet', { type: 'open' }],
      ] as const)
        await bench.feed(...[open, reads(600), reads(3, 600)].map((each) => event(session, each)))
      await bench.settle()
      const vectors = await hiddenOf(model(), ids(603))
      const [first, second] = await told(bench, 'loud')
      expect([first!.tokens, second!.tokens]).toEqual([600, 3])
      expect(floats(first!.embedding!.last)).toEqual(vectors[599])
      expect(floats(first!.embedding!.mean)).toEqual(meanOf(vectors.slice(0, 600)))
      expect(floats(second!.embedding!.last)).toEqual(vectors[602])
      expect(floats(second!.embedding!.mean)).toEqual(meanOf(vectors.slice(600)))
      expect((await told(bench, 'quiet')).map(({ embedding }) => embedding)).toEqual([undefined, undefined])
      const heads = await bench.heads()
      expect(heads.get('loud')!.chain).toBe(heads.get('quiet')!.chain)
      expect(heads.get('loud')!.settings).toEqual({ surprisal: false, embedding: true })
      await verified(bench)
    }))

  test('has the same where workers are stopped within a record', () =>
    use(async (bench) => {
      await bench.feed(event('s', wish), event('s', reads(1500)))
      const inside = Promise.withResolvers<void>()
      const stopped = await bench.start({
        ...{ commitInterval: 0, snapshotEvery: 300 },
        onCommit: ({ steps }) => {
          if (steps.some(({ head }) => head?.span.hidden !== undefined)) inside.resolve()
        },
      })
      await inside.promise
      await stopped.worker.stop()
      const { cursor, span } = (await bench.heads()).get('s')!
      expect(cursor.complete).toBe(false)
      expect(floats(span.hidden!.last)).toHaveLength(model().channels)
      await bench.settle()
      const vectors = await hiddenOf(model(), ids(1500))
      const [only] = await told(bench, 's')
      expect(only!.embedding).toBeDefined()
      expect(floats(only!.embedding!.mean)).toEqual(meanOf(vectors))
      await verified(bench)
    }))

  test('is not told of a record that read nothing, nor behind another open', () =>
    use(async (bench) => {
      const all: ChunkInput[] = [wish, { type: 'tokens', tokens: [] }, { type: 'text', text: 'a' }, { type: 'open' }]
      await bench.feed(...[...all, { type: 'text', text: 'b' } as const].map((each) => event('s', each)))
      await bench.settle()
      expect((await told(bench, 's')).map(({ tokens, embedding }) => [tokens, embedding === undefined])).toEqual([
        [0, true],
        [1, false],
        [1, true],
      ])
      await verified(bench)
    }))

  test('has every member of a list of surprisals beside them', () =>
    use(async (bench) => {
      await bench.feed(...[{ ...wish, surprisal: true }, reads(5000)].map((each) => event('s', each)))
      await bench.settle()
      const all = await told(bench, 's')
      expect(all.map(({ tokens }) => tokens)).toEqual([4096, 904])
      const context = model().createContext()
      const runs: Float64Array[] = []
      for (let at = 0; at < 5000; at += 256) {
        const tokens = Int32Array.from(ids(Math.min(256, 5000 - at), at))
        const [result] = await model().process([{ context, tokens, nats: false, hidden: true }])
        runs.push(result!.hidden!.sum)
      }
      context.close()
      for (const [at, [from, to]] of [[0, 16] as const, [16, 20] as const].entries()) {
        const sum = runs.slice(from, to).reduce((sums, run) => sums.map((value, channel) => value + run[channel]!))
        expect(floats(all[at]!.embedding!.mean)).toEqual(Float32Array.from(sum, (value) => value / all[at]!.tokens))
      }
      await verified(bench)
    }))

  test('is found by verify where a bit of what was told is another one', () =>
    use(async (bench) => {
      await bench.feed(event('s', wish), event('s', reads(300)))
      await bench.settle()
      const { log, names } = bench
      const records = await bench.records('observations')
      const forged = records.map(({ key, value, headers }) => {
        const seen = JSON.parse(Buffer.from(value!).toString())
        if (seen.type === 'observed') {
          const bytes = Buffer.from(seen.embedding.mean, 'base64')
          bytes[0]! ^= 1
          seen.embedding.mean = bytes.toString('base64')
        }
        return { key, value: Buffer.from(JSON.stringify(seen)), headers }
      })
      const end = records.at(-1)!.offset + 1
      await log.trim(names.observations, 0, end)
      await log.append(names.observations, forged)
      await expect(verified(bench)).rejects.toThrow()
    }))
})

/** A head in the middle of a record, with the vectors of two channels. */
const middle = async (bench: Bench): Promise<Head> => {
  await bench.feed(event('s', wish), event('s', reads(4)))
  await bench.settle()
  const head = (await bench.heads()).get('s')!
  const span = { ...head.span, fromPulse: 0, tokens: 4, predictions: 3, bytes: 3, nats: 1 }
  const vector = (bytes: number): string => Buffer.alloc(bytes).toString('base64')
  const hidden = { sum: vector(16), last: vector(8) }
  return { ...head, cursor: { ...head.cursor, complete: false }, span: { ...span, hidden } }
}

describe('a head', () => {
  const { use } = benches()

  test('with vectors that cannot be is refused', () =>
    use(async (bench) => {
      const head = await middle(bench)
      expect(faultOf(head)).toBeNull()
      const { hidden, ...span } = head.span
      expect(faultOf({ ...head, span })).toContain('has none of their vectors')
      expect(faultOf({ ...head, settings: { surprisal: false } })).toContain('not asked for')
      expect(faultOf({ ...head, span: { ...span, hidden: { ...hidden!, last: 'AAAA' } } })).toContain(
        'have 16 and 3 bytes',
      )
    }))
})

describe.each(FAMILIES.filter(({ large }) => !large))('$name', ({ key }) => {
  test('has the vectors that it has token by token', { tags: KINDS.includes(key) ? [] : ['slow'] }, async () => {
    const { dir } = await openFamily(key, temporary())
    const bench = await createBench(dir)
    onTestFinished(() => bench.close())
    const all = Math.min(309, bench.model.positions ?? Number.POSITIVE_INFINITY)
    const most = all - 9
    await bench.feed(...[wish, reads(most), reads(9, most)].map((each) => event('s', each)))
    await bench.settle({ snapshotEvery: 100 })
    const vectors = await hiddenOf(bench.model, ids(all))
    const [first, second] = await told(bench, 's')
    expect(floats(first!.embedding!.mean)).toEqual(meanOf(vectors.slice(0, most)))
    expect(floats(second!.embedding!.mean)).toEqual(meanOf(vectors.slice(most)))
    expect(floats(second!.embedding!.last)).toEqual(vectors.at(-1))
    await verified(bench)
  })
})
