/** The model families Continuo knows, by `model_type` in config.json. */
import { falconH1 } from './families/falcon-h1.ts'
import { gemma3 } from './families/gemma3.ts'
import { gptNeo } from './families/gpt-neo.ts'
import { gptNeox } from './families/gpt-neox.ts'
import { gpt2 } from './families/gpt2.ts'
import { graniteHybrid } from './families/granite-hybrid.ts'
import { lfm2 } from './families/lfm2.ts'
import { llama, mistral, qwen2, qwen3, smollm3 } from './families/llama.ts'
import { isAuthorsMamba2, mamba2 } from './families/mamba2.ts'
import { mixtral, qwen3Moe } from './families/mixtures.ts'
import { nemotronH } from './families/nemotron-h.ts'
import { ngram } from './families/ngram.ts'
import { perspective } from './families/perspective.ts'
import { qwen3Next, qwen35, qwen35Moe } from './families/qwen-hybrid.ts'
import { rwkv7 } from './families/rwkv7.ts'
import { titans } from './families/titans.ts'
import type { Family } from './family.ts'

export const families: ReadonlyMap<string, Family> = new Map([
  ['falcon_h1', falconH1],
  ['gemma3', gemma3],
  ['gemma3_text', gemma3],
  ['gpt2', gpt2],
  ['gpt_neo', gptNeo],
  ['gpt_neox', gptNeox],
  ['granitemoehybrid', graniteHybrid],
  ['lfm2', lfm2],
  ['llama', llama],
  ['mamba2', mamba2],
  ['mistral', mistral],
  ['mixtral', mixtral],
  ['nemotron_h', nemotronH],
  ['ngram', ngram],
  ['perspective', perspective],
  ['qwen2', qwen2],
  ['qwen3', qwen3],
  ['qwen3_5', qwen35],
  ['qwen3_5_text', qwen35],
  ['qwen3_5_moe', qwen35Moe],
  ['qwen3_5_moe_text', qwen35Moe],
  ['qwen3_moe', qwen3Moe],
  ['qwen3_next', qwen3Next],
  ['rwkv7', rwkv7],
  ['smollm3', smollm3],
  ['titans', titans],
])

/** The family of a configuration that has no model_type, where its form tells. */
export const unnamedType = (config: unknown): string | undefined => {
  const { model_type: told } = Object(config) as { model_type?: unknown }
  return told === undefined && isAuthorsMamba2(config) ? 'mamba2' : undefined
}
