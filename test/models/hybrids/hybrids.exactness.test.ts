/**
 * One arithmetic for families with recurrent layers, all of it at once: instruction sets × threads × chunks × batches,
 * plain and quantised.
 *
 * @module-tag slow
 */
import { describe, expect, it } from 'vitest'
import { judge, runExactness } from '../../../src/cli/bench/exactness.ts'
import { safetensors, writePackage } from '../../engine/packages.ts'
import { newOut, q8 } from '../helpers.ts'
import {
  falconConfig,
  hybridTensors,
  lfm2Config,
  mamba2Config,
  nemotronConfig,
  qwen35Config,
} from './hybrid-packages.ts'
import type { HybridConfig } from './hybrid-reference.ts'

// Heads of several vectors, so that lanes are shared out; rows of more than a block of 256 terms.
const wide: readonly HybridConfig[] = [
  mamba2Config({ hidden_size: 66, num_heads: 4, head_dim: 67, state_size: 33, n_groups: 2 }),
  lfm2Config({ hidden_size: 72, intermediate_size: 259 }),
  qwen35Config({ hidden_size: 70, linear_key_head_dim: 41, linear_value_head_dim: 41, intermediate_size: 259 }),
  qwen35Config({ hidden_size: 70, linear_key_head_dim: 33, linear_value_head_dim: 67 }),
  qwen35Config({ hidden_size: 70, linear_key_head_dim: 67, linear_value_head_dim: 33 }),
  falconConfig({ hidden_size: 30, mamba_rms_norm: true }),
  nemotronConfig({ hidden_size: 30, intermediate_size: 259 }),
]

describe('exactness of hybrid models', () => {
  it('instruction sets, threads, chunks and batches give one chain, one set of surprisals, tokens and logits', async () => {
    const dirs = wide.map((config) => writePackage(config, safetensors(hybridTensors(9, config), 'BF16')))
    for (const dir of dirs.slice(0, 4)) {
      const out = newOut()
      await q8(dir, out)
      dirs.push(out)
    }
    const matrix = { threads: [1, 2, 3], chunks: [1, 7, 150], batches: [1, 4], tokens: 170 }
    const { cases, ran } = await runExactness({ dirs, matrix })
    expect(ran).toContain('generic')
    expect(cases).toHaveLength(ran.length * dirs.length * 18)
    const verdict = judge(cases)
    expect(verdict.differing).toEqual([])
    expect(new Set(Object.values(verdict.chains)).size).toBe(dirs.length)
  })
})
