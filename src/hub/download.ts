/**
 * One file of a hub: what has come so far lies beside it under the name of its ETag, so that a later call goes on with
 * the very same content; when all of it is there and its checksum is right, it takes its name.
 */
import { createHash, type Hash } from 'node:crypto'
import { createReadStream } from 'node:fs'
import { open, rename, stat, statfs, unlink } from 'node:fs/promises'
import { basename, dirname, join } from 'node:path'
import { ContinuoError, messageOf } from '../errors.ts'
import { makeFolder, syncFolder } from '../files.ts'
import { get, type Hub, Passing, passing, persist } from './request.ts'

/** What a hub says of a file before it sends it. */
export interface Announced {
  /** sha256 of a large file (LFS), or SHA-1 of Git's blob of a small one; in hexadecimal. */
  readonly etag: string
  readonly bytes: number
}

export interface Fetched extends Announced {
  /** false: it was there already. */
  readonly downloaded: boolean
}

const wrong = (what: string, why: string): ContinuoError => new ContinuoError('INVALID', `${what}: ${why}`)

const plainEtag = (header: string | null): string | null =>
  /^(?:W\/)?"?([0-9a-f]{64}|[0-9a-f]{40})"?$/.exec(header ?? '')?.[1] ?? null

/** By the hub's own answer; a length also by where it redirects to. */
const announcedBy = (first: Headers, last: Headers, what: string): Announced => {
  const etag = plainEtag(first.get('x-linked-etag') ?? first.get('etag'))
  if (etag === null)
    throw wrong(
      what,
      'the hub gives neither a sha256 nor a Git hash as ETag, so what it sends cannot be checked. Check --hub.',
    )
  const range = /\/(\d+)$/.exec(last.get('content-range') ?? '')?.[1]
  const length = first.get('x-linked-size') ?? range ?? last.get('content-length')
  const bytes = Number(length ?? Number.NaN)
  if (length === null || !Number.isSafeInteger(bytes) || bytes < 0)
    throw wrong(what, 'the hub does not say how long the file is. Check --hub.')
  return { etag, bytes }
}

/** The checksum that an ETag is of: Git's covers a header with the length. */
const hashOf = ({ etag, bytes }: Announced): Hash =>
  etag.length === 64 ? createHash('sha256') : createHash('sha1').update(`blob ${bytes}\0`)

const sizeOf = (path: string): Promise<number> =>
  stat(path).then(
    ({ size }) => size,
    () => -1,
  )

const checksum = async (path: string, about: Announced, signal?: AbortSignal): Promise<string> => {
  const hash = hashOf(about)
  for await (const piece of createReadStream(path, { highWaterMark: 1 << 20 })) {
    signal?.throwIfAborted()
    hash.update(piece as Buffer)
  }
  return hash.digest('hex')
}

export interface FileRequest {
  /** The path of the file on the hub, from its root: /owner/name/resolve/REVISION/FILE. */
  readonly path: string
  /** Where it goes. */
  readonly to: string
  /** The file at `to` has this ETag already; its length is compared. */
  readonly known?: string | undefined
  /** Bytes that it may have; default: what there is room for on the disk. */
  readonly most?: number | undefined
  readonly onProgress?: ((done: number, bytes: number) => void) | undefined
}

const failedWrite = (path: string, cause: unknown): ContinuoError => {
  const { code } = cause as NodeJS.ErrnoException
  const denied = code === 'EACCES' || code === 'EPERM' || code === 'EROFS'
  return new ContinuoError(denied ? 'DENIED' : 'UNAVAILABLE', `${path} could not be written: ${messageOf(cause)}.`, {
    cause,
  })
}

/** Bytes that a file in this folder, which may be missing, can have; null where the system does not tell. */
const roomIn = async (folder: string): Promise<number | null> => {
  try {
    const { bavail, bsize } = await statfs(folder)
    return bavail * bsize
  } catch (error) {
    const above = dirname(folder)
    return (error as NodeJS.ErrnoException).code === 'ENOENT' && above !== folder ? roomIn(above) : null
  }
}

/** Where the part of this content lies. */
const partOf = (to: string, { etag }: Announced): string => join(dirname(to), `.${basename(to)}.${etag}.part`)

/**
 * Downloads a file, or goes on with it. Throws INVALID for an answer that is not what was announced, also where the
 * checksum is wrong (nothing takes the file's name then, and the part is gone); UNAVAILABLE where the hub or the
 * connection does not recover; DENIED where it refuses.
 */
