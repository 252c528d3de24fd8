/** A state as bytes, little-endian whatever the machine is, and back. */

/** Appends numbers and bytes, in room that grows. */
export interface ByteWriter {
  /** Of four bytes, without a sign. */
  u32(value: number): void
  /** Rounded to single precision. */
  f32(value: number): void
  /** Of eight bytes. */
  f64(value: number): void
  /** As they are, without their length. */
  bytes(value: Uint8Array): void
  /** All that was appended; a copy. */
  done(): Uint8Array
}

export const createWriter = (): ByteWriter => {
  let view = new DataView(new ArrayBuffer(4096))
  let size = 0
  const room = (more: number): number => {
    const at = size
    size += more
    if (size > view.byteLength) {
      const roomy = new Uint8Array(2 * size)
      roomy.set(new Uint8Array(view.buffer, 0, at))
      view = new DataView(roomy.buffer)
    }
    return at
  }
  return {
    // The view may be another one once there is room.
    u32: (value) => {
      const at = room(4)
      view.setUint32(at, value, true)
    },
    f32: (value) => {
      const at = room(4)
      view.setFloat32(at, value, true)
    },
    f64: (value) => {
      const at = room(8)
      view.setFloat64(at, value, true)
    },
    bytes: (value) => {
      const at = room(value.length)
      new Uint8Array(view.buffer).set(value, at)
    },
    done: () => new Uint8Array(view.buffer.slice(0, size)),
  }
}

/** Whether a number can count tokens or lines. */
export const isCount = (number: number): boolean => Number.isSafeInteger(number) && number >= 0

/** What bytes hold that are no such state. */
export class Unreadable extends Error {}

/** `count`: of what is read as a number of things, so at most `most`; `finite`: of a number that was computed. */
export interface ByteReader {
  u8(): number
  u32(): number
  f32(): number
  f64(): number
  count(most: number): number
  bytes(length: number): Uint8Array
  /** Throws where something is left. */
  end(): void
}

export const createReader = (from: Uint8Array): ByteReader => {
  const view = new DataView(from.buffer, from.byteOffset, from.byteLength)
  let at = 0
  const take = (length: number): number => {
    if (at + length > view.byteLength) throw new Unreadable(`ends after ${view.byteLength} bytes`)
    at += length
    return at - length
  }
  const finite = (value: number): number => {
    if (!Number.isFinite(value)) throw new Unreadable(`has a number at byte ${at} that is not finite`)
    return value
  }
  return {
    u8: () => view.getUint8(take(1)),
    u32: () => view.getUint32(take(4), true),
    f32: () => finite(view.getFloat32(take(4), true)),
    f64: () => finite(view.getFloat64(take(8), true)),
    count(most) {
      const value = view.getUint32(take(4), true)
      if (value > most) throw new Unreadable(`counts ${value} where at most ${most} can be`)
      return value
    },
    bytes(length) {
      const begin = take(length)
      return from.slice(begin, begin + length)
    },
    end() {
      if (at !== view.byteLength) throw new Unreadable(`has ${view.byteLength - at} bytes too many`)
    },
  }
}
