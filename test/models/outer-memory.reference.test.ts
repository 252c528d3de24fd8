/** A memory outside with every kind of setting, against a reference in double precision: events exactly, logits and nats closely. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import type { MemoryRequest } from '../../src/engine/types.ts'
import { openModel } from '../../src/models/open.ts'
import type { MemoryEvent } from '../../topics/observations.ts'
import { safetensors, writePackage } from '../engine/packages.ts'
import { farthest, randomIds } from './decoder-suite.ts'
import { BASE, type DecoderConfig, headWidth, keyHeads, randomDecoder } from './decoders.ts'
import { randomModules } from './outer-memory-modules.ts'
import { type Happening, type Memory, memoryReference } from './outer-memory-reference.ts'

const [SUMMARIZE, RETRIEVE] = [27, 28]
const PLAIN: Memory = {
  block_size: 8,
  window: 24,
  sinks: 2,
  kv_dtype: 'f32',
  cold_dtype: 'f8',
  anchors: { tokens: 2, entries: 3, policy: 'segment' },
  segmentation: { gamma: 0.5, rate: 0.1, warmup: 2, min_blocks: 2 },
  tombstones: { count: 5, threshold: 0.3, rate: 0.1, cooldown: 16, layers: [1] },
  retrieval: {
    ...{ every: 32, blocks: 2, policy: 'similar', similarity: 'dot', layers: [1], rate: 0.1, inject_after: 0 },
  },
  summarize_keep: 1,
  tokens: { summarize: SUMMARIZE, retrieve: RETRIEVE },
  ...{ trimmer: null, qformer: null, projector: null, graph: null },
}
const LLAMA: DecoderConfig = { ...BASE, max_position_embeddings: 200 }
const QWEN2: DecoderConfig = { ...LLAMA, model_type: 'qwen2' }
const QWEN3: DecoderConfig = { ...LLAMA, model_type: 'qwen3', head_dim: 8 }
const LEARNED: Pick<Memory, 'trimmer' | 'qformer' | 'projector'> = {
  trimmer: { width: 10 },
  qformer: { layers: 2, heads: 2, width: 12, queries: 3 },
  projector: { width: 16 },
}
const topics = (
  new_distance: number,
  split_variance: number,
  merge_distance: number,
): NonNullable<Memory['graph']> => ({
  ...{ max_virtual: 5, new_distance, drift_min: 0.05, split_variance, split_min: 5, split_iterations: 3 },
  ...{ merge_distance, fan: 3, max_hops: 9, walker_width: 7 },
})

type Change = Omit<Partial<Memory>, 'retrieval' | 'tombstones' | 'anchors'> & {
  readonly retrieval?: Partial<Memory['retrieval']>
  readonly tombstones?: Partial<Memory['tombstones']>
  readonly anchors?: Partial<Memory['anchors']>
}
const with_ = ({ retrieval, tombstones, anchors, ...rest }: Change): Memory => ({
  ...PLAIN,
  ...rest,
  retrieval: { ...PLAIN.retrieval, ...retrieval },
  tombstones: { ...PLAIN.tombstones, ...tombstones },
  anchors: { ...PLAIN.anchors, ...anchors },
})

/** `seed`: one at which no two numbers that are compared lie too near each other; the test says so of others. */
const SETTINGS: readonly (readonly [name: string, config: DecoderConfig, memory: Memory, seed: number])[] = [
  ['as the defaults are', LLAMA, PLAIN, 1],
  ['the latest blocks, a beat later', LLAMA, with_({ retrieval: { policy: 'recent', inject_after: 1 } }), 1],
  [
    'cosines, a key head for each query head, all in f16',
    { ...LLAMA, num_key_value_heads: 4 },
    with_({ kv_dtype: 'f16', cold_dtype: 'f16', retrieval: { similarity: 'cosine', layers: [0, 1] } }),
    1,
  ],
  [
    'eight query heads to a key head, bf16 and f32, two layers watched and indexed, a beat later',
    { ...LLAMA, hidden_size: 32, num_attention_heads: 8, num_key_value_heads: 1 },
    with_({
      ...{ kv_dtype: 'bf16', cold_dtype: 'f32' },
      tombstones: { layers: [0, 1], threshold: 0.2 },
      retrieval: { layers: [0, 1], inject_after: 1 },
    }),
    1,
  ],
  [
    'biases, and anchors that a trimmer chooses',
    QWEN2,
    with_({ trimmer: LEARNED.trimmer, anchors: { policy: 'trimmer' } }),
    1,
  ],
  [
    'no sinks, no anchors, no tombstones',
    LLAMA,
    with_({ sinks: 0, anchors: { tokens: 0 }, tombstones: { count: 0 } }),
    1,
  ],
  [
    'tombstones that are not watched, and no retrieval by itself',
    QWEN3,
    with_({ tombstones: { threshold: null, count: 3 }, retrieval: { every: 0 } }),
    1,
  ],
  ['a Q-Former and what goes with it', QWEN3, with_({ ...LEARNED, anchors: { policy: 'trimmer' } }), 1],
  ['topics of keys, and a walker', LLAMA, with_({ graph: topics(0.5, 0.2, 0.45), retrieval: { policy: 'graph' } }), 2],
  [
    'topics of a Q-Former, and a walker, a beat later',
    QWEN3,
    with_({
      ...LEARNED,
      graph: topics(0.1, 0.02, 0.06),
      anchors: { policy: 'trimmer' },
      retrieval: { policy: 'graph', inject_after: 1 },
    }),
    1,
  ],
]

