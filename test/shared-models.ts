/**
 * vitest globalSetup: a copy of the models beside the repository for the length of a run. Whoever opens a model may
 * leave files beside it, such as how often its experts were used, and these must not be there in the next run.
 */
import { existsSync, mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { copyWritable, originalModels } from './engine/paths.ts'

export const setup = (): (() => void) | undefined => {
  if (!existsSync(originalModels)) return undefined
  const copy = mkdtempSync(join(tmpdir(), 'continuo-models-'))
  copyWritable(originalModels, copy)
  // The processes that run the test files inherit it.
  process.env.CONTINUO_SHARED_MODELS = copy
  return () => rmSync(copy, { recursive: true, force: true })
}
