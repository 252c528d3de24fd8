/** Small decoders with an external memory, of every kind of setting. */
import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import type { Tensors } from '../../engine/packages.ts'
import { safetensors, temporaryFolder } from '../../engine/packages.ts'
import { BASE, type DecoderConfig, headWidth, keyHeads, randomDecoder } from '../decoders.ts'
import { randomModules } from './outer-memory-modules.ts'
import type { Memory } from './outer-memory-reference.ts'

export const [SUMMARIZE, RETRIEVE] = [27, 28]
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
export interface Setting {
  readonly name: string
  readonly config: DecoderConfig
  readonly memory: Memory
  readonly seed: number
}
const setting = (name: string, config: DecoderConfig, memory: Memory, seed = 1): Setting => ({
  ...{ name, config, memory, seed },
})
export const SETTINGS: readonly Setting[] = [
  setting('as the defaults are', LLAMA, PLAIN),
  setting('the latest blocks, a beat later', LLAMA, with_({ retrieval: { policy: 'recent', inject_after: 1 } })),
  setting(
    'cosines, a key head for each query head, all in f16',
    { ...LLAMA, num_key_value_heads: 4 },
    with_({ kv_dtype: 'f16', cold_dtype: 'f16', retrieval: { similarity: 'cosine', layers: [0, 1] } }),
  ),
  setting(
    'eight query heads to a key head, bf16 and f32, two layers watched and indexed, a beat later',
    { ...LLAMA, hidden_size: 32, num_attention_heads: 8, num_key_value_heads: 1 },
    with_({
      ...{ kv_dtype: 'bf16', cold_dtype: 'f32' },
      tombstones: { layers: [0, 1], threshold: 0.2 },
      retrieval: { layers: [0, 1], inject_after: 1 },
    }),
  ),
  setting(
    'biases, and anchors that a trimmer chooses',
    QWEN2,
    with_({ trimmer: LEARNED.trimmer, anchors: { policy: 'trimmer' } }),
  ),
  setting('a trimmer that chooses nothing: anchors begin topics', LLAMA, with_({ trimmer: LEARNED.trimmer })),
  setting(
    'no sinks, no anchors, no tombstones',
    LLAMA,
    with_({ sinks: 0, anchors: { tokens: 0 }, tombstones: { count: 0 } }),
  ),
  setting(
    'four query heads to a key head, tombstones that are not watched, and no retrieval by itself',
    { ...QWEN3, num_key_value_heads: 1 },
    with_({ tombstones: { threshold: null, count: 3 }, retrieval: { every: 0 } }),
  ),
  setting('a Q-Former and what goes with it', QWEN3, with_({ ...LEARNED, anchors: { policy: 'trimmer' } })),
  setting(
    'topics of keys, and a walker',
    LLAMA,
    with_({ graph: topics(0.5, 0.2, 0.45), retrieval: { policy: 'graph' } }),
    2,
  ),
  setting(
    'topics of a Q-Former, and a walker, a beat later',
    QWEN3,
    with_({
      ...LEARNED,
      graph: topics(0.1, 0.02, 0.06),
      anchors: { policy: 'trimmer' },
      retrieval: { policy: 'graph', inject_after: 1 },
    }),
  ),
]

/** What stands in the folder of a setting: config.json, the weights and what memory.json and its modules are. */
export const filesOf = ({ config, memory, seed }: Setting) => {
  const tensors = randomDecoder(seed, config)
  const C = keyHeads(config) * headWidth(config)
  const modules = randomModules(seed + 1, memory, { D: config.hidden_size, L: config.num_hidden_layers, C })
  const files: Readonly<Record<string, Uint8Array>> = {
    'config.json': Buffer.from(JSON.stringify(config)),
    'model.safetensors': safetensors(tensors),
    'memory.json': Buffer.from(JSON.stringify({ format: 'continuo-memory/1', ...memory })),
    ...(modules.size > 0 && { 'memory.safetensors': safetensors(modules) }),
  }
  return { tensors, modules, files }
}

export interface Written {
  readonly folder: string
  readonly tensors: Tensors
  readonly modules: Tensors
}

export const writeSetting = (setting: Setting): Written => {
  const { tensors, modules, files } = filesOf(setting)
  const folder = temporaryFolder()
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content)
  return { folder, tensors, modules }
}

/** A setting's package of bytes: with its external memory alone, or with an ngram memory behind it as well. */
export const writeBytes = (setting: Setting, ngram?: { readonly slots: number }): string => {
  const config = { ...setting.config, vocab_size: 256 }
  const { folder } = writeSetting({ ...setting, config })
  if (ngram === undefined) return folder
  const memory = { format: 'continuo-memory/1', ...setting.memory, ngram }
  writeFileSync(join(folder, 'memory.json'), JSON.stringify(memory))
  return folder
}
