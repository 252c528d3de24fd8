/**
 * A small model of every family: at odd sizes, so that edges of tiles, groups and segments are met; and those of the
 * shared folder.
 */
import { fileURLToPath } from 'node:url'
import type { OpenModelOptions } from '../../src/engine/options.ts'
import { quantizePackage } from '../../src/models/quantize/quantize.ts'
import { type Dtype, randomRwkv7, type Sizes, safetensors, temporaryFolder, writePackage } from '../engine/packages.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { BASE, type DecoderConfig, randomDecoder } from '../models/decoders.ts'
import { gpt2ConfigOf, randomGpt2 } from '../models/gpt2/gpt2.ts'
import { newOut } from '../models/helpers.ts'
import {
  falconConfig,
  graniteConfig,
  hybridTensors,
  lfm2Config,
  mamba2Config,
  nemotronConfig,
  qwen3NextConfig,
  qwen35Config,
} from '../models/hybrids/hybrid-packages.ts'
import type { HybridConfig } from '../models/hybrids/hybrid-reference.ts'
import { writeSubwords } from '../models/ngram/subwords.ts'
import { randomLearned, writeNgram } from '../models/ngram/texts.ts'
import { SETTINGS, writeBytes, writeSetting } from '../models/outer-memory/outer-memory-settings.ts'
import { KIND_NAMES, KINDS, kindTensors, writeTitans } from '../models/titans/titans-packages.ts'
import { emulated } from './helpers.ts'

export interface Package {
  readonly name: string
  readonly dir: () => Promise<string>
  readonly options: OpenModelOptions
  /** Tokens of each session, and how many each generates. */
  readonly lengths: readonly number[]
  readonly count: number
}

const ODD: Sizes = { L: 2, H: 2, N: 18, F: 259, V: 131, D: { w: 5, a: 7, v: 3, g: 11 } }
/** The smallest whose tokens are bytes. */
export const BYTES: Sizes = { L: 1, H: 2, N: 8, F: 24, V: 256, D: { w: 4, a: 4, v: 4, g: 4 } }
export const rwkv7 = (dtype: Dtype, sizes: Sizes = ODD): string =>
  writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(5, sizes), dtype))
const quantised = async (to: 'q8' | 'ternary'): Promise<string> => {
  const out = newOut()
  await quantizePackage({ dir: rwkv7('BF16'), out, to, group: 32 })
  return out
}

const DECODER: DecoderConfig = { ...BASE, max_position_embeddings: 48 }
const decoder = (config: DecoderConfig): string => writePackage(config, safetensors(randomDecoder(12, config), 'BF16'))
const gemma = {
  model_type: 'gemma3_text',
  head_dim: 6,
  num_hidden_layers: 3,
  hidden_act: 'gelu_pytorch_tanh',
  layer_types: ['sliding_attention', 'full_attention', 'sliding_attention'],
  sliding_window: 8,
  query_pre_attn_scalar: 10,
  final_logit_softcapping: 5,
}
const mixture = {
  model_type: 'qwen3_moe',
  head_dim: 6,
  num_experts: 7,
  num_experts_per_tok: 3,
  moe_intermediate_size: 19,
  norm_topk_prob: true,
}
const quantisedMixture = async (): Promise<string> => {
  const out = newOut()
  await quantizePackage({ dir: decoder({ ...DECODER, ...mixture }), out, to: 'q8', group: 32 })
  return out
}

export const GPT2 = { L: 2, H: 3, N: 4, F: 19, V: 30, P: 48 }
export const gpt2 = (): string => writePackage(gpt2ConfigOf(GPT2), safetensors(randomGpt2(11, GPT2)))

const hybrid = (config: HybridConfig): string => writePackage(config, safetensors(hybridTensors(13, config), 'BF16'))

/** A real device takes more tokens in less time. */
const TIMES = emulated ? 1 : 20

interface Work extends Partial<Pick<Package, 'options' | 'lengths' | 'count'>> {
  /** Its positions end soon after these lengths. */
  readonly bounded?: true
}

const named = (name: string, dir: () => string | Promise<string>, work: Work = {}): Package => {
  const { lengths = [37, 16, 3], count = 5, options = {}, bounded } = work
  const times = bounded ? 1 : TIMES
  return { name, dir: async () => dir(), options, lengths: lengths.map((length) => length * times), count }
}

/** Fewer tokens: these take longest. */
const few = { lengths: [13, 6], count: 3 }
const window = { overflow: 'window' } as const

