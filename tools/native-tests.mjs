// Builds the engine's native tests with CMake, in a build folder of their own, and runs them.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { fail, root, source } from './addon.mjs'
import { dropForeignBuild } from './build-native.mjs'
import {
  buildDefinitions,
  buildEnvironment,
  machineSets,
  missingSentence,
  missingTools,
  runs,
  setsDefinition,
} from './build-tools.mjs'

/** Runs a command without output. On failure prints its output and ends the process. */
const step = (command, args) => {
  const { status, stdout, stderr, error } = spawnSync(command, args, {
    encoding: 'utf8',
    maxBuffer: 1 << 28,
    env: buildEnvironment(),
  })
  if (status !== 0) fail(`${stdout ?? ''}${stderr ?? ''}${error?.message ?? ''}`)
}

/**
 * `definitions` of CMake, NAME=value; `home`: the folder of CMakeLists.txt; `units`: as for `buildDefinitions`. Returns
 * the build folder; ends the process on failure.
 */
export const configureTests = (folder, definitions, { home = source, units = true } = {}) => {
  const build = join(source, folder)
  const missing = missingTools()
  if (missing.length > 0) fail(`${missingSentence('The native tests need', missing)}.`)
  dropForeignBuild(build, home)
  const generator = ['-G', runs('ninja') ? 'Ninja' : 'Unix Makefiles']
  const defined = ['CMAKE_BUILD_TYPE=Release', 'CONTINUO_TESTS=ON', ...buildDefinitions({ units }), ...definitions].map(
    (one) => `-D${one}`,
  )
  step('cmake', [...generator, '-S', home, '-B', build, ...defined])
  return build
}

/**
 * The native tests and the addon with AddressSanitizer and UndefinedBehaviorSanitizer, in one folder: they share the
 * engine. With the kernels of this machine's widest set, and those of avx2, whose vectors end elsewhere; the other sets
 * have the same sources and a minute of compiling each.
 */
export const configureSanitized = () => {
  const sets = process.arch === 'x64' ? [...new Set([...machineSets(), 'avx2'])] : []
  const headers = [join('node-api-headers', 'include'), 'node-addon-api'].map((name) =>
    join(root, 'node_modules', name),
  )
  return configureTests('build-asan', [
    'CONTINUO_SANITIZE=address',
    'CONTINUO_CUDA=off',
    setsDefinition(sets),
    `CMAKE_JS_INC=${headers.join(';')}`,
  ])
}

/** Ends the process where `.ci/run` leaves the step to another turn (turns.ts). `below`: NATIVE or ENGINE there. */
export const endInOtherTurn = async (turn, below = 'NATIVE') => {
  if (process.env.CONTINUO_TURNS !== 'on') return
  const { isOtherTurn, ...paths } = await import('./turns.ts')
  if (isOtherTurn(turn, paths[below])) process.exit()
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
