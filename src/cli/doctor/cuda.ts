/** Checks of CUDA in this build of the engine and on this machine. */
import type { CudaStatus } from '../../engine/native.ts'
import { SETUP } from '../../places.ts'
import { bytes } from '../output.ts'
import { type Check, ok, warn } from './check.ts'

/** 13.0 of 13000. */
export const versionOf = (number: number): string => `${Math.floor(number / 1000)}.${Math.floor((number % 1000) / 10)}`

const capital = (text: string): string => text.slice(0, 1).toUpperCase() + text.slice(1)

/** The engine's reason in its two halves: what is wrong, and what to do. */
const halvesOf = (reason: string): readonly [string, string] => {
  const [at, length] = reason.includes('. ') ? [reason.indexOf('. '), 2] : [reason.indexOf(': '), 2]
  return [reason.slice(0, at), capital(reason.slice(at + length))]
}

/** `gpus`: what nvidia-smi lists; null where there is no such program, or no device. */
export const checkCuda = (status: CudaStatus, gpus: string | null): Check => {
  const { built, emulated, reason, name, capability, total, free, driver, runtime } = status
  if (!built) {
    if (gpus === null) return ok('cuda', 'none; the engine runs on the CPU')
    return warn(
      'cuda',
      `${gpus}, and this build of the engine has no CUDA backend; it runs on the CPU`,
      `Install nvcc (CUDA Toolkit 12 or later) and run ${SETUP} again; CONTINUO_CUDA=on makes that build fail, with a reason, instead of leaving CUDA out.`,
    )
  }
  if (reason !== '') {
    const [wrong, remedy] = halvesOf(reason)
    return warn('cuda', `${wrong}; the engine runs on the CPU`, remedy)
  }
  const what = `${name}, compute capability ${capability}, ${bytes(free)} free of ${bytes(total)}`
  if (emulated) return ok('cuda', `${what}: runs on the CPU, for tests; --device cuda takes it, auto does not`)
  return ok('cuda', `${what}; the driver speaks CUDA ${versionOf(driver)}, built with ${versionOf(runtime)}`)
}
