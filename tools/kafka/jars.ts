/**
 * Apache Kafka from its published jars: prepares, once, the files that a broker needs to start.
 *
 *   lib/     the jars, as pom.xml names them; lib/.pom is the hash of the pom they came from
 *   .ready/  formatted-HASH: a formatted, empty KRaft storage; every new broker starts from a copy of it
 *            kafka-JAVA-HASH.jsa: a class-data archive, with which a broker starts in half the time
 *
 * git ignores both folders. Each file is made under a temporary name and then renamed.
 */
import { execFile, spawn } from 'node:child_process'
import { createHash, randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { cp, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { promisify } from 'node:util'
import { copyJars, javaVersion, locked, once } from '../jars.ts'
import { brokerProperties, freePorts } from './properties.ts'
import { watch } from './watch.ts'

const run = promisify(execFile)
const here = import.meta.dirname
const lib = join(here, 'lib')
const ready = join(here, '.ready')
const KAFKA = { what: 'Apache Kafka', otherwise: ', start a Docker engine, or name a running broker in KAFKA_BROKERS' }

export interface Jars {
  /** Arguments for `java` up to and including the class path. */
  readonly javaArgs: readonly string[]
  /** A formatted storage folder to copy. */
  readonly formatted: string
}

const format = async (formatted: string): Promise<void> => {
  const config = join(ready, `format.${process.pid}.properties`)
  await once(formatted, async (folder) => {
    const lines = [
      'process.roles=broker,controller',
      'node.id=1',
      'controller.quorum.voters=1@127.0.0.1:9093',
      'listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093',
      'controller.listener.names=CONTROLLER',
      `log.dirs=${folder}`,
    ]
    await writeFile(config, lines.join('\n'))
    const id = randomBytes(16).toString('base64url').replace(/^-/, 'A')
    await run('java', ['-cp', join(lib, '*'), 'kafka.tools.StorageTool', 'format', '-t', id, '-c', config])
  })
  await rm(config, { force: true })
}

/**
 * Archives the classes that a broker loads while it starts and stops. Without the archive each start takes about a
 * second longer.
 */
const archive = async (jsa: string, base: readonly string[], formatted: string): Promise<void> => {
  const folder = join(ready, `train.${process.pid}.tmp`)
  const temporary = `${jsa}.${process.pid}.tmp`
  try {
    await cp(formatted, join(folder, 'data'), { recursive: true })
    const [port, controller] = await freePorts(2)
    const config = join(folder, 'server.properties')
    await writeFile(config, brokerProperties({ dir: join(folder, 'data'), port: port!, controllerPort: controller! }))
    const args = [
      `-XX:ArchiveClassesAtExit=${temporary}`,
      '-Xlog:cds=off',
      '-Xlog:cds+dynamic=off',
      ...base,
      'kafka.Kafka',
      config,
    ]
    const child = spawn('java', args, { stdio: ['ignore', 'pipe', 'ignore'] })
    if (child.pid === undefined) return
    const watcher = watch(child.pid, folder)
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      if (text.includes('Kafka Server started')) child.kill('SIGTERM')
    })
    await new Promise((resolve) => child.once('close', resolve))
    watcher.kill('SIGKILL')
    await rename(temporary, jsa)
  } catch {
    // After a failure an empty file takes the archive's place, so that it is not tried again.
    await rm(temporary, { force: true })
    await writeFile(jsa, '')
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

/**
 * Fetches the jars, formats a storage and makes the archive, where they are missing. Only the first call takes seconds
 * and the network.
 */
export const prepareJars = async (say: (line: string) => void = () => {}): Promise<Jars> => {
  const java = await javaVersion('Apache Kafka')
  const pomHash = createHash('sha256')
    .update(await readFile(join(here, 'pom.xml')))
    .digest('hex')
    .slice(0, 16)
  const formatted = join(ready, `formatted-${pomHash}`)
  const jsa = join(ready, `kafka-${java}-${pomHash}.jsa`)
  const base = [
    '-Xmx512m',
    '-XX:+UseSerialGC',
    '-XX:TieredStopAtLevel=1',
    '-Djava.awt.headless=true',
    `-Dlog4j2.configurationFile=${join(here, 'log4j2.properties')}`,
    '-cp',
    join(lib, '*'),
  ]
  await locked(ready, async () => {
    await copyJars(here, pomHash, KAFKA, say)
    if (!existsSync(formatted)) await format(formatted)
    if (existsSync(jsa)) return
    say('Preparing a fast start (once) …')
    await archive(jsa, base, formatted)
  })
  return { javaArgs: [`-XX:SharedArchiveFile=${jsa}`, '-Xlog:disable', ...base], formatted }
}
