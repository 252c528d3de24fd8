// Whether the CUDA backend compiles: its kernels with nvcc, and what launches them against CUDA's own headers. Warnings are errors.
// Needs no GPU; what the kernels compute is for test:emulated and test:gpu.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fail, source } from './addon.mjs'
import { cached } from './build-native.mjs'
import { findNvcc, NVCC_HINT } from './cuda.mjs'
import { build, configureTests } from './native-tests.mjs'

const nvcc = findNvcc()
if (nvcc === null) fail(`Compiling the CUDA kernels needs ${NVCC_HINT}; there is none. Install it.`)
process.env.CUDACXX = nvcc.program
const folder = configureTests('build-nvcc', ['CONTINUO_CUDA=on', 'CMAKE_COMPILE_WARNING_AS_ERROR=ON'])
build(folder, ['continuo_cuda'])
// Of the host's sources those alone: the others are no different from any build.
const host = readdirSync(join(source, 'cuda')).filter((name) => name.endsWith('.cc') && name !== 'absent.cc')
const ninja = cached(folder, 'CMAKE_GENERATOR') === 'Ninja'
build(
  folder,
  host.map((name) => (ninja ? `CMakeFiles/continuo.dir/cuda/${name}.o` : `cuda/${name.replace(/\.cc$/, '.o')}`)),
)
console.log(`The CUDA backend compiles with nvcc ${nvcc.release}.`)
