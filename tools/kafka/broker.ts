/**
 * `npm run kafka`: an Apache Kafka broker on this machine, until Ctrl-C.
 * With a Docker engine it runs the image of docker-compose.yml, else the published jars with Java.
 */
import { spawn, spawnSync } from 'node:child_process'
import { join } from 'node:path'
import { parseArgs } from 'node:util'
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

const interrupted = (): Promise<void> =>
  new Promise((resolve) => {
    process.once('SIGINT', resolve).once('SIGTERM', resolve)
    void npmGone().then(resolve)
  })

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
    if (!(await docker(['compose', 'up', '--detach', '--wait', 'broker'], port)))
      throw new ContinuoError('UNAVAILABLE', 'docker compose could not start the broker; --jars uses Java instead.')
    announce(`127.0.0.1:${port}`, since)
    await interrupted()
    await docker(values.ephemeral ? ['compose', 'down', '--volumes'] : ['compose', 'stop'], port)
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
