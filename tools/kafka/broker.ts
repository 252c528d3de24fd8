/**
 * `npm run kafka`: an Apache Kafka broker on this machine, until Ctrl-C.
 * With a Docker engine it runs the image of docker-compose.yml, else the published jars with Java.
 */
import { execFile, spawn, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { parseArgs, promisify } from 'node:util'
import { ContinuoError, codeOf, messageOf } from '../../src/errors.ts'
import { npmGone } from '../../src/observe/parent.ts'
import { startBroker } from './embedded-broker.ts'

const help = `npm run kafka -- [--port 9092] [--dir .continuo/kafka | --ephemeral] [--jars]

Starts an Apache Kafka broker on 127.0.0.1 and stops it on Ctrl-C.
  --port N       port of the broker (default 9092)
  --dir PATH     where its data stays (default .continuo/kafka)
  --ephemeral    throw the data away at the end
  --jars         use Java and the published jars even where a Docker engine answers

Example:  npm run kafka -- --port 9192 --ephemeral
`
const root = join(import.meta.dirname, '..', '..')
const say = (line: string): void => void process.stdout.write(`${line}\n`)

const docker = (args: readonly string[], port: number, quiet = false): Promise<boolean> =>
  new Promise((resolve) => {
    const child = spawn('docker', args, {
      cwd: root,
      stdio: quiet ? 'ignore' : 'inherit',
      env: { ...process.env, KAFKA_PORT: String(port) },
      ...(quiet && { timeout: 5000 }),
    })
    child.once('error', () => resolve(false)).once('exit', (code) => resolve(code === 0))
  })

/** Whether the broker of this project runs already: then it is somebody else's to stop. */
const isRunning = (compose: readonly string[]): Promise<boolean> =>
  promisify(execFile)('docker', [...compose, 'ps', '--status', 'running', '--quiet', 'broker'], { cwd: root }).then(
    ({ stdout }) => stdout.trim() !== '',
    () => false,
  )

/** The process lives until then: neither a signal's handler nor the look at the parent would keep it. */
const interrupted = (): Promise<void> => {
  const alive = setInterval(() => {}, 1 << 30)
  return new Promise<void>((resolve) => {
    process.once('SIGINT', resolve).once('SIGTERM', resolve)
    void npmGone().then(resolve)
  }).finally(() => clearInterval(alive))
}

const announce = (address: string, since: number): void => {
  say(`Kafka is ready at ${address} after ${((performance.now() - since) / 1000).toFixed(1)} s. Ctrl-C stops it.`)
  say(`Next: npm run continuo -- topics apply --log kafka://${address}/continuo`)
}

const main = async (): Promise<void> => {
  const { values } = parseArgs({
    options: {
      port: { type: 'string', default: '9092' },
      dir: { type: 'string' },
      ephemeral: { type: 'boolean', default: false },
      jars: { type: 'boolean', default: false },
      help: { type: 'boolean', default: false },
    },
  })
  if (values.help) return say(help)
  const port = Number(values.port)
  if (!Number.isInteger(port) || port < 1 || port > 65_535)
    throw new ContinuoError('INVALID', `--port is a number from 1 to 65535, this one is "${values.port}".`)
  if (values.ephemeral && values.dir !== undefined)
    throw new ContinuoError('INVALID', '--ephemeral throws the data away and --dir keeps it: give one of them.')

  const since = performance.now()
  if (!values.jars && values.dir === undefined && (await docker(['version'], port, true))) {
    // A project of its own has volumes of its own: what other services and other runs keep stays.
    const compose = ['compose', ...(values.ephemeral ? ['--project-name', 'continuo-ephemeral'] : [])]
    const wasRunning = await isRunning(compose)
    if (!(await docker([...compose, 'up', '--detach', '--wait', 'broker'], port)))
      throw new ContinuoError('UNAVAILABLE', 'docker compose could not start the broker; --jars uses Java instead.')
    announce(`127.0.0.1:${port}`, since)
    await interrupted()
    if (values.ephemeral) await docker([...compose, 'down', '--volumes'], port)
    else if (wasRunning) say('Kafka had been running before, and goes on.')
    else await docker([...compose, 'stop', 'broker'], port)
    return
  }

  spawnSync(process.execPath, [join(import.meta.dirname, 'needs.mjs')], { stdio: 'inherit' })
  const stopping = interrupted()
  const dir = values.ephemeral ? undefined : (values.dir ?? join(root, '.continuo', 'kafka'))
  const broker = await startBroker({ port, say, ...(dir !== undefined && { dir }) })
  announce(broker.brokers, since)
  const crashed = await Promise.race([stopping.then(() => false), broker.exited().then(() => true)])
  // Ctrl-C in a terminal reaches the JVM as well, so the JVM may end first.
  await broker.stop()
  say(crashed ? 'Kafka ended.' : 'Kafka stopped.')
}

await main().catch((error: unknown) => {
  process.stderr.write(`${messageOf(error)}\n`)
  process.exitCode = codeOf(error) === 'INVALID' ? 2 : 1
})
