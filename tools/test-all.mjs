// Everything that is too long for `npm test`, one after the other; `npm run test:all` runs it. Each step is a command that can be run alone.
// None stops the others: what failed stands at the end, and the exit code is 1.
//
//   test:asan           the native tests, and the engine's suites, under AddressSanitizer and UndefinedBehaviorSanitizer
//   test:tsan           the native tests that use several threads, under ThreadSanitizer
//   the fuzzers         thousands of damaged packages, files and events, under the same sanitizers (test/fuzz)
//   test:cluster        a cluster of three brokers
//   test:kills          a hundred kills of each sort
//   test:nvcc           the CUDA kernels through nvcc, where it is installed
//   test:emulated       the suites of a device on emulated CUDA kernels
//
// Arguments are words that the names of the steps to run contain: `npm run test:all -- asan kills`.
import { spawnSync } from 'node:child_process'
import { fileURLToPath } from 'node:url'

const root = fileURLToPath(new URL('..', import.meta.url))
const npm = (script, ...args) => ['npm', ['run', '--silent', script, ...(args.length > 0 ? ['--', ...args] : [])]]
const steps = [
  ['test:asan', npm('test:asan')],
  ['test:tsan', npm('test:tsan')],
  ['fuzzers under asan', [process.execPath, ['tools/fuzz-asan.mjs']]],
  ['test:cluster', npm('test:cluster')],
  ['test:kills', npm('test:kills', '--kills', '100')],
  ['test:nvcc', npm('test:nvcc')],
  ['test:emulated', npm('test:emulated')],
]

const wanted = process.argv.slice(2)
const chosen = steps.filter(([name]) => wanted.length === 0 || wanted.some((word) => name.includes(word)))
if (chosen.length === 0) {
  console.error(`No step has ${wanted.join(' or ')} in its name; there are ${steps.map(([name]) => name).join(', ')}.`)
  process.exit(2)
}

const ends = chosen.map(([name, [command, args]]) => {
  console.log(`\n══ ${name}: ${command === process.execPath ? 'node' : command} ${args.join(' ')}\n`)
  const began = performance.now()
  const { status, signal, error } = spawnSync(command, args, { cwd: root, stdio: 'inherit' })
  const how = status === 0 ? 'passed' : `FAILED (${error?.message ?? signal ?? `exit ${status}`})`
  return { name, passed: status === 0, how, seconds: Math.round((performance.now() - began) / 1000) }
})

console.log('\n══ all')
for (const { name, how, seconds } of ends) console.log(`${how.padEnd(8)} ${name}, ${seconds} s`)
process.exitCode = ends.every(({ passed }) => passed) ? 0 : 1
