/**
 * A reporter for vitest. The last line of npm test says which part of the suites it ran, and which command runs the
 * rest.
 */
import type { Reporter } from 'vitest/node'
import { fastFiles, mixedFiles, otherFiles, slowFiles } from './tiers.ts'

export class LeftOut implements Reporter {
  onTestRunEnd(): void {
    const run = fastFiles.length + mixedFiles.length
    const all = run + slowFiles.length + otherFiles.length
    console.log(
      `npm test runs ${run} of ${all} files, ${mixedFiles.length} of them without their slow tests; npm run test:all runs everything.`,
    )
  }
}
