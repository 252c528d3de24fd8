/**
 * `npm run setup` and `npm run test:asan`, in a checkout of their own whose compilers and registry are stand-ins.
 *
 * @module-tag slow
 */
import { type ChildProcess, spawn, spawnSync } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, utimesSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { afterEach, beforeEach, describe, expect, test } from 'vitest'
import { eventually } from '../streams/helpers.ts'

const TOOLS = [
  ...[
    'setup.mjs',
    'build-native.mjs',
    'build-progress.mjs',
    'build-tools.mjs',
    'cuda.mjs',
    'addon.mjs',
    'native-tests.mjs',
  ],
  ...['asan.mjs', 'fuzz-readers.mjs', 'nvcc.mjs', 'gpu.mjs', 'gpu-bench.mjs', 'gpu-needs.mjs'],
]
const tools = fileURLToPath(new URL('../../tools/', import.meta.url))
let root = ''
const children: ChildProcess[] = []
const at = (...names: string[]): string => join(root, ...names)
const put = (path: string, text: string): void => {
  mkdirSync(dirname(at(path)), { recursive: true })
  writeFileSync(at(path), text, { mode: 0o755 })
}

/** Tells of each build in builds.txt, and of a second one at the same time. */
const CMAKE_JS = `
import { appendFileSync, mkdirSync, rmSync, writeFileSync } from 'node:fs'
const root = process.cwd()
let word = 'built'
try {
  mkdirSync(root + '/busy')
} catch {
  word = 'at the same time'
}
mkdirSync(root + '/native/build/Release', { recursive: true })
Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0, 100)
writeFileSync(root + '/native/build/Release/continuo.node', '')
appendFileSync(root + '/builds.txt', word + '\\n')
appendFileSync(root + '/cuda.txt', process.argv.find((word) => word.startsWith('--CD')) + ' ' + process.env.CUDACXX + '\\n')
rmSync(root + '/busy', { recursive: true, force: true })
`

beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'continuo-setup-'))
  for (const name of TOOLS) cpSync(join(tools, name), at('tools', name))
  put('package-lock.json', '{}')
  put('native/runtime/scheduler/engine.cc', '// nothing')
  for (const name of ['cmake-js', 'node-addon-api', 'node-api-headers'])
    put(`node_modules/${name}/package.json`, '{ "version": "1.0.0", "type": "module" }')
  put('node_modules/cmake-js/bin/cmake-js', CMAKE_JS)
  for (const name of ['c++', 'make']) put(`bin/${name}`, '#!/bin/sh\n')
  put('bin/cmake', '#!/bin/sh\necho cmake version 3.25.1\n')
})
afterEach(() => {
  for (const child of children.splice(0)) child.kill('SIGKILL')
  rmSync(root, { recursive: true, force: true })
})

const env = (): NodeJS.ProcessEnv => ({ PATH: at('bin') })
const run = (tool: string, more: NodeJS.ProcessEnv = {}) =>
  spawnSync(process.execPath, [at('tools', tool)], {
    cwd: root,
    env: { ...env(), ...more },
    encoding: 'utf8',
    timeout: 30_000,
  })
const start = (command: string, args: readonly string[]) => {
  const child = spawn(command, args, { cwd: root, env: env(), stdio: ['ignore', 'ignore', 'pipe'] })
  children.push(child)
  let said = ''
  child.stderr.setEncoding('utf8').on('data', (text) => {
    said += text
  })
  const ended = new Promise<number | null>((resolve) => child.once('close', resolve))
  return { ended, said: () => said }
}
const builds = (): string => (existsSync(at('builds.txt')) ? readFileSync(at('builds.txt'), 'utf8') : '')

