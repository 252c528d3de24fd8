/**
 * A small model of every kind of state: the list that the crash, rebalance, verify, exactness and session suites walk,
 * so that another family is another row. All read bytes. Sizes are odd where a family allows it: edges of tiles, groups
 * and blocks are met, and rows of more than one block of 256 terms.
 */
import { mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { writeTitans } from '../bench/titans-package.ts'
import type { Overflow } from '../src/engine/options.ts'
import { packExperts } from '../src/experts/pack.ts'
import { findExperts } from '../src/models/files/experts-source.ts'
import { quantizePackage } from '../src/models/quantize/quantize.ts'
import { safetensors, writePackageTo } from './engine/safetensors.ts'
import { BASE, type DecoderConfig, randomDecoder } from './models/decoders.ts'
import { gpt2ConfigOf, randomGpt2 } from './models/gpt2/gpt2.ts'
import { hybridTensors, qwen35Config } from './models/hybrids/hybrid-packages.ts'
import { writeSubwords } from './models/ngram/subwords.ts'
import { perspectiveConfig, writePerspective } from './models/perspective/package.ts'

interface Family {
  /** In commands, and in names of files and topics. */
  readonly key: string
  readonly name: string
  /** Writes the package into a folder that is not there yet, or names one that is there; returns its path. */
  readonly write: (folder: string) => string | Promise<string>
  /** Of `continuo run --max-resident-bytes`: about two contexts, so they page all the time. */
  readonly residentBytes: number
  readonly overflow?: Overflow
  /** Flags of `continuo run` beside these. */
  readonly runs?: readonly string[]
  /** So large that suites which compute every combination leave it out; they have a smaller one of its kind. */
  readonly large?: true
}

const demo = fileURLToPath(new URL('../models/demo', import.meta.url))

const titans = {
  composition: 'mac',
  levels: [1, 4, 64],
  hidden: 64,
  layers: 2,
  heads: 2,
  keyHeads: 1,
  headDim: 32,
  intermediate: 96,
  window: 24,
  segment: 20,
} as const

const GPT2 = { L: 2, H: 4, N: 32, F: 256, V: 256 }
const gpt2 =
  (P: number) =>
  (folder: string): string => {
    const sizes = { ...GPT2, P }
    mkdirSync(folder, { recursive: true })
    return writePackageTo(folder, gpt2ConfigOf(sizes), safetensors(randomGpt2(5, sizes)))
  }

const DECODER: DecoderConfig = {
  ...BASE,
  vocab_size: 256,
  hidden_size: 70,
  num_attention_heads: 6,
  num_key_value_heads: 3,
  head_dim: 18,
  intermediate_size: 259,
  max_position_embeddings: 2048,
}
const decoder =
  (change: Partial<DecoderConfig>) =>
  (folder: string): string => {
    const config = { ...DECODER, ...change }
    mkdirSync(folder, { recursive: true })
    return writePackageTo(folder, config, safetensors(randomDecoder(12, config), 'BF16'))
  }

const qwen35 = (folder: string): string => {
  const config = qwen35Config({
    vocab_size: 256,
    hidden_size: 70,
    linear_key_head_dim: 41,
    linear_value_head_dim: 41,
    intermediate_size: 259,
    max_position_embeddings: 4096,
  })
  mkdirSync(folder, { recursive: true })
  return writePackageTo(folder, config, safetensors(hybridTensors(9, config), 'BF16'))
}

/**
 * Blocks leave the window all the time; full stops and new lines ask for others, which come a beat later: many a kill
 * finds some pending.
 */
const outer = (folder: string): string => {
  const path = decoder({ model_type: 'qwen3' })(folder)
  const memory = {
    format: 'continuo-memory/1',
    ...{ block_size: 16, window: 64, sinks: 3, summarize_keep: 1 },
    anchors: { tokens: 2, entries: 3 },
    segmentation: { gamma: 0.5, warmup: 2 },
    tombstones: { count: 5, threshold: 0.2, cooldown: 16 },
    retrieval: { every: 32, blocks: 2, inject_after: 1 },
    tokens: { summarize: 0x0a, retrieve: 0x2e },
  }
  writeFileSync(join(path, 'memory.json'), JSON.stringify(memory))
  return path
}

/**
 * Every part that the family has. Draws disagree often, and what adaptations do not teach is bound often; the banks are
 * most of a state.
 */
const perspective = async (folder: string): Promise<string> => {
  const config = perspectiveConfig({
    ...{ hidden_size: 70, num_attention_heads: 6, num_key_value_heads: 3, head_dim: 18, intermediate_size: 99 },
    ...{ sliding_window: 21, recent: 13 },
    pdr: { width: 41, rank: 9 },
    experts: { torus: [3, 5], intermediate_size: 99, top_k: 2 },
    hdm: { banks: 128 },
    fmea: { targets: ['pdr.p_proj', 'attn.q_proj'] },
  })
  writePerspective(folder, config, 3)
  await packExperts({ source: await findExperts(folder) })
  return folder
}

/**
 * What followed a text before, and weights that every token teaches. Few slots: contexts replace each other all the
 * time.
 */
const ngram = (folder: string): string => {
  mkdirSync(folder, { recursive: true })
  return writePackageTo(folder, { model_type: 'ngram', slots: 2046 }, safetensors(new Map()))
}

const list = [
  { key: 'rwkv7', name: 'RWKV-7', write: () => demo, residentBytes: 700_000, large: true },
  {
    key: 'rwkv7-q8',
    name: 'RWKV-7 with matrices of 8 bits',
    write: async (folder: string) => {
      await quantizePackage({ dir: demo, out: folder, to: 'q8', group: 32 })
      return folder
    },
    residentBytes: 700_000,
    large: true,
  },
  {
    // Segments, levels that mostly stand still, and momentum.
    key: 'titans',
    name: 'Titans',
    write: async (folder: string) => {
      await writeTitans(folder, titans)
      return folder
    },
    residentBytes: 600_000,
  },
  // 128 positions: a context overflows again and again, into the dead letters.
  {
    key: 'gpt2-refuse',
    name: 'GPT-2 that refuses what does not fit',
    write: gpt2(128),
    residentBytes: 500_000,
    overflow: 'refuse',
  },
  // Two blocks, the second one short: contexts go round their rings again and again.
  {
    key: 'gpt2-window',
    name: 'GPT-2 with a window',
    write: gpt2(300),
    residentBytes: 1_400_000,
    overflow: 'window',
  },
  { key: 'qwen3', name: 'a decoder (Qwen3)', write: decoder({ model_type: 'qwen3' }), residentBytes: 1_500_000 },
  // Recurrent layers with convolutions, and one layer of attention.
  { key: 'qwen35', name: 'a hybrid (Qwen3.5)', write: qwen35, residentBytes: 1_000_000 },
  {
    key: 'qwen3moe',
    name: 'a mixture (Qwen3-MoE)',
    write: decoder({
      model_type: 'qwen3_moe',
      num_experts: 7,
      num_experts_per_tok: 3,
      moe_intermediate_size: 37,
      norm_topk_prob: true,
    }),
    residentBytes: 1_500_000,
  },
  // Archived blocks stay in memory only while they are used.
  {
    key: 'memory',
    name: 'a decoder with an external memory',
    write: outer,
    residentBytes: 1_500_000,
    runs: ['--block-cache-bytes', '0'],
  },
  // Recurrent layers, a ring, and what events have sessions learn.
  {
    key: 'perspective',
    name: 'a model that adapts (perspective)',
    write: perspective,
    residentBytes: 400_000,
  },
  { key: 'ngram', name: 'a memory of contexts (ngram)', write: ngram, residentBytes: 900_000 },
  // The same behind a model whose tokens stand for several bytes.
  {
    key: 'subwords',
    name: 'RWKV-7 with a memory of subwords',
    write: (folder) => writeSubwords(folder, 2046),
    residentBytes: 900_000,
  },
] as const satisfies readonly Family[]

export type FamilyKey = (typeof list)[number]['key']
export const FAMILIES: readonly (Family & { readonly key: FamilyKey })[] = list

export const familyOf = (key: FamilyKey): Family => FAMILIES.find((family) => family.key === key)!

/** One for each kind of state: recurrent, tables that grow and blocks that sleep, rings and what is learnt. */
export const KINDS: readonly FamilyKey[] = ['rwkv7', 'memory', 'perspective']

/**
 * The tags of a slow test that walks the families: .ci/run takes one for each kind of state, `npm run test:slow` all.
 */
export const slowWith = (key: FamilyKey): string[] => (KINDS.includes(key) ? ['slow'] : ['slow', 'long'])

/** A family whose package is there. */
export interface OpenedFamily {
  readonly key: string
  readonly name: string
  readonly dir: string
  readonly overflow: Overflow
  /** Of `continuo run`. */
  readonly flags: readonly string[]
  /** Where blocks of its snapshots lie; undefined: they are whole. */
  readonly blobStore?: string
}

let folders = 0

/** Writes its package into a new folder of `folder`. */
export const openFamily = async (key: FamilyKey, folder: string): Promise<OpenedFamily> => {
  const { name, write, residentBytes, overflow, runs = [] } = familyOf(key)
  const dir = await write(join(folder, `${key}-${folders++}`))
  const flags = ['--model', dir, '--max-resident-bytes', String(residentBytes)]
  return {
    key,
    name,
    dir,
    overflow: overflow ?? 'refuse',
    flags: [...flags, ...runs, ...(overflow === undefined ? [] : ['--overflow', overflow])],
  }
}

/** The same with snapshots in blocks. Several logs may share the store. */
export const inBlocks = (family: OpenedFamily, blobStore: string): OpenedFamily => ({
  ...family,
  blobStore,
  flags: [...family.flags, '--blob-store', blobStore],
})
