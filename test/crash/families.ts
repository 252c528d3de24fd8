/** A small model of every family for the crash suites, and what its workers are told. */
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { writeTitans } from '../../bench/titans-package.ts'
import { safetensors, temporaryFolder, writePackage } from '../engine/packages.ts'
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

export const rwkv7: CrashFamily = {
  name: 'RWKV-7',
  flags: told(fileURLToPath(new URL('../../models/demo', import.meta.url)), 700_000),
}

/** Segments, levels that mostly stand still, and momentum; tokens are bytes. */
export const titans = async (): Promise<CrashFamily> => {
  const folder = join(temporaryFolder(), 'titans')
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
export const gpt2 = (overflow: 'refuse' | 'window'): CrashFamily => {
  const sizes = { L: 2, H: 4, N: 32, F: 256, V: 256, P: 128 }
  const folder = writePackage(gpt2ConfigOf(sizes), safetensors(randomGpt2(5, sizes)))
  return { name: `GPT-2 (${overflow})`, flags: told(folder, 500_000, '--overflow', overflow) }
}
