// Builds native/bench/gpu.cc for the GPU of this machine and prints the path of the program; bench/gpu.ts runs it.
import { join } from 'node:path'
import { needGpu } from './gpu-needs.mjs'
import { build, configureTests } from './native-tests.mjs'

needGpu('Measuring a GPU needs')
const folder = configureTests('build-gpu', ['CONTINUO_CUDA=on'])
build(folder, ['continuo_gpu_bench'])
console.log(join(folder, 'continuo_gpu_bench'))
