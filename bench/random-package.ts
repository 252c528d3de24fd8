/** Writes packages of any family and size for benches: a config.json and random weights of sixteen bits. */
import { createHash } from 'node:crypto'
import { mkdir, writeFile } from 'node:fs/promises'
import { join } from 'node:path'
import { type TensorSpec, writeTensors } from '../src/models/files/package-writer.ts'

/** Name, shape, and approximate magnitude of the numbers. */
export type Entry = readonly [name: string, extents: readonly number[], size: number]

/**
 * The bits of random numbers, drawn once and repeated: drawing a gigabyte number by number would take longer than the
 * bench.
 */
const PIECE = 1 << 20
const randomBits = (): Uint16Array => {
  const out = new Uint8Array(2 * PIECE)
  for (let at = 0; at < out.length; at += 32) out.set(createHash('sha256').update(String(at)).digest(), at)
  return new Uint16Array(out.buffer)
}

/** Bits of the mantissa, and the bias of the exponent. */
const FORMATS = { BF16: { mantissa: 7, bias: 127 }, F16: { mantissa: 10, bias: 15 } } as const
export type Format = keyof typeof FORMATS

/**
 * Numbers of either sign, or positive ones, whose magnitudes lie from `size` (a power of two, rounded down) to twice
 * that.
 */
const sized = (bits: Uint16Array, format: Format, size: number, positive: boolean): Uint16Array => {
  const { mantissa, bias } = FORMATS[format]
  const exponent = (bias + Math.floor(Math.log2(size))) << mantissa
  const mask = (1 << mantissa) - 1 + (positive ? 0 : 0x8000)
  return bits.map((word) => (word & mask) | exponent)
}

const lengthOf = (extents: readonly number[]): number => extents.reduce((product, extent) => product * extent, 1)

export interface RandomPackage {
  /** Of config.json. */
  readonly config: Readonly<Record<string, unknown>>
  readonly entries: readonly Entry[]
  /** Names of the tensors whose numbers are all positive. */
  readonly positive: RegExp
}

/** Writes config.json and model.safetensors into `dir`. */
export const writeRandom = async (
  dir: string,
  { config, entries, positive }: RandomPackage,
  format: Format = 'BF16',
): Promise<void> => {
  await mkdir(dir, { recursive: true })
  await writeFile(join(dir, 'config.json'), JSON.stringify(config))
  const specs: TensorSpec[] = entries.map(([name, extents]) => ({
    name,
    dtype: format,
    shape: extents,
    bytes: 2 * lengthOf(extents),
  }))
  await writeTensors(join(dir, 'model.safetensors'), specs, {}, async (file) => {
    const bits = randomBits()
    for (const [name, extents, size] of entries) {
      const numbers = new Uint8Array(sized(bits, format, size, positive.test(name)).buffer)
      const total = 2 * lengthOf(extents)
      for (let at = 0; at < total; at += numbers.length) await file.write(name, numbers.subarray(0, total - at), at)
    }
  })
}
