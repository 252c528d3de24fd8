/** `npm test`: the suites without what has the tag "slow". Files that have it as a whole are not even opened. */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'
import { LeftOut } from './left-out.ts'
import { slowFiles } from './tiers.ts'

export default defineConfig({
  test: { ...suites, exclude: [...suites.exclude, ...slowFiles], reporters: ['default', new LeftOut()] },
})
