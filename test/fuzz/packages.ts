/**
 * Good model packages to damage, one of each family; and what is done with a damaged one: it is opened, and if it
 * opens, it runs.
 */
import { mkdirSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { ContinuoError } from '../../src/errors.ts'
import { openPackage } from '../../src/models/open.ts'
import { SessionManager } from '../../src/sessions/manager.ts'
import { randomRwkv7, safetensors } from '../engine/packages.ts'
import { BASE, type DecoderConfig, randomDecoder } from '../models/decoders.ts'
import { gpt2ConfigOf, randomGpt2 } from '../models/gpt2/gpt2.ts'
import {
  hybridTensors,
  lfm2Config,
  mamba2Config,
  nemotronConfig,
  qwen3NextConfig,
} from '../models/hybrids/hybrid-packages.ts'
import { kindTensors, KINDS as TITANS } from '../models/titans/titans-packages.ts'
import { byteLevel, fallback, KINDS as TOKENIZERS } from '../models/tokenizer/fixtures.ts'

export type Files = Readonly<Record<string, Uint8Array>>

const json = (value: unknown): Uint8Array => Buffer.from(JSON.stringify(value))
const tokenizers = new Map<string, unknown>(TOKENIZERS.map(([, kind], at) => [`tokenizer${at}`, kind]))

const gpt2Sizes = { L: 2, H: 2, N: 4, F: null, V: 2000, P: 64 }
const rwkv7Sizes = { L: 2, H: 2, N: 8, F: 24, V: 256, D: { w: 4, a: 4, v: 4, g: 4 } }

const DECODERS: readonly DecoderConfig[] = [
  {
    ...BASE,
    model_type: 'llama',
    rope_scaling: { rope_type: 'linear', factor: 2 },
    attention_bias: true,
    rope_theta: 10_000,
    vocab_size: 256,
  },
  {
    ...BASE,
    model_type: 'gemma3_text',
    hidden_act: 'gelu_pytorch_tanh',
    layer_types: ['sliding_attention', 'full_attention'],
    sliding_window: 8,
    head_dim: 6,
    query_pre_attn_scalar: 6,
    final_logit_softcapping: 30,
  },
  {
    ...BASE,
    model_type: 'qwen3_moe',
    head_dim: 6,
    num_experts: 4,
    num_experts_per_tok: 2,
    moe_intermediate_size: 9,
  },
]

/** Packages by name. GPT-2 has a tokenizer.json, the others read bytes. */
export const goodPackages = (): ReadonlyMap<string, Files> =>
  new Map<string, Files>([
    [
      'gpt2',
      {
        'config.json': json(gpt2ConfigOf(gpt2Sizes)),
        'model.safetensors': safetensors(randomGpt2(1, gpt2Sizes)),
        'tokenizer.json': json(byteLevel()),
      },
    ],
    [
      'rwkv7',
      {
        'config.json': json({
          model_type: 'rwkv7',
          vocab_size: 256,
          num_hidden_layers: 2,
          hidden_size: 16,
          norm_eps: 1e-5,
        }),
        'model.safetensors': safetensors(randomRwkv7(2, rwkv7Sizes)),
      },
    ],
    ...[mamba2Config, lfm2Config, nemotronConfig, qwen3NextConfig].map((make): [string, Files] => {
      const config = make()
      return [
        config.model_type,
        { 'config.json': json(config), 'model.safetensors': safetensors(hybridTensors(3, config)) },
      ]
    }),
    ...DECODERS.map((config): [string, Files] => [
      config.model_type,
      { 'config.json': json(config), 'model.safetensors': safetensors(randomDecoder(3, config)) },
    ]),
    ...Object.entries(TITANS).map(([kind, config]): [string, Files] => [
      `titans-${kind}`,
      { 'config.json': json(config), 'model.safetensors': safetensors(kindTensors(kind as keyof typeof TITANS)) },
    ]),
  ])

/** A tokenizer.json of every kind that is supported. */
export const goodTokenizers = (): ReadonlyMap<string, string> =>
  new Map([...tokenizers, ['fallback', fallback()] as const].map(([name, kind]) => [name, JSON.stringify(kind)]))

/** What a hostile pattern would stumble over, and what a text may hold. */
export const TEXTS: readonly string[] = [
  "The harbour froze [PAD]</s> ünï 😀 \ud800 12 don't\r\n\n   x",
  `${'a'.repeat(60)} ${'ab'.repeat(40)}1`,
  `\u0301</s> 記憶\n${' '.repeat(40)}\ufdfa`,
]

export const writeFiles = (folder: string, files: Files): void => {
  rmSync(folder, { recursive: true, force: true })
  mkdirSync(folder, { recursive: true })
  for (const [name, content] of Object.entries(files)) writeFileSync(join(folder, name), content)
}

/**
 * Opens a package and lets it read and generate; what it did comes back as a word. Rejects as openPackage and the
 * session do.
 */
export const usePackage = async (folder: string): Promise<string> => {
  const { model, tokenizer } = await openPackage(folder, {
    device: 'cpu',
    threads: 1,
    keepPacked: false,
    warn: () => {},
  })
  const manager = new SessionManager(model, tokenizer === null ? {} : { tokenizer })
  try {
    const session = manager.createSession('fuzz')
    const ids = Array.from({ length: 4 }, (_, at) => at % model.vocabSize)
    for (const input of tokenizer === null ? [ids] : TEXTS) await manager.process(session, input)
    await manager.generate(session, { maxTokens: 6, temperature: 0.8, seed: 7 })
    return 'ran'
  } catch (error) {
    if (error instanceof ContinuoError && error.code !== 'INTERNAL') return `opened, then ${error.code}`
    throw error
  } finally {
    await manager.close()
    model.close()
  }
}
