/** Vectors in float64 with their tangents, and what every part of the model does with them. */

/** A vector and its tangents, one for each direction that is carried along: none while a session reads. */
export interface Row {
  readonly x: Float64Array
  readonly dx: readonly Float64Array[]
}

export interface Linear {
  readonly outputs: number
  readonly inputs: number
  /** [outputs, inputs] */
  readonly w: Float64Array
  /** [outputs] */
  readonly bias: Float64Array | null
}

/** The two matrices of an adapter. */
export interface Pair {
  /** [rank, inputs] */
  readonly A: Float64Array
  /** [outputs, rank] */
  readonly B: Float64Array
}
export interface Adapter extends Pair {
  /** Of each direction. */
  readonly along: readonly Pair[]
}

export const sum = (x: Float64Array): number => x.reduce((total, value) => total + value, 0)
export const dot = (a: ArrayLike<number>, b: ArrayLike<number>, at = 0): number => {
  let total = 0
  for (let i = 0; i < b.length; i += 1) total += a[at + i]! * b[i]!
  return total
}
export const sigmoid = (z: number): number => 1 / (1 + Math.exp(-z))

export const constant = (x: Float64Array, directions: number): Row => ({
  x,
  dx: Array.from({ length: directions }, () => new Float64Array(x.length)),
})
/** A row whose numbers are `value(i)`, and whose tangents along κ are `tangent(i, κ)`. */
export const rowOf = (
  length: number,
  directions: number,
  value: (i: number) => number,
  tangent: (i: number, direction: number) => number,
): Row => ({
  x: Float64Array.from({ length }, (_, i) => value(i)),
  dx: Array.from({ length: directions }, (_, direction) =>
    Float64Array.from({ length }, (__, i) => tangent(i, direction)),
  ),
})
export const plus = (a: Row, b: Row): Row =>
  rowOf(
    a.x.length,
    a.dx.length,
    (i) => a.x[i]! + b.x[i]!,
    (i, κ) => a.dx[κ]![i]! + b.dx[κ]![i]!,
  )

/** W x, W of the shape [·, inputs]. */
export const times = (w: Float64Array, x: Float64Array): Float64Array =>
  Float64Array.from({ length: w.length / x.length }, (_, o) => dot(w, x, o * x.length))
const added = (...parts: readonly Float64Array[]): Float64Array =>
  parts[0]!.map((_, i) => parts.reduce((total, part) => total + part[i]!, 0))

/** W x + bias, and + B(A x) of an adapter. */
export const linear = ({ w, bias }: Linear, row: Row, adapter?: Adapter): Row => {
  const own = times(w, row.x)
  const y = bias === null ? own : added(own, bias)
  if (adapter === undefined) return { x: y, dx: row.dx.map((each) => times(w, each)) }
  const { A, B, along } = adapter
  const inner = times(A, row.x)
  return {
    x: added(y, times(B, inner)),
    dx: row.dx.map((each, κ) =>
      added(times(w, each), times(along[κ]!.B, inner), times(B, times(along[κ]!.A, row.x)), times(B, times(A, each))),
    ),
  }
}

/** x·i with i = 1/√(share·Σ x² + ε). */
const scaled = ({ x, dx }: Row, share: number, ε: number): Row => {
  const i = 1 / Math.sqrt(share * dot(x, x) + ε)
  return {
    x: x.map((value) => value * i),
    dx: dx.map((each) => {
      const pull = i ** 3 * share * dot(x, each)
      return each.map((tangent, at) => tangent * i - x[at]! * pull)
    }),
  }
}
export const unit = (row: Row): Row => scaled(row, 1, 1e-6)
export const rms = (row: Row, gain: Float64Array, ε: number): Row => {
  const { x, dx } = scaled(row, 1 / row.x.length, ε)
  return { x: x.map((value, i) => value * gain[i]!), dx: dx.map((each) => each.map((value, i) => value * gain[i]!)) }
}

/** silu(a) ⊙ b */
export const gated = (a: Row, b: Row): Row =>
  rowOf(
    a.x.length,
    a.dx.length,
    (i) => a.x[i]! * sigmoid(a.x[i]!) * b.x[i]!,
    (i, κ) => {
      const [value, σ] = [a.x[i]!, sigmoid(a.x[i]!)]
      return (σ + value * σ * (1 - σ)) * a.dx[κ]![i]! * b.x[i]! + value * σ * b.dx[κ]![i]!
    },
  )

export const logSoftmax = (logits: Float64Array): Float64Array => {
  const most = logits.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY)
  const total = most + Math.log(sum(logits.map((value) => Math.exp(value - most))))
  return logits.map((value) => value - total)
}