describe('the build of the native engine', () => {
  const LOCK = 'native/building.log'
  const GONE = 2 ** 22 + 1

  test('is not repeated when nothing changed', () => {
    expect(run('build-native.mjs')).toMatchObject({ status: 0, stdout: expect.stringContaining('built in') })
    expect(run('build-native.mjs')).toMatchObject({ status: 0, stdout: expect.stringContaining('up to date') })
    expect(builds()).toBe('built\n')
    expect(existsSync(at(LOCK))).toBe(false)
  })

  test.each([
    [['c++'], 'a C++20 compiler (g++ 12 or clang 15 and later)', 'g++'],
    [['cmake'], 'CMake 3.18 or later', 'cmake'],
    [
      ['c++', 'cmake', 'make'],
      'a C++20 compiler (g++ 12 or clang 15 and later), CMake 3.18 or later and make or ninja',
      'g++ cmake ninja-build',
    ],
  ])('needs tools, and says in one sentence what to install when %s is not there', (gone, needs, packages) => {
    for (const name of gone) rmSync(at('bin', name))
    expect(run('build-native.mjs')).toMatchObject({
      status: 1,
      stdout: '',
      stderr: `The native engine needs ${needs}. Install what is missing, for example: \`apt-get install ${packages}\`, and run \`npm run setup\` again.\n`,
    })
    expect(builds()).toBe('')
  })

  /** Makes the compiler that it is asked to install. */
  const APT = `#!/bin/sh
case "$1" in install) echo "$@" > '$ROOT/apt.txt'; printf '#!/bin/sh\\n' > '$ROOT/bin/c++'; chmod 755 '$ROOT/bin/c++';; esac
`
  test.runIf(process.getuid?.() === 0)('installs a compiler where root has apt-get and does not forbid it', () => {
    rmSync(at('bin/c++'))
    put('bin/apt-get', APT.replaceAll('$ROOT', root))
    put('bin/chmod', '#!/bin/sh\nexec /bin/chmod "$@"\n')
    expect(run('build-native.mjs', { CONTINUO_INSTALL: 'no' })).toMatchObject({ status: 1, stdout: '' })
    expect(existsSync(at('apt.txt'))).toBe(false)
    const { status, stderr } = run('build-native.mjs')
    expect({ status, stderr }).toEqual({
      status: 0,
      stderr: 'There is no C++ compiler: installing g++ with apt-get (CONTINUO_INSTALL=no forbids it) …\n',
    })
    expect(readFileSync(at('apt.txt'), 'utf8')).toMatch(/^install .*g\+\+$/m)
    expect(builds()).toBe('built\n')
  })

  /** Unpacks programs that nobody may run. */
  const NPM = `#!/bin/sh
echo "$@" > '$ROOT/npm.txt'
for name in cmake ninja; do
  mkdir -p node_modules/$name-runtime-linux-x64/bin
  printf '#!/bin/sh\\necho cmake version 4.3.1\\n' > node_modules/$name-runtime-linux-x64/bin/$name
done
`
  test.runIf(process.platform === 'linux' && process.arch === 'x64').each([
    ['no CMake', () => rmSync(at('bin/cmake'))],
    ['an old CMake', () => put('bin/cmake', '#!/bin/sh\necho cmake version 3.16.3\n')],
    ['neither make nor Ninja', () => rmSync(at('bin/make'))],
  ])('takes CMake and Ninja from packages where the system has %s', (_, leave) => {
    leave()
    put('tools/cmake/package.json', '{}')
    put('bin/npm', NPM.replaceAll('$ROOT', root))
    put('bin/mkdir', '#!/bin/sh\nexec /bin/mkdir "$@"\n')
    const { status, stderr } = run('build-native.mjs')
    expect({ status, stderr }).toEqual({
      status: 0,
      stderr: 'There is no CMake of 3.18 or later with Ninja or make: installing the packages of CMake and Ninja …\n',
    })
    expect(readFileSync(at('npm.txt'), 'utf8')).toMatch(/^ci /)
    expect(builds()).toBe('built\n')
  })

  test.runIf(process.arch === 'x64')('is repeated for an instruction set that it lacks, and says so', () => {
    expect(run('build-native.mjs').status).toBe(0)
    writeFileSync(at('native/build/.sets'), '')
    expect(run('build-native.mjs', { CONTINUO_ISA: 'all' })).toMatchObject({
      status: 0,
      stderr: 'The native engine has no kernels for avx512vnni, avx512 and avx2; it is built again with them.\n',
    })
    expect(run('build-native.mjs', { CONTINUO_ISA: 'avx2' })).toMatchObject({
      status: 0,
      stdout: expect.stringContaining('up to date'),
    })
    expect(readFileSync(at('native/build/.sets'), 'utf8')).toBe('avx512vnni avx512 avx2')
  })

  test('waits for another one, and says after a while for whom, and what to do if nobody is there', async () => {
    put(LOCK, String(process.pid))
    const { ended, said } = start(process.execPath, [at('tools/build-native.mjs')])
    const sentence = `Waiting for process ${process.pid}, which builds the native engine. If no build is under way, delete ${LOCK}.\n`
    await eventually(() => expect(said()).toBe(sentence))
    rmSync(at(LOCK))
    expect(await ended).toBe(0)
    expect(said()).toBe(sentence)
    expect(builds()).toBe('built\n')
  })

  test('does not wait for a process that is gone', () => {
    put(LOCK, String(GONE))
    expect(run('build-native.mjs').status).toBe(0)
  })

  test('does not wait for itself: a former build had the same process id', async () => {
    const script = `printf $$ > ${LOCK}; exec '${process.execPath}' tools/build-native.mjs`
    expect(await start('/bin/sh', ['-c', script]).ended).toBe(0)
    expect(builds()).toBe('built\n')
  })

  test('does not wait for whoever has the id of a process that began half an hour ago', () => {
    put(LOCK, String(process.pid))
    const then = new Date(Date.now() - 31 * 60_000)
    utimesSync(at(LOCK), then, then)
    expect(run('build-native.mjs').status).toBe(0)
    expect(existsSync(at(LOCK))).toBe(false)
  })

  test('is done once by many who find the lock of one that is gone', async () => {
    put(LOCK, String(GONE))
    const all = Array.from({ length: 12 }, () => start(process.execPath, [at('tools/build-native.mjs')]))
    expect(await Promise.all(all.map(({ ended }) => ended))).toEqual(all.map(() => 0))
    expect(builds()).toBe('built\n')
  })
})

