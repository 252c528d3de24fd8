/**
 * A worker whose blocks lie in S3, where the server fails in the middle of the run: the task waits or is refused with a
 * sentence, and when the server works again, all that was fed is there.
 *
 * @module-tag slow
 */

import { renameSync } from 'node:fs'
import { createServer, type IncomingMessage, request, type ServerResponse } from 'node:http'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, test, vi } from 'vitest'
import { codeOf, messageOf } from '../../src/errors.ts'
import { type S3Server, startS3 } from '../../tools/s3/server.ts'
import { growingBenches, textOf } from '../operators/block-bench.ts'
import { flippedBits } from '../operators/flipped.ts'
import { event, verified } from '../operators/harness.ts'
import { inFolder, wideBenches } from '../operators/memory-bench.ts'
import { eventually } from '../streams/helpers.ts'

type Fault = (question: IncomingMessage, answer: ServerResponse) => void

let server: S3Server
/** Between the worker and the server; hands everything on while there is no fault. */
const proxy = createServer((question, answer) => {
  if (fault !== null) return fault(question, answer)
  const { port } = new URL(server.env.AWS_ENDPOINT_URL_S3!)
  const { method, url: path, headers } = question
  // The host that was asked for is signed, so the headers stay as they are.
  const passed = request({ host: '127.0.0.1', port, method, path, headers }, (found) => {
    answer.writeHead(found.statusCode!, found.headers)
    found.pipe(answer)
  })
  passed.on('error', () => answer.destroy())
  question.pipe(passed)
})
let fault: Fault | null = null

beforeAll(async () => {
  server = await startS3(['blobs'])
  await new Promise<void>((resolve) => proxy.listen(0, '127.0.0.1', resolve))
  const { port } = proxy.address() as { port: number }
  for (const [name, value] of Object.entries(server.env)) vi.stubEnv(name, value)
  vi.stubEnv('AWS_ENDPOINT_URL_S3', `http://127.0.0.1:${port}`)
}, 300_000)
afterAll(async () => {
  vi.unstubAllEnvs()
  proxy.closeAllConnections()
  proxy.close()
  await server.stop()
})

const faults: Record<string, { readonly fault: Fault; readonly state: 'lost' | 'refused'; readonly code: string }> = {
  'answers 500': { fault: (_, answer) => answer.writeHead(500).end(), state: 'lost', code: 'UNAVAILABLE' },
  'takes half of a body and gives half of one': {
    fault: (question, answer) => {
      question.once('data', () => question.destroy())
      if (question.method !== 'GET') return
      answer.writeHead(200, { 'content-length': '1000' })
      answer.write(new Uint8Array(10))
      setImmediate(() => answer.destroy())
    },
    state: 'lost',
    code: 'UNAVAILABLE',
  },
  'takes the credentials no more': {
    fault: (question, answer) => {
      question.resume()
      answer.writeHead(403, { 'content-type': 'application/xml' })
      answer.end('<?xml version="1.0"?><Error><Code>InvalidAccessKeyId</Code><Message>revoked</Message></Error>')
    },
    state: 'refused',
    code: 'DENIED',
  },
}

const benches = growingBenches()
const wide = wideBenches()
let flips = 0

test.each(Object.entries(faults))(
  'a server that %s in the middle of a run',
  (name, { fault: broken, state, code }) => {
    const place = name.replaceAll(' ', '-')
    return benches.use(
      async (bench) => {
        const options = { snapshotEvery: 256, maxContexts: 1, retryPause: 20 }
        const feed = async (round: number): Promise<void> => {
          for (const session of ['a', 'b', 'c'])
            await bench.feed(event(session, { type: 'text', text: textOf(700, round * 3 + session.charCodeAt(0)) }))
        }
        await feed(0)
        const running = await bench.start(options)
        await running.idle()
        fault = broken
        await feed(1)
        await eventually(() => expect(running.states.some((each) => each.state === state)).toBe(true), 60_000)
        const { error } = running.states.find((each) => each.state === state)!
        expect(codeOf(error)).toBe(code)
        expect(messageOf(error)).toContain(`s3://blobs/${place}`)
        fault = null
        if (state === 'lost') await running.idle()
        await running.worker.stop()
        // Who was refused is started again by somebody who gave it other credentials.
        const again = await bench.settle(options)
        expect(again.worker.refused.size).toBe(0)
        const heads = await bench.heads()
        for (const session of ['a', 'b', 'c']) expect(heads.get(session)).toMatchObject({ totals: { tokens: 1400 } })
        await verified(bench)
      },
      { blobStore: `s3://blobs/${place}` },
    )
  },
  300_000,
)

test('objects that are gone with their mark, and come back: the worker waits, and nothing is lost', () => {
  const folder = () => join(server.bucketFolder('blobs'), 'emptied')
  return benches.use(
    async (bench) => {
      const options = { maxContexts: 1, retryPause: 20 }
      await bench.feed(
        event('b', { type: 'text', text: textOf(700, 2) }),
        event('a', { type: 'text', text: textOf(700) }),
      )
      await bench.settle(options)
      // The first event of b is gone: whoever took a block of it for lost would set it aside for good.
      await bench.log.trim(bench.names.chunks, 0, 1)
      const running = await bench.start(options)
      await running.idle()
      renameSync(folder(), `${folder()}.away`)
      await bench.feed(event('b', { type: 'text', text: textOf(300, 3) }))
      await eventually(() => expect(running.states.some(({ state }) => state === 'lost')).toBe(true), 60_000)
      const { error } = running.states.find(({ state }) => state === 'lost')!
      expect(codeOf(error)).toBe('UNAVAILABLE')
      expect(messageOf(error)).toMatch(
        /^The blob store s3:\/\/blobs\/emptied is away, .* it has no [0-9a-f]{32}\/0\/log/,
      )
      renameSync(`${folder()}.away`, folder())
      await running.idle()
      await running.worker.stop()
      expect((await bench.heads()).get('b')).toMatchObject({ status: 'open', totals: { tokens: 1000 } })
      await verified(bench)
    },
    { blobStore: 's3://blobs/emptied' },
  )
}, 300_000)

const inS3 = () => {
  const prefix = `flipped-${flips++}`
  return {
    options: { blobStore: `s3://blobs/${prefix}` },
    damage: inFolder(join(server.bucketFolder('blobs'), prefix)),
  }
}
// What is damaged in one place of the store is read as that in another one; the other kinds are those of a folder.
const patient = { timeout: 300_000 }
flippedBits('S3', wide, inS3, { worker: patient, repair: patient, first: true })
const long = { ...patient, tags: 'long' }
flippedBits('S3', wide, inS3, { worker: long, repair: long })
