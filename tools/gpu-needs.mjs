// What the tools that run on a GPU need.
import { fail } from './addon.mjs'
import { listed } from './build-native.mjs'
import { findNvcc, hasGpu, NVCC_HINT } from './cuda.mjs'

/** Ends the process with a sentence, which `begins` so, where nvcc or a GPU is missing; else has CMake take the nvcc that was found. */
export const needGpu = (begins) => {
  const nvcc = findNvcc()
  const missing = [...(nvcc === null ? [NVCC_HINT] : []), ...(hasGpu() ? [] : ['an NVIDIA GPU with its driver'])]
  if (missing.length > 0) fail(`${begins} ${listed(missing)}; this machine has none.`)
  process.env.CUDACXX = nvcc.program
}
