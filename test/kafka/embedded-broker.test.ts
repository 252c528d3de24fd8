/**
 * The broker that tests stand on: it goes when its starter goes.
 *
 * @module-tag slow
 */
import { fork, spawn } from 'node:child_process'
import { once } from 'node:events'
import { existsSync, readdirSync } from 'node:fs'
import { connect } from 'node:net'
import { tmpdir } from 'node:os'
import { fileURLToPath } from 'node:url'
import { expect, test } from 'vitest'
import { startBroker } from '../../tools/kafka/embedded-broker.ts'
import { freePorts } from '../../tools/kafka/properties.ts'
import { eventually, refuses } from '../streams/helpers.ts'
import { ownBroker } from './broker.ts'

const { kafka: broker } = await ownBroker()
const answers = (brokers: string): Promise<boolean> =>
  new Promise((resolve) => {
    const socket = connect(Number(brokers.split(':')[1]), '127.0.0.1')
    socket.once('error', () => resolve(false)).once('connect', () => resolve(true))
    socket.once('connect', () => socket.destroy())
  })
const running = (pid: number): boolean => {
  try {
    return process.kill(pid, 0)
  } catch {
    return false
  }
}
const folders = (): string[] => readdirSync(tmpdir()).filter((name) => name.startsWith('continuo-kafka-'))

test.skipIf(broker === undefined)(
  'a broker stops, is killed, and starts again at the same address',
  { timeout: 60_000 },
  async () => {
    const { brokers } = broker!
    expect(await answers(brokers)).toBe(true)
    await broker!.kill()
    expect(broker!.pid).toBeUndefined()
    expect(await answers(brokers)).toBe(false)
    await broker!.restart()
    expect(await answers(brokers)).toBe(true)
    await refuses(startBroker({ port: Number(brokers.split(':')[1]) }), 'UNAVAILABLE', '--port')
    const before = folders()
    await broker!.stop()
    expect(folders().length).toBe(before.length - 1)
  },
)

test.skipIf(broker === undefined)(
  'a broker and its data are gone when its starter is killed',
  { timeout: 60_000 },
  async () => {
    const before = new Set(folders())
    const child = fork(fileURLToPath(new URL('./orphan.ts', import.meta.url)), { execArgv: [] })
    const { pid, brokers } = await new Promise<{ pid: number; brokers: string }>((resolve) =>
      child.once('message', (message) => resolve(message as { pid: number; brokers: string })),
    )
    expect(running(pid)).toBe(true)
    expect(await answers(brokers)).toBe(true)
    const mine = folders().filter((name) => !before.has(name))
    expect(mine.length).toBeGreaterThan(0)
    child.kill('SIGKILL')
    await eventually(() => expect(running(pid)).toBe(false))
    await eventually(() => expect(mine.some((name) => !existsSync(`${tmpdir()}/${name}`))).toBe(true))
  },
)

test.skipIf(broker === undefined)(
  '`npm run kafka` stops with npm, also when npm alone hears the SIGTERM',
  { timeout: 60_000 },
  async () => {
    const [port] = await freePorts(1)
    const npm = spawn('npm', ['run', '--silent', 'kafka', '--', '--ephemeral', '--jars', '--port', String(port)], {
      stdio: ['ignore', 'pipe', 'inherit'],
    })
    await once(npm.stdout, 'data')
    expect(await answers(`127.0.0.1:${port}`)).toBe(true)
    npm.kill('SIGTERM')
    await eventually(async () => expect(await answers(`127.0.0.1:${port}`)).toBe(false))
  },
)
