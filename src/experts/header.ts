/**
 * The fixed part of the header of a layer's file (docs/experts.md), as far as TypeScript needs it. The native core
 * reads and checks all of it.
 */
import { closeSync, openSync, readSync } from 'node:fs'

export interface LayerHeader {
  /** The number of the coding of all matrices. */
  readonly coding: number
  /** Of one record, padded. */
  readonly recordBytes: number
  readonly deltas: number
  /** Of the layer's source: 64 hexadecimal digits. */
  readonly digest: string
}

const BYTES = 128

/** Throws what the system says of a file that cannot be read. */
export const readHeader = (path: string): LayerHeader => {
  const head = Buffer.alloc(BYTES)
  const file = openSync(path, 'r')
  try {
    readSync(file, head, 0, BYTES, 0)
  } finally {
    closeSync(file)
  }
  return {
    coding: head.readUInt32LE(36),
    recordBytes: Number(head.readBigUInt64LE(40)),
    deltas: Number(head.readBigUInt64LE(56)),
    digest: head.toString('hex', 80, 112),
  }
}
