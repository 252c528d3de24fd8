/** A checkpoint as somebody writes it who knows the format: another head, state or header inside, and every checksum made anew. */
import { createHash } from 'node:crypto'
import type { Head } from '../../src/state/head.ts'

export interface Forgery {
  readonly head?: (head: Head) => unknown
  readonly state?: (state: Uint8Array) => Uint8Array
  /** The whole header: `__metadata__` and the tensors by name. */
  readonly header?: (header: Record<string, unknown>) => Record<string, unknown>
}

export const forged = (blob: Uint8Array, alter: Forgery): Uint8Array => {
  const length = Number(new DataView(blob.buffer, blob.byteOffset).getBigUint64(0, true))
  const header = JSON.parse(new TextDecoder().decode(blob.subarray(8, 8 + length)))
  const before = JSON.parse(header.__metadata__.head) as Head
  const head = JSON.stringify(alter.head?.(before) ?? before)
  const state = alter.state?.(blob.slice(8 + length)) ?? blob.subarray(8 + length)
  const { vitals = '' } = header.__metadata__
  const sha256 = createHash('sha256').update(head).update(state).update(vitals).digest('hex')
  const whole = { ...header, __metadata__: { ...header.__metadata__, head, sha256 } }
  const text = Buffer.from(JSON.stringify(alter.header?.(whole) ?? whole))
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(text.length))
  return Uint8Array.from(Buffer.concat([size, text, state]))
}
