/** `npm run test:slow`: the tests that npm test leaves out. With CONTINUO_TURNS=on, as in .ci/run, those of this commit's turn (turns.ts). */
import { defineConfig } from 'vitest/config'
import { suites } from '../vitest.config.ts'
import { fastFiles, mixedFiles, slowFiles } from './tiers.ts'
import { otherTurns } from './turns.ts'

const later = process.env.CONTINUO_TURNS === 'on' ? otherTurns([...slowFiles, ...mixedFiles]) : []
if (later.length > 0) console.log(`Left to the turns of other commits: ${later.join(', ')}.`)

export default defineConfig({ test: { ...suites, exclude: [...suites.exclude, ...fastFiles, ...later] } })
