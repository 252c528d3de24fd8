/**
 * The key that seals state. Without one a state record is sealed by its sha256, which finds damage; any client that may
 * write the topic can compute it. With a key it is sealed by an HMAC that only the holders of the key can make.
 * docs/formats.md has the bytes.
 */
import { createHmac, timingSafeEqual } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { ContinuoError, messageOf } from './errors.ts'

/** The keys that seal state: the one in use, and a former one that is still accepted. */
export interface SealKeys {
  /** Seals what is written, and is accepted for what is read. */
  readonly key: Uint8Array
  /**
   * Another one that is accepted for what is read, until everything has been written anew; `plain`: the sha256 without
   * a key.
   */
  readonly old: Uint8Array | 'plain' | null
}

/** 256 bits: as many as the HMAC has. */
const LEAST_KEY = 32
const MOST_KEY = 4096

const DOMAINS = { state: 'continuo-state-1', export: 'continuo-export-1' } as const

/**
 * HMAC-SHA256, hex, over the name of what is sealed and each part behind its length (u32 little-endian), so that no two
 * lists of parts give the same bytes.
 */
export const hmac = (key: Uint8Array, domain: keyof typeof DOMAINS, parts: readonly Uint8Array[]): string => {
  const mac = createHmac('sha256', key)
  for (const part of [Buffer.from(DOMAINS[domain]), ...parts]) {
    const length = Buffer.alloc(4)
    length.writeUInt32LE(part.length)
    mac.update(length).update(part)
  }
  return mac.digest('hex')
}

/** In constant time, so that a forger learns nothing from how long the answer took. */
export const sameSeal = (a: string, b: string): boolean => {
  const [one, other] = [Buffer.from(a), Buffer.from(b)]
  return one.length === other.length && timingSafeEqual(one, other)
}

const invalid = (message: string, cause?: unknown): ContinuoError => new ContinuoError('INVALID', message, { cause })

const HEX = /^(?:[0-9a-f]{2})+$/i

const checked = (key: Uint8Array, from: string): Uint8Array => {
  if (key.length >= LEAST_KEY && key.length <= MOST_KEY) return key
  throw invalid(
    `${from} gives a key of ${key.length} bytes, and a key has ${LEAST_KEY} to ${MOST_KEY}. Make one: openssl rand -hex 32 > seal.key`,
  )
}

/** A file of hexadecimal digits (white space around them does not count) is what they say; any other is its bytes. */
const fromFile = (path: string, from: string): Uint8Array => {
  let bytes: Buffer
  try {
    bytes = readFileSync(path)
  } catch (error) {
    throw invalid(
      `${from} names ${path}, which cannot be read (${messageOf(error)}): check the path and its permissions.`,
      error,
    )
  }
  const text = bytes.toString('latin1').trim()
  return checked(HEX.test(text) ? Buffer.from(text, 'hex') : bytes, `${from} ${path}`)
}

const fromEnvironment = (env: NodeJS.ProcessEnv): Uint8Array | null => {
  const { CONTINUO_SEAL_KEY: key, CONTINUO_SEAL_KEY_FILE: file } = env
  if (key && file) throw invalid('CONTINUO_SEAL_KEY and CONTINUO_SEAL_KEY_FILE are both set: set one of them.')
  if (file) return fromFile(file, 'CONTINUO_SEAL_KEY_FILE')
  if (!key) return null
  if (!HEX.test(key))
    throw invalid(
      'CONTINUO_SEAL_KEY holds hexadecimal digits only, two a byte. A file may hold any bytes: CONTINUO_SEAL_KEY_FILE.',
    )
  return checked(Buffer.from(key, 'hex'), 'CONTINUO_SEAL_KEY')
}

/**
 * `old` is a path or `plain`. Null where no key is given. Throws INVALID for a key that cannot serve; no message shows
 * one.
 */
export const readSealKeys = (
  { file, old }: { readonly file?: string | undefined; readonly old?: string | undefined },
  env: NodeJS.ProcessEnv = process.env,
): SealKeys | null => {
  const key = file === undefined ? fromEnvironment(env) : fromFile(file, '--seal-key')
  if (key === null) {
    if (old === undefined) return null
    throw invalid('--seal-key-old says what else is accepted beside a key: give the key, too, with --seal-key FILE.')
  }
  if (old === undefined || old === 'plain') return { key, old: old ?? null }
  return { key, old: fromFile(old, '--seal-key-old') }
}
