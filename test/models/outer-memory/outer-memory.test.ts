/**
 * Decoders whose context lies outside (docs/infinite-context.md) against packages with expected results made elsewhere,
 * in float64: events exactly, nats and logits within their tolerance; and what holds for any of them.
 */
import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import { openModel } from '../../../src/models/open.ts'
import { openBlockCache } from '../../../src/state/block-cache.ts'
import type { MemoryEvent } from '../../../topics/observations.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'

interface Expected {
  readonly token_ids: readonly number[]
  readonly total_nats: number
  readonly logits: readonly number[]
  readonly tolerance: { readonly logits: number; readonly nats: number }
  readonly events: readonly Record<string, unknown>[]
}
type Step =
  | { readonly do: 'tokens'; readonly from: number; readonly to: number }
  | { readonly do: 'archive' | 'reset' }
  | { readonly do: 'retrieve'; readonly blocks?: readonly number[] }
interface Script extends Pick<Expected, 'logits' | 'events'> {
  readonly steps: readonly Step[]
  readonly tolerance: { readonly logits: number }
}

const json = <T>(...path: string[]): T => JSON.parse(readFileSync(join(...path), 'utf8')) as T
const MEMORY = 'llama-tiny-memory'
/** With learned modules and a graph of topics. */
const GRAPH = 'qwen3-tiny-graph'

/** The package with another memory.json, or with none. */
const packageWith = (model: string, change: ((memory: Record<string, unknown>) => object) | null): string => {
  const dir = join(temporaryFolder(), model)
  cpSync(sharedModel(model), dir, { recursive: true })
  const path = join(dir, 'memory.json')
  if (change === null) rmSync(path)
  else writeFileSync(path, JSON.stringify(change(json(path))))
  return dir
}

const withModel = async <T>(dir: string, use: (model: Model) => Promise<T>): Promise<T> => {
  const model = await openModel(dir, { threads: 2, keepPacked: false })
  try {
    return await use(model)
  } finally {
    model.close()
  }
}

interface Read {
  readonly nats: number
  readonly events: readonly MemoryEvent[]
}
const feed = async (
  model: Model,
  context: EngineContext,
  ids: readonly number[],
  chunk = ids.length,
): Promise<Read> => {
  const events: MemoryEvent[] = []
  let nats = 0
  for (let at = 0; at < ids.length; at += chunk) {
    const done = await model.submit({ context, tokens: Int32Array.from(ids.slice(at, at + chunk)), nats: true })
    events.push(...(done.events ?? []))
    for (const each of done.nats) if (!Number.isNaN(each)) nats += each
  }
  return { nats, events }
}

const largest = (a: ArrayLike<number>, b: ArrayLike<number>): number =>
  Math.max(...Array.from(a, (x, i) => Math.abs(x - b[i]!)))

/**
 * The same members; of computed numbers 4 digits. A code of f8 may fall on the other side of a tie, which moves a norm
 * by some 10⁻⁵ of it.
 */
const expectEvents = (events: readonly MemoryEvent[], expected: readonly Record<string, unknown>[]): void => {
  const computed = ['distance', 'k_norm', 'v_norm'] as const
  const plain = (event: object) =>
    Object.fromEntries(Object.entries(event).filter(([name]) => !computed.some((each) => each === name)))
  expect(events.map(plain)).toEqual(expected.map(plain))
  for (const [i, event] of events.entries())
    for (const name of computed) {
      const wanted = expected[i]![name] as number | undefined
      const found = (event as Record<string, unknown>)[name] as number | undefined
      if (wanted === undefined) expect(found).toBeUndefined()
      else expect(Math.abs(found! - wanted)).toBeLessThan(2e-4 * wanted)
    }
}

