/** A model family: reads config.json of its models and turns the tensors of a package into a graph. */

import { z } from 'zod'
import type { Part, Pattern, Ref, Stack, Stored } from '../engine/builder-types.ts'
import type { Graph } from '../engine/graph.ts'
import type { TensorEntry } from '../engine/native.ts'
import type { Overflow } from '../engine/options.ts'
import type { DecoderShape } from '../engine/types.ts'
import { ContinuoError } from '../errors.ts'
import { schemaFault } from '../issues.ts'
import type { MemoryDeclaration } from '../memory.ts'
import type { MemoryOption } from './families/memory-json.ts'

/** Experts that lie in a store beside the weights. */
export interface StoredExperts {
  /** Numbers of the store's layers. */
  readonly layers: readonly number[]
  /** Of all experts (docs/experts.md, Digests). */
  readonly digest: string
}

export interface FamilyModel {
  readonly graph: Graph
  readonly vocabSize: number
  /** Sizes of a decoder with caches that grow. */
  readonly decoder?: DecoderShape
  /** Pulses between two firings of each memory level; none: the model has no levels. */
  readonly levels?: readonly number[]
  /** Window and tables of its memory, for statistics; none: it has neither. */
  readonly memory?: MemoryDeclaration
  /** none: all of its weights are in the model's files. */
  readonly experts?: StoredExperts
}

/** How a model is opened. */
export interface BuildOptions {
  readonly overflow?: Overflow | undefined
  /** Whether a model with experts in a store says ahead of time which it is likely to want; default true. */
  readonly lookAhead?: boolean | undefined
  /** Settles memory.json for the model; families that do not remember are never given one. */
  readonly memory?: MemoryOption | undefined
}

export interface Family {
  /** Throws INVALID when config and tensors do not make a model of this family. */
  readonly build: (config: unknown, tensors: readonly TensorEntry[], options?: BuildOptions) => FamilyModel
  /** Whether its models may keep their contexts outside of their attention (memory.json). */
  readonly remembers?: true
  /**
   * Whether its models can go on past their last position, attending to a window; not there: they have no last
   * position.
   */
  readonly windows?: boolean
  /**
   * Whether quantising takes its matrices [inputs, outputs] along; the quantised package has them [outputs, inputs].
   */
  readonly quantizesTransposed?: true
}

const shapeText = (shape: readonly number[]): string => `[${shape.join(', ')}]`

/** The entry of config.json for quantised matrices; docs/formats.md describes the tensors. */
const quantization = z.object({
  quant_method: z.literal('continuo'),
  format: z.enum(['q8', 'i4', 'ternary2', 'ternary3']),
  group_size: z.union([z.literal(32), z.literal(64)]),
})
export type Quantization = z.infer<typeof quantization>

/** Names of quantisations of others, as they are known. */
const OTHERS: Readonly<Record<string, string>> = {
  awq: 'AWQ',
  bitsandbytes: 'bitsandbytes',
  bitnet: 'BitNet',
  'compressed-tensors': 'compressed-tensors',
  fp8: 'FP8',
  gptq: 'GPTQ',
  mxfp4: 'MXFP4',
  quanto: 'quanto',
  torchao: 'torchao',
}

/** Throws INVALID when config.json names a quantisation of others. */
export const quantizationOf = (config: unknown): Quantization | undefined => {
  const { quantization_config, text_config } = Object(config) as {
    quantization_config?: unknown
    text_config?: unknown
  }
  const found = quantization_config ?? (Object(text_config) as { quantization_config?: unknown }).quantization_config
  if (found === undefined || found === null) return undefined
  const { quant_method: method } = Object(found) as { quant_method?: unknown }
  if (typeof method === 'string' && method !== 'continuo') {
    throw new ContinuoError(
      'INVALID',
      `The weights are quantised by ${OTHERS[method] ?? JSON.stringify(method)} (config.json, quantization_config), which Continuo does not read. Expected weights of F32, F16, BF16 or F64, a GGUF file, or a package that \`continuo quantize\` wrote: take the model in one of these.`,
    )
  }
  const result = quantization.safeParse(found)
  if (result.success) return result.data
  throw new ContinuoError(
    'INVALID',
    `config.json has a quantization_config that Continuo does not know (${schemaFault(result.error).path.join('.')}: ${schemaFault(result.error).message}). Expected one that \`continuo quantize\` wrote.`,
  )
}

declare const compared: unique symbol
/**
 * A number of layers that was compared with the tensors. Only such a number is looped over: config.json may say any.
 */
