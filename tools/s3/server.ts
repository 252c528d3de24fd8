/**
 * A server that speaks S3 over a folder, as a child process, for tests: S3Proxy from its published jars. lib/ has the
 * jars, as pom.xml names them; git ignores it.
 */
import { spawn } from 'node:child_process'
import { createHash } from 'node:crypto'
import { mkdir, mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { ContinuoError } from '../../src/errors.ts'
import { copyJars, javaVersion, locked } from '../jars.ts'
import { freePorts } from '../kafka/properties.ts'
import { watch } from '../kafka/watch.ts'

const here = import.meta.dirname

export interface S3Server {
  readonly endpoint: string
  /** What a client's environment needs to reach it. */
  readonly env: Readonly<Record<string, string>>
  /** The folder in which a bucket's objects lie as files. */
  bucketFolder(bucket: string): string
  stop(): Promise<void>
}

/** Starts a server with these buckets, all empty. */
export const startS3 = async (
  buckets: readonly string[],
  say: (line: string) => void = () => {},
): Promise<S3Server> => {
  await javaVersion('S3Proxy')
  const pom = await readFile(join(here, 'pom.xml'))
  const stamp = createHash('sha256').update(pom).digest('hex').slice(0, 16)
  await locked(join(here, '.ready'), () => copyJars(here, stamp, { what: 'S3Proxy', otherwise: '' }, say))
  const folder = await mkdtemp(join(tmpdir(), 'continuo-s3-'))
  for (const bucket of buckets) await mkdir(join(folder, 'data', bucket), { recursive: true })
  const [port] = await freePorts(1)
  const endpoint = `http://127.0.0.1:${port}`
  const config = join(folder, 's3proxy.conf')
  const lines = [
    `s3proxy.endpoint=${endpoint}`,
    's3proxy.authorization=aws-v2-or-v4',
    's3proxy.identity=test-identity',
    's3proxy.credential=test-credential',
    'jclouds.provider=filesystem-nio2',
    `jclouds.filesystem.basedir=${join(folder, 'data')}`,
    'jclouds.identity=none',
    'jclouds.credential=none',
  ]
  await writeFile(config, lines.join('\n'))
  const args = ['-Xmx256m', '-XX:+UseSerialGC', '-XX:TieredStopAtLevel=1', '-cp', join(here, 'lib', '*')]
  const child = spawn('java', [...args, 'org.gaul.s3proxy.Main', '--properties', config], {
    stdio: ['ignore', 'pipe', 'pipe'],
  })
  if (child.pid === undefined) throw new ContinuoError('UNAVAILABLE', 'java could not be started.')
  const watcher = watch(child.pid, folder)
  const ended = new Promise<void>((resolve) => child.once('exit', () => resolve()))
  void ended.then(() => watcher.kill('SIGKILL'))
  let tail = ''
  for (const stream of [child.stdout, child.stderr])
    stream.setEncoding('utf8').on('data', (text: string) => {
      tail = (tail + text).slice(-4000)
    })
  /** Any answer, also a refusal, comes from a server that runs. */
  const answers = (): Promise<boolean> =>
    fetch(endpoint).then(
      () => true,
      () => false,
    )
  while (!(await answers())) {
    if (child.exitCode !== null)
      throw new ContinuoError('UNAVAILABLE', `S3Proxy ended while starting (${child.exitCode}).\n${tail.trim()}`)
    await new Promise((resolve) => setTimeout(resolve, 50))
  }
  return {
    endpoint,
    env: {
      AWS_ENDPOINT_URL_S3: endpoint,
      AWS_ACCESS_KEY_ID: 'test-identity',
      AWS_SECRET_ACCESS_KEY: 'test-credential',
      AWS_REGION: 'us-east-1',
    },
    bucketFolder: (bucket) => join(folder, 'data', bucket),
    async stop() {
      child.kill('SIGKILL')
      await ended
      await rm(folder, { recursive: true, force: true })
    },
  }
}
