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
import { cp, mkdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { setTimeout as delay } from 'node:timers/promises'
import { promisify } from 'node:util'
import { ContinuoError } from '../../src/errors.ts'
import { brokerProperties, freePorts } from './properties.ts'
import { watch } from './watch.ts'

const run = promisify(execFile)
const here = import.meta.dirname
const lib = join(here, 'lib')
const ready = join(here, '.ready')

export interface Jars {
  /** Arguments for `java` up to and including the class path. */
  readonly javaArgs: readonly string[]
  /** A formatted storage folder to copy. */
  readonly formatted: string
}

const javaVersion = async (): Promise<string> => {
  const { stderr } = await run('java', ['-version']).catch(() => {
    throw new ContinuoError(
      'UNAVAILABLE',
      'Starting Apache Kafka without Docker needs Java 17 or newer: install a JDK (for example openjdk-17-jre-headless).',
    )
  })
  const version = /version "([^"]+)"/.exec(stderr)?.[1] ?? 'unknown'
  if (Number(/^\d+/.exec(version)?.[0] ?? 0) < 17)
    throw new ContinuoError('UNAVAILABLE', `Apache Kafka 4 needs Java 17 or newer, this is Java ${version}.`)
  return version
}

/** Lets one process at a time prepare files, since test workers start together. Takes over the lock of a process that has ended. */
const locked = async (work: () => Promise<void>): Promise<void> => {
  await mkdir(ready, { recursive: true })
  const lock = join(ready, 'lock')
  for (;;) {
    try {
      await writeFile(lock, String(process.pid), { flag: 'wx' })
      break
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'EEXIST') throw error
      const holder = Number(await readFile(lock, 'utf8').catch(() => ''))
      if (holder > 0 && !isRunning(holder)) await rm(lock, { force: true })
      await delay(100)
    }
  }
  try {
    await work()
  } finally {
    await rm(lock, { force: true })
  }
}

const isRunning = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch (error) {
    return (error as NodeJS.ErrnoException).code === 'EPERM'
  }
}

/** Makes `target` by filling a temporary folder and renaming it. Where another process was faster, its folder stays. */
const once = async (target: string, fill: (folder: string) => Promise<void>): Promise<void> => {
  const folder = `${target}.${process.pid}.tmp`
  await mkdir(folder, { recursive: true })
  try {
    await fill(folder)
    await rename(folder, target).catch(async (error: NodeJS.ErrnoException) => {
      if (error.code !== 'ENOTEMPTY' && error.code !== 'EEXIST') throw error
    })
  } finally {
    await rm(folder, { recursive: true, force: true })
  }
}

const fetchJars = async (pomHash: string, say: (line: string) => void): Promise<void> => {
  const stamp = await readFile(join(lib, '.pom'), 'utf8').catch(() => '')
  if (stamp === pomHash) return
  say('Fetching Apache Kafka with Maven (once, about 45 MB) …')
  await rm(lib, { recursive: true, force: true })
  await once(lib, async (folder) => {
    const args = [
      '-q',
      '-B',
      '-f',
      join(here, 'pom.xml'),
      'dependency:copy-dependencies',
      `-DoutputDirectory=${folder}`,
    ]
    await run('mvn', args, { maxBuffer: 1 << 26 }).catch((error: NodeJS.ErrnoException & { stdout?: string }) => {
      if (error.code === 'ENOENT')
        throw new ContinuoError(
          'UNAVAILABLE',
          'Fetching Apache Kafka needs Maven: install it (for example: apt install maven), start a Docker engine, or name a running broker in KAFKA_BROKERS.',
        )
      const reason = /\[ERROR\] (.*)/.exec(error.stdout ?? '')?.[1] ?? error.message
      throw new ContinuoError('UNAVAILABLE', `Maven could not fetch Apache Kafka: ${reason}`, { cause: error })
    })
    await writeFile(join(folder, '.pom'), pomHash)
  })
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
 * Archives the classes that a broker loads while it starts and stops. Without the archive each start takes about a second longer.
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

/** Fetches the jars, formats a storage and makes the archive, where they are missing. Only the first call takes seconds and the network. */
export const prepareJars = async (say: (line: string) => void = () => {}): Promise<Jars> => {
  const java = await javaVersion()
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
  await locked(async () => {
    await fetchJars(pomHash, say)
    if (!existsSync(formatted)) await format(formatted)
    if (existsSync(jsa)) return
    say('Preparing a fast start (once) …')
    await archive(jsa, base, formatted)
  })
  return { javaArgs: [`-XX:SharedArchiveFile=${jsa}`, '-Xlog:disable', ...base], formatted }
}
