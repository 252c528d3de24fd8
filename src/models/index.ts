/** The model families Continuo knows, by `model_type` in config.json. */
import type { Family } from './family.ts'
import { gemma3 } from './gemma3.ts'
import { gpt2 } from './gpt2.ts'
import { llama, mistral, qwen2, qwen3, smollm3 } from './llama.ts'
import { mixtral, qwen3Moe } from './mixtures.ts'
import { rwkv7 } from './rwkv7.ts'
import { titans } from './titans.ts'

export const families: ReadonlyMap<string, Family> = new Map([
  ['gemma3', gemma3],
  ['gemma3_text', gemma3],
  ['gpt2', gpt2],
  ['llama', llama],
  ['mistral', mistral],
  ['mixtral', mixtral],
  ['qwen2', qwen2],
  ['qwen3', qwen3],
  ['qwen3_moe', qwen3Moe],
  ['rwkv7', rwkv7],
  ['smollm3', smollm3],
  ['titans', titans],
])
