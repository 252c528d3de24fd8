/**
 * Writes one model twice, as GGUF and as a Continuo package, with the same numbers. Only one block of rows is in memory
 * at a time.
 */
import { closeSync, mkdirSync, openSync, renameSync, writeFileSync, writeSync } from 'node:fs'
import { join } from 'node:path'
import {
  bytesOf,
  type Format,
  fromQ4Blocks,
  GGUF_ONLY,
  GROUP,
  isPackageFormat,
  PACKAGE_FORMATS,
  quantise,
  toBf16,
  toF16,
  toQ4Blocks,
  toQ4kBlocks,
  toQ6kBlocks,
  toQ8Blocks,
} from './formats.ts'
import { type GgmlType, type GgufTensor, ggufBytes, ggufHeader, type MetaValue, padded } from './gguf.ts'
import { type Dtype, type PackageTensor, safetensorsLayout } from './safetensors.ts'
import { type TensorSpec, valuesOf } from './tensors.ts'

/** Values that are drawn at a time. Matrices that a package has transposed are smaller and are drawn as one block. */
const BLOCK = 1 << 22

const fileTypes: Readonly<Record<Format, number>> = {
  ...{ f32: 0, f16: 1, bf16: 32 },
  ...{ q4: 2, q8: 7, q4k: 14, q6k: 18 },
}
const dtypes: Readonly<Record<string, Dtype>> = { f32: 'F32', f16: 'F16', bf16: 'BF16' }

/** Of tables and of what is never quantised. */
const wide = (format: Format): 'f32' | 'f16' | 'bf16' => (format === 'f32' || format === 'bf16' ? format : 'f16')

/** The type of a tensor's numbers in a file of this format. */
export const storageOf = ({ role }: TensorSpec, format: Format): GgmlType =>
  role === 'plain' ? 'f32' : role === 'matrix' ? format : wide(format)

const packageTensors = (spec: TensorSpec, format: Format): readonly PackageTensor[] => {
  const storage = storageOf(spec, format)
  return spec.names.flatMap((name): readonly PackageTensor[] => {
    if (GGUF_ONLY.has(storage)) throw new Error(`${name}: a package has no ${storage}; only a GGUF file does.`)
    if (!isPackageFormat(storage)) {
      const dtype = dtypes[storage]!
      return [{ name, dtype, shape: spec.shape }]
    }
    const rows = spec.rows / spec.names.length
    const scales = [rows, spec.columns / GROUP]
    return [
      storage === 'q8'
        ? { name, dtype: 'I8', shape: spec.shape }
        : { name, dtype: 'U8', shape: [rows, spec.columns / 2] },
      { name: `${name}.scales`, dtype: 'F16', shape: scales },
    ]
  })
}

const transposed = (values: Float32Array, rows: number, columns: number): Float32Array => {
  const out = new Float32Array(values.length)
  for (let row = 0; row < rows; row += 1)
    for (let column = 0; column < columns; column += 1) out[column * rows + row] = values[row * columns + column]!
  return out
}

const encoders: Readonly<Record<Exclude<GgmlType, 'q8' | 'q4'>, (values: Float32Array) => Uint8Array>> = {
  f32: bytesOf,
  f16: toF16,
  bf16: toBf16,
  q4k: toQ4kBlocks,
  q6k: toQ6kBlocks,
}

export interface ModelFiles {
  readonly gguf: string
  /** Folder of the Continuo package. */
  readonly dir: string
}

const ggufOf = (
  specs: readonly TensorSpec[],
  format: Format,
  metadata: Readonly<Record<string, MetaValue>>,
): { readonly header: Uint8Array; readonly tensors: readonly GgufTensor[] } => {
  const tensors = specs.map((spec) => ({ name: spec.gguf, extents: spec.extents, type: storageOf(spec, format) }))
  const header = ggufHeader(
    {
      'general.file_type': { u32: fileTypes[format] },
      'general.quantization_version': { u32: 2 },
      // Token ids only where the model says nothing else: llama.cpp takes the size of the vocabulary from the model's
      // own key.
      'tokenizer.ggml.model': 'none',
      ...metadata,
    },
    tensors,
  )
  return { header, tensors }
}

/** Writes one model as GGUF alone. */
export const writeGguf = (
  specs: readonly TensorSpec[],
  format: Format,
  metadata: Readonly<Record<string, MetaValue>>,
  path: string,
): void => {
  const { header, tensors } = ggufOf(specs, format, metadata)
  const file = openSync(`${path}.part`, 'w')
  try {
    writeSync(file, header, 0, header.length, 0)
    let at = header.length
    specs.forEach((spec, i) => {
      writeTensor({ ...spec, names: [] }, format, { file, at }, null)
      at += ggufBytes(tensors[i]!)
      at += writeSync(file, Buffer.alloc(padded(at) - at), 0, padded(at) - at, at)
    })
  } finally {
    closeSync(file)
  }
  renameSync(`${path}.part`, path)
}

