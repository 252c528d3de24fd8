/** What an architecture of GGUF is: a reading of its metadata and names as those of a family. */
import type { TensorEntry } from '../../engine/native.ts'
import type { Keys } from './metadata.ts'

/** Numbers of tensors that are part of the configuration. */
export interface Numbers {
  /** `rope_freqs.weight`: what the angle of each pair is divided by; null: the file has no such tensor. */
  readonly ropeFactors: readonly number[] | null
}

/**
 * Config and tensors as the family's own packages have them. Throws INVALID for metadata that describe no such model.
 */
export type Architecture = (
  keys: Keys,
  tensors: readonly TensorEntry[],
  numbers: Numbers,
) => {
  readonly config: { readonly model_type: string; readonly [key: string]: unknown }
  readonly tensors: readonly TensorEntry[]
}

/** The rules of a tensor's weight and bias. */
export const both = (from: string, to: string): Readonly<Record<string, string>> => ({
  [`${from}.weight`]: `${to}.weight`,
  [`${from}.bias`]: `${to}.bias`,
})

/** The shape of a vector that the file has with more than one axis. */
export const flat = ({ shape }: TensorEntry): readonly number[] => [shape.reduce((all, extent) => all * extent, 1)]

/**
 * The shape of a tensor; of the taps of a convolution, [channels, taps] in the file, with the axis between them that
 * packages have.
 */
export const taps = ({ name, shape }: TensorEntry): readonly number[] =>
  /\.conv(?:1d)?\.weight$/.test(name) && shape.length === 2 ? [shape[0]!, 1, shape[1]!] : shape

/**
 * The tensors under other names: `{l}` stands for the number of a layer on both sides. A tensor that no rule names
 * keeps its own name, so that the family refuses it.
 */
export const renamed = (
  tensors: readonly TensorEntry[],
  rules: Readonly<Record<string, string>>,
  layer = 'blk.{l}.',
): readonly TensorEntry[] => {
  const [before, after] = layer.split('{l}') as [string, string]
  return tensors.map((tensor) => {
    const { name } = tensor
    const [, number, rest] = name.startsWith(before) ? (/^(\d{1,9})(.*)$/s.exec(name.slice(before.length)) ?? []) : []
    const own =
      number !== undefined && rest?.startsWith(after) ? rules[`${layer}${rest.slice(after.length)}`] : rules[name]
    return own === undefined ? tensor : { ...tensor, name: own.replace('{l}', number ?? ''), stored: { name } }
  })
}
