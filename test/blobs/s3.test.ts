/**
 * The store in S3, against a server of its own, and against servers that fail.
 *
 * @module-tag slow
 */

import { rmSync } from 'node:fs'
import { createServer, type RequestListener } from 'node:http'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, onTestFinished, test, vi } from 'vitest'
import { openBlobStore } from '../../src/blobs/open.ts'
import { openS3Store } from '../../src/blobs/s3.ts'
import { codeOf, messageOf } from '../../src/errors.ts'
import { type S3Server, startS3 } from '../../tools/s3/server.ts'
import { crash, inStore } from '../crash/suite.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { FAMILIES, type FamilyKey, inBlocks, openFamily, slowWith } from '../families.ts'
import { sharedContract } from './contract.ts'

let server: S3Server
let folders = 0
beforeAll(async () => {
  server = await startS3(['blobs'])
  for (const [name, value] of Object.entries(server.env)) vi.stubEnv(name, value)
}, 300_000)
afterAll(async () => {
  vi.unstubAllEnvs()
  await server.stop()
})

sharedContract('S3', async (claim) => {
  const store = await openBlobStore(`s3://blobs/place-${folders++}`)
  try {
    await claim(store)
  } finally {
    store.close()
  }
})

const failureOf = async (work: Promise<unknown>): Promise<{ code: string; message: string }> =>
  work.then(
    () => {
      throw new Error('nothing failed')
    },
    (error: unknown) => ({ code: codeOf(error), message: messageOf(error) }),
  )

test('wrong credentials and a bucket that is not there are DENIED, and named', async () => {
  const missing = await failureOf(openS3Store('s3://nowhere').put('a/1', new Uint8Array(1)))
  expect(missing).toMatchObject({ code: 'DENIED' })
  expect(missing.message).toMatch(/^The blob store s3:\/\/nowhere could not be written \(NoSuchBucket/)
  vi.stubEnv('AWS_SECRET_ACCESS_KEY', 'revoked')
  try {
    const store = openS3Store('s3://blobs')
    const calls = [store.put('a/1', new Uint8Array(1)), store.get('a/1'), store.remove('a/1')].map(failureOf)
    for (const failure of await Promise.all(calls)) expect(failure).toMatchObject({ code: 'DENIED' })
  } finally {
    vi.stubEnv('AWS_SECRET_ACCESS_KEY', server.env.AWS_SECRET_ACCESS_KEY)
  }
})

/** A store whose server answers like this. */
const answering = async (answer: RequestListener, limit?: number) => {
  const broken = createServer(answer)
  await new Promise<void>((resolve) => broken.listen(0, '127.0.0.1', resolve))
  const { port } = broken.address() as { port: number }
  vi.stubEnv('AWS_ENDPOINT_URL_S3', `http://127.0.0.1:${port}`)
  const store = openS3Store('s3://blobs', limit === undefined ? {} : { limit })
  vi.stubEnv('AWS_ENDPOINT_URL_S3', server.env.AWS_ENDPOINT_URL_S3)
  onTestFinished(() => {
    store.close()
    broken.closeAllConnections()
    broken.close()
  })
  return store
}

test('names that one answer does not hold are asked for again', async () => {
  const asked: (string | null)[] = []
  const store = await answering((request, response) => {
    const { searchParams } = new URL(request.url!, 'http://127.0.0.1')
    const token = searchParams.get('continuation-token')
    asked.push(token)
    const page = token === null ? 0 : Number(token)
    const more =
      page < 2 ? `<IsTruncated>true</IsTruncated><NextContinuationToken>${page + 1}</NextContinuationToken>` : ''
    const keys = [0, 1].map((i) => `<Contents><Key>${searchParams.get('prefix')}${page}${i}</Key></Contents>`)
    response.writeHead(200, { 'content-type': 'application/xml' })
    response.end(`<?xml version="1.0"?><ListBucketResult>${more}${keys.join('')}</ListBucketResult>`)
  })
  const listed: string[] = []
  for await (const name of store.list('log/0')) listed.push(name)
  expect(listed).toEqual(['00', '01', '10', '11', '20', '21'].map((end) => `log/0/${end}`))
  expect(asked).toEqual([null, '1', '2'])
})

test('a server that answers 500 makes every call UNAVAILABLE', async () => {
  const store = await answering((_, response) => response.writeHead(500).end())
  const calls = [store.put('a/1', new Uint8Array(1)), store.get('a/1'), store.remove('a/1')].map(failureOf)
  for (const failure of await Promise.all(calls)) expect(failure).toMatchObject({ code: 'UNAVAILABLE' })
})

test('a server that answers nothing is given up after the limit', async () => {
  const store = await answering(() => undefined, 300)
  const { code, message } = await failureOf(store.get('a/1'))
  expect(code).toBe('UNAVAILABLE')
  expect(message).toContain('no answer within 300 ms')
})

test('a body that ends early is UNAVAILABLE and never taken for a blob', async () => {
  const store = await answering((_, response) => {
    response.writeHead(200, { 'content-length': '1000' })
    response.write(new Uint8Array(10))
    setImmediate(() => response.destroy())
  })
  expect(await failureOf(store.get('a/1'))).toMatchObject({ code: 'UNAVAILABLE' })
})

test('an object that was removed from the bucket is null', async () => {
  const store = openS3Store('s3://blobs/gone')
  await store.put('a/1', new Uint8Array(5))
  rmSync(join(server.bucketFolder('blobs'), 'gone', 'a', '1'))
  expect(await store.get('a/1')).toBeNull()
  store.close()
})

test.each(['s3://', 's3:bucket', 's3://B', 's3://key:secret@bucket/x', 's3://bucket/a?b'])('%s is no store', (url) => {
  expect(() => openS3Store(url)).toThrow(/is not of the form s3:\/\/bucket/)
})

describe('a worker with S3 for blobs, killed between a snapshot and the commit that names it, leaves what an undisturbed one leaves', () => {
  const killed = async (key: FamilyKey): Promise<void> => {
    const family = inBlocks(await openFamily(key, temporaryFolder()), `s3://blobs/killed-${key}`)
    const dir = temporaryFolder()
    await crash(family, (name) => `file:${join(dir, `${name}.db`)}`, inStore(key))
  }
  for (const { key, name } of FAMILIES)
    test(`with ${name}`, { tags: slowWith(key), timeout: 900_000 }, async () => killed(key))
})
