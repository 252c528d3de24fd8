// Checks for the tools that run on a GPU.
import { fail } from './addon.mjs'
import { listed } from './build-tools.mjs'
import { findNvcc, hasGpu, NVCC_HINT } from './cuda.mjs'

/**
 * Where nvcc or a GPU is missing, ends the process with a sentence that starts with `begins`. Else makes CMake use the
 * nvcc it found.
 */
export const needGpu = (begins) => {
  const nvcc = findNvcc()
  const missing = [...(nvcc === null ? [NVCC_HINT] : []), ...(hasGpu() ? [] : ['an NVIDIA GPU with its driver'])]
  if (missing.length > 0) fail(`${begins} ${listed(missing)}; this machine has none.`)
  process.env.CUDACXX = nvcc.program
}
