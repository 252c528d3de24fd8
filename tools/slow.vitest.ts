/** `npm run test:slow`: the tests that npm test leaves out. */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'
import { fastFiles } from './tiers.ts'

export default defineConfig({ test: { ...suites, exclude: [...suites.exclude, ...fastFiles] } })
