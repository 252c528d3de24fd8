/**
 * Attention over a bounded list of slots, behind which the whole context lies outside (docs/infinite-context.md).
 * Between the tokens the engine's memory controller (native/runtime/memory/memory_controller.h) moves blocks of tokens
 * out of the window and lays the list anew; the graph has what every token does.
 *
 * The state's names are the controller's. `list.k`, `list.v` and what stands with them are derived: no part of a
 * snapshot.
 */
import { autoDim, type Counter, plus, ring, type Table, type Value } from '../../engine/builder-types.ts'
import { BLOCK_POSITIONS } from '../../memory.ts'
import { type MemorySettings, mostSlots, payloadBytes } from '../families/memory-json.ts'
import type { LayerKind } from './kinds.ts'
import type { Build } from './language-model.ts'

/**
 * The most blocks of a context, where each takes so many bytes: the limits of a number of a block, and of a table
 * (docs/graph.md).
 */
const mostBlocks = (bytes: number): number => Math.min(2 ** 30, Math.floor(2 ** 52 / bytes))

/** So many payloads to a block of the state, that a block has 64 KiB at most where it can. */
const blockOf = (bytes: number): number =>
  Math.max(1, Math.min(BLOCK_POSITIONS, 2 ** Math.floor(Math.log2(2 ** 16 / bytes))))

/** C channels of the model; H query heads and G key heads of d channels; what scores are multiplied by. */
export interface Heads {
  readonly C: number
  readonly H: number
  readonly G: number
  readonly d: number
  readonly scale: number
}

/** Declares the memory of these layers; what it returns attends, with q, k and v as they are before they turn. */
export const outerMemory = (
  build: Build,
  layers: LayerKind,
  { C: D, H, G, d, scale }: Heads,
  memory: MemorySettings,
  increments: readonly number[],
): ((q: Value, k: Value, v: Value) => Value) => {
  const { g } = build
  const { block_size: B, window: M, sinks: S, anchors, tombstones, retrieval, kv_dtype: kept } = memory
  const { index } = layers
  const L = layers.layers.length
  const C = G * d
  const [K, A, T, n] = [anchors.tokens, anchors.entries, tombstones.count, retrieval.blocks]
  const derived = { derived: true } as const

  const count = g.counter('count')
  const table = (
    name: string,
    axes: Parameters<typeof g.table>[1],
    dtype: 'f32' | 'f16' | 'bf16' | 'i32' | 'u8' = 'f32',
  ) => g.table(name, axes, { dtype })
  const both = (name: string, axes: Parameters<typeof g.table>[1], dtype: typeof kept | 'f32') =>
    [table(`${name}.k`, axes, dtype), table(`${name}.v`, axes, dtype)] as const
  const window = both('window', [index, ring(M, count), C], kept)
  const payload = payloadBytes(memory, { layers: L, keyHeads: G, channels: d })
  const { trimmer, qformer, graph: topics } = memory
  const row = qformer === null ? [retrieval.layers.length, G, d] : [qformer.queries, qformer.width]
  const max = mostBlocks(Math.max(payload, 4 * row.reduce((product, extent) => product * extent, 1)))
  const archived = g.counter('archived', { max })
  g.table('cold', [autoDim(archived), payload], { dtype: 'u8', block: blockOf(payload) })
  const closed = g.counter('closed', { max })
  table('index', [autoDim(closed), ...row])
  if (S > 0) both('sinks', [index, S, C], kept)
  if (K * A > 0) {
    g.counter('anchors.entries', { max: A })
    table('anchors.block', [A], 'i32')
    table('anchors.offsets', [A, K], 'i32')
    both('anchors', [A, L, K, C], kept)
  }
  if (T > 0) {
    g.counter('tombstones', { max: T })
    table('tombstones.span', [T, 2], 'i32')
    table('tombstones.e', [T])
    both('tombstones', [T, L, C], 'f32')
  }
  for (const [number, list] of [
    ['injections', 'injected'],
    ['pendings', 'pending'],
  ] as const) {
    g.counter(number, { max: n })
    table(list, [n], 'i32')
  }
  table('query', [retrieval.layers.length, G, d])
  table('topic.sum', [D])
  table('topic.mean', [D])
  table('topic.spread', [2])
  if (trimmer !== null) table('trim.scores', [B])
  if (qformer !== null) table('block.hidden', [B, D])
  if (topics !== null) {
    const { max_virtual: V } = topics
    table('graph.center', [V, qformer?.width ?? retrieval.layers.length * C])
    table('graph.n', [V], 'i32')
    table('graph.s', [V])
    g.table('graph.member', [autoDim(archived)], { dtype: 'i32', rewritten: true })
  }
  for (const name of ['topic.blocks', 'topic.seen', 'lastRetrieval', 'indexVersion']) g.counter(name)

  const slots = g.counter('slots', { max: mostSlots(memory), ...derived })
  const list = ['list.k', 'list.v'].map((name) => g.table(name, [index, autoDim(slots), C], derived)) as [Table, Table]
  const asking = g.part('asking', index, retrieval.layers)
  const asked = g.table('asked', [asking, ring(B, count), H * d], derived)
  const monitor = (): ((q: Value) => void) => {
    const first: Counter = g.counter('tombstones.slot', derived)
    const watching = g.part('watching', index, tombstones.layers)
    const watched = g.table('watched', [watching, ring(B, count), H * T], derived)
    return (q) =>
      g.branch({ within: watching }, () => {
        const weights = g.attendWeights('attn.w', q, list[0](index), first, {
          heads: H,
          shared: H / G,
          scale,
          count: T,
        })
        g.cacheWrite(watched(watching, plus(count, -1)), weights)
      })
  }
  // The controller says where the tombstones stand in the list, whether they are watched or not.
  const watch = T > 0 && tombstones.threshold !== null ? monitor() : () => {}
  if (T > 0 && tombstones.threshold === null) g.counter('tombstones.slot', derived)

  build.counted(count)
  build.counted(slots)
  g.memory({ ...memory, heads: H, key_heads: G, increments })

  /** As it is kept, and that widened: whoever reads a number, reads what is kept. */
  const rounded = (name: string, x: Value): readonly [Value<typeof kept>, Value] => {
    if (kept === 'f32') return [x, x]
    const narrow = g.cast(`${name}.kept`, x, kept)
    return [narrow, g.cast(`${name}.wide`, narrow, 'f32')]
  }
  return (q, k, v) => {
    const [keptKey, key] = rounded('attn.k', k)
    const [keptValue, value] = rounded('attn.v', v)
    g.cacheWrite(window[0](index, plus(count, -1)), keptKey)
    g.cacheWrite(window[1](index, plus(count, -1)), keptValue)
    g.cacheWrite(list[0](index, plus(slots, -1)), g.rope('attn.k.r', key, slots, { heads: G, increments }))
    g.cacheWrite(list[1](index, plus(slots, -1)), value)
    g.branch({ within: asking }, () => g.cacheWrite(asked(asking, plus(count, -1)), q))
    const turned = g.rope('attn.q.r', q, slots, { heads: H, increments })
    watch(turned)
    return g.attend('attn.a', turned, list[0](index), list[1](index), { heads: H, shared: H / G, scale })
  }
}
