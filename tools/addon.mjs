// Builds the addon with other definitions than npm run setup, in a build folder of its own, and runs TypeScript suites
// on it.
import { spawnSync } from 'node:child_process'
import { createRequire } from 'node:module'
import { availableParallelism } from 'node:os'
import { dirname, join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { dropForeignBuild } from './build-native.mjs'
import { buildDefinitions, buildEnvironment } from './build-tools.mjs'

export const root = dirname(dirname(fileURLToPath(import.meta.url)))
export const source = join(root, 'native')
const require = createRequire(join(root, 'package.json'))
/** The project's own Node. A tool that is started by hand runs in the machine's Node, which may not run TypeScript. */
export const node = join(root, 'node_modules', '.bin', 'node')

/** Prints the sentence and ends the process with 1. */
export const fail = (sentence) => {
  console.error(sentence)
  process.exit(1)
}

/**
 * `definitions` of CMake, NAME=value; always the same for one folder. Returns the path of the addon; ends the process
 * on failure.
 */
export const buildAddon = (folder, definitions, what) => {
  const build = join(source, folder)
  dropForeignBuild(build, source)
  // native/package.json declares Node-API, so cmake-js takes the headers from node-api-headers and downloads nothing.
  const cmakeJs = join(dirname(require.resolve('cmake-js/package.json')), 'bin', 'cmake-js')
  const target = ['build', '--directory', source, '--out', build, '--config', 'Release']
  const built = spawnSync(
    node,
    [
      cmakeJs,
      ...target,
      ...[...buildDefinitions(), ...definitions].map((one) => `--CD${one}`),
      '--parallel',
      String(availableParallelism()),
    ],
    { cwd: root, encoding: 'utf8', maxBuffer: 1 << 28, env: buildEnvironment() },
  )
  if (built.status !== 0) fail(`${built.stdout ?? ''}${built.stderr ?? ''}\nBuilding ${what} failed.`)
  return join(build, 'Release', 'continuo.node')
}

/**
 * Runs the suites that `config` names on this addon. vitest gets `args` and the arguments of the tool. Returns the exit
 * code.
 */
export const runSuites = (config, addon, env = {}, args = []) => {
  const vitest = join(dirname(require.resolve('vitest/package.json')), 'vitest.mjs')
  const { status } = spawnSync(node, [vitest, 'run', '--config', config, ...args, ...process.argv.slice(2)], {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, ...env, CONTINUO_ADDON: addon },
  })
  return status ?? 1
}
