/**
 * GPT-2 on our side. The package is opened as any other; as long as the engine has no family for it, that is refused and
 * only llama.cpp's half is timed. A model that is put together through the engine's graph API instead enters here:
 * whatever gives a `Model` for the package in `dir` is a side of the bench.
 */
import { openModel } from '../../src/models/open.ts'
import { sideOf } from './ours.ts'
import type { Side } from './side.ts'

export const openGpt2 = async (dir: string, threads: number, sessions: number): Promise<Side> =>
  sideOf(await openModel(dir, { threads }), sessions)
