/**
 * The number formats of stored weights: F32, F16 (IEEE 754 binary16), BF16 (the upper half of a binary32) and F64.
 * Widening to f32 is exact; F64 is rounded to f32, once. Bytes and typed arrays are little-endian alike on every CPU
 * the engine runs on.
 */
export type FloatDtype = 'F32' | 'F16' | 'BF16' | 'F64'

const FLOATS: ReadonlySet<string> = new Set<FloatDtype>(['F32', 'F16', 'BF16', 'F64'])

export const isFloat = (dtype: string): dtype is FloatDtype => FLOATS.has(dtype)

/** Bytes of one number. */
export const floatBytes = (dtype: FloatDtype): number => (dtype === 'F64' ? 8 : dtype === 'F32' ? 4 : 2)

/** The bits of infinity in F16; one more than those of the largest number, 65504. */
export const F16_INFINITY = 0x7c00

const halfValue = (bits: number): number => {
  const exponent = (bits >>> 10) & 31
  const fraction = bits & 0x3ff
  const sign = bits & 0x8000 ? -1 : 1
  if (exponent === 31) return fraction === 0 ? sign * Infinity : Number.NaN
  return exponent === 0 ? sign * fraction * 2 ** -24 : sign * (1024 + fraction) * 2 ** (exponent - 25)
}

/** Every F16 by its bits. */
export const F16_VALUES: Float32Array = Float32Array.from({ length: 1 << 16 }, (_, bits) => halfValue(bits))

const ROUNDER = 1.5 * 2 ** 52

/** To the nearest whole number, to the even one of two; |x| < 2^51. Past 2^52 a double has no room for a fraction. */
export const roundHalfEven = (x: number): number => x + ROUNDER - ROUNDER

const view = new DataView(new ArrayBuffer(8))

/** The bits of the F16 nearest to x ≥ 0, the even one of two; infinity from 65520 on. */
export const nearestF16 = (x: number): number => {
  if (x >= 65520) return F16_INFINITY
  // Subnormals are multiples of 2^-24. 1024 of them are the smallest normal number, and those are its bits.
  if (x < 2 ** -14) return roundHalfEven(x * 2 ** 24)
  view.setFloat64(0, x)
  const exponent = (view.getUint16(0) >>> 4) - 1023
  // x / 2^exponent in 1024ths is 1024 … 2048; a carry into the exponent's bits is the next power of two.
  return ((exponent + 14) << 10) + roundHalfEven(x * 2 ** (10 - exponent))
}

/**
 * Place of the first number that is NaN or infinite (all ones in the exponent), −1 without one; of F64 also that is
 * none as f32. `bytes` begins at a multiple of a number's size.
 */
export const firstNonFinite = (dtype: FloatDtype, bytes: Uint8Array): number => {
  const { buffer, byteOffset, length } = bytes
  if (dtype === 'F64')
    return new Float64Array(buffer, byteOffset, length / 8).findIndex((value) => !Number.isFinite(Math.fround(value)))
  if (dtype === 'F32') {
    const words = new Uint32Array(buffer, byteOffset, length / 4)
    for (let i = 0; i < words.length; i += 1) if ((words[i]! & 0x7f800000) === 0x7f800000) return i
    return -1
  }
  const ones = dtype === 'F16' ? 0x7c00 : 0x7f80
  const halves = new Uint16Array(buffer, byteOffset, length / 2)
  for (let i = 0; i < halves.length; i += 1) if ((halves[i]! & ones) === ones) return i
  return -1
}

/**
 * The numbers in `bytes` (which begins at a multiple of a number's size), written to `out` where the format is another
 * than F32.
 */
export const widen = (dtype: FloatDtype, bytes: Uint8Array, out: Float32Array): Float32Array => {
  const { buffer, byteOffset, length } = bytes
  if (dtype === 'F64') {
    const numbers = new Float64Array(buffer, byteOffset, length / 8)
    out.set(numbers)
    return out.subarray(0, numbers.length)
  }
  if (dtype === 'F32') return new Float32Array(buffer, byteOffset, length / 4)
  const halves = new Uint16Array(buffer, byteOffset, length / 2)
  if (dtype === 'F16') {
    for (let i = 0; i < halves.length; i += 1) out[i] = F16_VALUES[halves[i]!]!
  } else {
    const words = new Uint32Array(out.buffer, out.byteOffset, halves.length)
    for (let i = 0; i < halves.length; i += 1) words[i] = halves[i]! << 16
  }
  return out.subarray(0, halves.length)
}
