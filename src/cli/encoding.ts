/**
 * Texts in other encodings than UTF-8, as UTF-8. Without --encoding a byte order mark decides, and text in UTF-16
 * without one is refused: read as it is, every second byte would be a NUL. Bytes that are no UTF-8 are read as they
 * are, and one sentence says so.
 */
import { TextDecoder } from 'node:util'
import { choice, usage } from './flags.ts'
import { say } from './output.ts'

const ENCODINGS = ['auto', 'bytes', 'utf-16le', 'utf-16be', 'latin1'] as const
export type Encoding = (typeof ENCODINGS)[number]

export const encodingFlags = {
  encoding: choice(
    ENCODINGS,
    'of the text: latin1 (Windows-1252), utf-16le and utf-16be become UTF-8, bytes are read as they are; auto looks at its beginning',
    'auto',
  ),
}

/** Bytes of a beginning that are looked at. */
const LOOKED = 4096
/** Of a text in UTF-16 of Western languages nearly every second byte is 0; text has none. */
const MANY_ZEROS = 0.3

/** What the beginning of a text says of its encoding. Throws a usage error where it has to be told. */
const encodingOf = (name: string, beginning: Uint8Array): Encoding => {
  const [first, second] = beginning
  if (first === 0xff && second === 0xfe) return 'utf-16le'
  if (first === 0xfe && second === 0xff) return 'utf-16be'
  const zeros = [0, 0]
  for (const [at, byte] of beginning.entries()) if (byte === 0) zeros[at % 2]! += 1
  const most = Math.max(...zeros) / (beginning.length / 2)
  if (most > MANY_ZEROS && Math.min(...zeros) * 8 < Math.max(...zeros))
    throw usage(
      `${name} looks like text in UTF-16: every second byte is 0. Say --encoding ${zeros[1]! > zeros[0]! ? 'utf-16le' : 'utf-16be'}, or --encoding bytes to read it as it is.`,
    )
  return 'bytes'
}

/** Whether these bytes are UTF-8, but for a character that their end cuts. */
const isUtf8 = (bytes: Uint8Array): boolean => {
  try {
    new TextDecoder('utf-8', { fatal: true }).decode(bytes, { stream: true })
    return true
  } catch {
    return false
  }
}

/**
 * The pieces of a text in UTF-8, or as they are. A null is a pause of a live input. Throws a usage error where its
 * beginning looks like text in UTF-16.
 */
export async function* inUtf8(
  name: string,
  pieces: AsyncIterable<Uint8Array | null>,
  asked: Encoding,
): AsyncGenerator<Uint8Array | null> {
  let encoding = asked
  let decoder: TextDecoder | null = null
  let held: Uint8Array = new Uint8Array(0)
  let isDecided = false
  const decide = (): void => {
    isDecided = true
    const beginning = held.subarray(0, LOOKED)
    if (asked === 'auto') {
      encoding = encodingOf(name, beginning)
      if (encoding === 'bytes' && !isUtf8(beginning))
        say(`${name} is not UTF-8; its bytes are read as they are. If it is Latin-1, say --encoding latin1.`)
      else if (encoding !== 'bytes') say(`${name} is text in UTF-16 by its byte order mark; it is read as UTF-8.`)
    }
    if (encoding !== 'bytes' && encoding !== 'auto') decoder = new TextDecoder(encoding)
  }
  const out = (bytes: Uint8Array): Uint8Array =>
    decoder === null ? bytes : Buffer.from(decoder.decode(bytes, { stream: true }))
  for await (const piece of pieces) {
    if (isDecided) {
      yield piece === null ? null : out(piece)
      continue
    }
    if (piece !== null) {
      held = held.length === 0 ? piece : Buffer.concat([held, piece])
      // One byte says nothing yet; of what is live, a pause says that no more is to be waited for.
      if (held.length < 2) continue
    }
    if (held.length > 0) {
      decide()
      yield out(held)
    }
    if (piece === null) yield null
  }
  if (!isDecided && held.length > 0) {
    decide()
    yield out(held)
  }
  // A character whose end did not come.
  const rest = (decoder as TextDecoder | null)?.decode() ?? ''
  if (rest !== '') yield Buffer.from(rest)
}
