/**
 * Layers of several kinds: each kind has the constants and tables of its own layers only, numbered by a part of the index of all
 * layers, and one loop runs for every layer what belongs to its kinds.
 */
import type { GraphBuilder } from '../../engine/builder.ts'
import type { Index, Matrix, Member, Over, Part, Pattern, Stack, Vector } from '../../engine/builder-types.ts'
import type { Layers, Range, TensorSet } from '../family.ts'

export interface VectorOptions extends Partial<Pick<Pattern, 'view' | 'map'>> {
  /** The constant's name, where it is another than the tensor's. */
  readonly as?: string
  /** Its width, where it is another than the tensor's. */
  readonly width?: number
}

export interface StackOptions extends Partial<Pick<Pattern, 'view'>> {
  /** The constant's name, where it is another than the tensor's. */
  readonly as?: string
  /** Its outputs, where they are others than the tensor's. */
  readonly outputs?: number
}

/** Some layers of a model, and their constants. */
export interface LayerKind {
  /** Numbers the layers of this kind: an axis of their tables, and what picks their members. */
  readonly index: Index
  readonly layers: readonly number[]
  /** Whether the first layer of the kind has a tensor of this name behind the prefix. */
  has(name: string): boolean
  /** The tensors `name` of shape `shape`, behind the prefix. */
  vector(name: string, shape: readonly number[], options?: VectorOptions): Member<Vector>
  /** The tensors `name`.weight. */
  matrix(name: string, shape: readonly [outputs: number, inputs: number]): Member<Matrix>
  /** The tensors `name`, each of which holds the matrices of a layer; or with {e} in the name one of them. */
  stack(name: string, shape: Stack['shape'], options?: StackOptions): Member<Stack>
}

export interface LayerKinds {
  readonly L: Layers
  readonly l: Index
  /** The layers of which `is` holds; null: there are none. Their tensors stand behind the prefix with the number in place of {l}. */
  kind(name: string, is: (layer: number) => boolean, prefix?: string): LayerKind | null
  /** Runs the body of the kind that a layer is of; inside the loop over all layers. */
  run(choices: readonly (readonly [LayerKind | null, () => void])[]): void
}

const product = (shape: readonly number[]): number => shape.reduce((all, extent) => all * extent, 1)

export const layerKinds = (g: GraphBuilder, set: TensorSet, prefix: string, L: Layers): LayerKinds => {
  const l = g.index('l', L)
  const parts = new Map<LayerKind, Part>()
  const every = Array.from({ length: L }, (_, layer) => layer)
  return {
    L,
    l,
    kind: (name, is, own = prefix) => {
      const layers = every.filter(is)
      const [first] = layers
      if (first === undefined) return null
      const part = layers.length === every.length ? null : g.part(`l.${name}`, l, layers)
      const over: Over & Range = part === null ? { over: l, to: L } : { over: part }
      const path = own.replace('{l}', `{${over.over.index}}`)
      const kind: LayerKind = {
        index: over.over,
        layers,
        has: (tensor) => set.has(own.replace('{l}', String(first)) + tensor),
        vector: (tensor, shape, { as = tensor, width = product(shape), ...change } = {}) =>
          g.vectors(as, width, { ...set.takeAll(path + tensor, over, shape), ...change }, over),
        matrix: (tensor, shape) =>
          g.matrices(tensor, shape, set.takeMatrices(`${path}${tensor}.weight`, over, shape), over),
        stack: (
          tensor,
          shape,
          { as = tensor.replace('.{e}', '').replace(/\.weight$/, ''), outputs, ...change } = {},
        ) => {
          const [count, rows, inputs] = shape
          const source = { ...set.takeStacks(path + tensor, over, shape), ...change }
          return g.stacks(as, [count, outputs ?? rows, inputs], source, over)
        },
      }
      if (part !== null) parts.set(kind, part)
      return kind
    },
    run: (choices) => {
      const there = choices.filter((choice): choice is readonly [LayerKind, () => void] => choice[0] !== null)
      const choose = ([choice, ...others]: typeof there): void => {
        if (choice === undefined) return
        const [kind, body] = choice
        const part = parts.get(kind)
        if (part === undefined) body()
        else g.branch({ within: part }, body, others.length === 0 ? undefined : () => choose(others))
      }
      choose(there)
    },
  }
}
