/**
 * A checkpoint as somebody writes it who knows the format: another head, state or header inside, and every checksum
 * made anew.
 */
import { createHash } from 'node:crypto'
import type { Head } from '../../src/state/head.ts'

export interface Forgery {
  readonly head?: (head: Head) => unknown
  readonly state?: (state: Uint8Array) => Uint8Array
  /** The tensors of the state, which may get other lengths: header and state are laid anew. */
  readonly tensors?: (tensors: ForgedTensors) => void
  /** The whole header: `__metadata__` and the tensors by name. */
  readonly header?: (header: Record<string, unknown>) => Record<string, unknown>
}

export interface ForgedTensor {
  readonly dtype: string
  readonly shape: readonly number[]
  readonly bytes: Buffer
}
/** By name, in the order of the state. */
export type ForgedTensors = Map<string, ForgedTensor>

const isWide = ({ dtype }: ForgedTensor): boolean => dtype === 'I64'
/** Counters and tables of whole numbers. */
export const isWhole = ({ dtype }: ForgedTensor): boolean => dtype === 'I64' || dtype === 'I32'

export const numbersOf = (tensor: ForgedTensor): number[] => {
  const wide = isWide(tensor)
  return Array.from({ length: tensor.bytes.length / (wide ? 8 : 4) }, (_, i) =>
    wide ? Number(tensor.bytes.readBigInt64LE(8 * i)) : tensor.bytes.readInt32LE(4 * i),
  )
}

/** Writes whole numbers over the first ones of a tensor. */
export const putNumbers = (tensors: ForgedTensors, name: string, numbers: readonly number[]): void => {
  const tensor = tensors.get(name)!
  for (const [i, number] of numbers.entries())
    if (isWide(tensor)) tensor.bytes.writeBigInt64LE(BigInt(number), 8 * i)
    else tensor.bytes.writeInt32LE(number, 4 * i)
}

/** Gives the first axis of a table so many places: those that are new are copies of the last one. */
export const resize = (tensors: ForgedTensors, name: string, places: number): void => {
  const { dtype, shape, bytes } = tensors.get(name)!
  const [before, ...row] = shape as [number, ...number[]]
  const each = bytes.length / before
  const rows = Array.from({ length: places }, (_, i) => {
    const at = Math.min(i, before - 1)
    return bytes.subarray(at * each, (at + 1) * each)
  })
  tensors.set(name, { dtype, shape: [places, ...row], bytes: Buffer.concat(rows) })
}

type Stored = Record<string, { dtype: string; shape: number[]; data_offsets: [number, number] }>

/** Header and state with the tensors that `alter` leaves. */
const laidAnew = (
  { __metadata__, ...stored }: Record<string, unknown>,
  state: Uint8Array,
  alter: NonNullable<Forgery['tensors']>,
): readonly [Record<string, unknown>, Uint8Array] => {
  const inOrder = Object.entries(stored as Stored).sort(([, a], [, b]) => a.data_offsets[0] - b.data_offsets[0])
  const tensors: ForgedTensors = new Map(
    inOrder.map(([name, { dtype, shape, data_offsets }]) => [
      name,
      { dtype, shape, bytes: Buffer.from(state.slice(...data_offsets)) },
    ]),
  )
  alter(tensors)
  let at = 0
  const entries = [...tensors].map(([name, { dtype, shape, bytes }]) => {
    at += bytes.length
    return [name, { dtype, shape, data_offsets: [at - bytes.length, at] }] as const
  })
  return [
    { __metadata__, ...Object.fromEntries(entries) },
    Uint8Array.from(Buffer.concat([...tensors.values()].map(({ bytes }) => bytes))),
  ]
}

export const forged = (blob: Uint8Array, alter: Forgery): Uint8Array => {
  const length = Number(new DataView(blob.buffer, blob.byteOffset).getBigUint64(0, true))
  const written = JSON.parse(new TextDecoder().decode(blob.subarray(8, 8 + length)))
  const before = JSON.parse(written.__metadata__.head) as Head
  const head = JSON.stringify(alter.head?.(before) ?? before)
  const given = alter.state?.(blob.slice(8 + length)) ?? blob.subarray(8 + length)
  const [header, state] = alter.tensors === undefined ? [written, given] : laidAnew(written, given, alter.tensors)
  const { vitals = '' } = header.__metadata__
  const sha256 = createHash('sha256').update(head).update(state).update(vitals).digest('hex')
  const whole = { ...header, __metadata__: { ...header.__metadata__, head, sha256 } }
  const text = Buffer.from(JSON.stringify(alter.header?.(whole) ?? whole))
  const size = Buffer.alloc(8)
  size.writeBigUInt64LE(BigInt(text.length))
  return Uint8Array.from(Buffer.concat([size, text, state]))
}
