/**
 * A client that takes nothing, before a gateway in this process, so that what is read of the log can be counted.
 *
 * @module-tag slow
 */
import { once } from 'node:events'
import { connect } from 'node:net'
import { fastify } from 'fastify'
import { expect, onTestFinished, test } from 'vitest'
import { ensureTopics, namesOf } from '../../src/client/topics.ts'
import { bodyOf, type Refusal } from '../../src/gateway/refusal.ts'
import { LIMITS, serveGateway } from '../../src/gateway/server.ts'
import { goneSignal } from '../../src/gateway/service.ts'
import { type ServerEvent, sendEvents } from '../../src/gateway/sse.ts'
import { byteTokenizer } from '../../src/models/tokenizer/index.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { temporaryLog } from '../client/helpers.ts'
import { eventually } from '../streams/helpers.ts'

const RECORD = 200_000
const RECORDS = 200
const COUNT = 300

test('a reader that takes nothing is disconnected; until then little of its stream is in memory', async () => {
  const log = await temporaryLog()
  const names = namesOf(log)
  await ensureTopics(log, names)
  let read = 0
  const counted: EventLog = {
    ...log,
    async *read(topic, ...rest) {
      for await (const batch of log.read(topic, ...rest)) {
        if (topic === names.observations) read += batch.records.length
        yield batch
      }
    },
  }
  const record = { key: Buffer.from('s'), value: Buffer.from(JSON.stringify('x'.repeat(RECORD))) }
  for (let at = 0; at < RECORDS; at += 4) await log.append(names.observations, [record, record, record, record])
  const lines: string[] = []
  const note = (_: object, message: string): void => void lines.push(message)
  const gateway = await serveGateway({
    log: counted,
    names,
    served: {
      ...{
        id: 'm',
        vocabSize: 256,
        positions: null,
        tokenizer: byteTokenizer(),
        form: () => Promise.reject(new Error('none')),
      },
      about: { type: 'none', levels: [], outerMemory: false, torus: null },
    },
    boards: [],
    verify: null,
    host: '127.0.0.1',
    port: 0,
    keys: null,
    tls: null,
    limits: { ...LIMITS, open: 1, stall: 1000 },
    logger: { info: note, warn: note, error: note },
  })
  onTestFinished(() => gateway.close(0))
  const { port } = new URL(gateway.url)
  const stream = `${gateway.url}/v1/sessions/s/observations`
  const statusOfAnother = async (): Promise<number> => {
    const leaving = new AbortController()
    const { status } = await fetch(stream, { signal: leaving.signal })
    leaving.abort()
    return status
  }

  const socket = connect({ port: Number(port), host: '127.0.0.1' })
  onTestFinished(() => void socket.destroy())
  socket.on('error', () => undefined)
  await once(socket, 'connect')
  socket.write(`GET /v1/sessions/s/observations?from=beginning HTTP/1.1\r\nhost: 127.0.0.1:${port}\r\n\r\n`)
  await expect.poll(() => read, { interval: 5 }).toBeGreaterThan(0)
  expect(await statusOfAnother()).toBe(503)
  // The one stream that may be open is free again when the reader was disconnected.
  await expect.poll(statusOfAnother, { timeout: 20_000 }).toBe(200)
  expect(read).toBeLessThan(RECORDS / 2)

  // The same stream to a client that reads is whole.
  const whole = await eventually(async () => {
    const response = await fetch(`${stream}?from=beginning`)
    expect(response.status).toBe(200)
    return response
  })
  let bytes = 0
  for await (const piece of whole.body!) {
    bytes += piece.length
    if (bytes > RECORD * RECORDS) break
  }
  expect(bytes).toBeGreaterThan(RECORD * RECORDS)
})

test('a reader that begins to take again finds an event at the end that says why, and with the id before it nothing is missing', async () => {
  const app = fastify()
  onTestFinished(() => app.close())
  const left = Promise.withResolvers<void>()
  async function* events(from: number): AsyncGenerator<ServerEvent> {
    try {
      for (let at = from; at < COUNT; at += 1) yield { id: String(at), data: 'x'.repeat(100_000) }
    } finally {
      left.resolve()
    }
  }
  app.get('/', async (request, reply) => {
    const from = Number(request.headers['last-event-id'] ?? -1) + 1
    const failed = (error: unknown): ServerEvent => ({ event: 'failure', data: bodyOf(error as Refusal) })
    // Comment lines all the time: none may come behind the end.
    await sendEvents(reply, events(from), { stall: 1000, heartbeat: 1, gone: goneSignal(reply), failed })
    return reply
  })
  const url = await app.listen({ port: 0, host: '127.0.0.1' })
  const { body } = await fetch(url)
  const reader = body!.getReader()
  // Nothing is taken until the gateway has turned away from the source.
  await left.promise
  let text = ''
  for (let piece = await reader.read(); !piece.done; piece = await reader.read())
    text += Buffer.from(piece.value).toString('latin1')
  const ids = [...text.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))
  expect(ids).toEqual(ids.map((_, at) => at))
  expect(ids.length).toBeLessThan(COUNT)
  const [end] = text.split('\n\n').slice(-2)
  expect(end).toMatch(/^event: failure\ndata: .*Nothing of this stream was taken for 1 s, .*"stalled"/)
  const rest = await (await fetch(url, { headers: { 'last-event-id': String(ids.at(-1)) } })).text()
  expect([...rest.matchAll(/^id: (\d+)$/gm)].map(([, id]) => Number(id))).toEqual(
    Array.from({ length: COUNT - ids.length }, (_, at) => ids.length + at),
  )
})