export type Layers = number & { readonly [compared]: true }

/** The tensors of a package, taken one by one; a tensor that is left at the end belongs to no part of the family. */
export interface TensorSet {
  has(name: string): boolean
  /**
   * The number of layers that the tensors are of, by their names `prefix` + number + "."; refuses config.json when what
   * it says under `key`, if it says anything, is another number.
   */
  layers(prefix: string, key: string, told: number | null | undefined): Layers
  /** Whether the file has a matrix with outputs first that other packages of the family have with inputs first. */
  outputsFirst(name: string): boolean
  /** The shape of a tensor that must be there. */
  shape(name: string, what: string): readonly number[]
  /**
   * Notes that the tensor is used; refuses it when it is missing or has another shape. Leading extents of 1 do not
   * count.
   */
  take(name: string, shape: readonly number[]): Ref
  /** As `take` for a matrix [outputs, inputs], which may be quantised. */
  takeMatrix(name: string, shape: readonly [number, number]): Ref
  /**
   * As `take` and `takeMatrix` for a family: `{l}` in the name stands for `from` … `to` − 1, or `{i}` for the values
   * that the part `i` of an index numbers.
   */
  takeAll(name: string, range: Range, shape: readonly number[]): Pattern
  takeMatrices(name: string, range: Range, shape: readonly [number, number]): Pattern
  /**
   * As `takeMatrix` for a stack [E, outputs, inputs]: `{e}` in the name stands for the number of the matrix. One tensor
   * holds them all where the name has no `{e}`, and where a tensor has that name with `{e}` in it.
   */
  takeStack(name: string, shape: Stack['shape']): Ref
  takeStacks(name: string, range: Range, shape: Stack['shape']): Pattern
  /** Notes that a tensor may be there although nothing uses it. */
  ignore(name: string): void
  /** Refuses tensors that were neither taken nor ignored. */
  finish(): void
}
export type Range = { readonly from?: number; readonly to: Layers } | { readonly over: Part }

/** What stands for a member in the names of its tensors, and the numbers of the members. */
const membersOf = (range: Range): { readonly hole: string; readonly numbers: readonly number[] } => {
  if (!('to' in range)) return { hole: `{${range.over.index}}`, numbers: range.over.at }
  const { from = 0, to } = range
  return { hole: '{l}', numbers: Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i) }
}

/** Weights in one byte of a quantised row. */
const perByte: Readonly<Record<Quantization['format'], number>> = { q8: 1, i4: 2, ternary2: 4, ternary3: 5 }

