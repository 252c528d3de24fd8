/**
 * API keys. The file has the sha256 of each key, never the key: a key is 32 random bytes, so its hash cannot be
 * searched for, and needs no salt and no slow function, which passwords would.
 *
 *     { "version": 1, "keys": [ { "name": "alice", "sha256": "…", "created": "2026-11-25T19:00:00.000Z" } ] }
 */
import { randomBytes } from 'node:crypto'
import { chmodSync, existsSync, readFileSync, statSync } from 'node:fs'
import type { IncomingHttpHeaders } from 'node:http'
import { resolve } from 'node:path'
import { z } from 'zod'
import { ContinuoError, messageOf } from '../errors.ts'
import { writeDurably } from '../files.ts'
import { sha256 } from '../hash.ts'
import { schemaFault } from '../issues.ts'
import { parseJson } from '../json.ts'

const KEY_PREFIX = 'ck_'
const MOST_FILE_BYTES = 1 << 22
/** How old what is known of the file may be: a key that was removed works no longer than this. */
const RECHECK = 1000 // ms

export const keyName = z.string().regex(/^[\w.@-]{1,64}$/)
const keyFile = z.strictObject({
  version: z.literal(1),
  keys: z
    .array(z.strictObject({ name: keyName, sha256: z.string().regex(/^[0-9a-f]{64}$/), created: z.iso.datetime() }))
    .max(10_000),
})
export type KeyFile = z.infer<typeof keyFile>

const hashOf = (key: string): string => sha256(Buffer.from(key))

/** Throws INVALID for a file that is none of ours. */
export const readKeys = (path: string): KeyFile => {
  try {
    const { size } = statSync(path)
    if (size > MOST_FILE_BYTES) throw new Error(`it has ${size} bytes, expected at most ${MOST_FILE_BYTES}`)
    return keyFile.parse(parseJson(readFileSync(path, 'utf8'), path))
  } catch (cause) {
    // What is wrong with a member is not shown with its content.
    const fault = cause instanceof z.ZodError ? schemaFault(cause) : null
    const why = fault === null ? messageOf(cause) : `${fault.path.join('.')}: ${fault.message}`
    throw new ContinuoError(
      'INVALID',
      `The keys in ${path} cannot be used: ${why}. Make one: continuo keys add NAME --keys ${path}`,
      { cause },
    )
  }
}

const write = async (path: string, keys: KeyFile['keys']): Promise<void> => {
  const file = resolve(path)
  await writeDurably(file, Buffer.from(`${JSON.stringify({ version: 1, keys }, null, 2)}\n`))
  chmodSync(file, 0o600)
}

/** Adds a key and returns it: the only time that it is to be seen. Throws INVALID where the name is taken. */
export const addKey = async (path: string, name: string): Promise<string> => {
  const { keys } = existsSync(path) ? readKeys(path) : { keys: [] }
  if (keys.some((key) => key.name === name))
    throw new ContinuoError(
      'INVALID',
      `There is a key named ${name} in ${path}. Choose another name, or remove that one first.`,
    )
  const key = `${KEY_PREFIX}${randomBytes(32).toString('base64url')}`
  await write(path, [...keys, { name, sha256: hashOf(key), created: new Date().toISOString() }])
  return key
}

/** Throws INVALID where no key has the name. */
export const removeKey = async (path: string, name: string): Promise<void> => {
  const { keys } = readKeys(path)
  const left = keys.filter((key) => key.name !== name)
  if (left.length === keys.length) throw new ContinuoError('INVALID', `There is no key named ${name} in ${path}.`)
  await write(path, left)
}

export interface Keyring {
  /** The name of a key; null: it is none of ours. */
  nameOf(key: string): string | null
}

/** The keys that a client shows, by the headers of OpenAI's clients and of Anthropic's. */
export const keysIn = ({ authorization, 'x-api-key': own }: IncomingHttpHeaders): readonly string[] =>
  [/^Bearer (.*)$/.exec(authorization ?? '')?.[1], own].filter(
    (key): key is string => typeof key === 'string' && /^[\x21-\x7e]{1,256}$/.test(key),
  )

/** Follows the file. While it cannot be read, the keys that were known go on to work, and `warn` is told once. */
export const openKeyring = (path: string, warn: (message: string) => void): Keyring => {
  const load = (): ReadonlyMap<string, string> => new Map(readKeys(path).keys.map((key) => [key.sha256, key.name]))
  const stamp = (): string => {
    const found = statSync(path, { throwIfNoEntry: false })
    return found === undefined ? 'missing' : `${found.ino} ${found.mtimeMs} ${found.size}`
  }
  let seen = stamp()
  let names = load()
  let checked = performance.now()
  return {
    nameOf(key) {
      const now = performance.now()
      if (now - checked >= RECHECK) {
        checked = now
        const found = stamp()
        if (found !== seen) {
          seen = found
          try {
            names = load()
          } catch (error) {
            warn(messageOf(error))
          }
        }
      }
      return names.get(hashOf(key)) ?? null
    },
  }
}
