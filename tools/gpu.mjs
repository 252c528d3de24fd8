// Tests the CUDA backend on a GPU: the native suites with kernels on the device, the TypeScript suites of a device, and
// the native CUDA tests once more under compute-sanitizer where it is installed.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { buildAddon, fail, runSuites } from './addon.mjs'
import { runs } from './build-tools.mjs'
import { needGpu } from './gpu-needs.mjs'
import { build, configureTests } from './native-tests.mjs'

needGpu('The suites of a GPU need')

/** Runs a program. Ends the process unless the program ends with 0. */
const run = (program, args) => {
  const { status, signal, error } = spawnSync(program, args, { stdio: 'inherit' })
  if (status === 0) return
  fail(`${[program, ...args].join(' ')} ended with ${error?.message ?? signal ?? status}.`)
}

const folder = configureTests('build-gpu', ['CONTINUO_CUDA=on'])
build(folder)
run(join(folder, 'continuo_tests'), [])

const addon = buildAddon('build-cuda', ['CONTINUO_CUDA=on'], 'the addon with CUDA')
const code = runSuites('tools/device.vitest.ts', addon)
if (code !== 0) process.exit(code)

if (!runs('compute-sanitizer')) console.log('compute-sanitizer is not installed; its checks are left out.')
else {
  for (const tool of ['memcheck', 'racecheck'])
    run('compute-sanitizer', ['--tool', tool, '--error-exitcode', '1', join(folder, 'continuo_tests'), 'cuda'])
}
