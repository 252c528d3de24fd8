// Builds the engine and its native tests with AddressSanitizer and UndefinedBehaviorSanitizer and runs them. The CUDA kernels run
// emulated here, whatever this machine has: the sanitizers see the host's memory only.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { build, configureSanitized } from './native-tests.mjs'

const folder = configureSanitized()
build(folder, ['continuo_tests', 'continuo_ulp'])
const { status } = spawnSync(join(folder, 'continuo_tests'), [], {
  stdio: 'inherit',
  env: {
    ...process.env,
    ASAN_OPTIONS: 'detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1',
    UBSAN_OPTIONS: 'print_stacktrace=1',
  },
})
process.exitCode = status ?? 1
