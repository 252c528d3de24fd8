/**
 * A real Apache Kafka broker as a child process, for tests and for `npm run kafka`.
 *
 * The JVM never outlives its parent: a small shell waits for the end of a pipe that only the parent holds, and then
 * kills the broker and removes its folder. So a test runner that dies by SIGKILL leaves nothing behind.
 */
import { type ChildProcess, execFile, spawn } from 'node:child_process'
import { existsSync } from 'node:fs'
import { cp, mkdir, mkdtemp, rm, writeFile } from 'node:fs/promises'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { join, resolve } from 'node:path'
import { promisify } from 'node:util'
import { ContinuoError } from '../../src/errors.ts'
import { type Jars, prepareJars } from './jars.ts'
import { brokerProperties, freePorts, type ListenerProtocol } from './properties.ts'
import { watch } from './watch.ts'

export interface StartOptions {
  /** Default: a free port. */
  readonly port?: number
  /** The folder of the data, which is kept. Default: a temporary folder that is removed with the broker. */
  readonly dir?: string
  /** Broker settings in Kafka's names. */
  readonly config?: Readonly<Record<string, string>>
  /** Users of an additional SASL/PLAIN listener. */
  readonly saslUsers?: Readonly<Record<string, string>>
  /**
   * Further listeners by name (capitals), each on a free port; their settings are in `config` (`listener.name.<name in
   * small letters>.…`).
   */
  readonly listeners?: Readonly<Record<string, ListenerProtocol>>
  /** Users with a SCRAM-SHA-512 password. */
  readonly scramUsers?: Readonly<Record<string, string>>
  readonly say?: (line: string) => void
}

export interface EmbeddedBroker {
  /** `127.0.0.1:port` */
  readonly brokers: string
  /** Address of the SASL/PLAIN listener, if asked for. */
  readonly saslBrokers: string | undefined
  /** Addresses of the further listeners, by name. */
  readonly addresses: Readonly<Record<string, string>>
  /** Process id of the running JVM; undefined while it is down. */
  readonly pid: number | undefined
  /** Ends cleanly and, unless `dir` was given, removes the data. */
  stop(): Promise<void>
  /** SIGKILL. The data stays for `restart`. */
  kill(): Promise<void>
  /** Starts again on the same ports and data after `kill`, or after a clean stop of its own. */
  restart(): Promise<void>
  /** SIGSTOP and SIGCONT: a broker that holds its connections and answers nothing. */
  freeze(): void
  thaw(): void
  /** Resolves when the JVM has ended, for any reason. */
  exited(): Promise<void>
}

const listening = (port: number): Promise<boolean> =>
  new Promise((resolveWith) => {
    const socket = connect(port, '127.0.0.1')
    socket.once('connect', () => resolveWith(true)).once('error', () => resolveWith(false))
    socket.once('connect', () => socket.destroy())
  })

export interface Jvm {
  readonly child: ChildProcess
  readonly watcher: ChildProcess
  readonly ended: Promise<void>
}

