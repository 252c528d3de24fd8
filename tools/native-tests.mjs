// Builds the engine's native tests with CMake, in a folder of their own.
import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { fail, root, source } from './addon.mjs'
import { cached, dropForeignBuild, listed, missingTools, runs } from './build-native.mjs'

/** Runs quietly; on failure prints what the command said and ends. */
const step = (command, args) => {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 28 })
  if (status !== 0) fail(`${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}`)
}

/** `definitions`: of CMake, NAME=value; `home`: where its CMakeLists.txt lies. Returns the build folder; ends the process on failure. */
export const configureTests = (folder, definitions, home = source) => {
  const build = join(source, folder)
  const missing = missingTools()
  if (missing.length > 0)
    fail(
      `The native tests need ${listed(missing)}. Install what is missing, for example: \`apt-get install g++ cmake make\`.`,
    )
  dropForeignBuild(build, home)
  // CMake's own choice is make, whether it is there or not, and a folder stays with the choice it was made with.
  const generator = runs('make') ? [] : ['-G', 'Ninja']
  if (generator.length > 0 && cached(build, 'CMAKE_GENERATOR') !== 'Ninja')
    rmSync(build, { recursive: true, force: true })
  const defined = ['CMAKE_BUILD_TYPE=Release', 'CONTINUO_TESTS=ON', ...definitions].map((one) => `-D${one}`)
  step('cmake', [...generator, '-S', home, '-B', build, ...defined])
  return build
}

/** The native tests and the addon with AddressSanitizer and UndefinedBehaviorSanitizer, in one folder: they share the engine. */
export const configureSanitized = () => {
  const headers = [join('node-api-headers', 'include'), 'node-addon-api'].map((name) =>
    join(root, 'node_modules', name),
  )
  return configureTests('build-asan', [
    'CONTINUO_SANITIZE=address',
    'CONTINUO_CUDA=off',
    `CMAKE_JS_INC=${headers.join(';')}`,
  ])
}

/** All targets where none are named. */
export const build = (folder, targets = []) => {
  const named = targets.length > 0 ? ['--target', ...targets] : []
  step('cmake', ['--build', folder, '--parallel', String(availableParallelism()), ...named])
}
