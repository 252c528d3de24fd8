/** The types of ggml that the comparison writes, and the head of a file with such tensors. */
import { type GgufValue, ggufHeader as headerOf, padded } from '../../test/models/files/gguf-header.ts'

export type MetaValue = GgufValue
export { padded }

/** Type numbers of ggml, with the number of values in a block and its bytes. */
export const ggmlTypes = {
  f32: { id: 0, values: 1, bytes: 4 },
  f16: { id: 1, values: 1, bytes: 2 },
  q4: { id: 2, values: 32, bytes: 18 },
  q8: { id: 8, values: 32, bytes: 34 },
  q4k: { id: 12, values: 256, bytes: 144 },
  q6k: { id: 14, values: 256, bytes: 210 },
  bf16: { id: 30, values: 1, bytes: 2 },
} as const
export type GgmlType = keyof typeof ggmlTypes

export interface GgufTensor {
  readonly name: string
  readonly extents: readonly number[]
  readonly type: GgmlType
}

export const ggufBytes = ({ extents, type }: GgufTensor): number => {
  const { values, bytes } = ggmlTypes[type]
  return (extents.reduce((product, extent) => product * extent, 1) / values) * bytes
}

/** The file up to the data, padded. */
export const ggufHeader = (metadata: Readonly<Record<string, MetaValue>>, tensors: readonly GgufTensor[]): Uint8Array =>
  headerOf(
    metadata,
    tensors.map((tensor) => ({ ...tensor, type: ggmlTypes[tensor.type].id, bytes: ggufBytes(tensor) })),
  )
