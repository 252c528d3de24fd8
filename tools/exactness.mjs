// Builds native/bench/exactness.cc on the engine of `npm run setup` and prints the path of the program;
// bench/exactness.ts runs it.
import { join } from 'node:path'
import { root, source } from './addon.mjs'
import { buildNative } from './build-native.mjs'
import { build, configureTests } from './native-tests.mjs'

buildNative()
const folder = configureTests('build-exactness', [`ENGINE=${join(source, 'build')}`], {
  home: join(root, 'tools', 'exactness'),
  units: false,
})
build(folder)
console.log(join(folder, 'continuo_exactness'))
