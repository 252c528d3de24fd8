// The native tests of the CPU on the library that the addon is linked from: half a minute to build, seconds to run. `npm test` has them.
// Those of CUDA, and all of them under sanitizers, are for test:asan and test:tsan. Arguments go on: a word selects tests by their claims.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { root, source } from './addon.mjs'
import { buildNative } from './build-native.mjs'
import { build, configureTests } from './native-tests.mjs'

buildNative()
const folder = configureTests('build-cpu-tests', [`ENGINE=${join(source, 'build')}`], join(root, 'tools', 'cpu-tests'))
build(folder)
const { status } = spawnSync(join(folder, 'continuo_cpu_tests'), process.argv.slice(2), { stdio: 'inherit' })
process.exitCode = status ?? 1
