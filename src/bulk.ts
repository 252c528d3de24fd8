/**
 * Work on many bytes, on threads of libuv's pool (native/binding/job.h): states and snapshots are hashed, copied and measured here, and the
 * event loop goes on meanwhile. Until a promise settles its arrays must neither be changed nor detached.
 */
import { loadAddon } from './addon.ts'

interface Bulk {
  digest(pieces: readonly Uint8Array[]): Promise<string>
  join(pieces: readonly Uint8Array[], out: Uint8Array): Promise<void>
  scatter(bytes: Uint8Array, moves: Float64Array, out: Uint8Array): Promise<string>
  norms(bytes: Uint8Array, slices: Float64Array): Promise<Float64Array>
}

const bulk = (): Bulk => loadAddon() as Bulk

/** Memory that is yet to be written, in a buffer of its own. Zeroing a large one would take as long as the copy into it. */
export const uninitialised = (bytes: number): Uint8Array<ArrayBuffer> => {
  const { buffer, byteOffset, length } = Buffer.allocUnsafeSlow(bytes)
  return new Uint8Array(buffer as ArrayBuffer, byteOffset, length)
}

/** sha256 of the pieces one after the other, 64 hexadecimal digits. */
export const digest = (pieces: readonly Uint8Array[]): Promise<string> => bulk().digest(pieces)

/** A copy of the pieces one after the other. */
export const join = async (pieces: readonly Uint8Array[]): Promise<Uint8Array<ArrayBuffer>> => {
  const out = uninitialised(pieces.reduce((sum, { length }) => sum + length, 0))
  await bulk().join(pieces, out)
  return out
}

/** Bytes from … on of one array that belong to … of another. */
export interface Move {
  readonly from: number
  readonly to: number
  readonly bytes: number
}

/** Copies pieces of `bytes` into `out`. Returns the sha256 of all of `bytes`: what is read once is checked with it. */
export const scatter = (bytes: Uint8Array, moves: readonly Move[], out: Uint8Array): Promise<string> =>
  bulk().scatter(bytes, Float64Array.from(moves.flatMap(({ from, to, bytes: count }) => [from, to, count])), out)

/** A slice of little-endian f32 numbers, at any alignment. */
export interface Floats {
  /** In bytes. */
  readonly offset: number
  readonly count: number
}

/** Of each slice √Σx², summed in f64 one after the other, and max |x|; NaN where a number is. */
export const normsOf = async (
  bytes: Uint8Array,
  slices: readonly Floats[],
): Promise<readonly { readonly norm: number; readonly max: number }[]> => {
  const found = await bulk().norms(bytes, Float64Array.from(slices.flatMap(({ offset, count }) => [offset, count])))
  return slices.map((_, at) => ({ norm: Math.sqrt(found[2 * at]!), max: found[2 * at + 1]! }))
}
