/** A small model of every family for the crash suites, and what its workers are told. */
import { mkdirSync } from 'node:fs'
import { fileURLToPath } from 'node:url'
import { writeTitans } from '../../bench/titans-package.ts'
import { quantizePackage } from '../../src/models/quantize.ts'
import { safetensors, writePackageTo } from '../engine/safetensors.ts'
import { gpt2ConfigOf, randomGpt2 } from '../models/gpt2.ts'

export interface CrashFamily {
  readonly name: string
  /** Flags of `continuo run`. Memory for about two contexts, so they page all the time. */
  readonly flags: readonly string[]
}

const told = (model: string, residentBytes: number, ...flags: readonly string[]): readonly string[] => [
  '--model',
  model,
  '--max-resident-bytes',
  String(residentBytes),
  ...flags,
]

const demo = fileURLToPath(new URL('../../models/demo', import.meta.url))

export const rwkv7: CrashFamily = { name: 'RWKV-7', flags: told(demo, 700_000) }

/** The same with matrices of 8 bits; `folder` is not there yet. */
export const rwkv7Q8 = async (folder: string): Promise<CrashFamily> => {
  await quantizePackage({ dir: demo, out: folder, to: 'q8', group: 32 })
  return { name: 'RWKV-7 q8', flags: told(folder, 700_000) }
}

/** Segments, levels that mostly stand still, and momentum; tokens are bytes. */
export const titans = async (folder: string): Promise<CrashFamily> => {
  await writeTitans(folder, {
    composition: 'mac',
    levels: [1, 4, 64],
    hidden: 64,
    layers: 2,
    heads: 2,
    keyHeads: 1,
    headDim: 32,
    intermediate: 96,
    window: 24,
    segment: 20,
  })
  return { name: 'Titans', flags: told(folder, 600_000) }
}

/** 128 positions: a context overflows again and again, into the dead letters or over its window. */
export const gpt2 = (overflow: 'refuse' | 'window', folder: string): CrashFamily => {
  const sizes = { L: 2, H: 4, N: 32, F: 256, V: 256, P: 128 }
  mkdirSync(folder, { recursive: true })
  writePackageTo(folder, gpt2ConfigOf(sizes), safetensors(randomGpt2(5, sizes)))
  return { name: `GPT-2 (${overflow})`, flags: told(folder, 500_000, '--overflow', overflow) }
}
