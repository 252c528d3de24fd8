/** RWKV-7 on our side. */
import { openModel } from '../../src/models/open.ts'
import { sideOf } from './ours.ts'
import type { Side } from './side.ts'

export const openRwkv7 = async (dir: string, threads: number, sessions: number): Promise<Side> =>
  sideOf(await openModel(dir, { threads }), sessions)