export const packages: readonly Package[] = [
  named('RWKV-7, f32', () => rwkv7('F32')),
  named('RWKV-7, f16', () => rwkv7('F16')),
  named('RWKV-7, bf16', () => rwkv7('BF16')),
  named('RWKV-7, q8', () => quantised('q8')),
  named('RWKV-7, ternary', () => quantised('ternary')),
  ...KIND_NAMES.map((kind) =>
    named(`Titans, ${kind}`, () => writeTitans(KINDS[kind], kindTensors(kind)), { lengths: [22, 9], count: 4 }),
  ),
  named('GPT-2', gpt2, { lengths: [40, 12, 1], count: 7, bounded: true }),
  named('GPT-2 past its last position, in a window', gpt2, { lengths: [90, 47, 12], count: 7, options: window }),
  named('Llama', () => decoder(DECODER), { lengths: [40, 12, 1], count: 7, bounded: true }),
  named('Llama, caches of f16', () => decoder(DECODER), {
    lengths: [40, 12, 1],
    count: 7,
    options: { cacheDtype: 'f16' },
    bounded: true,
  }),
  named('GPT-2 in a window, caches of bf16', gpt2, {
    lengths: [60, 12],
    count: 7,
    options: { ...window, cacheDtype: 'bf16' },
  }),
  named('Gemma 3', () => decoder({ ...DECODER, ...gemma }), { lengths: [40, 12, 1], count: 7, bounded: true }),
  named('Qwen3-MoE', () => decoder({ ...DECODER, ...mixture }), { lengths: [40, 12, 1], count: 7, bounded: true }),
  named('Qwen3-MoE, q8', quantisedMixture, { lengths: [40, 12, 1], count: 7, bounded: true }),
  named('Mamba-2', () => hybrid(mamba2Config())),
  named('Mamba-2, keys of every head, limits', () =>
    hybrid(mamba2Config({ n_groups: 6, head_dim: 32, state_size: 64, time_step_limit: [0.1, 0.6] })),
  ),
  // Their positions end at 400.
  named('LFM2', () => hybrid(lfm2Config()), { bounded: true }),
  named('Qwen3.5', () => hybrid(qwen35Config()), { bounded: true }),
  named(
    'Qwen3.5, keys wider than values',
    () => hybrid(qwen35Config({ linear_key_head_dim: 64, linear_value_head_dim: 11 })),
    { ...few, bounded: true },
  ),
  named(
    'Qwen3.5, values wider than keys',
    () => hybrid(qwen35Config({ linear_key_head_dim: 19, linear_value_head_dim: 37 })),
    { ...few, bounded: true },
  ),
  named('Qwen3-Next', () => hybrid(qwen3NextConfig()), { lengths: [17, 5], count: 3, bounded: true }),
  named('Granite 4.0-H', () => hybrid(graniteConfig()), { bounded: true }),
  named('Falcon-H1', () => hybrid(falconConfig({ mamba_rms_norm: true })), { bounded: true }),
  named('Nemotron-H', () => hybrid(nemotronConfig()), { bounded: true }),
  ...SETTINGS.map((setting) =>
    named(`an external memory: ${setting.name}`, () => writeSetting(setting).folder, { lengths: [90, 41], count: 9 }),
  ),
  named('an external memory before an ngram memory', () => writeBytes(SETTINGS.at(-1)!, { slots: 1024 }), {
    lengths: [90, 41],
    count: 9,
  }),
  named('an ngram memory', () => writeNgram(1030, randomLearned(3)), { lengths: [150, 41], count: 40 }),
  named('a small ngram memory', () => writeNgram(1030, randomLearned(3, 'small'), { form: 'small' }), {
    lengths: [150, 41],
    count: 40,
  }),
  named('an ngram memory that learns from its draws', () => writeNgram(1024, null, { learn: 'all' }), {
    lengths: [60, 9],
    count: 60,
  }),
  named('an ngram memory of subwords behind RWKV-7', () => writeSubwords(temporaryFolder(), 1030), {
    lengths: [90, 41],
    count: 40,
  }),
  named('the shipped reader of logs', () => fileURLToPath(new URL('../../models/watch', import.meta.url)), few),
  named('the shipped model', () => fileURLToPath(new URL('../../models/demo', import.meta.url)), few),
  ...(hasShared
    ? [
        ...['tiny-rwkv7', 'titans-tiny-mac', 'titans-tiny-mag', 'titans-tiny-mal'].map((name) =>
          named(name, () => sharedModel(name), few),
        ),
        named('gpt2-tiny', () => sharedModel('gpt2-tiny'), { ...few, bounded: true }),
        ...['llama-tiny-memory', 'qwen3-tiny-graph'].map((name) =>
          named(name, () => sharedModel(name), { lengths: [170, 90], count: 9 }),
        ),
        named('gpt2-tiny, in a window', () => sharedModel('gpt2-tiny'), { ...few, options: window }),
      ]
    : []),
]
