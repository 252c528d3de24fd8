// Decides whether the engine is built with its CUDA backend, from CONTINUO_CUDA and from what is installed on this
// machine. Plain JavaScript like build-native.mjs, which imports it.
import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'

const CHOICES = ['auto', 'on', 'off']
/** The oldest release of the CUDA Toolkit whose nvcc compiles C++20. */
const OLDEST = 12

const ask = (program, args) => {
  const { status, stdout, error } = spawnSync(program, args, { encoding: 'utf8', timeout: 30_000 })
  return error === undefined && status === 0 ? stdout : null
}

/**
 * The first nvcc in the places where CMake looks for it, and its release; null where there is none, or only one that is
 * too old.
 */
export const findNvcc = (env = process.env) => {
  const { CUDACXX, CUDA_PATH } = env
  const programs = CUDACXX ? [CUDACXX] : [...(CUDA_PATH ? [join(CUDA_PATH, 'bin', 'nvcc')] : []), 'nvcc']
  for (const program of programs) {
    const release = /release (\d+\.\d+)/.exec(ask(program, ['--version']) ?? '')?.[1]
    if (release !== undefined && Number.parseInt(release, 10) >= OLDEST) return { program, release }
  }
  return null
}

/** Whether an NVIDIA driver lists a GPU. */
export const hasGpu = () => {
  try {
    if (readdirSync('/proc/driver/nvidia/gpus').length > 0) return true
  } catch {
    // There is no driver, or this system lists GPUs elsewhere.
  }
  return (ask('nvidia-smi', ['-L']) ?? '').includes('GPU')
}

/** How to get nvcc, for messages. */
export const NVCC_HINT = `nvcc of the CUDA Toolkit ${OLDEST} or later, in PATH or named by CUDACXX`

/** { mode: on | off, nvcc } for a build of the addon. Throws an Error whose message says what to do. */
export const chooseCuda = (env = process.env) => {
  const wanted = env.CONTINUO_CUDA || 'auto'
  if (!CHOICES.includes(wanted)) throw new Error(`CONTINUO_CUDA is "${wanted}", expected auto, on or off.`)
  if (wanted === 'off') return { mode: 'off', nvcc: null }
  const nvcc = findNvcc(env)
  if (wanted === 'on' && nvcc === null)
    throw new Error(
      `CONTINUO_CUDA is "on", but there is no ${NVCC_HINT}. Install it, or leave CONTINUO_CUDA out: the CPU gives the same bits.`,
    )
  if (nvcc !== null && (wanted === 'on' || hasGpu())) return { mode: 'on', nvcc }
  return { mode: 'off', nvcc: null }
}
