/**
 * safetensors: u64 length of the header, the header as JSON padded with spaces to 8 bytes, then the data without gaps.
 */
const sizes = { F32: 4, F16: 2, BF16: 2, I8: 1, U8: 1 } as const
export type Dtype = keyof typeof sizes

export interface PackageTensor {
  readonly name: string
  readonly dtype: Dtype
  readonly shape: readonly number[]
}

export const packageBytes = ({ dtype, shape }: PackageTensor): number =>
  shape.reduce((product, extent) => product * extent, sizes[dtype])

export interface SafetensorsLayout {
  readonly header: Uint8Array
  /** The offset of each tensor in the file. */
  readonly offsets: ReadonlyMap<string, number>
}

export const safetensorsLayout = (tensors: readonly PackageTensor[]): SafetensorsLayout => {
  let end = 0
  const entries = tensors.map((tensor) => {
    const begin = end
    end += packageBytes(tensor)
    return [tensor.name, { dtype: tensor.dtype, shape: tensor.shape, data_offsets: [begin, end] as const }] as const
  })
  const json = Buffer.from(JSON.stringify(Object.fromEntries(entries)))
  const header = Buffer.alloc(8 + Math.ceil(json.length / 8) * 8, ' ')
  header.writeBigUInt64LE(BigInt(header.length - 8))
  json.copy(header, 8)
  return {
    header,
    offsets: new Map(entries.map(([name, { data_offsets }]) => [name, header.length + data_offsets[0]])),
  }
}
