/** The parts of a graph: handles of variables and indices, and the sources that constants are bound to. */
import type { Dtype, Storage, VectorMap, View } from './graph.ts'

declare const kindOf: unique symbol
/** A number that a loop takes from 0 (or `from`) to `extent` − 1. */
export interface Index {
  readonly [kindOf]?: 'index'
  /** Its name, which stands in picks. */
  readonly index: string
  /** How many values it takes. */
  readonly extent: number
}
/** An index that numbers some values of another one, `at`. */
export interface Part extends Index {
  readonly at: readonly number[]
}
/** Counts positions: what tables that grow and rings follow. */
export interface Counter {
  readonly [kindOf]?: 'counter'
  /** Its name. */
  readonly counter: string
}
/** Counts the tokens that its context was ever fed, the row's own included; what a reset leaves alone. */
export interface Clock extends Counter {
  readonly clock: true
}
/** A value of the row: dynamic or volatile. */
export interface Value<T extends Dtype = 'f32'> {
  readonly [kindOf]?: 'value'
  /** Its name; each is given once in a block. */
  readonly name: string
  /** Axes of one row, without the rows. */
  readonly shape: readonly number[]
  /** What its numbers are. */
  readonly dtype: T
}
/** A constant that `matmul` multiplies by. */
export interface Matrix {
  readonly [kindOf]?: 'matrix'
  /** Its name. */
  readonly matrix: string
  /** [outputs, inputs], however the file has it. */
  readonly shape: readonly [outputs: number, inputs: number]
}
/** A constant of which `embed` takes a row. */
export interface Lookup {
  readonly [kindOf]?: 'lookup'
  /** Its name. */
  readonly lookup: string
  /** [rows, width]. */
  readonly shape: readonly [rows: number, width: number]
}
/** A constant of one axis. */
export interface Vector {
  readonly [kindOf]?: 'vector'
  /** Its name. */
  readonly vector: string
  /** [width]. */
  readonly shape: readonly [width: number]
}

/** Picks a member along one axis. `plus` moves a pick of an index or counter: `plus(length, -1)`. */
export type Pick = number | Index | Counter | Value<'i32'> | { readonly of: Index | Counter; readonly plus: number }
/** The pick `by` places further than an index or counter says: `plus(length, -1)` is the last position. */
export const plus = (of: Index | Counter, by: number): Pick => ({ of, plus: by })

/** A persistent, or the part of it that picks leave. */
export interface State {
  readonly [kindOf]?: 'state'
  /** Name of the persistent, with its picks. */
  readonly state: string
  /** Shape of the axes without a pick; null for an axis that grows. */
  readonly shape: readonly (number | null)[]
  /** What its numbers are. */
  readonly dtype: Dtype
}
/** K(l, t): a persistent table with symbolic indices. */
export type Table = (...picks: readonly Pick[]) => State

/** W(l, r): a volatile table. Of a family the first pick is the member: a number or a loop's index. */
export type VolatileTable = (...picks: readonly Pick[]) => State
/** W(l, r): a family of volatile tables. The first pick is the member. */
export type VolatileTables = (
  at: Index | number | { readonly of: Index; readonly plus: number },
  ...picks: readonly Pick[]
) => State

/** An axis of a table: its extent, an index (one place for each of its values), a ring, or an axis that grows. */
export type Axis = number | Index | { readonly ring: number; readonly counter: Counter } | { readonly grows: Counter }
/** An axis of n places that are used over and over: position p lies in place p mod n. */
export const ring = (n: number, counter: Counter): Axis => ({ ring: n, counter })
/**
 * An axis that has as many places as its counter says; memory is taken in blocks of 256 places as it grows, up to the
 * counter's `max`. A table may have several.
 */
export const autoDim = (counter: Counter): Axis => ({ grows: counter })

/** E matrices of one shape, of which a row picks some. */
export interface Stack {
  readonly [kindOf]?: 'stack'
  readonly stack: string
  readonly shape: readonly [members: number, outputs: number, inputs: number]
}

/** The experts of a layer in the model's store: [experts, inner channels, channels]. */
export interface Experts {
  readonly [kindOf]?: 'experts'
  readonly experts: string
  readonly shape: readonly [members: number, inner: number, channels: number]
}

/** How the file stores a quantised matrix: format, name of the tensor of scales, weights that share a scale. */
export interface Stored {
  readonly storage?: Storage
  readonly scales?: string
  readonly group?: number
}
/** How a constant is read from its tensor. */
export interface Reading extends Stored {
  /** Matrices: the tensor is [inputs, outputs]. */
  readonly transposed?: boolean
  /** Vectors: this row of a larger tensor. */
  readonly row?: number
  /** Rows of the tensor: outputs of a matrix, elements of a vector. */
  readonly view?: View
  /** Inputs of a matrix. */
  readonly columns?: View
  /** Vectors: what becomes of each number, in f32. */
  readonly map?: VectorMap
}
/** Binds a constant or a volatile table to one tensor of the file. */
export interface Ref extends Reading {
  readonly ref: string
}
/** Binds a family of constants, or of volatile tables, to tensors whose names differ in a number. */
export interface Pattern extends Reading {
  readonly pattern: string
}
/** Binds a constant to the tensor of this name. */
export const ref = (tensor: string, options: Omit<Ref, 'ref'> = {}): Ref => ({ ref: tensor, ...options })
/** Binds a family to tensors whose names have the member's number at `{l}`, or what the index is called. */
export const pattern = (tensors: string, options: Omit<Pattern, 'pattern'> = {}): Pattern => ({
  pattern: tensors,
  ...options,
})
/** A member of a family of constants: the loop's own, or a certain one. */
export type Member<T> = (at: Index | number | { readonly of: Index | Counter; readonly plus: number }) => T
/** Which index numbers the members of a family. */
export interface Over {
  readonly over: Index
  /** The first member; default 0. */
  readonly from?: number
}

/** What appends an operation that writes the volatile `out`. */
export type Write = <T extends Dtype>(
  op: string,
  out: string,
  inputs: readonly string[],
  shape: readonly number[],
  dtype: T,
  attributes?: Readonly<Record<string, unknown>>,
) => Value<T>
/** An operand of a node. */
export type Operand = Value<Dtype> | Vector | Matrix | Lookup | Stack | Experts | State
/** Operands as a node names them. */
export type Names = (...operands: readonly Operand[]) => readonly string[]
