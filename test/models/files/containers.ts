/** Writes GGUF files and archives of torch.save, from the formats' descriptions alone. */
import type { Tensor, Tensors } from '../../engine/safetensors.ts'
import { type GgufValue, ggufHeader, padded, u16, u32 } from './gguf-header.ts'

export type { GgufValue } from './gguf-header.ts'

const floats = (values: Float32Array): Buffer => Buffer.from(values.slice().buffer)

/** A tensor of a GGUF file; `shape` with rows first. */
export interface Stored {
  readonly shape: readonly number[]
  readonly type: number
  readonly data: Uint8Array
}

export const plainF32 = ({ shape, data }: Tensor): Stored => ({ shape, type: 0, data: floats(data) })

export const ggufFile = (
  metadata: Readonly<Record<string, GgufValue>>,
  tensors: ReadonlyMap<string, Stored>,
  version = 3,
): Uint8Array => {
  const entries = [...tensors].map(([name, { shape, type, data }]) => ({
    name,
    extents: shape.toReversed(),
    type,
    bytes: data.length,
  }))
  const data = [...tensors.values()].flatMap(({ data }) => [data, Buffer.alloc(padded(data.length) - data.length)])
  return Buffer.concat([ggufHeader(metadata, entries, version), ...data])
}

/** The f16 nearest to a number whose f16 is normal or 0. */
const half = (value: number): number => {
  const magnitude = Math.abs(value)
  if (magnitude < 2 ** -14) return 0
  const exponent = Math.floor(Math.log2(magnitude))
  const fraction = Math.round((magnitude / 2 ** exponent - 1) * 1024)
  return (value < 0 ? 0x8000 : 0) | (((exponent + 15) << 10) + fraction)
}

/** Rows of blocks of 32 codes of 8 bits, Q8_0. */
export const q8Blocks = ({ shape, data }: Tensor): Stored => {
  const out = Buffer.alloc((data.length / 32) * 34)
  for (let block = 0; block * 32 < data.length; block += 1) {
    const values = data.subarray(block * 32, block * 32 + 32)
    const scale = half(Math.max(...values.map(Math.abs)) / 127)
    out.writeUInt16LE(scale, block * 34)
    const exponent = scale >> 10
    const wide = exponent === 0 ? 0 : (1 + (scale & 1023) / 1024) * 2 ** (exponent - 15)
    values.forEach((value, i) => {
      const code = wide === 0 ? 0 : Math.max(-127, Math.min(127, Math.round(value / wide)))
      out.writeInt8(code, block * 34 + 2 + i)
    })
  }
  return { shape, type: 8, data: out }
}

export type TorchDtype = 'BFloat16' | 'Half' | 'Float' | 'Double'

const numbers: Readonly<Record<TorchDtype, (values: Float32Array) => Buffer>> = {
  Float: floats,
  Double: (values) => Buffer.from(Float64Array.from(values).buffer),
  BFloat16: (values) => {
    const bits = new Uint32Array(values.slice().buffer)
    return Buffer.concat([...bits].map((each) => u16(each >>> 16)))
  },
  Half: (values) => Buffer.concat([...values].map((value) => u16(half(value)))),
}

const pickleText = (value: string): Buffer =>
  Buffer.concat([Buffer.from('X'), u32(Buffer.byteLength(value)), Buffer.from(value)])
const pickleWhole = (value: number): Buffer => Buffer.concat([Buffer.from('J'), u32(value)])
const pickleTuple = (values: readonly Buffer[]): Buffer =>
  Buffer.concat([Buffer.from('('), ...values, Buffer.from('t')])

const pickleTensor = (storage: number, { shape, data }: Tensor, dtype: TorchDtype): Buffer => {
  const strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((product, extent) => product * extent, 1))
  return Buffer.concat([
    Buffer.from('ctorch._utils\n_rebuild_tensor_v2\n('),
    pickleTuple([
      pickleText('storage'),
      Buffer.from(`ctorch\n${dtype}Storage\n`),
      pickleText(String(storage)),
      pickleText('cpu'),
      pickleWhole(data.length),
    ]),
    Buffer.from('Q'),
    pickleWhole(0),
    pickleTuple(shape.map(pickleWhole)),
    pickleTuple(strides.map(pickleWhole)),
    Buffer.from([0x89]),
    Buffer.from('ccollections\nOrderedDict\n)RtR'),
  ])
}

export interface ZipEntry {
  readonly name: string
  readonly data: Uint8Array
}

/** An archive whose entries are stored; their data begin at multiples of 64. */
export const zipFile = (entries: readonly ZipEntry[]): Uint8Array => {
  const parts: Buffer[] = []
  const directory: Buffer[] = []
  let at = 0
  for (const { name, data } of entries) {
    const extra = (64 - ((at + 30 + name.length) % 64)) % 64
    const sizes = [u32(data.length), u32(data.length), u16(name.length)]
    const local = [u32(0x04034b50), u16(0), u16(0), u16(0), u32(0), u32(0), ...sizes, u16(extra), Buffer.from(name)]
    const whole = Buffer.concat([...local, Buffer.alloc(extra), data])
    directory.push(
      Buffer.concat([u32(0x02014b50), u32(0), u16(0), u16(0), u32(0), u32(0), ...sizes]),
      Buffer.concat([u16(0), u16(0), u16(0), u16(0), u32(0), u32(at), Buffer.from(name)]),
    )
    parts.push(whole)
    at += whole.length
  }
  const list = Buffer.concat(directory)
  const count = u16(entries.length)
  return Buffer.concat([...parts, list, u32(0x06054b50), u32(0), count, count, u32(list.length), u32(at), u16(0)])
}

/** What torch.save writes of a state_dict. `pickle`: in place of the good one. */
export const torchFile = (tensors: Tensors, dtype: TorchDtype = 'Float', pickle?: Uint8Array): Uint8Array => {
  const list = [...tensors]
  const good = Buffer.concat([
    Buffer.from([0x80, 2]),
    Buffer.from('}('),
    ...list.flatMap(([name, tensor], at) => [pickleText(name), pickleTensor(at, tensor, dtype)]),
    Buffer.from('u.'),
  ])
  return zipFile([
    { name: 'm/data.pkl', data: pickle ?? good },
    { name: 'm/byteorder', data: Buffer.from('little') },
    ...list.map(([, { data }], at) => ({ name: `m/data/${at}`, data: numbers[dtype](data) })),
  ])
}
