// The native boundary under sanitizers: runs the engine's suites (hostile files, misuse, teardown of workers,
// arithmetic) on an addon built with AddressSanitizer and UndefinedBehaviorSanitizer.
import { runSuites } from './addon.mjs'
import { endInOtherTurn } from './native-tests.mjs'
import { sanitizedAddon } from './sanitized.mjs'

await endInOtherTurn(0, 'ENGINE')

const { addon, env } = sanitizedAddon()
process.exitCode = runSuites('tools/asan.vitest.ts', addon, env)
