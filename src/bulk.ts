/**
 * Work on many bytes, on threads of libuv's pool (native/binding/job.h): states and snapshots are hashed, copied and
 * measured here, and the event loop goes on meanwhile. Until a promise settles its arrays must neither be changed nor
 * detached.
 */
import { loadAddon } from './addon.ts'

interface Bulk {
  digest(pieces: readonly Uint8Array[]): Promise<string>
  join(pieces: readonly Uint8Array[], out: Uint8Array): Promise<void>
  scatter(bytes: Uint8Array, moves: Float64Array, out: Uint8Array): Promise<string>
  norms(bytes: Uint8Array, slices: Float64Array): Promise<Float64Array>
}

const bulk = (): Bulk => loadAddon() as Bulk

/** Memory below this comes and goes without being noticed. */
const LARGE = 1 << 16
/** What is kept for others at most. */
const SPARE_BYTES = 1 << 28
/** After so long without use it goes back to the system, ms. */
const SPARE_TIME = 10_000

export interface Spare {
  /** Memory that is yet to be written. Zeroing a large one would take as long as the copy into it. */
  uninitialised(bytes: number): Uint8Array<ArrayBuffer>
  /**
   * For memory that came from `uninitialised` and that nobody reads any more: the next one may have it. Every large
   * array that V8 makes anew brings a collection of garbage nearer, and with states of many megabytes these would fill
   * a third of the event loop's time.
   */
  giveBack(...used: readonly Uint8Array<ArrayBufferLike>[]): void
}

export const createSpare = (): Spare => {
  const spare: ArrayBuffer[] = []
  let spareBytes = 0
  let expiry: NodeJS.Timeout | null = null

  const expire = (): void => {
    spare.length = 0
    spareBytes = 0
    expiry = null
  }

  /** The smallest that is large enough, and not so large that most of it would lie idle. */
  const take = (bytes: number): ArrayBuffer | null => {
    let best = -1
    for (const [at, { byteLength }] of spare.entries())
      if (byteLength >= bytes && byteLength <= 2 * bytes && (best < 0 || byteLength < spare[best]!.byteLength))
        best = at
    if (best < 0) return null
    const [taken] = spare.splice(best, 1)
    spareBytes -= taken!.byteLength
    expiry?.refresh()
    return taken!
  }

  return {
    uninitialised(bytes) {
      const used = bytes < LARGE ? null : take(bytes)
      if (used !== null) return new Uint8Array(used, 0, bytes)
      const { buffer, byteOffset, length } = Buffer.allocUnsafeSlow(bytes)
      return new Uint8Array(buffer as ArrayBuffer, byteOffset, length)
    },
    giveBack(...used) {
      for (const { buffer, byteOffset } of used) {
        if (!(buffer instanceof ArrayBuffer) || byteOffset !== 0 || spare.includes(buffer)) continue
        if (buffer.byteLength < LARGE || spareBytes + buffer.byteLength > SPARE_BYTES) continue
        spare.push(buffer)
        spareBytes += buffer.byteLength
        expiry ??= setTimeout(expire, SPARE_TIME).unref()
      }
    },
  }
}

/** Of the process. */
export const { uninitialised, giveBack } = createSpare()

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
