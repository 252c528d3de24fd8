/**
 * Random sessions with cancels at random moments, and workers that end and begin between them. When a cancel takes
 * effect cannot be said before; what follows from that can: the same tokens, text and heads as where each request asks
 * for as many tokens as it got.
 */
import { setTimeout } from 'node:timers/promises'
import fc from 'fast-check'
import { expect, test } from 'vitest'
import { readPartitionState } from '../../../src/operators/worker/partition-state.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { type Bench, benches, event, type Running, verified } from '../harness.ts'

const { open } = benches()

type Act =
  | { readonly session: string; readonly event: ChunkInput }
  | { readonly cancel: number }
  | { readonly session: string; readonly endless: number }
  | 'restart'
  | 'pause'

const session = fc.constantFrom('a', 'b')
const request = fc.record({
  type: fc.constant('generate' as const),
  requestId: fc.constant(''),
  maxTokens: fc.integer({ min: 1, max: 400 }),
  run: fc.integer({ min: 1, max: 16 }),
  temperature: fc.constantFrom(0, 1, 3),
  seed: fc.nat(9),
  stop: fc.constantFrom<string[]>([], ['e '], ['\u00e9']),
})
const act: fc.Arbitrary<Act> = fc.oneof(
  // Half a character stays held until a request reads it.
  fc.record({
    session,
    event: fc.record({ type: fc.constant('text' as const), text: fc.constantFrom('It was ', 'x\ud83d') }),
  }),
  { weight: 4, arbitrary: fc.record({ session, event: request }) },
  { weight: 4, arbitrary: fc.record({ cancel: fc.nat() }) },
  fc.record({
    session,
    event: fc.constantFrom<ChunkInput>({ type: 'boundary', reset: true }, { type: 'close' }, { type: 'open' }),
  }),
  // Cancelled as soon as it has tokens; nothing else ends it.
  fc.record({ session, endless: fc.integer({ min: 1, max: 16 }) }),
  fc.constantFrom<Act>('restart', 'pause'),
)

const answers = async (bench: Bench) => {
  const found = new Map<string, { ids: number[]; text: string; ends: string[] }>()
  for (const { requestId, ids, text, finish } of await bench.generated()) {
    const one = found.get(requestId) ?? { ids: [], text: '', ends: [] }
    found.set(requestId, {
      ids: [...one.ids, ...ids],
      text: one.text + text,
      ends: [...one.ends, ...(finish === null ? [] : [finish])],
    })
  }
  return found
}
const told = async (bench: Bench) =>
  new Map([...(await answers(bench))].map(([id, { ids, text }]) => [id, { ids, text }]))
const past = async (bench: Bench) =>
  new Map(
    [...(await bench.heads())].map(([id, { chain, totals, status, conductor, cursor }]) => [
      id,
      { chain, totals, status, conductor, held: cursor.held },
    ]),
  )

let inTheMiddle = 0
let late = 0

/** Resolves once there are tokens of the request, or there is nothing to do. */
const begun = async ({ log, names, generated }: Bench, { worker }: Running, requestId: string): Promise<void> => {
  const { end } = await log.bounds(names.chunks, 0)
  const isIdle = (): boolean => (worker.tasks.get(0)?.offset ?? -1) >= end
  while (!isIdle() && !(await generated()).some((each) => each.requestId === requestId)) await setTimeout(5)
}

const run = async (acts: readonly Act[]): Promise<void> => {
  const bench = await open()
  const judge = await open()
  try {
    const asked: { readonly session: string; readonly event: ChunkInput }[] = []
    const requests: { readonly session: string; readonly requestId: string }[] = []
    let cancels = 0
    let running = await bench.start({ snapshotEvery: 100 })
    for (const each of acts) {
      if (each === 'restart') {
        await running.worker.stop()
        running = await bench.start({ snapshotEvery: 100 })
      } else if (each === 'pause') await running.idle()
      else if ('cancel' in each) {
        // The newest ones are likely to be under way; one more than there are is nobody's.
        const one = requests.at(-1 - (each.cancel % (requests.length + 1))) ?? { session: 'a', requestId: 'none' }
        cancels += 1
        await bench.feed(event(one.session, { type: 'cancel', requestId: one.requestId }))
      } else if ('endless' in each) {
        const requestId = `r${asked.length}`
        const endless = { type: 'generate', requestId, maxTokens: 1_000_000, run: each.endless } as const
        asked.push({ session: each.session, event: endless })
        cancels += 1
        await bench.feed(event(each.session, endless))
        await begun(bench, running, requestId)
        await bench.feed(event(each.session, { type: 'cancel', requestId }))
      } else {
        const requestId = `r${asked.length}`
        const { session: id, event: given } = each
        const one = given.type === 'generate' ? { ...given, requestId } : given
        if (one.type === 'generate') requests.push({ session: id, requestId })
        asked.push({ session: id, event: one })
        await bench.feed(event(id, one))
      }
    }
    await running.idle()
    await running.worker.stop()
    const { cancelled } = await readPartitionState(bench.log, bench.names, 0, 1 << 30)
    const at = new Map([...cancelled.values()].map(({ requestId, index }) => [requestId!, index]))
    const refused = (await bench.records('deadletters')).filter(({ value }) => Buffer.from(value!).includes('"cancel"'))
    expect(at.size + refused.length).toBe(cancels)
    inTheMiddle += [...at.values()].filter((index) => index > 0).length
    late += refused.length
    for (const [id, { ends }] of await answers(bench)) {
      expect(ends).toHaveLength(1)
      expect(ends[0] === 'cancelled').toBe(at.has(id))
    }
    await verified(bench)

    await judge.feed(
      ...asked.map(({ session: id, event: one }) => {
        if (one.type !== 'generate') return event(id, one)
        const maxTokens = at.get(one.requestId) ?? one.maxTokens
        // Without a token it reads what was held, as a boundary does.
        return event(id, maxTokens === 0 ? { type: 'boundary' } : { ...one, maxTokens })
      }),
    )
    await judge.settle()
    const expected = await told(judge)
    for (const [id, index] of at) if (index === 0) expected.set(id, { ids: [], text: '' })
    expect(new Map([...(await told(bench))].sort())).toEqual(new Map([...expected].sort()))
    expect(await past(bench)).toEqual(await past(judge))
  } finally {
    await Promise.all([bench.close(), judge.close()])
  }
}

test('what a cancel leaves is what a shorter request leaves, whatever stands around it', {
  tags: 'slow',
  timeout: 600_000,
}, async () => {
  await fc.assert(fc.asyncProperty(fc.array(act, { minLength: 15, maxLength: 30 }), run), { numRuns: 6, seed: 7 })
  expect(inTheMiddle).toBeGreaterThan(0)
  expect(late).toBeGreaterThan(0)
})
