/**
 * How byte-level BPE of a GGUF file splits a text before it joins bytes: what `tokenizer.ggml.pre` may name, with the
 * names of llama.cpp (release 0.5.0). The patterns are those of the tokenizers that the names stand for; where
 * llama.cpp writes one in another way, because it has no classes of cases, the published pattern counts, as it does in
 * the cases that llama.cpp tests itself by.
 *
 * Left out are names whose splits look behind (tiny_aya), match nothing (superbpe), or are code there (kimi-k2, afmoe);
 * whose texts are not byte-level (gemma4, sarvam-moe, whitespace); and encoders that put a token behind a text.
 */
import type { Json } from './build.ts'
import { PRE_TOKENIZERS } from './published.ts'

export interface GgufPre {
  readonly splits: Json
  /** A word that is a token is not joined. */
  readonly ignoreMerges?: true
  /** The file's `bos_token_id` stands before a text where the file has no `add_bos_token`. */
  readonly begins?: true
}

const named = (names: string, pre: GgufPre): readonly (readonly [string, GgufPre])[] =>
  names.split(' ').map((name) => [name, pre])

const { gpt2, llama3, qwen2, qwen35, smollm, unnamed, ...others } = PRE_TOKENIZERS

export const GGUF_PRE: ReadonlyMap<string, GgufPre> = new Map([
  ...named('gpt-2 phi-2 gigachat a.x-4.0 mellum exaone4 mpt olmo jais trillion granite-docling', { splits: gpt2 }),
  ...named('llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2', {
    splits: llama3,
    ignoreMerges: true,
    begins: true,
  }),
  ...named('dbrx smaug-bpe chatglm-bpe glm4', { splits: llama3 }),
  ...named('qwen2 deepseek-r1-qwen kormo megrez stablelm2 hunyuan solar-open grok-2', { splits: qwen2 }),
  ...named('qwen35', { splits: qwen35 }),
  ...named('smollm starcoder refact command-r codeshell exaone minerva-7b mellum2', { splits: smollm }),
  ...named('deepseek-llm', { splits: others.deepseekLlm }),
  ...named('deepseek-coder', { splits: others.deepseekCoder }),
  ...named('deepseek-v3 hunyuan-dense joyai-llm hy_v4', { splits: others.deepseekV3 }),
  ...named('falcon', { splits: others.falcon }),
  ...named('tekken', { splits: others.tekken, ignoreMerges: true, begins: true }),
  ...named('gpt-4o llama4 kanana2 minimax-m2', { splits: others.gpt4o }),
  ...named('seed-coder', { splits: others.seedCoder }),
  ...named('bailingmoe bailingmoe2 llada-moe', { splits: others.bailing }),
  ...named('bloom poro-chat gpt3-finnish', { splits: others.bloom }),
  ...named('viking', { splits: others.viking }),
  ...named('minicpm5', { splits: others.minicpm5, ignoreMerges: true }),
  ...named('default', { splits: unnamed }),
])
