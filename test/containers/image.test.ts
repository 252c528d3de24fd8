/** The image: what is in it, and what runs in it without privileges. */
import { execFileSync } from 'node:child_process'
import { appendFileSync, cpSync, mkdirSync, readFileSync } from 'node:fs'
import { dirname, join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { eventually, ROOT, temporary } from '../cli/helpers.ts'
import { docker, fresh, IMAGE, STRICT, tried, wrote } from './docker.ts'

const PACKAGE = '/usr/local/lib/node_modules/continuo'
const volume = fresh('log')
const volumes = [volume]
const inImage = (...command: readonly string[]): Promise<string> =>
  docker(['run', '--rm', '--entrypoint', command[0]!, IMAGE, ...command.slice(1)])

interface Entry {
  readonly version?: string
  readonly integrity?: string
  readonly dev?: boolean
  readonly optional?: boolean
}
const packagesIn = (text: string): ReadonlyMap<string, Entry> =>
  new Map(Object.entries((JSON.parse(text) as { readonly packages: Readonly<Record<string, Entry>> }).packages))

beforeAll(async () => {
  await docker(['volume', 'create', volume])
})
afterAll(async () => {
  await docker(['volume', 'rm', ...volumes])
})

describe('the image', () => {
  test('has the packages of the lock file and no others, and no compiler', async () => {
    const there = packagesIn(await inImage('cat', `${PACKAGE}/node_modules/.package-lock.json`))
    const wanted = packagesIn(readFileSync(join(ROOT, 'package-lock.json'), 'utf8'))
    for (const [path, { version, integrity }] of there)
      expect({ path, version, integrity }).toMatchObject({
        path,
        version: wanted.get(path)?.version,
        integrity: wanted.get(path)?.integrity,
      })
    const missing = [...wanted].filter(
      ([path, { dev, optional }]) => path !== '' && dev !== true && optional !== true && !there.has(path),
    )
    expect(missing).toEqual([])
    expect([...there].filter(([path]) => wanted.get(path)?.dev === true)).toEqual([])
    for (const program of ['g++', 'gcc', 'cc', 'make', 'git', 'python3'])
      expect((await tried(['run', '--rm', '--entrypoint', 'which', IMAGE, program])).code).toBe(1)
  })

  test('says that all is well, as its own user and as one that it does not know', async () => {
    for (const user of [[], ['--user', '4321:4321']]) {
      const { code, text } = await tried(['run', '--rm', ...user, IMAGE, 'doctor'])
      expect(text).toMatch(/Ready|ok/i)
      expect(code).toBe(0)
    }
  })

  test('is built again without the compiler where only a page of docs/ changed', async () => {
    const copy = temporary()
    const files = execFileSync('git', ['ls-files', '--cached', '--others', '--exclude-standard'], {
      cwd: ROOT,
      encoding: 'utf8',
    })
    for (const path of files.split('\n').filter(Boolean)) {
      mkdirSync(dirname(join(copy, path)), { recursive: true })
      cpSync(join(ROOT, path), join(copy, path))
    }
    appendFileSync(join(copy, 'docs', 'architecture.md'), '\nOne more line.\n')
    const { code, text } = await tried(['build', '--progress', 'plain', '--tag', `${IMAGE}-docs`, copy])
    expect(text).toMatch(/CACHED/)
    expect(code).toBe(0)
    const steps = [...text.matchAll(/^#(\d+) \[.*?\] RUN (.*)$/gm)].map(([, number, command]) => ({
      command: command!.slice(0, 24),
      cached: new RegExp(`^#${number} CACHED$`, 'm').test(text),
    }))
    expect(steps.filter(({ command }) => /^(npm ci|node tools)/.test(command))).toEqual(
      Array(4).fill(expect.objectContaining({ cached: true })),
    )
    await docker(['rmi', `${IMAGE}-docs`])
  })
})

describe('without root, capabilities or a root file system to write', () => {
  const mounted = [...STRICT, '--volume', `${volume}:/home/node/.continuo`]
  const verified = (...args: readonly string[]) => docker(['run', '--rm', ...mounted, IMAGE, 'verify', ...args])

  test('the demo is killed, goes on from the volume, and verify agrees', async () => {
    const name = fresh('demo')
    await docker(['run', '--detach', '--name', name, ...mounted, IMAGE, 'demo'])
    // A line that stands out: the log of the harbour is being read.
    await wrote(name, /^ +[\d,]+ {2}(structure|values) /m)
    await docker(['kill', '--signal', 'KILL', name])
    await docker(['rm', name])
    const { code, text } = await tried(['run', '--rm', ...mounted, IMAGE, 'demo'])
    expect(text).toMatch(/Going on with|was read before/)
    expect(code).toBe(0)
    expect(await verified('--log', 'file:.continuo/demo.db')).toMatch(/agrees/)
    const watch = `${PACKAGE}/models/watch`
    expect(await verified('--log', 'file:.continuo/watch.db', '--model', watch)).toMatch(/agrees/)
  })
})

describe('the health check', () => {
  const looks = [
    '--health-interval',
    '1s',
    '--health-timeout',
    '2s',
    '--health-retries',
    '2',
    '--health-start-period',
    '0s',
  ]
  const healthOf = (name: string) => docker(['inspect', '--format', '{{.State.Health.Status}}', name])
  const started = async (...args: readonly string[]): Promise<string> => {
    const name = fresh('health')
    await docker(['run', '--detach', '--name', name, ...looks, ...args])
    afterAll(() => docker(['rm', '--force', name]))
    return name
  }

  test.each([
    ['a worker', ['run', '--log', 'file:.continuo/a.db']],
    ['a gateway', ['serve', '--log', 'file:.continuo/a.db', '--port', '8181']],
    ['a gateway with a worker', ['serve', '--with-worker', '--log', 'file:.continuo/a.db']],
  ])('%s is well while it answers, and not when it has stopped to', async (_, command) => {
    const log = fresh('health-log')
    volumes.push(log)
    const mount = ['--volume', `${log}:/home/node/.continuo`]
    await docker(['run', '--rm', ...mount, IMAGE, 'topics', 'apply', '--log', 'file:.continuo/a.db'])
    const name = await started(...mount, IMAGE, ...command)
    await eventually(async () => expect(await healthOf(name)).toBe('healthy'))
    await docker(['kill', '--signal', 'STOP', name])
    await eventually(async () => expect(await healthOf(name)).toBe('unhealthy'))
    await docker(['kill', '--signal', 'CONT', name])
    await eventually(async () => expect(await healthOf(name)).toBe('healthy'))
    await docker(['rm', '--force', name])
  })

  test('a command without a port is well while it runs', async () => {
    const log = fresh('health-log')
    volumes.push(log)
    const mount = ['--volume', `${log}:/home/node/.continuo`]
    await docker(['run', '--rm', ...mount, IMAGE, 'topics', 'apply', '--log', 'file:.continuo/a.db'])
    const name = await started('--init', ...mount, IMAGE, 'tail', '--log', 'file:.continuo/a.db')
    await eventually(async () => expect(await healthOf(name)).toBe('healthy'))
    await docker(['rm', '--force', name])
  })
})
