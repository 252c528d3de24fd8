/**
 * Requests with penalties: what counts, and that it counts the same after stops, forks, moves, and in logs of older
 * versions.
 */
import { readFileSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { readSnapshot } from '../../../src/operators/snapshots/snapshots.ts'
import { readPartitionState } from '../../../src/operators/worker/partition-state.ts'
import { seal } from '../../../src/state/head.ts'
import { snapshotHead } from '../../../src/state/snapshot.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { type Bench, benches, event, interrupted, verified } from '../harness.ts'
import { plant } from '../planting.ts'

const { use, model } = benches()
const document = readFileSync(fileURLToPath(new URL('../../../docs/demo/harbour-log.txt', import.meta.url)), 'utf8')

const read = (session: string, text: string) => event(session, { type: 'text', text })
const strong = { temperature: 0, repetitionPenalty: 1.4, presencePenalty: 0.5, frequencyPenalty: 0.3 } as const
const asked = (session: string, requestId: string, more: Partial<Extract<ChunkInput, { type: 'generate' }>> = {}) =>
  event(session, { type: 'generate', requestId, maxTokens: 40, ...strong, ...more })
const idsOf = async (bench: Bench, session: string, requestId?: string): Promise<number[]> =>
  (await bench.generated(session))
    .filter((run) => requestId === undefined || run.requestId === requestId)
    .flatMap(({ ids }) => ids)

/** The rule of docs/formats.md, on logits that the engine gives without any of it. */
const greedily = async (fed: readonly number[], count: number, last: number, bias: ReadonlyMap<number, number>) => {
  const context = model().createContext()
  await model().process([{ context, tokens: Int32Array.from(fed), nats: false }])
  const out: number[] = []
  const [repetition, presence, frequency] = [1.4, 0.5, 0.3].map(Math.fround) as [number, number, number]
  for (let n = 0; n < count; n += 1) {
    const counted = [...(last === 0 ? [] : fed.slice(-last)), ...out]
    const logits = [...(await model().logits(context))].map((given, id) => {
      let l = Math.fround(given + (bias.get(id) ?? 0))
      const times = counted.filter((each) => each === id).length
      if (times === 0) return l
      l = Math.fround(l > 0 ? l / repetition : l * repetition)
      l = Math.fround(l - Math.fround(times * frequency))
      return Math.fround(l - presence)
    })
    const id = logits.indexOf(Math.max(...logits))
    out.push(id)
    await model().process([{ context, tokens: Int32Array.of(id), nats: false }])
  }
  context.close()
  return out
}

test('penalties count the request and the last tokens before it, as the page says', { tags: 'slow' }, () =>
  use(async (bench) => {
    const text = 'The harbour froze. The harbour froze. The harbour froze. '
    const bias = { 32: -1.5, 101: 0.25 }
    for (const last of [0, 5, 64, 1024])
      await bench.feed(
        read(`s${last}`, text),
        asked(`s${last}`, 'r', { penaltyLast: last, logitBias: bias, run: 1 + (last % 7) }),
      )
    await bench.settle()
    const fed = [...Buffer.from(text)]
    const biases = new Map(Object.entries(bias).map(([id, by]) => [Number(id), by]))
    const all = new Set<string>()
    for (const last of [0, 5, 64, 1024]) {
      const ids = await idsOf(bench, `s${last}`)
      expect(ids, `penaltyLast ${last}`).toEqual(await greedily(fed, 40, last, biases))
      all.add(ids.join(' '))
    }
    expect(all.size).toBeGreaterThan(2)
    await verified(bench)
  }),
)

test(
  'a worker that stops in the middle, snapshots at every step and contexts that leave change no token',
  { tags: 'slow' },
  () =>
    use(async (bench) => {
      const events = (id: string) => [
        read(id, document.slice(0, 700)),
        // Long: beside other work a few commits may hold all of a short answer, and no worker could be stopped inside
        // of one.
        asked(id, 'p', { maxTokens: 900, temperature: 0.9, seed: 3, minP: 0.02 }),
        read(id, document.slice(700, 760)),
        asked(id, 'q', { maxTokens: 300, penaltyLast: 200, run: 3, topLogprobs: 2 }),
        event(id, { type: 'boundary', reset: true }),
        read(id, 'Then '),
        asked(id, 'r', { penaltyLast: 1024 }),
      ]
      await bench.feed(...events('calm'))
      await bench.settle({ snapshotEvery: 1_000_000 })
      await bench.feed(...events('a'), ...events('b'), ...events('c'))
      const { stops, inside } = await interrupted(bench, 2, 1, 60_000)
      expect(stops).toBeGreaterThan(2)
      expect(inside).toBeGreaterThan(0)
      const told = async (id: string) => (await bench.generated(id)).map(({ session: _, cause: __, ...run }) => run)
      for (const id of ['a', 'b', 'c']) expect(await told(id)).toEqual(await told('calm'))
      await verified(bench)
    }),
)

test('a fork counts what its parent was fed', () =>
  use(async (bench) => {
    await bench.feed(
      read('parent', 'The keeper lit the lamp. '),
      asked('parent', 'p'),
      event('child', { type: 'open', from: { session: 'parent' } }),
      asked('child', 'q', { penaltyLast: 300 }),
      asked('parent', 'q', { penaltyLast: 300 }),
      asked('parent', 'r', { penaltyLast: 0 }),
    )
    await bench.settle()
    expect(await idsOf(bench, 'child', 'q')).toEqual(await idsOf(bench, 'parent', 'q'))
    expect(await idsOf(bench, 'parent', 'r')).not.toEqual(await idsOf(bench, 'parent', 'q'))
    await verified(bench)
  }))

test('in a log of an older version what was read before counts nowhere, now and ever', () =>
  use(async (bench) => {
    const start = 'The harbour froze. The harbour froze. '
    await bench.feed(read('old', start))
    await bench.settle()
    // As that version left it: nothing in the snapshot, nothing in the cursor.
    await plant(bench, 'old', {
      inside: (head) => {
        const { recent, ...rest } = head as typeof head & { recent?: string }
        expect(recent).toBeTypeOf('string')
        return rest
      },
    })
    const { cursor } = await readPartitionState(bench.log, bench.names, 0, 1 << 30)
    const { history, ...older } = cursor!
    expect(history).toBe(0)
    const writer = await bench.log.claim('test', bench.names.chunks, 0)
    await writer.commit([{ topic: bench.names.state, ...seal(older) }], older.offset)
    // The snapshot of this version.
    await bench.log.trim(bench.names.snapshots, 0, 1)
    await writer.close()

    await bench.feed(asked('old', 'p', { maxTokens: 20 }), read('old', 'So '), asked('old', 'q', { penaltyLast: 64 }))
    await bench.settle({ snapshotEvery: 1 })
    expect((await readPartitionState(bench.log, bench.names, 0, 1 << 30)).cursor!.history).toBe(1)
    const ids = await idsOf(bench, 'old', 'p')
    expect(ids).toEqual(await greedily([...Buffer.from(start)], 20, 0, new Map()))
    // What came since does count.
    const fed = [...Buffer.from(start), ...ids, ...Buffer.from('So ')]
    expect(await idsOf(bench, 'old', 'q')).toEqual(await greedily(fed, 40, ids.length + 3, new Map()))
    await bench.feed(asked('old', 'r'))
    await bench.settle()
    const head = (await bench.heads()).get('old')!
    const inside = snapshotHead(await readSnapshot(bench.log, bench.names.snapshots, 0, head))
    expect(Buffer.from(inside.recent!, 'base64').length).toBe(4 * (20 + 3 + 40 + 40))
    await verified(bench)
  }))

test('a token outside the vocabulary, named in a bias or as an end, is a dead letter before anything is generated', () =>
  use(async (bench) => {
    await bench.feed(
      read('s', 'x'),
      asked('s', 'p', { logitBias: { 256: 1 } }),
      asked('s', 'q', { stopTokens: [1, 300] }),
      event('s', { type: 'generate', requestId: 'n', maxTokens: 1, logitBias: { x: 1 } }),
      event('s', { type: 'generate', requestId: 'n', maxTokens: 1, minP: 2 }),
      asked('s', 'r', { maxTokens: 3 }),
    )
    await bench.settle()
    expect((await bench.records('deadletters')).length).toBe(4)
    expect(await idsOf(bench, 's')).toHaveLength(3)
    await verified(bench)
  }))

test('a request ends where one of its stop tokens is drawn', () =>
  use(async (bench) => {
    await bench.feed(
      read('a', 'The harbour '),
      event('a', { type: 'generate', requestId: 'r', maxTokens: 30, temperature: 0 }),
    )
    await bench.settle()
    const ids = await idsOf(bench, 'a')
    const stop = ids[9]!
    const before = ids.slice(0, ids.indexOf(stop))
    await bench.feed(
      read('b', 'The harbour '),
      event('b', { type: 'generate', requestId: 'r', maxTokens: 30, temperature: 0, stopTokens: [stop] }),
    )
    await bench.settle()
    expect(await idsOf(bench, 'b')).toEqual(before)
    expect((await bench.generated('b')).at(-1)!.finish).toBe('eos')
    await verified(bench)
  }))
