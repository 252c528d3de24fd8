/** The one checksum: of records, snapshots, files and events. */
import { createHash } from 'node:crypto'

/** 64 hexadecimal digits. */
export const sha256 = (bytes: Uint8Array | string): string => createHash('sha256').update(bytes).digest('hex')
