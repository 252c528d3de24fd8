// Builds the engine's native tests with CMake, in a build folder of their own, and runs them.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { rmSync } from 'node:fs'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { fail, root, source } from './addon.mjs'
import {
  buildDefinitions,
  buildEnvironment,
  cached,
  dropForeignBuild,
  listed,
  missingTools,
  runs,
} from './build-native.mjs'

/** Runs a command without output. On failure prints its output and ends the process. */
const step = (command, args) => {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    env: buildEnvironment(),
  })
  if (status !== 0) fail(`${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}`)
}

/** `definitions` of CMake, NAME=value; `home`: the folder of CMakeLists.txt; `units`: as for `buildDefinitions`. Returns the build folder; ends the process on failure. */
export const configureTests = (folder, definitions, { home = source, units = true } = {}) => {
  const build = join(source, folder)
  const missing = missingTools()
  if (missing.length > 0)
    fail(
      `The native tests need ${listed(missing)}. Install what is missing, for example: \`apt-get install g++ cmake make\`.`,
    )
  dropForeignBuild(build, home)
  // Without a generator CMake chooses make, even where only ninja is installed. A build folder keeps its first generator.
  const generator = runs('make') ? [] : ['-G', 'Ninja']
  if (generator.length > 0 && cached(build, 'CMAKE_GENERATOR') !== 'Ninja')
    rmSync(build, { recursive: true, force: true })
  const defined = ['CMAKE_BUILD_TYPE=Release', 'CONTINUO_TESTS=ON', ...buildDefinitions({ units }), ...definitions].map(
    (one) => `-D${one}`,
  )
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

const SUMMARY = /^(?<ran>\d+) native tests, (?<failed>\d+) failed\n/m

/** Runs a part of the tests in a process, and prints the output of the process when it has ended. */
const runPart = async (program, args, env) => {
  const child = spawn(program, args, { stdio: ['ignore', 'pipe', 'pipe'], env: { ...process.env, ...env } })
  let out = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text) => {
      out += text
    })
  const [status, signal] = await once(child, 'close')
  const { ran = 0, failed = 0 } = SUMMARY.exec(out)?.groups ?? {}
  process.stdout.write(out.replace(SUMMARY, ''))
  if (signal !== null) console.error(`${[program, ...args].join(' ')} was ended by ${signal}.`)
  return { ran: Number(ran), failed: Number(failed), good: status === 0 }
}

/** Runs the tests whose claims have `word`, in as many processes as there are cores. Returns the exit code. */
export const runTests = async (program, { word = '', env = {} } = {}) => {
  const parts = Math.min(availableParallelism(), 8)
  const ends = await Promise.all(
    Array.from({ length: parts }, (_, at) => runPart(program, ['--part', `${at + 1}/${parts}`, word], env)),
  )
  const sum = (field) => ends.reduce((all, end) => all + end[field], 0)
  console.log(`${sum('ran')} native tests, ${sum('failed')} failed`)
  return ends.every(({ good }) => good) ? 0 : 1
}
