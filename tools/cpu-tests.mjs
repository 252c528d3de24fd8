// The native tests of the CPU on the library that the addon is linked from: half a minute to build, and as long to run.
// `npm test` runs them. test:asan runs all native tests, those of CUDA included, and test:tsan those with several
// threads. An argument selects tests by claim.
import { join } from 'node:path'
import { root, source } from './addon.mjs'
import { buildNative, editing } from './build-native.mjs'
import { build, configureTests, runTests } from './native-tests.mjs'

buildNative()
const folder = configureTests('build-cpu-tests', [`ENGINE=${join(source, 'build')}`], {
  home: join(root, 'tools', 'cpu-tests'),
  units: !editing(),
})
build(folder)
process.exitCode = await runTests(join(folder, 'continuo_cpu_tests'), { word: process.argv[2] })
