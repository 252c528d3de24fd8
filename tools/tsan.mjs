// Builds the engine and its native tests with ThreadSanitizer and runs those that use several threads: the engine and
// its scheduler, the executors, the thread pool and the emulated CUDA device.
import { join } from 'node:path'
import { machineSets, setsDefinition } from './build-tools.mjs'
import { build, configureTests, endInOtherTurn, runTests } from './native-tests.mjs'

await endInOtherTurn(1)

const folder = configureTests('build-tsan', [
  'CONTINUO_SANITIZE=thread',
  'CONTINUO_CUDA=off',
  setsDefinition(machineSets()),
])
build(folder, ['continuo_tests'])
const claims = ['engine:', 'scheduler:', 'executor:', 'context:', 'thread pool:', 'expert cache:', 'parking:', 'cuda:']
const env = { TSAN_OPTIONS: 'halt_on_error=1:second_deadlock_stack=1' }
const codes = []
for (const word of claims) codes.push(await runTests(join(folder, 'continuo_tests'), { word, env }))
process.exitCode = codes.every((code) => code === 0) ? 0 : 1
