/** The folder beside the repository that holds models and texts too large, or not ours, to ship. */
import { chmodSync, cpSync, existsSync, readdirSync, statSync } from 'node:fs'
import { join } from 'node:path'

const shared = process.env.CONTINUO_SHARED ?? join(import.meta.dirname, '..', '..', '..', 'shared')

export const originalModels = join(shared, 'models')
/** A run of tests has a copy of its own (test/shared-models.ts). */
const models = process.env.CONTINUO_SHARED_MODELS ?? originalModels

/** Without it (a lone clone) the tests that compare with its models are skipped; the oracle covers the arithmetic. */
export const hasShared = existsSync(originalModels)
export const sharedModel = (name: string): string => join(models, name)
/** As it was delivered: no test has opened it. To copy, not to open. */
export const untouchedModel = (name: string): string => join(originalModels, name)
export const sharedData = (name: string): string => join(shared, 'data', name)

/** Copies a folder so that its owner may write all of it: what is copied may be read-only, and a copy keeps that. */
export const copyWritable = (from: string, to: string): void => {
  cpSync(from, to, { recursive: true })
  for (const path of ['', ...readdirSync(to, { recursive: true, encoding: 'utf8' })]) {
    const copied = join(to, path)
    chmodSync(copied, statSync(copied).mode | 0o200)
  }
}
