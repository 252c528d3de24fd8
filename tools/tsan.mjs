// Builds the engine and its native tests with ThreadSanitizer and runs those that use several threads: the engine and its scheduler, the
// executors, the thread pool and the emulated CUDA device.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { build, configureTests } from './native-tests.mjs'

const folder = configureTests('build-tsan', ['CONTINUO_SANITIZE=thread', 'CONTINUO_CUDA=off'])
build(folder, ['continuo_tests'])
const claims = ['engine:', 'scheduler:', 'executor:', 'context:', 'thread pool:', 'cuda:']
const env = { ...process.env, TSAN_OPTIONS: 'halt_on_error=1:second_deadlock_stack=1' }
const ends = claims.map((claim) => spawnSync(join(folder, 'continuo_tests'), [claim], { stdio: 'inherit', env }).status)
process.exitCode = ends.every((status) => status === 0) ? 0 : 1
