/**
 * A model as data: the types of a serialised graph, and what can be read off one. `builder.ts` makes graphs,
 * `native/graph/graph.h` and docs/graph.md describe the format, and the engine checks every name, kind, type and shape
 * before anything runs.
 *
 * Shapes are those of one row (one token); an executor runs many rows at once.
 */
/** Arithmetic is f32 and i32; the others are kept, read, written and cast. */
export type Dtype = 'f32' | 'f16' | 'bf16' | 'f8' | 'i8' | 'u8' | 'i32' | 'bool'

/** How a file holds a quantised matrix (docs/formats.md, Quantised packages). */
export type Storage = 'q8' | 'i4' | 'ternary2' | 'ternary3'

/**
 * Rows of a tensor, picked and put into another order: for r = 0 … repeat − 1, for each part, for i = 0 … count − 1 the
 * row offset + each · member + r · step + from + i · stride. `each` leads from one member of a family to the next, in a
 * stack from matrix to matrix, where one tensor holds them all.
 */
export interface View {
  readonly offset?: number
  readonly repeat: number
  readonly step: number
  readonly parts: readonly (readonly [from: number, count: number, stride?: number])[]
  readonly each?: number
}

/** `one_plus`: 1 + w; `neg_exp`: −exp(w). */
export type VectorMap = 'one_plus' | 'neg_exp'

/** A constant, or a family of them, and the tensors that it is bound to. */
export interface ConstantDeclaration {
  readonly kind: 'constant'
  readonly name: string
  /** Shape of one member, whatever the file's storage. */
  readonly shape: readonly number[]
  /**
   * `packed`: a matrix [outputs, inputs]; `rows`: a table to look up in; `vector`: broadcast over rows; `stack`: [E,
   * outputs, inputs]; `experts`: [E, inner, channels], a layer of the model's expert store.
   */
  readonly layout: 'packed' | 'rows' | 'vector' | 'stack' | 'experts'
  /** One tensor of model.safetensors … */
  readonly ref?: string
  /**
   * … or a family of them: `{l}` stands for the member, `over` names the index, `from` the first member. In a stack
   * `{e}` numbers its matrices.
   */
  readonly pattern?: string
  readonly over?: string
  readonly from?: number
  /** `packed` only: the file holds [inputs, outputs]. */
  readonly transposed?: boolean
  /** `vector` only: this row of a larger tensor. */
  readonly row?: number
  readonly view?: View
  readonly columns?: View
  readonly map?: VectorMap
  readonly storage?: Storage
  readonly scales?: string
  readonly group?: number
}

/**
 * One axis of a persistent: of a fixed extent, one place for each value of an index, a ring, or growing with its
 * counter.
 */
export type AxisDeclaration =
  | number
  | { readonly index: string }
  | { readonly ring: number; readonly counter: string }
  | { readonly grows: string }

/** A volatile that is bound to tensors: a table that every row finds as the file has it, and may write. */
export interface VolatileTableDeclaration {
  readonly kind: 'volatile'
  readonly name: string
  /** Shape of one member. */
  readonly shape: readonly number[]
  readonly dtype: 'f32'
  /** Either one tensor or a family of them, as in a constant. */
  readonly ref?: string
  readonly pattern?: string
  readonly over?: string
  readonly from?: number
}

/** What is bound to tensors of the file. */
export type BoundDeclaration = ConstantDeclaration | VolatileTableDeclaration

/** A variable or constant of a graph, as it is serialised. */
export type Declaration =
  | BoundDeclaration
  | {
      readonly kind: 'dynamic' | 'volatile'
      readonly name: string
      readonly shape: readonly number[]
      readonly dtype: Dtype
      readonly ref?: undefined
      readonly pattern?: undefined
    }
  | {
      readonly kind: 'persistent'
      readonly name: string
      readonly counter: true
      readonly max?: number
      /** The context's own clock; no part of the state. */
      readonly clock?: true
      /** No part of a snapshot: the memory controller makes it anew from the rest of the state. */
      readonly derived?: boolean
    }
  | {
      readonly kind: 'persistent'
      readonly name: string
      readonly dtype: Dtype
      readonly init: number
      readonly axes: readonly AxisDeclaration[]
      /** As of a counter. */
      readonly derived?: boolean
      /** The memory controller writes any of its positions: a snapshot holds the table whole. */
      readonly rewritten?: boolean
      /**
       * Positions of a block of a table that grows: a power of two, 256 where it is missing. Fewer where no node uses
       * the table.
       */
      readonly block?: number
    }

/** An operation with its operands and attributes. */
export interface OpNode {
  readonly op: string
  /** "x", "W(l)", "K(l,len-1)": a name, and in brackets what picks a member. */
  readonly in?: readonly string[]
  readonly out?: string
  readonly state?: string
  readonly [attribute: string]: unknown
}

/** What stands in a block, in its order: an operation, a loop, a branch, or an early end. */
export type Node =
  | OpNode
  | { readonly loop: string; readonly from: number; readonly to: number; readonly nodes: readonly Node[] }
  | {
      readonly branch: string
      readonly equals?: number
      readonly nodes: readonly Node[]
      readonly otherwise?: readonly Node[]
    }
  | { readonly return: Readonly<Record<string, string>> }

