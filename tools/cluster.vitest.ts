/**
 * The suites that need a cluster of three brokers: `npm run test:cluster`. Without Java or the jars they fail and say
 * what is missing.
 */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'

export default defineConfig({
  test: {
    tags: suites.tags,
    include: ['test/cluster/**/*.test.ts'],
    setupFiles: suites.setupFiles,
    env: { CUDA_VISIBLE_DEVICES: '' },
    fileParallelism: false,
    testTimeout: 1_800_000,
    hookTimeout: 300_000,
    pool: 'forks',
  },
})
