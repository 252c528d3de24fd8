/** Writes RWKV-7 packages of any size for benches: random weights of sixteen bits under the official tensor names. */
import { type Entry, type Format, writeRandom } from './random-package.ts'

export interface Rwkv7Shape {
  readonly layers: number
  /** A multiple of 64, the channels of a head. */
  readonly channels: number
  readonly vocabulary: number
  /** Widths of the low-rank maps. */
  readonly ranks: { readonly w: number; readonly a: number; readonly v: number; readonly g: number }
}

/** The shape of the published 0.1B model. */
export const RWKV7_0B1: Rwkv7Shape = {
  layers: 12,
  channels: 768,
  vocabulary: 65_536,
  ranks: { w: 64, a: 64, v: 32, g: 128 },
}

/** The shape of the published 1.5B model. */
export const RWKV7_1B5: Rwkv7Shape = {
  layers: 24,
  channels: 2048,
  vocabulary: 65_536,
  ranks: { w: 96, a: 96, v: 64, g: 256 },
}

const HEAD = 64

/** The tensors of such a package. */
export const rwkv7Entries = ({ layers, channels: C, vocabulary: V, ranks }: Rwkv7Shape): readonly Entry[] => {
  const F = 4 * C
  const norm = (name: string): readonly Entry[] => [
    [`${name}.weight`, [C], 0.75],
    [`${name}.bias`, [C], 0.05],
  ]
  const matrix = (name: string, outputs: number, inputs: number): Entry => [
    `${name}.weight`,
    [outputs, inputs],
    0.7 / Math.sqrt(inputs),
  ]
  const layer = (l: number): readonly Entry[] => {
    const at = `blocks.${l}`
    const lowRank = (which: keyof typeof ranks): readonly Entry[] => [
      ...(which === 'g' ? [] : [[`${at}.att.${which}0`, [1, 1, C], 0.5] as const]),
      [`${at}.att.${which}1`, [C, ranks[which]], 0.7 / Math.sqrt(C)],
      [`${at}.att.${which}2`, [ranks[which], C], 0.7 / Math.sqrt(ranks[which])],
    ]
    return [
      ...(l === 0 ? norm(`${at}.ln0`) : []),
      ...norm(`${at}.ln1`),
      ...norm(`${at}.ln2`),
      ...[...'rwkvag'].map((which): Entry => [`${at}.att.x_${which}`, [1, 1, C], 0.3]),
      ...lowRank('w'),
      ...lowRank('a'),
      ...(l === 0 ? [] : lowRank('v')),
      ...lowRank('g'),
      [`${at}.att.k_k`, [1, 1, C], 0.6],
      [`${at}.att.k_a`, [1, 1, C], 0.7],
      [`${at}.att.r_k`, [C / HEAD, HEAD], 0.1],
      ...['receptance', 'key', 'value', 'output'].map((name) => matrix(`${at}.att.${name}`, C, C)),
      ...norm(`${at}.att.ln_x`),
      [`${at}.ffn.x_k`, [1, 1, C], 0.3],
      matrix(`${at}.ffn.key`, F, C),
      matrix(`${at}.ffn.value`, C, F),
    ]
  }
  return [
    ['emb.weight', [V, C], 0.5],
    ...Array.from({ length: layers }, (_, l) => layer(l)).flat(),
    ...norm('ln_out'),
    matrix('head', V, C),
  ]
}

const POSITIVE = /(ln\w*\.weight|x_.|k_k|k_a)$/

/** Writes config.json and model.safetensors into `dir`. */
export const writeRwkv7 = (dir: string, shape: Rwkv7Shape, format?: Format): Promise<void> =>
  writeRandom(dir, { config: { model_type: 'rwkv7' }, entries: rwkv7Entries(shape), positive: POSITIVE }, format)
