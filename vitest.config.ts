import { defineConfig } from 'vitest/config'

export default defineConfig({
  test: {
    include: ['test/**/*.test.ts'],
    // On every machine the suites are the CPU's, whatever the engine was built with; test:gpu runs those of a device.
    env: { CUDA_VISIBLE_DEVICES: '' },
    exclude: ['test/cuda/**', 'test/cluster/**'],
    globalSetup: ['test/kafka/global.ts'],
    // Suites start brokers and kill processes; two cores serve them best one file at a time.
    fileParallelism: false,
    testTimeout: 120_000,
    hookTimeout: 120_000,
    pool: 'forks',
  },
})