const COMPUTED = ['distance', 'k_norm', 'v_norm'] as const
const plain = (events: readonly object[]) =>
  events.map((event) =>
    Object.fromEntries(Object.entries(event).filter(([name]) => !COMPUTED.some((each) => each === name))),
  )
const expectEvents = (events: readonly MemoryEvent[], wanted: readonly Happening[]): void => {
  expect(plain(events)).toEqual(plain(wanted))
  for (const [i, event] of events.entries())
    for (const name of COMPUTED) {
      const [found, number] = [(event as Happening)[name], wanted[i]![name]] as [number?, number?]
      if (number !== undefined) expect(Math.abs(found! - number) / number, `${name} of event ${i}`).toBeLessThan(2e-4)
    }
}

describe.each(SETTINGS)('a memory outside: %s', (_, config, memory, seed) => {
  test('does what the reference does', async () => {
    const tensors = randomDecoder(seed, config)
    const C = keyHeads(config) * headWidth(config)
    const modules = randomModules(seed + 1, memory, { D: config.hidden_size, L: config.num_hidden_layers, C })
    const folder = writePackage(config, safetensors(tensors))
    writeFileSync(join(folder, 'memory.json'), JSON.stringify({ format: 'continuo-memory/1', ...memory }))
    if (modules.size > 0) writeFileSync(join(folder, 'memory.safetensors'), safetensors(modules))
    const model = await openModel(folder, { threads: 2, keepPacked: false })
    const reference = memoryReference(config, tensors, memory, modules)
    const events: MemoryEvent[] = []
    const context = model.createContext()
    const ask = async (request: MemoryRequest): Promise<void> => {
      const done = await model.submit({ context, tokens: new Int32Array(0), nats: false, request })
      events.push(...(done.events ?? []))
    }
    try {
      const ids = randomIds(330, SUMMARIZE, seed + 2)
      for (const [id, places] of [
        [SUMMARIZE, [70, 201]],
        [RETRIEVE, [45, 90, 131, 250]],
      ] as const)
        for (const at of places) ids[at] = id
      let worst = 0
      for (const [at, id] of ids.entries()) {
        const wanted = reference.feed(id)
        const { events: told = [] } = await model.submit({ context, tokens: Int32Array.of(id), nats: false })
        events.push(...told)
        if (at === 110) {
          reference.archive()
          await ask({ type: 'archive' })
        }
        if (at === 155) {
          reference.retrieve()
          await ask({ type: 'retrieve' })
        }
        if (at === 180) {
          reference.retrieve([1, 4])
          await ask({ type: 'retrieve', blocks: [4, 1] })
        }
        if (at % 9 === 0 || at === ids.length - 1)
          worst = Math.max(worst, farthest(await model.logits(context), wanted))
      }
      expect(reference.closest(), 'two numbers that were compared: take another seed').toBeGreaterThan(2e-5)
      expectEvents(events, reference.events)
      if (memory.graph !== null)
        expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(['node', 'split', 'merge']))
      expect(worst).toBeLessThan(1e-4)
    } finally {
      model.close()
    }
  })
})
