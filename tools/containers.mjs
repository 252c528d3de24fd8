// `npm run test:containers`: builds the image, and runs it, docker-compose.yml, the pods' containers and suites with
// testcontainers on a Docker engine: the one that answers, or one that it makes where it runs as root on Debian 12
// (tools/containers/engine.sh), which it ends again. Where there is neither it says so, and ends with 0. vitest gets
// the arguments: `npm run test:containers -- compose`.
import { spawn, spawnSync } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, mkdtempSync, readFileSync } from 'node:fs'
import { constants, tmpdir } from 'node:os'
import { join } from 'node:path'
import { fail, node, root } from './addon.mjs'

const engineScript = join(root, 'tools', 'containers', 'engine.sh')
const succeeds = (command, ...args) => spawnSync(command, args, { stdio: 'ignore', timeout: 10_000 }).status === 0

/** Why no engine can be made here; null where one can. */
const obstacle = () => {
  if (process.platform !== 'linux' || process.getuid() !== 0) return 'only root on Linux can make one'
  const system = existsSync('/etc/os-release') ? readFileSync('/etc/os-release', 'utf8') : ''
  return /VERSION_CODENAME=bookworm/.test(system)
    ? null
    : 'it is made of packages of Debian 12, and this is another system'
}

let running = null
let signal = null
for (const name of ['SIGINT', 'SIGTERM'])
  process.on(name, () => {
    signal ??= name
    running?.kill(name)
  })

/** Runs a command to its end; returns its exit code. After a signal nothing is begun any more. */
const run = async (command, args, env = {}) => {
  if (signal !== null) return 128 + constants.signals[signal]
  running = spawn(command, args, { cwd: root, stdio: 'inherit', env: { ...process.env, ...env } })
  const [code, ended] = await once(running, 'exit')
  running = null
  return code ?? 128 + constants.signals[ended]
}

/**
 * Image, then suites. `inside`: words before a command that is to see what containers publish; `sealed`: called before
 * anything is run.
 */
const tests = async (env, inside, sealed) => {
  const built = await run('docker', ['compose', 'build'], env)
  if (built !== 0) return built
  await sealed()
  const [command, ...before] = [...inside, node]
  const vitest = (...args) =>
    // A broker in a container, and no other; the engine has no image of what ends containers of a process that was
    // killed.
    run(command, [...before, join('node_modules', 'vitest', 'vitest.mjs'), 'run', ...args], {
      ...env,
      CI: 'true',
      CONTINUO_TEST_KAFKA: 'container',
      TESTCONTAINERS_RYUK_DISABLED: 'true',
    })
  const ours = await vitest('--config', join('tools', 'containers.vitest.ts'), ...process.argv.slice(2))
  if (process.argv.length > 2) return ours
  const suites = ['test/streams/kafka.test.ts', 'test/operators/pipeline/input-rules.test.ts']
  return ours || (await vitest('--tags-filter=!slow', ...suites))
}

const withOwnEngine = async () => {
  const place = mkdtempSync(join(tmpdir(), 'continuo-engine-'))
  const env = {
    CONTINUO_ENGINE: place,
    DOCKER_HOST: `unix://${place}/docker.sock`,
    DOCKER_CONFIG: join(place, 'config'),
  }
  console.log(`No Docker engine answers: one is made in ${place}.`)
  try {
    for (const step of ['up', 'images']) {
      const code = await run(engineScript, [step], env)
      if (code !== 0) return code
    }
    return await tests(env, [engineScript, 'run'], () => run(engineScript, ['offline'], env))
  } finally {
    spawnSync(engineScript, ['down'], { stdio: 'inherit', env: { ...process.env, ...env } })
  }
}

if (!existsSync(node)) fail('Run `npm run setup` first.')
const why = obstacle()
if (succeeds('docker', 'version')) process.exitCode = await tests({}, [], async () => {})
else if (why === null) process.exitCode = await withOwnEngine()
else console.log(`The tests of containers are left out: no Docker engine answers, and ${why}.`)
