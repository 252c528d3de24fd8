import { join } from 'node:path'
import { defineConfig, type ViteUserConfig } from 'vitest/config'

/** All suites; `npm test` takes the fast ones among them (tools/fast.vitest.ts). */
export const suites = {
  include: ['test/**/*.test.ts'],
  exclude: ['test/cuda/**', 'test/cluster/**', 'test/containers/**'],
  tags: [
    {
      name: 'slow',
      description:
        'What npm test leaves out: kills by the dozen, several workers, brokers with settings of their own, hundreds of megabytes, much of the command line. npm run test:slow runs these tests.',
    },
    {
      name: 'long',
      description:
        'Slow tests that .ci/run leaves out: what other slow tests show with one family for each kind of state, with the other families. npm run test:slow runs them too.',
    },
  ],
  env: {
    // On every machine the suites are the CPU's, whatever the engine was built with; test:gpu runs those of a device.
    CUDA_VISIBLE_DEVICES: '',
    // Not the cache of whoever runs the tests.
    CONTINUO_CACHE: join(import.meta.dirname, 'node_modules', '.cache', 'continuo'),
    // The tests start hundreds of command lines and workers; half of such a start would be compilation.
    NODE_COMPILE_CACHE: join(import.meta.dirname, 'node_modules', '.cache', 'compiled'),
  },
  setupFiles: ['test/own-folder.ts', 'test/equal-bytes.ts'],
  globalSetup: ['test/shared-models.ts', 'test/kafka/global.ts'],
  // Two files at a time, on any machine: most of them wait for a broker or a process, and the engine has threads of its
  // own.
  maxWorkers: 2,
  testTimeout: 120_000,
  hookTimeout: 120_000,
  pool: 'forks',
  // The files share these two processes, in which modules are loaded once: alone, each would compute a second before
  // its first test. A file leaves the process as it found it.
  isolate: false,
  // What differs stands in the line that names a failure, which is all that the end of a long run repeats.
  chaiConfig: { truncateThreshold: 300 },
} satisfies NonNullable<ViteUserConfig['test']>

export default defineConfig({ test: suites })
