/**
 * Layers of several kinds: each kind has the constants and tables of its own layers only, numbered by a part of the
 * index of all layers, and one loop runs for every layer what belongs to its kinds.
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

export interface MatrixOptions extends Partial<Pick<Pattern, 'view'>> {
  /** The constant's name, where it is another than the tensor's. */
  readonly as?: string
  /** Rows of the tensor, where they are others than the matrix's outputs. */
  readonly rows?: number
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
  matrix(name: string, shape: Matrix['shape'], options?: MatrixOptions): Member<Matrix>
  /**
   * The tensors `name`, each of which holds the matrices of a layer; or with {e} in the name one of them. `rows`: of
   * each matrix in the tensor.
   */
  stack(name: string, shape: Stack['shape'], options?: MatrixOptions): Member<Stack>
}

/** The layers of a kind in groups: those of which a function says the same. */
export interface Division<T> {
  /** In the order of their first layers. */
  readonly groups: readonly (readonly [value: T, layers: LayerKind])[]
  /** Appends the body of every group, for the layers of the group; inside the loop over all layers. */
  run(body: (value: T, layers: LayerKind) => void): void
}

export interface LayerKinds {
  readonly L: Layers
  readonly l: Index
  /** All layers. */
  readonly all: LayerKind
  /**
   * The layers that `includes` gives true for; null if it gives true for none. `name` distinguishes this kind from the
   * model's others.
   */
  kind(name: string, includes: (layer: number) => boolean): LayerKind | null
  /** Divides the layers of a kind by what `of` says of them; `nameOf` names the group of a value. */
  divide<T>(kind: LayerKind, of: (layer: number) => T, nameOf: (value: T, group: number) => string): Division<T>
  /** Runs the body of the kind that a layer is of; inside the loop over all layers. */
  run(choices: readonly (readonly [LayerKind | null, () => void])[]): void
}

const product = (shape: readonly number[]): number => shape.reduce((all, extent) => all * extent, 1)

/** `prefix` stands before the names of a layer's tensors, with {l} for the number of the layer. */
export const layerKinds = (g: GraphBuilder, set: TensorSet, prefix: string, L: Layers): LayerKinds => {
  const l = g.index('l', L)
  const parts = new Map<LayerKind, Part>()
  const every = Array.from({ length: L }, (_, layer) => layer)

  const constantsOf = (layers: readonly number[], part: Part | null): LayerKind => {
    const over: Over & Range = part === null ? { over: l, to: L } : { over: part }
    const path = prefix.replace('{l}', `{${over.over.index}}`)
    return {
      index: over.over,
      layers,
      has: (tensor) => set.has(prefix.replace('{l}', String(layers[0])) + tensor),
      vector: (tensor, shape, { as = tensor, width = product(shape), ...change } = {}) =>
        g.vectors(as, width, { ...set.takeAll(path + tensor, over, shape), ...change }, over),
      matrix: (tensor, [outputs, inputs], { as = tensor, rows = outputs, ...change } = {}) => {
        const source = set.takeMatrices(`${path}${tensor}.weight`, over, [rows, inputs])
        return g.matrices(as, [outputs, inputs], { ...source, ...change }, over)
      },
      stack: (
        tensor,
        [count, outputs, inputs],
        { as = tensor.replace('.{e}', '').replace(/\.weight$/, ''), rows = outputs, ...change } = {},
      ) => {
        const source = set.takeStacks(path + tensor, over, [count, rows, inputs])
        return g.stacks(as, [count, outputs, inputs], { ...source, ...change }, over)
      },
    }
  }

  const all = constantsOf(every, null)
  const kind = (name: string, layers: readonly number[]): LayerKind | null => {
    if (layers.length === 0) return null
    if (layers.length === L) return all
    const part = g.part(`l.${name}`, l, layers)
    const found = constantsOf(layers, part)
    parts.set(found, part)
    return found
  }
  const run: LayerKinds['run'] = (choices) => {
    const there = choices.filter((choice): choice is readonly [LayerKind, () => void] => choice[0] !== null)
    const choose = ([choice, ...others]: typeof there): void => {
      if (choice === undefined) return
      const part = parts.get(choice[0])
      if (part === undefined) choice[1]()
      else g.branch({ within: part }, choice[1], others.length === 0 ? undefined : () => choose(others))
    }
    choose(there)
  }

  return {
    L,
    l,
    all,
    kind: (name, includes) => kind(name, every.filter(includes)),
    divide: (whole, of, nameOf) => {
      const values = [...new Set(whole.layers.map(of))]
      const only = values.length === 1
      const groups = values.map((value, at) => {
        const own = whole.layers.filter((layer) => of(layer) === value)
        return [value, only ? whole : kind(nameOf(value, at), own)!] as const
      })
      return {
        groups,
        run: (body) => {
          // The whole kind's own branch is open here.
          if (only) for (const [value, layers] of groups) body(value, layers)
          else run(groups.map(([value, layers]) => [layers, () => body(value, layers)]))
        },
      }
    },
    run,
  }
}
