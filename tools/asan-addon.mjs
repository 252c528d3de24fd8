// The native boundary under sanitizers: builds the addon with AddressSanitizer and UndefinedBehaviorSanitizer and runs the engine's
// suites (hostile files, misuse, teardown of workers, arithmetic) in a Node that carries them.
//
// Leaks are not looked for here, since Node itself lets go of much at its end; the native tests (asan.mjs) look for them.
import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { dirname, isAbsolute, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { dropForeignBuild } from './build-native.mjs'

const root = dirname(dirname(fileURLToPath(import.meta.url)))
const source = join(root, 'native')
const build = join(source, 'build-asan-addon')
const require = createRequire(join(root, 'package.json'))
const fail = (sentence) => {
  console.error(sentence)
  process.exit(1)
}

/** A library of the compiler; a bare name comes back when it has none. */
const library = (name) => {
  const { stdout } = spawnSync(process.env.CXX ?? 'c++', [`-print-file-name=${name}`], { encoding: 'utf8' })
  const path = (stdout ?? '').trim()
  if (!isAbsolute(path))
    fail(
      `The sanitized addon needs GCC's ${name}, and ${process.env.CXX ?? 'c++'} has none. Install g++, or set CXX to it.`,
    )
  return path
}

if (process.platform !== 'linux') fail('The sanitized addon is preloaded into Node by LD_PRELOAD, which needs Linux.')
const preload = ['libasan.so', 'libubsan.so'].map(library).join(' ')
dropForeignBuild(build, source)
const cmakeJs = join(dirname(require.resolve('cmake-js/package.json')), 'bin', 'cmake-js')
const target = ['build', '--directory', source, '--out', build, '--config', 'Release', '--CDCONTINUO_SANITIZE=ON']
const built = spawnSync(process.execPath, [cmakeJs, ...target, '--parallel', String(availableParallelism())], {
  cwd: root,
  encoding: 'utf8',
  maxBuffer: 1 << 28,
})
if (built.status !== 0) fail(`${built.stdout ?? ''}${built.stderr ?? ''}\nBuilding the sanitized addon failed.`)

const vitest = join(dirname(require.resolve('vitest/package.json')), 'vitest.mjs')
const { status } = spawnSync(process.execPath, [vitest, 'run', '--config', 'tools/asan.vitest.ts'], {
  cwd: root,
  stdio: 'inherit',
  env: {
    ...process.env,
    LD_PRELOAD: preload,
    CONTINUO_ADDON: join(build, 'Release', 'continuo.node'),
    ASAN_OPTIONS: 'detect_leaks=0:detect_stack_use_after_return=1:strict_string_checks=1',
    UBSAN_OPTIONS: 'print_stacktrace=1',
  },
})
process.exitCode = status ?? 1
