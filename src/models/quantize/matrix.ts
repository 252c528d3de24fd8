/** One tensor of a package on its way into a quantised one, in pieces: memory does not grow with the model. */
import type { TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'
import type { TensorFile, TensorSpec } from '../files/package-writer.ts'
import { type FloatDtype, firstNonFinite, floatBytes, isFloat, widen } from './floats.ts'
import { addError, type Target } from './quantizers.ts'
import type { RowRounder } from './rounding.ts'
import type { Source } from './source.ts'

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)

const refuseNonFinite = (name: string, dtype: FloatDtype, piece: Uint8Array, before: number): void => {
  const at = firstNonFinite(dtype, piece)
  if (at < 0) return
  throw invalid(
    `Tensor "${name}" holds a number that is not finite (NaN or infinity, element ${before + at}), expected finite weights. The model is damaged or its training diverged: use another checkpoint.`,
  )
}

/** A matrix to quantise, or several in one tensor: their rows. */
export interface Matrix {
  readonly tensor: TensorEntry
  readonly dtype: FloatDtype
  /** Rows of the tensor, and their inputs. */
  readonly N: number
  readonly K: number
  /** The shape of the quantised tensors but for their last axis: [N], or [experts, outputs]. */
  readonly rows: readonly number[]
  /** The file has it [K, N]. */
  readonly turned: boolean
}

const scalesName = (name: string): string => `${name}.scales`

/** The tensor of its codes. */
export const codesSpec = ({ tensor, N, K, rows }: Matrix, target: Target): TensorSpec => {
  const width = target.rowBytes(K)
  return { name: tensor.name, dtype: target.dtype, shape: [...rows, width], bytes: N * width }
}

/** The tensor of its scales. */
export const scalesSpec = ({ tensor, N, K, rows }: Matrix, group: number): TensorSpec => {
  const groups = Math.ceil(K / group)
  return { name: scalesName(tensor.name), dtype: 'F16', shape: [...rows, groups], bytes: 2 * N * groups }
}

/** Bytes of the source in memory at once; a multiple of every number's size. A longer row passes whole. */
const PIECE = 1 << 22

/** A walk over the tensors of a source, into the file that is written. */
export interface Pass {
  readonly source: Source
  readonly file: TensorFile
  /** Before the bytes [done, …) of a tensor. */
  readonly next: (tensor: string, done: number) => void
}

/** Copies a tensor bit for bit. */
export const copyTensor = async ({ source, file, next }: Pass, tensor: TensorEntry): Promise<void> => {
  const { name, dtype, offset, bytes } = tensor
  const buffer = new Uint8Array(Math.min(PIECE, bytes))
  for (let done = 0; done < bytes; done += buffer.length) {
    next(name, done)
    const piece = buffer.subarray(0, Math.min(buffer.length, bytes - done))
    await source.read(piece, tensor, offset + done)
    if (isFloat(dtype)) refuseNonFinite(name, dtype, piece, done / floatBytes(dtype))
    await file.write(name, piece, done)
  }
}

const numbersOf = (bytes: Uint8Array, size: number): Uint16Array | Uint32Array | Float64Array =>
  size === 8
    ? new Float64Array(bytes.buffer, bytes.byteOffset, bytes.length / 8)
    : size === 4
      ? new Uint32Array(bytes.buffer, bytes.byteOffset, bytes.length / 4)
      : new Uint16Array(bytes.buffer, bytes.byteOffset, bytes.length / 2)

/** Fills `piece` with the rows [row, row + count) of a matrix [N, K], from wherever the file has their numbers. */
const readRows = async (
  source: Source,
  { tensor, dtype, N, K, turned }: Matrix,
  row: number,
  count: number,
  piece: Uint8Array,
): Promise<void> => {
  const { name, offset } = tensor
  const size = floatBytes(dtype)
  if (!turned) {
    await source.read(piece, tensor, offset + row * K * size)
    refuseNonFinite(name, dtype, piece, row * K)
    return
  }
  const out = numbersOf(piece, size)
  const column = new Uint8Array(count * size) // `count` outputs of one input
  const numbers = numbersOf(column, size)
  for (let k = 0; k < K; k += 1) {
    await source.read(column, tensor, offset + (k * N + row) * size)
    refuseNonFinite(name, dtype, column, k * N + row)
    for (let r = 0; r < count; r += 1) out[r * K + k] = numbers[r]!
  }
}

/** Quantises a matrix, and adds Σ (w − code·scale)² and Σ w² to the sums. */
export const quantizeMatrix = async (
  { source, file, next }: Pass,
  matrix: Matrix,
  target: Target,
  group: number,
  round: RowRounder,
  sums: { error: number; energy: number },
): Promise<void> => {
  const { dtype, N, K } = matrix
  const { name } = matrix.tensor
  const rowBytes = K * floatBytes(dtype)
  const rows = Math.max(1, Math.min(N, Math.floor(PIECE / rowBytes)))
  const width = target.rowBytes(K)
  const groups = Math.ceil(K / group)
  const buffer = new Uint8Array(rows * rowBytes)
  const wide = new Float32Array(dtype === 'F32' ? 0 : rows * K) // [rows, K]
  const codes = new Int8Array(K)
  const packed = new Uint8Array(rows * width) // [rows, width]
  const scales = new Uint16Array(rows * groups) // [rows, groups]
  for (let row = 0; row < N; row += rows) {
    const count = Math.min(rows, N - row)
    next(name, row * rowBytes)
    const piece = buffer.subarray(0, count * rowBytes)
    await readRows(source, matrix, row, count, piece)
    const w = widen(dtype, piece, wide)
    for (let r = 0; r < count; r += 1) {
      const own = scales.subarray(r * groups, (r + 1) * groups)
      const bad = round(w, r * K, codes, own)
      if (bad >= 0) {
        throw invalid(
          `Tensor "${name}" has weights too large for ${target.format} in row ${row + r}, columns ${bad * group} and on: their scale would exceed 65504, the largest F16. Use the model as it is.`,
        )
      }
      addError(sums, group, w, r * K, codes, own)
      target.store(codes, packed, r * width)
    }
    await file.write(name, packed.subarray(0, count * width), row * width)
    await file.write(scalesName(name), new Uint8Array(scales.buffer, 0, 2 * count * groups), 2 * row * groups)
  }
}
