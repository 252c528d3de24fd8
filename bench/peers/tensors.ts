/**
 * The tensors of a model that the bench writes: one entry for each GGUF tensor, with its place in the Continuo package.
 */

/**
 * How a tensor is stored. Rows are outputs, columns inputs, `y = W · x`, unless said otherwise.
 * - `matrix`: 16 bits or q8, as the format says; [outputs, inputs] in both files
 * - `fromRight`: 16 bits in every format; the package has it transposed, [inputs, outputs]
 * - `table`: 16 bits in every format; rows are looked up
 * - `plain`: f32 in every format
 */
export type Role = 'matrix' | 'fromRight' | 'table' | 'plain'

export interface TensorSpec {
  readonly role: Role
  readonly rows: number
  readonly columns: number
  readonly gguf: string
  /** Extents in GGUF's order, the contiguous one first. */
  readonly extents: readonly number[]
  /** Names in the package. Several names share the rows equally; without a name the package lacks the tensor. */
  readonly names: readonly string[]
  /** Shape of each of them in the package. */
  readonly shape: readonly number[]
  /** Values are uniform with this mean and standard deviation; equal seeds (and sizes) give equal values. */
  readonly seed: string
  readonly mean: number
  readonly deviation: number
  /** Values in place of those, [rows, columns]. */
  readonly given?: Float32Array
}

interface Values {
  readonly mean?: number
  readonly deviation: number
  readonly seed?: string
}

/** A matrix [outputs, inputs]. `name` is null for a tensor that only llama.cpp requires. */
export const matrix = (
  role: Exclude<Role, 'plain'>,
  gguf: string,
  name: string | null,
  [rows, columns]: readonly [number, number],
  { mean = 0, deviation, seed = gguf }: Values,
): TensorSpec => ({
  role,
  rows,
  columns,
  gguf,
  extents: [columns, rows],
  names: name === null ? [] : [name],
  shape: role === 'fromRight' ? [columns, rows] : [rows, columns],
  seed,
  mean,
  deviation,
})

export const vector = (
  gguf: string,
  name: string | null,
  length: number,
  { mean = 0, deviation, seed = gguf }: Values,
  shape: readonly number[] = [length],
): TensorSpec => ({
  role: 'plain',
  rows: 1,
  columns: length,
  gguf,
  extents: [length],
  names: name === null ? [] : [name],
  shape,
  seed,
  mean,
  deviation,
})

const sqrt3 = Math.sqrt(3)

/** The tensor's values, so many more with each call. */
export const valuesOf = ({ seed, mean, deviation, given }: TensorSpec): ((count: number) => Float32Array) => {
  if (given === undefined) return uniform(seed, mean, deviation)
  let at = 0
  return (count) => {
    at += count
    return given.subarray(at - count, at)
  }
}

/** A generator of uniform numbers, seeded by a text (FNV-1a of the text, then mulberry32). */
export const uniform = (seed: string, mean: number, deviation: number): ((count: number) => Float32Array) => {
  let state = 0x811c9dc5
  for (const byte of Buffer.from(seed)) state = Math.imul(state ^ byte, 0x01000193)
  // A uniform number on ±a has standard deviation a / √3.
  const scale = (2 * sqrt3 * deviation) / 2 ** 32
  const least = mean - sqrt3 * deviation
  return (count) => {
    const out = new Float32Array(count)
    for (let i = 0; i < count; i += 1) {
      state = (state + 0x6d2b79f5) | 0
      let mixed = Math.imul(state ^ (state >>> 15), state | 1)
      mixed ^= mixed + Math.imul(mixed ^ (mixed >>> 7), mixed | 61)
      out[i] = least + scale * ((mixed ^ (mixed >>> 14)) >>> 0)
    }
    return out
  }
}
