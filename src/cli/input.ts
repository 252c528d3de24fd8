/** The text that a command reads: a file, or standard input or a named pipe while it is being written. */
import { closeSync, createReadStream, fstatSync, open } from 'node:fs'
import { Socket } from 'node:net'
import { finished, type Readable } from 'node:stream'
import { promisify } from 'node:util'
import { ContinuoError } from '../errors.ts'
import { type Encoding, inUtf8 } from './encoding.ts'
import { usage } from './flags.ts'

/** A source that was silent for so long pauses, and what came from it is sent. */
const PAUSE = 100 // ms
const FILE_CHUNK = 1 << 18

export interface Input {
  /** It is read while it is being written: standard input or a named pipe. */
  readonly live: boolean
  /**
   * The bytes, once. In what is live a null marks each pause, and the signal ends it: what has arrived by then still
   * comes. Throws INVALID where reading fails.
   */
  read(stopping?: AbortSignal): AsyncGenerator<Uint8Array | null>
  close(): void
}

const adviceFor = (code: string | undefined): string => {
  if (code === 'ENOENT' || code === 'ENOTDIR') return 'Check the path.'
  if (code === 'EACCES' || code === 'EPERM') return 'Change its permissions, or run this as a user who may read it.'
  return 'Give a file that can be read, or pipe its text into standard input and say - for it.'
}

const unreadable = (name: string, error: unknown): ContinuoError => {
  const { code, message } = error as NodeJS.ErrnoException
  return new ContinuoError('INVALID', `${name} cannot be read: ${message}. ${adviceFor(code)}`, { cause: error })
}

/**
 * What a stream brings, as it comes, and one null after it when nothing more came for `pause` ms. Only waiting counts,
 * not the time that the reader takes: a fast stream has no pauses, and a slow trickle cannot put one off for ever.
 */
export async function* withPauses(
  stream: Readable,
  pause: number,
  stopping?: AbortSignal,
): AsyncGenerator<Uint8Array | null> {
  let over = false
  let failure: unknown
  let wake = (): void => {}
  const moved = (): void => wake()
  stream.on('readable', moved)
  stopping?.addEventListener('abort', moved)
  const forget = finished(stream, { writable: false }, (error) => {
    over = true
    failure = error
    wake()
  })
  let left = Infinity
  try {
    for (;;) {
      // Asked before reading: what was there when the signal fired is read once more.
      const last = over || stopping?.aborted === true
      const bytes = stream.read() as Uint8Array | null
      if (bytes !== null) {
        left = Math.min(left, pause)
        yield bytes
      }
      if (failure) throw failure
      if (last) return
      if (bytes !== null) continue
      if (left < 1) {
        left = Infinity
        yield null
        continue
      }
      const asked = performance.now()
      let timer: NodeJS.Timeout | undefined
      await new Promise<void>((resolve) => {
        wake = resolve
        if (left < Infinity) timer = setTimeout(resolve, left)
      })
      clearTimeout(timer)
      left -= performance.now() - asked
    }
  } finally {
    forget()
    stream.off('readable', moved)
    stopping?.removeEventListener('abort', moved)
    stream.destroy()
  }
}

async function* explained<T>(name: string, source: AsyncIterable<T>): AsyncGenerator<T> {
  try {
    yield* source
  } catch (error) {
    throw unreadable(name, error)
  }
}

/**
 * Opens the file at once, so that what is wrong with it is known before anything else happens; - is standard input. A
 * named pipe is read like a socket: a read of a file that waits for a writer would keep the process from ending.
 * `encoding`: of a text, which becomes UTF-8.
 */
export const openInput = async (file: string, encoding: Encoding = 'bytes'): Promise<Input> => {
  const read = (name: string, source: AsyncIterable<Uint8Array | null>) =>
    encoding === 'bytes' ? explained(name, source) : inUtf8(name, explained(name, source), encoding)
  if (file === '-') {
    const name = 'Standard input'
    return { live: true, read: (stopping) => read(name, withPauses(process.stdin, PAUSE, stopping)), close() {} }
  }
  const name = `The file ${file}`
  const fd = await promisify(open)(file, 'r').catch((error: unknown) => {
    throw unreadable(name, error)
  })
  const found = fstatSync(fd)
  if (found.isDirectory()) {
    closeSync(fd)
    throw usage(`${file} is a folder; a file is expected, or - for standard input.`)
  }
  const live = found.isFIFO()
  let taken = false
  return {
    live,
    read(stopping) {
      taken = true
      if (live) return read(name, withPauses(new Socket({ fd, readable: true, writable: false }), PAUSE, stopping))
      return read(name, createReadStream(file, { fd, highWaterMark: FILE_CHUNK }))
    },
    close() {
      if (!taken) closeSync(fd)
    },
  }
}

/** Its bytes, without the pauses. */
export async function* bytesIn(input: Input): AsyncGenerator<Uint8Array> {
  for await (const piece of input.read()) if (piece !== null) yield piece
}
