/** The model families Continuo knows, by `model_type` in config.json. */
import type { Family } from './family.ts'
import { gpt2 } from './gpt2.ts'
import { llama, mistral, qwen2 } from './llama.ts'
import { rwkv7 } from './rwkv7.ts'
import { titans } from './titans.ts'

export const families: ReadonlyMap<string, Family> = new Map([
  ['gpt2', gpt2],
  ['llama', llama],
  ['mistral', mistral],
  ['qwen2', qwen2],
  ['rwkv7', rwkv7],
  ['titans', titans],
])
