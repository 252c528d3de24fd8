/** The suites of the engine and its families alone: no broker under sanitizers, nor the matrix of every combination, which is a matter of bits. */
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/engine/**/*.test.ts', 'test/models/{gpt2,stateful,titans,titans.sessions,titans.refusals}.test.ts'],
    // The suites are the CPU's, as in npm test; the native ones have the emulated kernels.
    env: { CONTINUO_EMULATED_DEVICE: 'none' },
    // AddressSanitizer keeps what was freed for a while, so the memory of a process says nothing here.
    exclude: ['test/engine/exactness.test.ts', 'test/engine/churn.test.ts'],
    fileParallelism: false,
    testTimeout: 300_000,
    hookTimeout: 300_000,
    pool: 'forks',
  },
})
