/** GPT-2 in GGUF, as llama.cpp's converter writes it: every matrix has outputs first. */
import type { TensorEntry } from '../../engine/native.ts'
import { type Architecture, both, renamed } from './architecture.ts'

const RULES: Readonly<Record<string, string>> = {
  'token_embd.weight': 'wte.weight',
  'position_embd.weight': 'wpe.weight',
  'output.weight': 'lm_head.weight',
  ...both('output_norm', 'ln_f'),
  ...both('blk.{l}.attn_norm', 'h.{l}.ln_1'),
  ...both('blk.{l}.ffn_norm', 'h.{l}.ln_2'),
  ...both('blk.{l}.attn_qkv', 'h.{l}.attn.c_attn'),
  ...both('blk.{l}.attn_output', 'h.{l}.attn.c_proj'),
  ...both('blk.{l}.ffn_up', 'h.{l}.mlp.c_fc'),
  ...both('blk.{l}.ffn_down', 'h.{l}.mlp.c_proj'),
}

const isConv1D = ({ name, shape }: TensorEntry): boolean => shape.length === 2 && /^h\.\d+\./.test(name)

export const gpt2: Architecture = (keys, tensors) => ({
  config: {
    model_type: 'gpt2',
    vocab_size: tensors.find(({ name }) => name === 'token_embd.weight')?.shape[0] ?? 0,
    n_positions: keys.whole('gpt2.context_length'),
    n_embd: keys.whole('gpt2.embedding_length'),
    n_layer: keys.whole('gpt2.block_count'),
    n_head: keys.whole('gpt2.attention.head_count'),
    n_inner: keys.wholeOr('gpt2.feed_forward_length', null),
    layer_norm_epsilon: keys.real('gpt2.attention.layer_norm_epsilon'),
    tie_word_embeddings: !tensors.some(({ name }) => name === 'output.weight'),
  },
  tensors: renamed(tensors, RULES).map((tensor) =>
    isConv1D(tensor) ? { ...tensor, stored: { ...tensor.stored!, outputsFirst: true } } : tensor,
  ),
})