export const tensorSet = (tensors: readonly TensorEntry[], quantized?: Quantization): TensorSet => {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]))
  const left = new Set(byName.keys())
  const need = (name: string, expected: string): TensorEntry => {
    const tensor = byName.get(name)
    if (!tensor) {
      throw new ContinuoError(
        'INVALID',
        `Tensor "${name}" is missing from the model's files, expected ${expected}. The model is incomplete.`,
      )
    }
    return tensor
  }
  const trimmed = (shape: readonly number[]): readonly number[] => {
    const first = shape.findIndex((extent) => extent !== 1)
    return first < 0 ? [] : shape.slice(first)
  }
  const take = (name: string, shape: readonly number[]): Ref => {
    const tensor = need(name, `shape ${shapeText(shape)}`)
    if (shapeText(trimmed(tensor.shape)) !== shapeText(trimmed(shape))) {
      throw new ContinuoError(
        'INVALID',
        `Tensor "${name}" has shape ${shapeText(tensor.shape)}, expected ${shapeText(shape)}.`,
      )
    }
    left.delete(name)
    const { stored } = tensor
    return stored === undefined ? { ref: name } : { ref: stored.name, ...(stored.view && { view: stored.view }) }
  }
  /** The names of a family's members in the files, as a pattern. */
  const patternOf = (name: string, range: Range): string => {
    const { hole, numbers } = membersOf(range)
    const at = (l: number): TensorEntry | undefined => byName.get(name.replaceAll(hole, String(l)))
    const [from] = numbers
    const first = from === undefined ? undefined : at(from)?.stored
    if (first === undefined) return name
    // A number between dots or at an end.
    const pattern = first.name.replace(new RegExp(`(?<=^|\\.)${from}(?=\\.|$)`, 'g'), hole)
    for (const l of numbers) {
      const { name: own, view } = at(l)?.stored ?? {}
      if (own !== pattern.replaceAll(hole, String(l)) || JSON.stringify(view) !== JSON.stringify(first.view))
        throw new ContinuoError(
          'INVALID',
          `Tensor "${own}" was expected under the name "${pattern.replaceAll(hole, String(l))}", like that of layer ${from}.`,
        )
    }
    return pattern
  }
  const scalesOf = (name: string): string => `${name}.scales`
  const storedAs = (name: string): Stored =>
    quantized && byName.has(scalesOf(name).replace('{e}', '0'))
      ? { storage: quantized.format, scales: scalesOf(name), group: quantized.group_size }
      : {}
  /** A tensor [rows, inputs], which may be quantised. */
  const takeRows = (name: string, rows: readonly number[], inputs: number): Ref => {
    const stored = storedAs(name)
    if (!quantized || stored.storage === undefined) return take(name, [...rows, inputs])
    take(scalesOf(name), [...rows, Math.ceil(inputs / quantized.group_size)])
    return { ...take(name, [...rows, Math.ceil(inputs / perByte[quantized.format])]), ...stored }
  }
  const takeMatrix = (name: string, [outputs, inputs]: readonly [number, number]): Ref =>
    takeRows(name, [outputs], inputs)
  const takeStack = (name: string, [E, outputs, inputs]: Stack['shape']): Ref => {
    if (!name.includes('{e}') || byName.has(name)) return takeRows(name, [E, outputs], inputs)
    const stored = storedAs(name)
    for (let e = 0; e < E; e += 1) {
      const one = name.replace('{e}', String(e))
      if (takeMatrix(one, [outputs, inputs]).storage === stored.storage) continue
      throw new ContinuoError(
        'INVALID',
        `Tensors "${name}" are quantised in some experts and not in others. Quantise the model anew.`,
      )
    }
    return { ref: name, ...stored }
  }
  const all = <S extends readonly number[]>(
    one: (name: string, shape: S) => Ref,
    name: string,
    range: Range,
    shape: S,
  ): Pattern => {
    const { hole, numbers } = membersOf(range)
    const at = (l: number): string => name.replaceAll(hole, String(l))
    const kinds = new Set(numbers.map((l) => one(at(l), shape).storage))
    if (kinds.size > 1) {
      throw new ContinuoError(
        'INVALID',
        `Tensors "${name}" are quantised in some layers and not in others. Quantise the model anew.`,
      )
    }
    const [first] = numbers
    const stored = first === undefined ? {} : storedAs(at(first))
    const view = first === undefined ? undefined : byName.get(at(first))?.stored?.view
    return {
      pattern: patternOf(name, range),
      ...(view && { view }),
      ...stored,
      ...(stored.scales === undefined ? {} : { scales: scalesOf(name) }),
    }
  }
  const layers = (prefix: string, key: string, told: number | null | undefined): Layers => {
    const found = new Set<number>()
    for (const name of byName.keys()) {
      const index = name.startsWith(prefix) ? /^\d{1,9}(?=\.)/.exec(name.slice(prefix.length))?.[0] : undefined
      if (index !== undefined) found.add(Number(index))
    }
    if (found.size === 0) {
      throw new ContinuoError(
        'INVALID',
        `Tensor "${prefix}0.…" is missing from the model's files, expected those of at least one layer. The model is incomplete.`,
      )
    }
    if (told != null && told !== found.size) {
      throw new ContinuoError(
        'INVALID',
        `config.json says ${key} is ${told}, but tensors "${prefix}*" of the model's files say ${found.size}. They belong to different models, or one of them is incomplete.`,
      )
    }
    return found.size as Layers
  }
  return {
    has: (name) => byName.has(name),
    outputsFirst: (name) => byName.get(name)?.stored?.outputsFirst === true,
    layers,
    shape: (name, what) => need(name, what).shape,
    take,
    takeMatrix,
    takeAll: (name, range, shape) => all(take, name, range, shape),
    takeMatrices: (name, range, shape) => all(takeMatrix, name, range, shape),
    takeStack,
    takeStacks: (name, range, shape) => all(takeStack, name, range, shape),
    ignore: (name) => {
      left.delete(name)
    },
    finish: () => {
      const [extra] = left
      if (extra !== undefined) {
        const others = left.size > 1 ? ` (and ${left.size - 1} more)` : ''
        throw new ContinuoError(
          'INVALID',
          `Tensor "${extra}"${others} is not part of this model family. Refusing a model that would run without some of its weights.`,
        )
      }
    },
  }
}
