/**
 * Only the suites of the engine and its families: no broker under sanitizers, and not the matrix of all combinations,
 * which only compares bits.
 */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'
import { AGAIN, otherTurns } from './turns.ts'

const include = [
  'test/engine/**/*.test.ts',
  'test/models/**/{gpt2,ngram.hostile,stateful,titans,titans.sessions,titans.refusals}.test.ts',
]

export default defineConfig({
  test: {
    tags: suites.tags,
    setupFiles: suites.setupFiles,
    globalSetup: ['test/shared-models.ts'],
    include,
    // These suites run on the CPU, as in npm test. The native suites run the emulated kernels.
    env: { CONTINUO_EMULATED_DEVICE: 'none' },
    // AddressSanitizer keeps freed memory for a while, so tests of the memory of a process would fail here.
    exclude: ['test/engine/exactness.test.ts', 'test/engine/churn.test.ts', ...otherTurns(include, AGAIN)],
    fileParallelism: false,
    // They only end what hangs: test-all.mjs gives these suites the processor that others leave.
    testTimeout: 900_000,
    hookTimeout: 900_000,
    pool: 'forks',
    isolate: false,
  },
})
