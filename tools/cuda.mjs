// Whether the engine is built with its CUDA backend: what CONTINUO_CUDA asks for, and what is on this machine. Plain JavaScript, as
// build-native.mjs, which asks at every start.
import { spawnSync } from 'node:child_process'
import { readdirSync } from 'node:fs'
import { join } from 'node:path'

const CHOICES = ['auto', 'on', 'off']
/** Of the CUDA Toolkit: nvcc knows C++20 from there on. */
const OLDEST = 12

const ask = (program, args) => {
  const { status, stdout, error } = spawnSync(program, args, { encoding: 'utf8', timeout: 30_000 })
  return error === undefined && status === 0 ? stdout : null
}

/** The first nvcc of where CMake looks for it, and its release; null where none is, or only an older one than is needed. */
export const findNvcc = (env = process.env) => {
  const { CUDACXX, CUDA_PATH } = env
  const programs = CUDACXX ? [CUDACXX] : [...(CUDA_PATH ? [join(CUDA_PATH, 'bin', 'nvcc')] : []), 'nvcc']
  for (const program of programs) {
    const release = /release (\d+\.\d+)/.exec(ask(program, ['--version']) ?? '')?.[1]
    if (release !== undefined && Number.parseInt(release, 10) >= OLDEST) return { program, release }
  }
  return null
}

/** Whether an NVIDIA driver shows a GPU. */
export const hasGpu = () => {
  try {
    if (readdirSync('/proc/driver/nvidia/gpus').length > 0) return true
  } catch {
    // No driver, or a system that shows it elsewhere.
  }
  return (ask('nvidia-smi', ['-L']) ?? '').includes('GPU')
}

/** Where nvcc is to be had, for sentences that miss it. */
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
