/**
 * `npm test`: the suites without the tests that have the tag "slow". Files in which every test has it are not opened.
 */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'
import { LeftOut } from './left-out.ts'
import { slowFiles } from './tiers.ts'

export default defineConfig({
  test: { ...suites, exclude: [...suites.exclude, ...slowFiles], reporters: ['default', new LeftOut()] },
})
