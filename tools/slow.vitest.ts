/** `npm run test:slow`: the tests that npm test leaves out. In .ci/run, those of this commit's turn (turns.ts). */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'
import { fastFiles, mixedFiles, slowFiles } from './tiers.ts'
import { otherTurns } from './turns.ts'

const later = otherTurns([...slowFiles, ...mixedFiles])

export default defineConfig({
  // Each file in a process of its own: some count its connections, fill its memory or load modules anew.
  test: { ...suites, isolate: true, exclude: [...suites.exclude, ...fastFiles, ...later] },
})