describe.skipIf(!hasShared)('a decoder whose context lies outside', () => {
  test.each([
    [MEMORY, 600],
    [MEMORY, 1],
    [MEMORY, 7],
    [MEMORY, 100],
    [GRAPH, 480],
    [GRAPH, 5],
  ])('%s gives the expected events, nats and logits, fed %i tokens at a time', async (name, chunk) => {
    const expected = json<Expected>(sharedModel(name), 'expected.json')
    await withModel(sharedModel(name), async (model) => {
      const context = model.createContext()
      const { nats, events } = await feed(model, context, expected.token_ids, chunk)
      expectEvents(events, expected.events)
      expect(Math.abs(nats - expected.total_nats)).toBeLessThan(expected.tolerance.nats)
      expect(largest(await model.logits(context), expected.logits)).toBeLessThan(expected.tolerance.logits)
    })
  })

  test('takes events of the stream between its tokens, and resets', async () => {
    const { token_ids: ids } = json<Expected>(sharedModel(MEMORY), 'expected.json')
    const script = json<Script>(sharedModel(MEMORY), 'script.json')
    await withModel(sharedModel(MEMORY), async (model) => {
      const context = model.createContext()
      const events: MemoryEvent[] = []
      for (const step of script.steps) {
        if (step.do === 'tokens') events.push(...(await feed(model, context, ids.slice(step.from, step.to))).events)
        else if (step.do === 'reset') context.reset()
        else {
          const request =
            step.do === 'archive'
              ? { type: step.do }
              : { type: step.do, ...('blocks' in step && { blocks: step.blocks! }) }
          const done = await model.submit({ context, tokens: new Int32Array(0), nats: false, request })
          events.push(...(done.events ?? []))
        }
      }
      expectEvents(events, script.events)
      expect(largest(await model.logits(context), script.logits)).toBeLessThan(script.tolerance.logits)
    })
  })

  test.each([
    MEMORY,
    GRAPH,
  ])('%s goes on from a saved state with the same bits, saved after every token', async (name) => {
    const { token_ids: ids } = json<Expected>(sharedModel(name), 'expected.json')
    await withModel(sharedModel(name), async (model) => {
      const straight = model.createContext()
      const whole = await feed(model, straight, ids)
      const saved = model.createContext()
      const events: MemoryEvent[] = []
      for (const id of ids) {
        events.push(...(await feed(model, saved, [id])).events)
        const { pulse, origin, chain } = saved
        const state = saved.serialize()
        saved.reset()
        saved.restore(state, { pulse, origin, chain })
      }
      expect(events).toEqual(whole.events)
      expect(saved.chain).toBe(straight.chain)
      expect(Buffer.from(saved.serialize()).equals(straight.serialize())).toBe(true)
    })
  })

  test.each([
    MEMORY,
    GRAPH,
  ])('%s lays the same list again, bit for bit, from any state: as often as it is asked', async (name) => {
    const { token_ids: ids } = json<Expected>(sharedModel(name), 'expected.json')
    await withModel(sharedModel(name), async (model) => {
      const straight = model.createContext()
      const laid = model.createContext()
      for (const [at, id] of ids.entries()) {
        // In `straight` the list has grown token by token since its last beat. A restored context has none, and lays it
        // for the next token.
        const head = { pulse: straight.pulse, origin: straight.origin, chain: straight.chain }
        const state = straight.serialize()
        await feed(model, straight, [id])
        if (at % 5 !== 0 && at % 8 !== 7) continue
        const wanted = await model.logits(straight)
        for (let times = 0; times < 2; times += 1) {
          laid.restore(state, head)
          await feed(model, laid, [id])
          expect(await model.logits(laid)).toEqual(wanted)
          expect(Buffer.from(laid.serialize()).equals(straight.serialize())).toBe(true)
        }
      }
    })
  })

  test.each([MEMORY, GRAPH])('%s forks go on by themselves, each as if it were alone', async (name) => {
    const { token_ids: ids } = json<Expected>(sharedModel(name), 'expected.json')
    await withModel(sharedModel(name), async (model) => {
      const straight = model.createContext()
      await feed(model, straight, ids)
      const parent = model.createContext()
      await feed(model, parent, ids.slice(0, 301))
      const child = model.forkContext(parent)
      await feed(model, parent, ids.slice(0, 200))
      await feed(model, child, ids.slice(301))
      expect(child.chain).toBe(straight.chain)
      expect(parent.chain).not.toBe(straight.chain)
    })
  })

  test.each([MEMORY, GRAPH])('%s is a fresh session after a reset, state for state', async (name) => {
    const { token_ids: ids } = json<Expected>(sharedModel(name), 'expected.json')
    await withModel(sharedModel(name), async (model) => {
      const [used, fresh] = [model.createContext(), model.createContext()]
      await feed(model, used, ids.slice(0, 333))
      used.reset()
      await feed(model, used, ids.slice(100, 400), 11)
      await feed(model, fresh, ids.slice(100, 400))
      expect(Buffer.from(used.serialize()).equals(fresh.serialize())).toBe(true)
      expect(await model.logits(used)).toEqual(await model.logits(fresh))
    })
  })

  test.each([
    [0, 0, 0],
    [4, 3, 6],
    [1, 0, 2],
    [0, 16, 0],
    [13, 3, 1],
    [16, 0, 40],
  ])('with every block brought back it is the plain decoder: %i sinks, anchors of %i tokens, %i tombstones', async (S, K, T) => {
    const { token_ids } = json<Expected>(sharedModel(MEMORY), 'expected.json')
    // Ids that end no step: the plain decoder has none.
    const ids = token_ids.filter((id) => id < 256).slice(0, 400)
    const all = packageWith(MEMORY, (memory) => ({
      ...memory,
      ...{ kv_dtype: 'f32', cold_dtype: 'f32' },
      sinks: S,
      anchors: { ...(memory.anchors as object), tokens: K },
      tombstones: { ...(memory.tombstones as object), count: T, threshold: null },
      retrieval: { ...(memory.retrieval as object), policy: 'recent', every: 16, blocks: 64 },
    }))
    const plain = packageWith(MEMORY, null)
    const [a, b] = await Promise.all(
      [all, plain].map((dir) =>
        withModel(dir, async (model) => {
          const context = model.createContext()
          return { ...(await feed(model, context, ids)), logits: await model.logits(context) }
        }),
      ),
    )
    expect(a!.events.filter(({ type }) => type === 'inject').length).toBeGreaterThan(20)
    expect(Math.abs(a!.nats - b!.nats)).toBeLessThan(1e-2)
    expect(largest(a!.logits, b!.logits)).toBeLessThan(1e-4)
  })

  const SETTINGS = [
    ['as it is', (memory: Record<string, unknown>) => memory, 20, 20],
    [
      'of whole cosines',
      (memory: Record<string, unknown>) => ({
        ...memory,
        retrieval: { ...(memory.retrieval as object), similarity: 'cosine' },
        cold_dtype: 'f16',
      }),
      20,
      20,
    ],
    [
      'without retrieval and tombstones',
      (memory: Record<string, unknown>) => ({
        ...memory,
        tombstones: { ...(memory.tombstones as object), count: 0 },
        tokens: { summarize: 256, retrieve: null },
      }),
      0,
      0,
    ],
  ] as const
  /** Of 20 needles in a text of T tokens, how many are named when they are asked for at its end. */
  const found = (change: Parameters<typeof packageWith>[1], T: number): Promise<number> =>
    withModel(packageWith('needle-tiny', change), async (model) => {
      const needle = json<{ seed: number; count: number }>(sharedModel('needle-tiny'), 'needle.json')
      let x = needle.seed
      const ids = Int32Array.from({ length: T }, () => {
        x = (Math.imul(1_664_525, x) + 1_013_904_223) >>> 0
        return (x >>> 16) % 200
      })
      const keys = Array.from({ length: needle.count }, (_n, n) => {
        const at = Math.floor(((2 * n + 1) * (T - 256)) / (2 * needle.count))
        const value = 228 + ((11 * n + 5) % 28)
        ids[at] = 200 + n
        ids[at + 1] = value
        return { key: 200 + n, value }
      })
      // A few archived blocks stay in memory; the others come back from files.
      const cache = openBlockCache(model.blocks!, { maxBytes: 1 << 20 })
      const context = model.createContext()
      for (let at = 0; at < T; at += 20_000)
        await model.submit({ context, tokens: ids.subarray(at, at + 20_000), nats: false })
      let right = 0
      for (const { key, value } of keys) {
        await model.submit({ context, tokens: Int32Array.of(key, 257, key), nats: false })
        const logits = await model.logits(context)
        if (logits.indexOf(Math.max(...logits)) === value) right += 1
      }
      cache.close()
      return right
    })
  const NAME = 'whose weights were set by hand finds needles in %d tokens, with its memory %s'
  const named = (T: number) => SETTINGS.map(([how, change, least, most]) => [T, how, change, least, most] as const)
  const claim = async (...[T, , change, least, most]: ReturnType<typeof named>[number]): Promise<void> => {
    const right = await found(change, T)
    expect(right).toBeGreaterThanOrEqual(least)
    expect(right).toBeLessThanOrEqual(most)
  }
  test.each(named(10_000))(NAME, claim)
  test.each(named(100_000))(NAME, { tags: 'slow' }, claim)
  test.each(named(1_000_000))(NAME, { tags: ['slow', 'long'], timeout: 1_200_000 }, claim)
})
