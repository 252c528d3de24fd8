/** Models on both devices in one process. */
import { cudaStatus } from '../../src/engine/inspect.ts'
import type { DeviceKind, OpenModelOptions } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import { open } from '../engine/helpers.ts'
import type { Pair } from './readings.ts'

/** Kernels that run on the CPU take a thousand times as long. */
export const { emulated } = cudaStatus()

/** The model on both devices; they close with the test. */
export const openBoth = async (dir: string, options: OpenModelOptions = {}): Promise<Pair> => {
  const quiet = { keepPacked: false, warn: () => undefined }
  const on = (device: DeviceKind): Promise<Model> => open(dir, { threads: 2, ...quiet, ...options, device })
  return { cpu: await on('cpu'), cuda: await on('cuda') }
}
