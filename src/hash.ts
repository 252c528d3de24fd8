/** The one checksum: of records, snapshots, files and events. */
import { createHash } from 'node:crypto'

/** 64 hexadecimal digits. */
export const sha256 = (bytes: Uint8Array | string): string => createHash('sha256').update(bytes).digest('hex')

/** The same on a thread of its own: hashing megabytes takes as long as a step. The bytes must stand meanwhile. */
export const sha256Aside = async (bytes: Uint8Array): Promise<string> =>
  Buffer.from(await crypto.subtle.digest('SHA-256', bytes as Uint8Array<ArrayBuffer>)).toString('hex')
