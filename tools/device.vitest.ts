/**
 * The suites of a device, on the addon that CONTINUO_ADDON names: those of test/cuda, which compare it with the CPU, and suites of
 * the engine that open their models where CONTINUO_TEST_DEVICE says.
 */
import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: [
      'test/cuda/**/*.test.ts',
      'test/engine/{executor,memory-graphs,custom-model}.test.ts',
      'test/models/stateful.test.ts',
    ],
    env: { CONTINUO_TEST_DEVICE: 'cuda' },
    // Two processes on one device are no rarity.
    maxWorkers: 2,
    testTimeout: 300_000,
    hookTimeout: 300_000,
    pool: 'forks',
  },
})