describe('CUDA in the build of the native engine', () => {
  const NVCC = '#!/bin/sh\necho "Cuda compilation tools, release $RELEASE, V1"\n'
  const passed = (): readonly string[] => readFileSync(at('cuda.txt'), 'utf8').trimEnd().split('\n')
  const nvcc = (release: string): void => put('bin/nvcc', NVCC.replace('$RELEASE', release))
  const build = (wanted: string): string => {
    const { status, stdout, stderr } = run('build-native.mjs', { CONTINUO_CUDA: wanted })
    expect({ status, stderr }).toEqual({ status: 0, stderr: '' })
    return stdout
  }

  test('is what CONTINUO_CUDA says, and another wish builds anew, in an empty folder', () => {
    nvcc('12.9')
    expect(build('on')).toMatch(/^native engine: built with CUDA 12\.9 in \d+ s$/m)
    expect(build('on')).toContain('up to date')
    put('native/build/CMakeCache.txt', `CMAKE_HOME_DIRECTORY:INTERNAL=${at('native')}\n`)
    put('native/backends/cuda/kernels/run.cu', '// a kernel')
    expect(build('on')).toContain('built with')
    expect(existsSync(at('native/build/CMakeCache.txt'))).toBe(true)
    nvcc('13.0')
    expect(build('on')).toContain('built with CUDA 13.0')
    expect(existsSync(at('native/build/CMakeCache.txt'))).toBe(false)
    put('native/build/CMakeCache.txt', `CMAKE_HOME_DIRECTORY:INTERNAL=${at('native')}\n`)
    expect(build('off')).toMatch(/^native engine: built in/)
    expect(existsSync(at('native/build/CMakeCache.txt'))).toBe(false)
    const on = '--CDCONTINUO_CUDA=on nvcc'
    expect(passed()).toEqual([on, on, on, '--CDCONTINUO_CUDA=off undefined'])
  })

  test('is there by itself where both nvcc and a GPU are', () => {
    put('bin/nvidia-smi', '#!/bin/sh\necho "GPU 0: NVIDIA H200"\n')
    build('auto')
    nvcc('11.8')
    expect(build('')).toContain('up to date')
    nvcc('13.0')
    expect(build('auto')).toContain('built with CUDA 13.0')
    rmSync(at('bin/nvcc'))
    expect(build('auto')).not.toContain('CUDA')
    expect(passed().map((line) => line.split(' ')[0]!.split('=')[1])).toEqual(['off', 'on', 'off'])
  })

  test.each([
    ['yes', 'CONTINUO_CUDA is "yes", expected auto, on or off.'],
    ['emulate', 'CONTINUO_CUDA is "emulate", expected auto, on or off.'],
    [
      'on',
      'CONTINUO_CUDA is "on", but there is no nvcc of the CUDA Toolkit 12 or later, in PATH or named by CUDACXX. Install it, or leave CONTINUO_CUDA out: the CPU gives the same bits.',
    ],
  ])('cannot be "%s" where that means nothing, or nothing is there for it', (wanted, sentence) => {
    nvcc('11.8')
    expect(run('build-native.mjs', { CONTINUO_CUDA: wanted })).toMatchObject({
      status: 1,
      stdout: '',
      stderr: `${sentence}\n`,
    })
    expect(builds()).toBe('')
  })
})

