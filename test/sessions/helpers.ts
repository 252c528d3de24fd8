import { onTestFinished } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { SessionManager } from '../../src/sessions/manager.ts'
import type { SessionManagerOptions } from '../../src/sessions/types.ts'
import { randomRwkv7, type Sizes, safetensors, writePackage } from '../engine/packages.ts'

export const SMALL: Sizes = { L: 2, H: 2, N: 32, F: 96, V: 40, D: { w: 4, a: 4, v: 4, g: 4 } }

/** A package with random weights, in a folder that goes with the test file. */
export const smallPackage = (seed = 1, sizes: Sizes = SMALL): string =>
  writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(seed, sizes)))

/** A manager that closes with the test. Weights are verified where a test says so. */
export const managed = (model: Model, options: SessionManagerOptions = {}): SessionManager => {
  const manager = new SessionManager(model, { verifyWeights: false, ...options })
  onTestFinished(async () => {
    await manager.close().catch(() => undefined)
  })
  return manager
}

/** `count` ids that differ from seed to seed. */
export const ids = (seed: number, count: number, vocabSize: number): number[] =>
  Array.from({ length: count }, (_, at) => (seed * 31 + at * 7 + ((seed * at) % 11)) % vocabSize)
