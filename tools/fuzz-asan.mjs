// The fuzzers: a million cases of each reader of weights in native code (tools/fuzz-readers.mjs), then test/fuzz on an
// addon built with AddressSanitizer and UndefinedBehaviorSanitizer: where a damaged file makes the engine access memory
// that is not its own, the process ends, which is a finding. test/fuzz/run.ts gets the arguments.
import { spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { root } from './addon.mjs'
import { fuzzReaders } from './fuzz-readers.mjs'
import { configureSanitized } from './native-tests.mjs'
import { sanitizedAddon } from './sanitized.mjs'

// Arguments are for the other fuzzers, which then run alone.
const read = process.argv.length > 2 || fuzzReaders(configureSanitized(), 1_000_000)
const { addon, env } = sanitizedAddon()
// Sanitizers make the engine several times slower and larger. The first overrun is reported and ends the process.
const slower = ['--seconds', '200', '--megabytes', '6000']
const { status } = spawnSync(
  join(root, 'node_modules', '.bin', 'node'),
  [join('test', 'fuzz', 'run.ts'), ...slower, ...process.argv.slice(2)],
  {
    cwd: root,
    stdio: 'inherit',
    env: { ...process.env, ...env, UBSAN_OPTIONS: `${env.UBSAN_OPTIONS}:halt_on_error=1`, CONTINUO_ADDON: addon },
  },
)
process.exitCode = read ? (status ?? 1) : 1