describe('what runs on a GPU, or is compiled for one', () => {
  const NEEDED = 'nvcc of the CUDA Toolkit 12 or later, in PATH or named by CUDACXX'

  test.each([
    ['gpu.mjs', 'The suites of a GPU need'],
    ['gpu-bench.mjs', 'Measuring a GPU needs'],
    ['nvcc.mjs', 'Compiling the CUDA kernels needs'],
  ])('%s ends with 1 and a sentence where there is no nvcc, having built nothing', (tool, begins) => {
    const { status, stdout, stderr } = run(tool)
    expect({ status, stdout }).toEqual({ status: 1, stdout: '' })
    expect(stderr).toMatch(new RegExp(`^${begins} ${NEEDED}.+none.*\\.\n$`))
    expect(existsSync(at('native/build-gpu'))).toBe(false)
  })
})

describe('what a broker needs', () => {
  const needs = (more: NodeJS.ProcessEnv = {}) => run('kafka/needs.mjs', more)
  beforeEach(() => {
    cpSync(join(tools, 'kafka/needs.mjs'), at('tools/kafka/needs.mjs'))
    put('bin/apt-get', `#!/bin/sh\necho "$@" >> '${at('apt.txt')}'\n`)
  })
  const asked = (): string => (existsSync(at('apt.txt')) ? readFileSync(at('apt.txt'), 'utf8') : '')

  test.runIf(process.getuid?.() === 0)(
    'is installed where root may, only what is missing, and after a sentence',
    () => {
      put('bin/java', '#!/bin/sh\n')
      expect(needs().stderr).toMatch(/: installing maven with apt-get \(CONTINUO_INSTALL=no forbids it\) …\n$/)
      expect(asked()).toMatch(/^install .* maven$/m)
      expect(asked()).not.toContain('jre')
    },
  )

  test('is not installed where that is forbidden, or where nothing is missing', () => {
    expect(needs({ CONTINUO_INSTALL: 'no' })).toMatchObject({ status: 0, stderr: '' })
    for (const name of ['java', 'mvn']) put(`bin/${name}`, '#!/bin/sh\n')
    expect(needs()).toMatchObject({ status: 0, stderr: '' })
    expect(asked()).toBe('')
  })
})

