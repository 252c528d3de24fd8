/**
 * models/demo in the shape of the published 0.1B models: what it computes is the demo's text, what it costs is theirs
 * (12 layers, 768 channels, 65,536 tokens). Each of the demo's channels is there four times, each matrix four times
 * along the diagonal, with zeros beside it; norms see the same mean and variance. Six layers more add zeros. One copy
 * of the channels is constant behind the last norm, and lowers the logits of the tokens that the demo does not have.
 * All weights are read and multiplied, zeros too.
 */
import { mkdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { writeTensors } from '../src/models/files/package-writer.ts'
import { RWKV7_0B1 } from './rwkv7-package.ts'
import { modelDir } from './support.ts'

interface Entry {
  readonly shape: readonly number[]
  readonly data_offsets: readonly [number, number]
}
/** bfloat16 bits. */
interface Tensor {
  readonly shape: readonly number[]
  readonly bits: Uint16Array
}

const LAYERS = 6
const ONE = 0x3f80
const MINUS_ONE = 0xbf80

const readDemo = (): ReadonlyMap<string, Tensor> => {
  const file = readFileSync(join(modelDir, 'model.safetensors'))
  const end = 8 + Number(file.readBigUInt64LE(0))
  const { __metadata__: _, ...entries } = JSON.parse(file.subarray(8, end).toString()) as Record<string, Entry>
  return new Map(
    Object.entries(entries).map(
      ([
        name,
        {
          shape,
          data_offsets: [from, to],
        },
      ]) => {
        const bytes = Uint8Array.from(file.subarray(end + from, end + to))
        return [name, { shape, bits: new Uint16Array(bytes.buffer) }]
      },
    ),
  )
}

/** [rows, columns] of a larger matrix, with `of` in it at each of these places. */
const placed = (
  { shape: [height, width], bits }: Tensor,
  rows: number,
  columns: number,
  places: readonly (readonly [row: number, column: number])[],
): Tensor => {
  const out = new Uint16Array(rows * columns)
  for (const [row, column] of places)
    for (let r = 0; r < height!; r += 1)
      out.set(bits.subarray(r * width!, (r + 1) * width!), (row + r) * columns + column)
  return { shape: [rows, columns], bits: out }
}

/** Writes the package into the folder. `vocabulary`: 256 or more. */
export const writeWideDemo = async (dir: string, vocabulary = RWKV7_0B1.vocabulary): Promise<void> => {
  const demo = readDemo()
  const [small, C] = [demo.get('emb.weight')!.shape[1]!, RWKV7_0B1.channels]
  const copies = Array.from({ length: C / small }, (_, copy) => copy)
  const tiled = ({ shape, bits }: Tensor): Tensor => ({
    shape: shape.map((extent) => (extent === small || extent === small / 64 ? extent * copies.length : extent)),
    bits: Uint16Array.from({ length: bits.length * copies.length }, (_, i) => bits[i % bits.length]!),
  })
  const diagonal = (tensor: Tensor): Tensor => {
    const [rows, columns] = tensor.shape as [number, number]
    const at = copies.map((copy) => [copy * rows, copy * columns] as const)
    return placed(tensor, rows * copies.length, columns * copies.length, at)
  }
  const widened = (name: string, tensor: Tensor): Tensor => {
    const lowRank = /att\.([wavg])([12])$/.exec(name)
    if (lowRank) {
      const rank = RWKV7_0B1.ranks[lowRank[1] as keyof typeof RWKV7_0B1.ranks]
      if (lowRank[2] === '1') return placed(tensor, C, rank, [[0, 0]])
      return placed(
        tensor,
        rank,
        C,
        copies.map((copy) => [0, copy * small]),
      )
    }
    if (/^(emb|head)\./.test(name)) {
      const all = name.startsWith('emb') ? copies : [0]
      return placed(
        tensor,
        vocabulary,
        C,
        all.map((copy) => [0, copy * small]),
      )
    }
    return tensor.shape.length === 2 && !name.endsWith('r_k') ? diagonal(tensor) : tiled(tensor)
  }
  const out = new Map<string, Tensor>()
  for (const [name, tensor] of demo) {
    const wide = widened(name, tensor)
    out.set(name, wide)
    const layer = /^blocks\.([1-5])\.(.*)$/.exec(name)
    if (!layer) continue
    // Layers 6 to 11 are 1 to 5, and 1 once more, that write zeros.
    const silent = /(att\.output|ffn\.value)\.weight$/.test(name)
    const copy = silent ? { ...wide, bits: new Uint16Array(wide.bits.length) } : wide
    const from = Number(layer[1])
    for (let to = LAYERS + from - 1; to < RWKV7_0B1.layers; to += LAYERS - 1) out.set(`blocks.${to}.${layer[2]}`, copy)
  }
  const last = C - small
  out.get('ln_out.weight')!.bits.fill(0, last)
  out.get('ln_out.bias')!.bits.fill(ONE, last)
  const head = out.get('head.weight')!.bits
  for (let id = demo.get('head.weight')!.shape[0]!; id < vocabulary; id += 1)
    head.fill(MINUS_ONE, id * C + last, (id + 1) * C)
  mkdirSync(dir, { recursive: true })
  writeFileSync(join(dir, 'config.json'), JSON.stringify({ model_type: 'rwkv7' }))
  const specs = [...out].map(([name, { shape, bits }]) => ({ name, dtype: 'BF16', shape, bytes: bits.byteLength }))
  await writeTensors(join(dir, 'model.safetensors'), specs, {}, async (file) => {
    for (const [name, { bits }] of out) await file.write(name, new Uint8Array(bits.buffer), 0)
  })
}
