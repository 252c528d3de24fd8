// Cross-compiles the engine and its native tests for arm64, runs them under emulation, and compares the bits of every
// operation with those of this machine. `--optional`: succeeds where the tools for it are missing.
import { spawnSync } from 'node:child_process'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { dropForeignBuild } from './build-native.mjs'
import { buildEnvironment, listed, missingTools, runs } from './build-tools.mjs'

const source = join(dirname(dirname(fileURLToPath(import.meta.url))), 'native')
const compiler = 'aarch64-linux-gnu-g++'
const emulator = ['qemu-aarch64-static', 'qemu-aarch64'].find(runs)

const missing = missingTools()
if (!runs(compiler)) missing.push(compiler)
if (!emulator) missing.push('qemu-aarch64')
if (missing.length > 0) {
  console.error(
    `The arm64 tests need ${listed(missing)}. Install what is missing, for example: \`apt-get install g++ cmake make g++-aarch64-linux-gnu qemu-user-static\`.`,
  )
  process.exit(process.argv.includes('--optional') ? 0 : 1)
}

/** Runs quietly and returns what the command printed; on failure prints it and ends. */
const step = (command, args) => {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    env: buildEnvironment(),
  })
  if (status === 0) return stdout
  console.error(`${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}`)
  process.exit(status ?? 1)
}

/** Builds the native tests in native/build-<name>; returns the path of the program. */
const build = (name, options) => {
  const folder = join(source, `build-${name}`)
  dropForeignBuild(folder, source)
  const generator = runs('ninja') ? 'Ninja' : 'Unix Makefiles'
  step('cmake', [
    '-G',
    generator,
    '-S',
    source,
    '-B',
    folder,
    '-DCMAKE_BUILD_TYPE=Release',
    '-DCONTINUO_TESTS=ON',
    '-DCONTINUO_CUDA=off',
    ...options,
  ])
  step('cmake', ['--build', folder, '--parallel', String(availableParallelism())])
  return join(folder, 'continuo_tests')
}

const bitsOf = (output) => /^ +bits ([0-9a-f]{32})$/m.exec(output)?.[1] ?? 'none'

// Static, so that the emulator needs no libraries of the other architecture.
const foreign = build('arm64', [
  '-DCMAKE_SYSTEM_NAME=Linux',
  '-DCMAKE_SYSTEM_PROCESSOR=aarch64',
  `-DCMAKE_CXX_COMPILER=${compiler}`,
  '-DCMAKE_EXE_LINKER_FLAGS=-static',
])
const output = step(emulator, [foreign])
process.stdout.write(output)
const here = bitsOf(step(build('host', []), []))
const there = bitsOf(output)
if (here !== there || here === 'none') {
  console.error(
    `The bits on arm64 are ${there}, on ${process.arch} ${here}: expected equal ones. An operation depends on the architecture.`,
  )
  process.exit(1)
}
console.log(`the same bits on arm64 and ${process.arch}: ${here}`)
