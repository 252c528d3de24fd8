// Checks that the CUDA backend compiles: its kernels with nvcc, its host code against CUDA's own headers. Warnings are
// errors. Needs no GPU; test:emulated and test:gpu check what the kernels compute.
import { readdirSync } from 'node:fs'
import { join } from 'node:path'
import { fail, source } from './addon.mjs'
import { cached } from './build-native.mjs'
import { findNvcc, NVCC_HINT } from './cuda.mjs'
import { build, configureTests, endInOtherTurn } from './native-tests.mjs'

await endInOtherTurn(2)

const nvcc = findNvcc()
if (nvcc === null) fail(`Compiling the CUDA kernels needs ${NVCC_HINT}; there is none. Install it.`)
process.env.CUDACXX = nvcc.program
const folder = configureTests('build-nvcc', ['CONTINUO_CUDA=on', 'CMAKE_COMPILE_WARNING_AS_ERROR=ON'], {
  // Single sources are named below.
  units: false,
})
build(folder, ['continuo_cuda'])
// Only sources that call CUDA, also those of the tests and the bench: every other build compiles the rest in the same
// way.
const there = (dir, wanted) =>
  readdirSync(join(source, dir))
    .filter(wanted)
    .map((name) => [dir, name])
const objects = [
  ...there('backends/cuda', (name) => name.endsWith('.cc') && name !== 'absent.cc').map((at) => ['continuo', ...at]),
  ...there('test', (name) => /^cuda_.*\.cc$/.test(name)).map((at) => ['continuo_tests', ...at]),
  ...there('test/cuda', (name) => name.endsWith('.cu')).map((at) => ['continuo_tests', ...at]),
  ['continuo_gpu_bench', 'bench', 'gpu.cc'],
]
const ninja = cached(folder, 'CMAKE_GENERATOR') === 'Ninja'
build(
  folder,
  objects.map(([target, dir, name]) =>
    ninja ? `CMakeFiles/${target}.dir/${dir}/${name}.o` : `${dir}/${name.replace(/\.(cc|cu)$/, '.o')}`,
  ),
)
console.log(`The CUDA backend compiles with nvcc ${nvcc.release}.`)