/** Starts a JVM with this broker configuration. `options` for `java` override the usual ones. */
export const spawnBroker = (
  jars: Jars,
  config: string,
  folder: string | undefined,
  options: readonly string[] = [],
): { readonly jvm: Jvm; readonly started: Promise<void> } => {
  const child = spawn('java', [...jars.javaArgs, ...options, 'kafka.Kafka', config], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  if (child.pid === undefined) throw new ContinuoError('UNAVAILABLE', 'java could not be started.')
  const watcher = watch(child.pid, folder)
  const ended = new Promise<void>((resolveWith) => child.once('exit', () => resolveWith()))
  void ended.then(() => watcher.kill('SIGKILL'))

  let tail = ''
  const started = new Promise<void>((resolveWith, reject) => {
    const read = (text: string): void => {
      tail = (tail + text).slice(-4000)
      if (tail.includes('Kafka Server started')) resolveWith()
    }
    child.stdout?.setEncoding('utf8').on('data', read)
    child.stderr?.setEncoding('utf8').on('data', read)
    child.once('exit', (code, signal) =>
      reject(
        new ContinuoError('UNAVAILABLE', `The Kafka broker ended while starting (${signal ?? code}).\n${tail.trim()}`),
      ),
    )
  })
  return { jvm: { child, watcher, ended }, started }
}

const launch = async (jars: Jars, config: string, folder: string | undefined): Promise<Jvm> => {
  const { jvm, started } = spawnBroker(jars, config, folder)
  await started
  return jvm
}

/** Ends the JVM, also a stopped one (SIGSTOP); kills it if it has not ended within `patience` ms. */
export const endOf = async ({ child, ended }: Jvm, signal: NodeJS.Signals, patience = 10_000): Promise<void> => {
  child.kill('SIGCONT')
  child.kill(signal)
  const timer = setTimeout(() => child.kill('SIGKILL'), patience)
  await ended
  clearTimeout(timer)
}

/** Writes SCRAM passwords, which are records of the cluster: only a running broker accepts them. */
const addScramUser = async (jars: Jars, brokers: string, name: string, password: string): Promise<void> => {
  const of = ['--entity-type', 'users', '--entity-name', name]
  const change = ['--alter', '--add-config', `SCRAM-SHA-512=[password=${password}]`]
  await promisify(execFile)('java', [
    ...jars.javaArgs,
    'kafka.admin.ConfigCommand',
    '--bootstrap-server',
    brokers,
    ...change,
    ...of,
  ])
}

/** Starts a broker and resolves when it answers. */
export const startBroker = async (options: StartOptions = {}): Promise<EmbeddedBroker> => {
  const jars = await prepareJars(options.say)
  const temporary = options.dir === undefined
  const folder = options.dir === undefined ? await mkdtemp(join(tmpdir(), 'continuo-kafka-')) : resolve(options.dir)
  const data = join(folder, 'data')
  const configFile = join(folder, 'server.properties')
  const wanted = Object.entries(options.listeners ?? {})
  const [free, controllerPort, saslPort, ...morePorts] = (await freePorts(3 + wanted.length)) as [
    number,
    number,
    number,
    ...number[],
  ]
  const more = Object.fromEntries(wanted.map(([name, protocol], i) => [name, { protocol, port: morePorts[i]! }]))
  const port = options.port ?? free
  if (options.port !== undefined && (await listening(port)))
    throw new ContinuoError(
      'UNAVAILABLE',
      `Port ${port} is taken: is a broker running already? --port chooses another.`,
    )

  await mkdir(folder, { recursive: true })
  if (!existsSync(data)) await cp(jars.formatted, data, { recursive: true })
  const sasl = options.saslUsers && { port: saslPort, users: options.saslUsers }
  await writeFile(
    configFile,
    brokerProperties({
      dir: data,
      port,
      controllerPort,
      ...(sasl && { sasl }),
      more,
      ...(options.config && { config: options.config }),
    }),
  )

  const up = (): Promise<Jvm> => launch(jars, configFile, temporary ? folder : undefined)
  let jvm: Jvm | undefined = await up()
  const end = async (signal: NodeJS.Signals): Promise<void> => {
    const current = jvm
    jvm = undefined
    if (current !== undefined) await endOf(current, signal)
  }

  for (const [name, password] of Object.entries(options.scramUsers ?? {}))
    await addScramUser(jars, `127.0.0.1:${port}`, name, password)

  return {
    brokers: `127.0.0.1:${port}`,
    saslBrokers: sasl && `127.0.0.1:${saslPort}`,
    addresses: Object.fromEntries(Object.entries(more).map(([name, listener]) => [name, `127.0.0.1:${listener.port}`])),
    get pid() {
      return jvm?.child.pid
    },
    stop: async () => {
      await end('SIGTERM')
      if (temporary) await rm(folder, { recursive: true, force: true })
    },
    kill: () => end('SIGKILL'),
    restart: async () => {
      await end('SIGTERM')
      jvm = await up()
    },
    freeze: () => void jvm?.child.kill('SIGSTOP'),
    thaw: () => void jvm?.child.kill('SIGCONT'),
    exited: () => jvm?.ended ?? Promise.resolve(),
  }
}
