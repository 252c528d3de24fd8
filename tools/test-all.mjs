// `npm run test:all`: all tests. Each step is a command that can be run alone. All steps run, also after one has
// failed; a list at the end says which failed and repeats the lines that name what failed, and the exit code is 1 then.
//
// Two steps run at a time: beside one that waits for brokers, leases and processes, one that computes, which gets the
// processor that the first leaves (nice). Where nothing is left that waits, two that compute run at a time. What
// computes is printed when it has ended.
//
//   test                npm test
//   test:slow           the tests with the tag "slow", which npm test leaves out
//   test:speculate  the suites of exactness and of crashes once more, with guesses in every step
//   lint, types         biome, and the TypeScript compiler
//   docs                the pages as a site: every link leads somewhere
//   test:asan           all native tests, and the engine's suites, under AddressSanitizer and UndefinedBehaviorSanitizer
//   test:nvcc           the CUDA kernels through nvcc, where it is installed
//   test:emulated       the suites of a device on emulated CUDA kernels
//   test:tsan           the native tests that use several threads, under ThreadSanitizer
//   the fuzzers         thousands of damaged packages, files and events, under the same sanitizers (test/fuzz)
//   test:cluster        a cluster of three brokers
//   test:containers     the image, docker-compose.yml and the pods in containers, where a Docker engine answers or can be made
//   test:kills          a hundred kills of each sort
//
// At its end it says how many minutes each step took. With --ci it warns where all of them took longer than an answer
// may take.
//
// Arguments select the steps whose names contain one of them: `npm run test:all -- asan kills`. `--ci` leaves out the
// steps that take a quarter of an hour or more, of the slow tests those with the tag "long", and of the files that the
// change does not touch those whose turn it is not (turns.ts); .ci/run and `npm run test:ci` use it.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { constants, setPriority } from 'node:os'
import { createInterface } from 'node:readline'
import { fileURLToPath } from 'node:url'
import { stripVTControlCharacters } from 'node:util'

const root = fileURLToPath(new URL('..', import.meta.url))
const npm = (script, ...args) => ['npm', ['run', '--silent', script, ...(args.length > 0 ? ['--', ...args] : [])]]
/** `long`: left out with --ci. `inCi`: what runs instead with --ci. `computes`: beside the others. */
const steps = [
  { name: 'test', run: npm('test') },
  { name: 'test:slow', run: npm('test:slow'), inCi: npm('test:slow', '--tags-filter=!long') },
  {
    name: 'test:speculate',
    run: npm('test:speculate'),
    inCi: npm('test:speculate', '--tags-filter=!slow'),
  },
  { name: 'lint', run: npm('lint'), computes: true },
  { name: 'types', run: npm('types'), computes: true },
  { name: 'docs', run: npm('docs', '--build'), computes: true },
  // The filter is for the engine's suites, the last of the commands.
  { name: 'test:asan', run: npm('test:asan'), inCi: npm('test:asan', '--tags-filter=!long'), computes: true },
  { name: 'test:nvcc', run: npm('test:nvcc'), computes: true },
  { name: 'test:emulated', run: npm('test:emulated'), computes: true },
  { name: 'test:tsan', run: npm('test:tsan'), computes: true },
  { name: 'fuzzers under asan', run: [process.execPath, ['tools/fuzz-asan.mjs']], long: true, computes: true },
  { name: 'test:cluster', run: npm('test:cluster'), long: true },
  { name: 'test:containers', run: npm('test:containers'), long: true },
  { name: 'test:kills', run: npm('test:kills', '--kills', '100'), long: true },
]

const ci = process.argv.includes('--ci')
const words = process.argv.slice(2).filter((word) => word !== '--ci')
const fits = ({ long = false }) => !long || !ci
const chosen = steps.filter(
  (step) => fits(step) && (words.length === 0 || words.some((word) => step.name.includes(word))),
)
if (chosen.length === 0) {
  console.error(
    `No step has ${words.join(' or ')} in its name; there are ${steps
      .filter(fits)
      .map(({ name }) => name)
      .join(', ')}.`,
  )
  process.exit(2)
}

