/**
 * `npm run test:containers`: what runs in containers, one file after the other, on the engine and the image that
 * tools/containers.mjs made.
 */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'

export default defineConfig({
  test: {
    tags: suites.tags,
    include: ['test/containers/**/*.test.ts'],
    setupFiles: suites.setupFiles,
    fileParallelism: false,
    testTimeout: 300_000,
    hookTimeout: 300_000,
    pool: 'forks',
  },
})
