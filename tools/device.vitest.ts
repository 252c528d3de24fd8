/**
 * The suites of a device, on the addon that CONTINUO_ADDON names: test/cuda, which compares the device with the CPU,
 * and suites of the engine that open their models on the device that CONTINUO_TEST_DEVICE names.
 */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'
import { AGAIN, EVERYTHING_ON_A_DEVICE, otherTurns } from './turns.ts'

const include = [
  'test/cuda/**/*.test.ts',
  'test/engine/{blocks,constants,executor,filling,grown-tables,memory-graphs,custom-model,rings,volatile-tables}.test.ts',
  'test/models/**/{expert-store,perspective,perspective.sessions,perspective.shipped,stateful}.test.ts',
]

export default defineConfig({
  test: {
    tags: suites.tags,
    setupFiles: suites.setupFiles,
    globalSetup: ['test/shared-models.ts'],
    include,
    exclude: [...otherTurns(include, { everything: EVERYTHING_ON_A_DEVICE, ...AGAIN })],
    env: { CONTINUO_TEST_DEVICE: 'cuda' },
    // Two processes at a time on one device, as users have it.
    maxWorkers: 2,
    // They only end what hangs: test-all.mjs gives these suites the processor that others leave.
    testTimeout: 900_000,
    hookTimeout: 900_000,
    pool: 'forks',
  },
})