export const writeModel = (
  specs: readonly TensorSpec[],
  format: Format,
  metadata: Readonly<Record<string, MetaValue>>,
  config: Readonly<Record<string, unknown>>,
  files: ModelFiles,
): void => {
  const { header, tensors: ggufTensors } = ggufOf(specs, format, metadata)
  const layout = safetensorsLayout(specs.flatMap((spec) => packageTensors(spec, format)))
  mkdirSync(files.dir, { recursive: true })
  const tensorsPath = join(files.dir, 'model.safetensors')
  const gguf = openSync(`${files.gguf}.part`, 'w')
  const tensors = openSync(`${tensorsPath}.part`, 'w')
  try {
    writeSync(gguf, header, 0, header.length, 0)
    writeSync(tensors, layout.header, 0, layout.header.length, 0)
    let ggufAt = header.length
    specs.forEach((spec, i) => {
      writeTensor(spec, format, { file: gguf, at: ggufAt }, { file: tensors, offsets: layout.offsets })
      const bytes = ggufBytes(ggufTensors[i]!)
      writeSync(gguf, Buffer.alloc(padded(bytes) - bytes), 0, padded(bytes) - bytes, ggufAt + bytes)
      ggufAt += padded(bytes)
    })
  } finally {
    closeSync(gguf)
    closeSync(tensors)
  }
  const quantisation = isPackageFormat(format)
    ? { quantization_config: { quant_method: 'continuo', format: PACKAGE_FORMATS[format], group_size: GROUP } }
    : {}
  writeFileSync(join(files.dir, 'config.json'), `${JSON.stringify({ ...config, ...quantisation }, null, 2)}\n`)
  renameSync(`${files.gguf}.part`, files.gguf)
  renameSync(`${tensorsPath}.part`, tensorsPath)
}

const writeTensor = (
  spec: TensorSpec,
  format: Format,
  gguf: { readonly file: number; readonly at: number },
  tensors: { readonly file: number; readonly offsets: ReadonlyMap<string, number> } | null,
): void => {
  const { rows, columns, names } = spec
  const storage = storageOf(spec, format)
  const draw = valuesOf(spec)
  const put = (file: number, bytes: Uint8Array, at: number): number => at + writeSync(file, bytes, 0, bytes.length, at)
  // Tensors of the package that share the rows of one GGUF tensor.
  const perName = rows / Math.max(1, names.length)
  const blockRows = spec.role === 'fromRight' ? rows : Math.min(perName, Math.max(1, Math.floor(BLOCK / columns)))
  let ggufAt = gguf.at
  for (let row = 0; row < rows; row += blockRows) {
    const count = Math.min(blockRows, rows - row)
    const values = draw(count * columns)
    const name = names[Math.floor(row / perName)]
    const before = (row % perName) * columns
    const start = (tensor: string): number => tensors!.offsets.get(tensor)!
    if (storage === 'q8') {
      const quantised = quantise(values)
      ggufAt = put(gguf.file, toQ8Blocks(quantised), ggufAt)
      if (tensors === null || name === undefined) continue
      put(tensors.file, bytesOf(quantised.codes), start(name) + before)
      put(tensors.file, bytesOf(quantised.scales), start(`${name}.scales`) + (before / GROUP) * 2)
    } else if (storage === 'q4') {
      const blocks = toQ4Blocks(values)
      ggufAt = put(gguf.file, blocks, ggufAt)
      if (tensors === null || name === undefined) continue
      const { codes, scales } = fromQ4Blocks(blocks)
      put(tensors.file, codes, start(name) + before / 2)
      put(tensors.file, scales, start(`${name}.scales`) + (before / GROUP) * 2)
    } else {
      const encode = encoders[storage]
      const bytes = encode(values)
      ggufAt = put(gguf.file, bytes, ggufAt)
      if (tensors === null || name === undefined) continue
      const own = spec.role === 'fromRight' ? encode(transposed(values, rows, columns)) : bytes
      put(tensors.file, own, start(name) + (before * bytes.length) / values.length)
    }
  }
}

/** Bytes and number of all weights that a decoded token is multiplied with: the matrices, not the tables. */
export const matrixTraffic = (
  specs: readonly TensorSpec[],
  format: Format,
): { readonly bytes: number; readonly weights: number; readonly headWeights: number } => {
  // A tensor without a place in a package that has others is only llama.cpp's.
  const packaged = specs.some(({ names }) => names.length > 0)
  const used = specs.filter(
    ({ role, names }) => (role === 'matrix' || role === 'fromRight') && (names.length > 0 || !packaged),
  )
  // A tied embedding is also the head.
  const head =
    used.find(({ gguf }) => gguf === 'output.weight') ?? specs.find(({ gguf }) => gguf === 'token_embd.weight')!
  const read = [...used.filter((spec) => spec !== head), head]
  const sizeOf = (spec: TensorSpec): number =>
    ggufBytes({ name: spec.gguf, extents: spec.extents, type: storageOf(spec, format) })
  const weightsOf = ({ rows, columns }: TensorSpec): number => rows * columns
  return {
    bytes: read.reduce((sum, spec) => sum + sizeOf(spec), 0),
    weights: read.reduce((sum, spec) => sum + weightsOf(spec), 0),
    headWeights: weightsOf(head),
  }
}