/** A program of a graph: inputs, nodes and results. */
export interface Block {
  readonly name: string
  readonly inputs: readonly string[]
  readonly nodes: readonly Node[]
}

/** What loops count, from 0 to `extent` − 1; or a part of another index, which numbers the values `at` of that one. */
export type IndexDeclaration =
  | { readonly name: string; readonly extent: number; readonly of?: undefined }
  | { readonly name: string; readonly of: string; readonly at: readonly number[] }

/** A graph as it is serialised: plain JSON. */
export interface Graph {
  /** Its version; an engine refuses others. */
  readonly format: 'continuo-graph/2'
  /** What its loops count. */
  readonly indices: readonly IndexDeclaration[]
  /** Its variables and constants. */
  readonly declarations: readonly Declaration[]
  /** Its programs; a step runs one of them. */
  readonly blocks: readonly Block[]
  /**
   * How the memory controller keeps a decoder's list of slots: memory.json whole, `heads`, `key_heads`, `increments`.
   */
  readonly memory?: Readonly<Record<string, unknown>>
  /** How tokens of a perspective model are drawn and its sessions adapted: members of config.json. */
  readonly perspective?: Readonly<Record<string, unknown>>
}

/** Whether it is a persistent that a snapshot leaves out. */
export const isDerived = (declaration: Declaration): boolean =>
  declaration.kind === 'persistent' && declaration.derived === true

const readSubwords = (nodes: readonly Node[]): boolean =>
  nodes.some((node) => {
    if ('op' in node) return node.op === 'cache.ngram' && node.in?.length === 5
    if ('return' in node) return false
    return readSubwords(node.nodes) || ('otherwise' in node && readSubwords(node.otherwise ?? []))
  })

/** Whether it has a memory of subwords, which must know what tokens stand for. */
export const readsSubwords = ({ blocks }: Graph): boolean => blocks.some(({ nodes }) => readSubwords(nodes))

/** How many values an index has; 0 for a name that is none. */
export const indexExtent = (graph: Graph, index: string | undefined): number => {
  const found = graph.indices.find(({ name }) => name === index)
  if (found === undefined) return 0
  return found.of === undefined ? found.extent : found.at.length
}

export const isBound = (declaration: Declaration): declaration is BoundDeclaration =>
  declaration.kind === 'constant' ||
  (declaration.kind === 'volatile' && (declaration.ref ?? declaration.pattern) !== undefined)

/** The numbers that the members of a family have in the names of their tensors. */
export const membersOf = (graph: Graph, { over, from = 0 }: BoundDeclaration): readonly number[] => {
  const index = graph.indices.find(({ name }) => name === over)
  const values = Array.from({ length: Math.max(0, indexExtent(graph, over) - from) }, (_, i) => from + i)
  return index?.of === undefined ? values : values.map((value) => index.at[value]!)
}

/**
 * The tensors of the file that a constant or a volatile table stands for, in order of its members, and of the matrices
 * in each stack.
 */
export const tensorsOf = (graph: Graph, bound: BoundDeclaration): readonly string[] => {
  const { ref, pattern, over, shape } = bound
  const layout = bound.kind === 'constant' ? bound.layout : undefined
  if (layout === 'experts') return []
  const named = (member: number): string => (pattern ?? '').replaceAll(`{${over}}`, String(member))
  const names = ref !== undefined ? [ref] : membersOf(graph, bound).map(named)
  if (layout !== 'stack' || !names[0]?.includes('{e}')) return names
  return names.flatMap((name) => Array.from({ length: shape[0]! }, (_, e) => name.replace('{e}', String(e))))
}

const wholeTensor: Pick<ConstantDeclaration, 'row' | 'view' | 'columns'> = {}

/** Numbers that the graph's constants and volatile tables hold, each part of a tensor counted once. */
export const parametersOf = (graph: Graph): number => {
  const counted = new Map<string, number>()
  for (const declaration of graph.declarations) {
    if (!isBound(declaration)) continue
    const { shape } = declaration
    if (declaration.kind === 'constant' && declaration.layout === 'experts') {
      const layers = indexExtent(graph, declaration.over) - (declaration.from ?? 0)
      counted.set(declaration.name, 3 * layers * shape.reduce((n, extent) => n * extent, 1))
      continue
    }
    const { row, view, columns } = declaration.kind === 'constant' ? declaration : wholeTensor
    const stack = declaration.kind === 'constant' && declaration.layout === 'stack'
    const part = view === undefined && columns === undefined ? `${row ?? ''}` : JSON.stringify({ view, columns })
    const tensors = tensorsOf(graph, declaration)
    const members = stack && !(declaration.ref ?? declaration.pattern)?.includes('{e}')
    const elements = shape.slice(stack && !members ? 1 : 0).reduce((n, extent) => n * extent, 1)
    for (const [i, tensor] of tensors.entries())
      counted.set(`${tensor} ${part} ${view?.each === undefined || members ? '' : i}`, elements)
  }
  return [...counted.values()].reduce((sum, elements) => sum + elements, 0)
}