export const fetchFile = async (hub: Hub, { path, to, known, most, onProgress }: FileRequest): Promise<Fetched> => {
  const what = `${hub.url}${path}`
  let about: Announced | null = null
  let done = 0
  const attempt = async (): Promise<Fetched> => {
    // What was announced before says how much of it is there.
    const part = about === null ? null : partOf(to, about)
    const there = part === null ? -1 : await sizeOf(part)
    if (about !== null && there === about.bytes) return finish(about)
    const from = Math.max(0, there)
    const answer = await get(hub, path, from > 0 ? { range: `bytes=${from}-` } : {})
    const { first, response, alive } = answer
    try {
      const now = announcedBy(first, response.headers, what)
      if (about === null && from === 0) {
        about = now
        if (known === now.etag && (await sizeOf(to)) === now.bytes) return { ...now, downloaded: false }
        const earlier = await sizeOf(partOf(to, now))
        // A part of an earlier call: ask again, for the rest.
        if (earlier > 0 && earlier <= now.bytes) return await again(response)
      } else if (about !== null && (now.etag !== about.etag || now.bytes !== about.bytes)) {
        throw wrong(what, 'the file was exchanged on the hub while it was being downloaded. Begin again.')
      }
      const begin = await beginOf(response, from, now)
      await checkRoom(now, begin)
      done = begin
      await receive(response, now, begin, alive)
      return await finish(now)
    } catch (error) {
      if (error instanceof ContinuoError || error instanceof Passing) throw error
      hub.signal?.throwIfAborted()
      throw passing(error)
    } finally {
      answer.done()
      // Of a body that was not read to its end.
      await response.body?.cancel().catch(() => {})
    }
  }
  const again = async (response: Response): Promise<Fetched> => {
    await response.body?.cancel()
    return attempt()
  }
  /** Whoever announces more than can be kept is not listened to until the disk is full. */
  const checkRoom = async ({ bytes }: Announced, begin: number): Promise<void> => {
    if (most !== undefined && bytes > most)
      throw wrong(what, `the hub announces ${bytes} bytes, expected at most ${most} of such a file. Check --hub.`)
    const room = await roomIn(dirname(to))
    if (room !== null && bytes - begin > room)
      throw new ContinuoError(
        'UNAVAILABLE',
        `${what}: ${bytes - begin} bytes are to come, and the disk of ${dirname(to)} has room for ${room}. Free some space, or take another folder (--to).`,
      )
  }
  /** The place in the file at which the answer begins. */
  const beginOf = async (response: Response, from: number, { bytes }: Announced): Promise<number> => {
    if (response.status === 200) return 0
    const [, start, total] = /^bytes (\d+)-\d+\/(\d+)$/.exec(response.headers.get('content-range') ?? '') ?? []
    if (Number(start) !== from || Number(total) !== bytes)
      throw wrong(
        what,
        `asked for bytes from ${from} of ${bytes}, got "${response.headers.get('content-range')}". Check --hub.`,
      )
    return from
  }
  const receive = async (response: Response, now: Announced, begin: number, alive: () => void): Promise<void> => {
    const part = partOf(to, now)
    const opened = async () => {
      makeFolder(dirname(to))
      return open(part, begin > 0 ? 'r+' : 'w')
    }
    const file = await opened().catch((cause: unknown) => {
      throw failedWrite(part, cause)
    })
    try {
      for await (const piece of response.body ?? []) {
        const bytes = piece as Uint8Array
        alive()
        if (done + bytes.length > now.bytes) throw wrong(what, `more than the ${now.bytes} bytes that were announced.`)
        await file.write(bytes, 0, bytes.length, done).catch((cause: unknown) => {
          throw failedWrite(part, cause)
        })
        done += bytes.length
        onProgress?.(done, now.bytes)
      }
      await file.sync()
    } finally {
      await file.close()
    }
    if (done < now.bytes) throw new Passing(`the connection ended after ${done} of ${now.bytes} bytes`)
  }
  const finish = async (now: Announced): Promise<Fetched> => {
    const part = partOf(to, now)
    const found = await checksum(part, now, hub.signal)
    if (found !== now.etag) {
      await unlink(part)
      const kind = now.etag.length === 64 ? 'sha256' : 'Git hash'
      throw wrong(
        what,
        `what came has the ${kind} ${found}, expected ${now.etag}. It was thrown away; download it again.`,
      )
    }
    await rename(part, to)
    await syncFolder(dirname(to))
    return { ...now, downloaded: true }
  }
  return persist(hub, what, () => done, attempt)
}
