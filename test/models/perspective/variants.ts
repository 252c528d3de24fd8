/**
 * Two models that suites compare on every backend: a usual one, and one with odd sizes and every part that a
 * configuration can choose.
 */
import { TARGETS } from './config.ts'
import type { Change } from './package.ts'

export const USUAL: Change = {
  layer_types: ['pdr', 'pdr', 'gqa', 'pdr'],
  recent: 9,
  mpd: { max_p: 0.9 },
  hdm: { write_nats: 5 },
}

export const ODD: Change = {
  hidden_size: 71,
  num_attention_heads: 3,
  num_key_value_heads: 3,
  head_dim: 10,
  vocab_size: 101,
  sliding_window: 5,
  recent: 6,
  intermediate_size: 37,
  ffn_types: ['experts', 'dense', 'experts'],
  pdr: { width: 83, rank: 13, write: 'plain' },
  experts: { torus: [3, 5], top_k: 3, intermediate_size: 131, group_size: 64 },
  mpd: {
    perspectives: ['base', 'jitter', 'dropout', 'second', 'antipode', 'random', 'temperature'],
    max_p: 1,
    jsd: 0.1,
    layers: 3,
  },
  hdm: { bits: 256, banks: 4, write_nats: 4, hit_max: 120 },
  fmea: { targets: TARGETS, rank: 3, population: 4 },
}
