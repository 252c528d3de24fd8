// Builds the engine and its native tests with AddressSanitizer and UndefinedBehaviorSanitizer and runs them.
import { spawnSync } from 'node:child_process'
import { rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { cached, dropForeignBuild, listed, missingTools, runs } from './build-native.mjs'

const source = join(dirname(dirname(fileURLToPath(import.meta.url))), 'native')
const build = join(source, 'build-asan')

/** Runs quietly; on failure prints what the command said and ends. */
const step = (command, args) => {
  const { status, stdout, stderr, error } = spawnSync(command, args, { encoding: 'utf8', maxBuffer: 1 << 28 })
  if (status === 0) return
  console.error(`${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}`)
  process.exit(status ?? 1)
}

const missing = missingTools()
if (missing.length > 0) {
  console.error(
    `The native tests need ${listed(missing)}. Install what is missing, for example: \`apt-get install g++ cmake make\`.`,
  )
  process.exit(1)
}
dropForeignBuild(build, source)
// CMake's own choice is make, whether it is there or not, and a folder stays with the choice it was made with.
const generator = runs('make') ? [] : ['-G', 'Ninja']
if (generator.length > 0 && cached(build, 'CMAKE_GENERATOR') !== 'Ninja')
  rmSync(build, { recursive: true, force: true })
step('cmake', [
  ...generator,
  '-S',
  source,
  '-B',
  build,
  '-DCMAKE_BUILD_TYPE=Release',
  '-DCONTINUO_TESTS=ON',
  '-DCONTINUO_SANITIZE=ON',
])
step('cmake', ['--build', build, '--parallel', String(availableParallelism())])
const { status } = spawnSync(join(build, 'continuo_tests'), [], {
  stdio: 'inherit',
  env: {
    ...process.env,
    ASAN_OPTIONS: 'detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1',
    UBSAN_OPTIONS: 'print_stacktrace=1',
  },
})
process.exitCode = status ?? 1
