// Builds the engine and its native tests with AddressSanitizer and UndefinedBehaviorSanitizer and runs them, and then a
// short run of the fuzzer of the files' readers (native/test/fuzz). The CUDA kernels are emulated even where there is a
// GPU, because the sanitizers check the host's memory only.
import { join } from 'node:path'
import { fuzzReaders } from './fuzz-readers.mjs'
import { build, configureSanitized, endInOtherTurn, runTests } from './native-tests.mjs'

await endInOtherTurn(0)

const folder = configureSanitized()
build(folder, ['continuo_tests', 'continuo_ulp'])
const tests = await runTests(join(folder, 'continuo_tests'), {
  env: {
    ASAN_OPTIONS: 'detect_leaks=1:detect_stack_use_after_return=1:strict_string_checks=1',
    UBSAN_OPTIONS: 'print_stacktrace=1',
  },
})
process.exitCode = fuzzReaders(folder, 20_000) ? tests : 1
