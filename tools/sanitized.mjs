// The addon with AddressSanitizer and UndefinedBehaviorSanitizer, and the environment of a Node process that loads it.
//
// Leak detection is off, since Node does not free all of its memory when it ends. The native tests (asan.mjs) detect
// leaks.
import { spawnSync } from 'node:child_process'
import { isAbsolute, join } from 'node:path'
import { fail } from './addon.mjs'
import { build, configureSanitized } from './native-tests.mjs'

/** The path of a library of the compiler; the compiler returns the bare name where it has no such library. */
const library = (name) => {
  const { stdout } = spawnSync(process.env.CXX ?? 'c++', [`-print-file-name=${name}`], { encoding: 'utf8' })
  const path = (stdout ?? '').trim()
  if (!isAbsolute(path))
    fail(
      `The sanitized addon needs GCC's ${name}, and ${process.env.CXX ?? 'c++'} has none. Install g++, or set CXX to it.`,
    )
  return path
}

/** Builds the addon where it is out of date. Ends the process on failure. */
export const sanitizedAddon = () => {
  if (process.platform !== 'linux') fail('The sanitized addon is preloaded into Node by LD_PRELOAD, which needs Linux.')
  const preload = ['libasan.so', 'libubsan.so'].map(library).join(' ')
  const folder = configureSanitized()
  build(folder, ['continuo_node'])
  return {
    addon: join(folder, 'continuo.node'),
    env: {
      LD_PRELOAD: preload,
      ASAN_OPTIONS: 'detect_leaks=0:detect_stack_use_after_return=1:strict_string_checks=1',
      UBSAN_OPTIONS: 'print_stacktrace=1',
    },
  }
}
