/** What the addon says of files and of this machine. */
import { type CudaStatus, callNative, type FileFormat, type GgufMetadata, type TensorEntry } from './native.ts'

/** What the headers of a model's files say. */
export interface Inspected {
  /** Of all files. */
  readonly tensors: readonly TensorEntry[]
  /** File by file. */
  readonly formats: readonly FileFormat[]
  /** Of the first GGUF file; null without one. */
  readonly metadata: GgufMetadata | null
}

/**
 * Reads the headers of a model's files: safetensors, GGUF, archives of torch.save, found by their content. Throws
 * INVALID for a damaged or hostile file, and for a tensor that stands in two of them.
 */
export const inspectFiles = (paths: readonly string[]): Inspected => {
  const { tensors, files } = callNative((addon) => addon.inspect(paths))
  const pairs = files.find(({ metadata }) => metadata !== null)?.metadata ?? null
  return { tensors, formats: files.map(({ format }) => format), metadata: pairs && new Map(pairs) }
}

/** The tensors of one file. Throws as `inspectFiles`. */
export const inspectTensors = (path: string): readonly TensorEntry[] => inspectFiles([path]).tensors

/** The instruction set whose kernels this CPU gets: avx512vnni, avx512, avx2 or generic. */
export const kernelFeatures = (): string => callNative((addon) => addon.features())

/** The state of CUDA here, and the reason where it cannot be used. */
export const cudaStatus = (): CudaStatus => callNative((addon) => addon.cuda())