/** Lines that say which test failed: of vitest and of the native tests. The first ones are repeated at the end. */
const NAMES_A_TEST = /^\s*(FAIL|FAILED|not ok)\b|failed to load|No test files|✖/
/** Lines that say how: errors, and those of the compilers and the sanitizers. The last ones are repeated. */
const NAMES_A_CAUSE = /^\s*\w*Error\b|: (fatal )?error( TS\d+)?: |ERROR: |runtime error|was ended by/
const SHOWN = 12

/**
 * Runs a command and passes on what it prints, at once or when it has ended. `named`: lines of its output that name a
 * failure.
 */
const runStep = async ({ name, run: [command, args], computes = false }) => {
  const title = `\n══ ${name}: ${command === process.execPath ? 'node' : command} ${args.join(' ')}\n`
  if (!computes) console.log(title)
  const began = performance.now()
  const child = spawn(command, args, {
    cwd: root,
    stdio: ['ignore', 'pipe', 'pipe'],
    env: { ...process.env, ...(ci && { CONTINUO_TURNS: 'on' }) },
  })
  // Its children inherit it.
  if (computes && child.pid !== undefined) setPriority(child.pid, constants.priority.PRIORITY_BELOW_NORMAL)
  const tests = []
  const causes = []
  const kept = []
  for (const [stream, shown] of [
    [child.stdout, process.stdout],
    [child.stderr, process.stderr],
  ]) {
    if (computes) stream.on('data', (bytes) => kept.push(bytes))
    else stream.pipe(shown, { end: false })
    createInterface({ input: stream }).on('line', (coloured) => {
      const line = stripVTControlCharacters(coloured)
      const short = line.trim().slice(0, 400)
      if (NAMES_A_TEST.test(line)) {
        if (tests.length < SHOWN) tests.push(short)
      } else if (NAMES_A_CAUSE.test(line)) {
        causes.push(short)
        if (causes.length > SHOWN) causes.shift()
      }
    })
  }
  const [status, signal] = await once(child, 'close').catch((error) => [null, error.message])
  if (computes) console.log(`${title}\n${Buffer.concat(kept)}`)
  const how = status === 0 ? 'passed' : `FAILED (${signal ?? `exit ${status}`})`
  return {
    name,
    passed: status === 0,
    how,
    named: [...tests, ...causes],
    seconds: Math.round((performance.now() - began) / 1000),
  }
}

/** What .ci/run may take, minutes: docs/testing.md says what to do beyond. */
const MOST_MINUTES = 50
const minutes = (seconds) => `${(seconds / 60).toFixed(1)} min`

const left = [...chosen]
/** Runs steps until none is left: first those that compute, or first the others. */
const lane = async (computes) => {
  const done = []
  while (left.length > 0) {
    const at = left.findIndex((step) => (step.computes ?? false) === computes)
    // What waits is for one lane alone: two suites at a time would hold each other up.
    if (at < 0 && computes) return done
    const [{ inCi, ...step }] = left.splice(Math.max(at, 0), 1)
    done.push(await runStep(ci && inCi ? { ...step, run: inCi } : step))
  }
  return done
}

// All of them need what it installs and builds, and only one process may do that.
const { status: ready } = spawnSync('npm', ['run', '--silent', 'setup'], { cwd: root, stdio: 'inherit' })
if (ready !== 0) process.exit(1)
const began = performance.now()
const ends = (await Promise.all([lane(false), lane(true)])).flat()

console.log('\n══ all')
for (const { name, how, passed, named, seconds } of ends) {
  console.log(`${how.padEnd(8)} ${name}, ${minutes(seconds)}`)
  if (!passed) for (const line of named) console.log(`         ${line}`)
}
const all = (performance.now() - began) / 1000
console.log(`set-up ${minutes(began / 1000)}, steps ${minutes(all)}, two at a time`)
if (ci && all > MOST_MINUTES * 60)
  console.log(`WARNING: longer than ${MOST_MINUTES} minutes. docs/testing.md, "When CI becomes long", says what to do.`)
process.exitCode = ends.every(({ passed }) => passed) ? 0 : 1