describe('setup', () => {
  /** Installs a Node that needs a loader this system does not have, as glibc's is not on musl. */
  const FOREIGN = `#!/bin/sh
echo "$@" > '$ROOT/npm.txt'
echo '#!/nowhere/ld-linux.so' > '$ROOT/node_modules/.bin/node'
`
  test("installs the project's own Node whatever npm is told to omit, and says so when it does not start", () => {
    mkdirSync(at('node_modules/.bin'))
    put('node_modules/.bin/node', '')
    put('bin/npm', FOREIGN.replaceAll('$ROOT', root))
    const { status, stderr } = run('setup.mjs')
    expect(readFileSync(at('npm.txt'), 'utf8')).toMatch(/^ci .*--include=dev/)
    expect(status).toBe(1)
    for (const part of [at('node_modules/.bin/node'), 'ENOENT', 'musl', 'try again']) expect(stderr).toContain(part)
  })
})

describe('setup after npm install', () => {
  const entry = (version: string) => ({ version, integrity: `sha512-${version}` })
  const lock = (packages: object): string => JSON.stringify({ packages: { '': { name: 'continuo' }, ...packages } })
  /** What setup called npm with: null if it did not. */
  const asked = (installed: object | null): string | null => {
    put(
      'package-lock.json',
      lock({ 'node_modules/a': entry('1.0.0'), 'node_modules/b': { ...entry('2.0.0'), optional: true } }),
    )
    put('node_modules/.bin/node', '#!/bin/sh\n')
    put('bin/npm', `#!/bin/sh\necho "$@" > '${at('npm.txt')}'\n`)
    if (installed !== null) put('node_modules/.package-lock.json', JSON.stringify({ packages: installed }))
    expect(run('setup.mjs').status).toBe(0)
    return existsSync(at('npm.txt')) ? readFileSync(at('npm.txt'), 'utf8') : null
  }

  test('takes what is there where it is what the lock file says, but for what is optional', () => {
    expect(asked({ 'node_modules/a': entry('1.0.0') })).toBeNull()
  })

  test.each<[string, object | null]>([
    ['nothing says what is there', null],
    ['a package is missing', { 'node_modules/b': entry('2.0.0') }],
    ['a package has another version', { 'node_modules/a': entry('1.0.1') }],
    ['a package has other bytes', { 'node_modules/a': { ...entry('1.0.0'), integrity: 'sha512-x' } }],
    [
      'a package is there that nobody asked for',
      { 'node_modules/a': entry('1.0.0'), 'node_modules/c': entry('1.0.0') },
    ],
  ])('installs where %s', (_, installed) => {
    expect(asked(installed)).toMatch(/^ci /)
  })
})

describe('the native tests', () => {
  const CMAKE = `#!/bin/sh
case $1 in
  --version) echo cmake version 4.3.1 ;;
  --build) echo '#!/bin/sh' > '$ROOT/native/build-asan/continuo_tests' ;;
  *) echo "$@" > '$ROOT/cmake.txt' ;;
esac
`
  const configured = (): string => readFileSync(at('cmake.txt'), 'utf8')
  const cache = (home: string, generator: string): void =>
    put(
      'native/build-asan/CMakeCache.txt',
      `CMAKE_GENERATOR:INTERNAL=${generator}\nCMAKE_HOME_DIRECTORY:INTERNAL=${home}\n`,
    )
  beforeEach(() => {
    put('bin/cmake', CMAKE.replaceAll('$ROOT', root))
    put('native/build-asan/continuo_tests', '#!/bin/sh\n')
  })

  test('are built with ninja, or with make where there is no ninja, and anew where that changes', () => {
    cache(at('native'), 'Unix Makefiles')
    run('asan.mjs')
    expect(configured()).toMatch(/^-G Unix Makefiles -S/)
    expect(existsSync(at('native/build-asan/CMakeCache.txt'))).toBe(true)
    put('bin/ninja', '#!/bin/sh\n')
    run('asan.mjs')
    expect(configured()).toMatch(/^-G Ninja -S/)
    expect(existsSync(at('native/build-asan/CMakeCache.txt'))).toBe(false)
  })

  test('are built anew in a checkout that was moved', () => {
    cache('/elsewhere/native', 'Unix Makefiles')
    run('asan.mjs')
    expect(existsSync(at('native/build-asan/CMakeCache.txt'))).toBe(false)
  })
})
