/**
 * `npm run test:speculate`: the suites of exactness and of crashes once more, with guesses in every step of every model
 * (docs/speculation.md). The fast ones among them have no tags; `--tags-filter` as for the others.
 */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'
import { AGAIN, otherTurns } from './turns.ts'

const include = [
  'test/crash/**/*.test.ts',
  'test/engine/{exactness,submit,churn,sampler}.test.ts',
  'test/operators/**/{cancel,cancel-random,fork,grammar,outer-memory,paging,penalties,rings,sessions,stream,import-plain,worker}.test.ts',
  'test/sessions/**/*.test.ts',
]

export default defineConfig({
  test: {
    ...suites,
    include,
    exclude: [...suites.exclude, ...otherTurns(include, AGAIN)],
    // They only end what hangs.
    testTimeout: 600_000,
    hookTimeout: 600_000,
    env: { ...suites.env, CONTINUO_SPECULATE: '8,always' },
  },
})
