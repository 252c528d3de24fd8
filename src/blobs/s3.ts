/**
 * Blobs in storage that speaks S3 (the protocol of Amazon S3, API version 2006-03-01): PutObject, GetObject,
 * DeleteObject, ListObjectsV2. Credentials and region come by the usual chain of AWS (environment, ~/.aws, roles); an
 * endpoint of its own from AWS_ENDPOINT_URL_S3 or AWS_ENDPOINT_URL, and then the bucket is a part of the path. A call
 * is tried three times, and each call has a limit.
 */
import {
  DeleteObjectCommand,
  GetObjectCommand,
  ListObjectsV2Command,
  type ListObjectsV2CommandInput,
  type ListObjectsV2CommandOutput,
  PutObjectCommand,
  S3Client,
  S3ServiceException,
} from '@aws-sdk/client-s3'
import { ContinuoError, messageOf } from '../errors.ts'
import type { SharedStore } from './store.ts'

export interface S3Options {
  /** ms; default: a minute. Of a whole call, with its retries. */
  readonly limit?: number
}

/** Which bucket, and what stands before every name. Throws INVALID. */
const parseS3Url = (url: string): { readonly bucket: string; readonly prefix: string } => {
  const [, bucket, prefix = ''] =
    /^s3:\/\/([a-z0-9][a-z0-9.-]{1,61}[a-z0-9])(?:\/([\w!.*'()/-]*?))?\/?$/.exec(url) ?? []
  if (bucket !== undefined) return { bucket, prefix: prefix === '' ? '' : `${prefix}/` }
  throw new ContinuoError(
    'INVALID',
    'The blob store begins with s3: and is not of the form s3://bucket or s3://bucket/prefix. Credentials come from the environment or ~/.aws, an endpoint from AWS_ENDPOINT_URL_S3.',
  )
}

const DENYING =
  /credential|^(AccessDenied|InvalidAccessKeyId|SignatureDoesNotMatch|ExpiredToken|NoSuchBucket|PermanentRedirect)/i

export const openS3Store = (url: string, { limit = 60_000 }: S3Options = {}): SharedStore => {
  const { bucket, prefix } = parseS3Url(url)
  const { AWS_ENDPOINT_URL_S3, AWS_ENDPOINT_URL, AWS_REGION, AWS_DEFAULT_REGION } = process.env
  const custom = AWS_ENDPOINT_URL_S3 ?? AWS_ENDPOINT_URL
  const named = AWS_REGION ?? AWS_DEFAULT_REGION
  const client = new S3Client({
    // A server of one's own has no regions, but the signature names one.
    ...(custom !== undefined && { endpoint: custom, forcePathStyle: true, region: named ?? 'us-east-1' }),
    ...(custom === undefined && named !== undefined && { region: named }),
    // Checksums in headers are not understood everywhere; the signature covers what is sent, the name what is read.
    requestChecksumCalculation: 'WHEN_REQUIRED',
    responseChecksumValidation: 'WHEN_REQUIRED',
    maxAttempts: 3,
  })

  /** Throws UNAVAILABLE or DENIED, after `limit` at the latest; without the cause, which carries the signed request. */
  const call = async <T>(
    what: string,
    work: (abort: { readonly abortSignal: AbortSignal }) => Promise<T>,
  ): Promise<T> => {
    const abortSignal = AbortSignal.timeout(limit)
    try {
      return await work({ abortSignal })
    } catch (error) {
      const status = error instanceof S3ServiceException ? error.$metadata.httpStatusCode : undefined
      const name = error instanceof Error ? error.name : ''
      const denied = status === 401 || status === 403 || DENYING.test(name)
      const why = abortSignal.aborted
        ? `no answer within ${limit} ms`
        : `${name}${status === undefined ? '' : `, HTTP ${status}`}: ${messageOf(error)}`
      throw new ContinuoError(
        denied ? 'DENIED' : 'UNAVAILABLE',
        `The blob store ${url} could not be ${what} (${why}). ${denied ? 'Check the credentials (environment, ~/.aws), their rights and the bucket.' : 'Is it reachable?'}`,
      )
    }
  }

  /** All answers to a listing. */
  async function* pagesOf(
    asked: Pick<ListObjectsV2CommandInput, 'Prefix' | 'Delimiter'>,
  ): AsyncGenerator<ListObjectsV2CommandOutput> {
    let token: string | undefined
    do {
      const page = await call('listed', (abort) =>
        client.send(
          new ListObjectsV2Command({
            Bucket: bucket,
            ...asked,
            ...(token !== undefined && { ContinuationToken: token }),
          }),
          abort,
        ),
      )
      yield page
      token = page.NextContinuationToken
    } while (token !== undefined)
  }

  return {
    url,
    // A bucket has no folders.
    async begin() {},
    put: (name, bytes) =>
      call('written', async (abort) => {
        await client.send(new PutObjectCommand({ Bucket: bucket, Key: prefix + name, Body: bytes }), abort)
      }),
    get: (name) =>
      call('read', async (abort) => {
        try {
          const { Body, ContentLength } = await client.send(
            new GetObjectCommand({ Bucket: bucket, Key: prefix + name }),
            abort,
          )
          const bytes = (await Body?.transformToByteArray()) ?? new Uint8Array(0)
          // A body that ends early says nothing of what is stored.
          if (ContentLength !== undefined && bytes.length !== ContentLength)
            throw new Error(`${bytes.length} of ${ContentLength} bytes arrived`)
          return bytes
        } catch (error) {
          if (error instanceof S3ServiceException && error.name === 'NoSuchKey') return null
          throw error
        }
      }),
    remove: (name) =>
      call('written', async (abort) => {
        await client.send(new DeleteObjectCommand({ Bucket: bucket, Key: prefix + name }), abort)
      }),
    async *list(folder) {
      for await (const { Contents } of pagesOf({ Prefix: `${prefix}${folder}/` }))
        for (const { Key } of Contents ?? []) if (Key !== undefined) yield Key.slice(prefix.length)
    },
    async *sized(folder) {
      for await (const { Contents } of pagesOf({ Prefix: `${prefix}${folder}/` }))
        for (const { Key, Size = 0 } of Contents ?? [])
          if (Key !== undefined) yield { name: Key.slice(prefix.length), bytes: Size }
    },
    async *folders(folder) {
      const within = `${prefix}${folder === '' ? '' : `${folder}/`}`
      for await (const { CommonPrefixes } of pagesOf({ Prefix: within, Delimiter: '/' }))
        for (const { Prefix } of CommonPrefixes ?? []) if (Prefix !== undefined) yield Prefix.slice(prefix.length, -1)
    },
    async end() {},
    close: () => client.destroy(),
  }
}
