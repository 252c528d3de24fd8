/**
 * The metrics port under clients that do not behave: sockets of this process against a real worker.
 *
 * @module-tag slow
 */
import { readdirSync } from 'node:fs'
import { connect, type Socket } from 'node:net'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test } from 'vitest'
import { LIMITS } from '../../src/observe/server.ts'
import { eventually, MODEL, type Running, start, temporary } from './helpers.ts'

let worker: Running
let port = 0
const sockets: Socket[] = []

beforeAll(async () => {
  const log = `file:${join(temporary(), 'log.db')}`
  worker = start(['run', '--log', log, '--model', MODEL, '--metrics-port', '0'])
  port = Number((await worker.saw(/127\.0\.0\.1:(\d+)\/metrics/))[1])
})
afterAll(async () => {
  for (const socket of sockets) socket.destroy()
  worker.child.kill('SIGTERM')
  expect((await worker.done).code).toBe(0)
})

interface Client {
  readonly socket: Socket
  readonly closed: Promise<void>
  readonly isClosed: () => boolean
}

/** Connects and sends so much of a request. */
const half = async (text: string): Promise<Client> => {
  const socket = connect(port, '127.0.0.1')
  sockets.push(socket)
  let over = false
  const closed = new Promise<void>((resolve) => socket.once('close', () => resolve()))
  socket
    .on('error', () => {})
    .on('close', () => {
      over = true
    })
  socket.resume()
  await new Promise<void>((resolve) => socket.once('connect', () => resolve()))
  socket.write(text)
  return { socket, closed, isClosed: () => over }
}

const scrape = async (): Promise<void> => {
  const answer = await fetch(`http://127.0.0.1:${port}/metrics`)
  expect(answer.status).toBe(200)
  expect(await answer.text()).toContain('continuo_live_contexts')
}

test('half-sent requests are bounded in number, a scrape is answered among them, and all of them are dropped', async () => {
  const count = 5 * LIMITS.connections
  const clients: Client[] = []
  for (let i = 0; i < count; i += 1) {
    clients.push(await half(i % 2 === 0 ? 'GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ' : ''))
    if (i % 50 === 0) await scrape()
  }
  // What the worker holds now: its sockets, the log's files, and the few that every process has.
  if (process.platform === 'linux')
    expect(readdirSync(`/proc/${worker.child.pid}/fd`).length).toBeLessThan(LIMITS.connections + 60)
  const open = (): number => clients.filter(({ isClosed }) => !isClosed()).length
  await eventually(() => expect(open()).toBeLessThanOrEqual(LIMITS.connections))
  await scrape()
  // Nobody sends a byte more, and every connection ends all the same.
  await Promise.all(clients.map(({ closed }) => closed))
})

test('a client that sends a byte now and then is dropped, too', async () => {
  const { socket, closed } = await half('GET /metrics HTTP/1.1\r\nHost: x\r\nX-Slow: ')
  const timer = setInterval(() => socket.write('a'), LIMITS.look / 4)
  await closed
  clearInterval(timer)
})

test('a connection that was answered and asks nothing more is closed', async () => {
  const { closed } = await half('GET /healthz HTTP/1.1\r\nHost: x\r\n\r\n')
  await closed
})
