/** What a model family provides: how to read its config and turn a package's tensors into a graph. */

import type { Graph } from '../engine/graph.ts'
import type { TensorEntry } from '../engine/native.ts'
import { ContinuoError } from '../errors.ts'

export interface FamilyModel {
  readonly graph: Graph
  readonly vocabSize: number
}

export interface Family {
  /** Throws INVALID when config and tensors do not make a model of this family. */
  readonly build: (config: unknown, tensors: readonly TensorEntry[]) => FamilyModel
}

const shapeText = (shape: readonly number[]): string => `[${shape.join(', ')}]`

/** The tensors of a package, taken one by one; what is left at the end nobody asked for. */
export interface TensorSet {
  has(name: string): boolean
  /** The shape of a tensor that must be there. */
  shape(name: string, what: string): readonly number[]
  /** Notes that the tensor is used; refuses it when it is missing or has another shape. Leading extents of 1 do not count. */
  take(name: string, shape: readonly number[]): string
  /** Notes that a tensor may be there although nothing uses it. */
  ignore(name: string): void
  /** Refuses tensors that were neither taken nor ignored. */
  finish(): void
}

export const tensorSet = (tensors: readonly TensorEntry[]): TensorSet => {
  const byName = new Map(tensors.map((tensor) => [tensor.name, tensor]))
  const left = new Set(byName.keys())
  const need = (name: string, expected: string): TensorEntry => {
    const tensor = byName.get(name)
    if (!tensor) {
      throw new ContinuoError(
        'INVALID',
        `Tensor "${name}" is missing from model.safetensors, expected ${expected}. The model is incomplete.`,
      )
    }
    return tensor
  }
  const trimmed = (shape: readonly number[]): readonly number[] => {
    const first = shape.findIndex((extent) => extent !== 1)
    return first < 0 ? [] : shape.slice(first)
  }
  return {
    has: (name) => byName.has(name),
    shape: (name, what) => need(name, what).shape,
    take: (name, shape) => {
      const tensor = need(name, `shape ${shapeText(shape)}`)
      if (shapeText(trimmed(tensor.shape)) !== shapeText(trimmed(shape))) {
        throw new ContinuoError(
          'INVALID',
          `Tensor "${name}" has shape ${shapeText(tensor.shape)}, expected ${shapeText(shape)}.`,
        )
      }
      left.delete(name)
      return name
    },
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
