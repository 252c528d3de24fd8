/**
 * What the references in double precision share: vectors, and a package's tensors by their names. They share nothing
 * with the engine.
 */
import type { Tensors } from '../engine/safetensors.ts'

export type Vector = readonly number[]

export const plus = (a: Vector, b: Vector): number[] => a.map((value, i) => value + b[i]!)
/** Σ b_i a_(at + i). */
export const dot = (a: ArrayLike<number>, b: Vector, at = 0): number =>
  b.reduce((sum, value, i) => sum + value * a[at + i]!, 0)
export const sigmoid = (x: number): number => 1 / (1 + Math.exp(-x))
export const silu = (x: number): number => x * sigmoid(x)
export const geluTanh = (u: number): number =>
  0.5 * u * (1 + Math.tanh(Math.sqrt(2 / Math.PI) * (u + 0.044715 * u ** 3)))

/** Σ_p softmax(scale · q · keys_p) values_p. */
export const attended = (q: Vector, keys: readonly Vector[], values: readonly Vector[], scale: number): number[] => {
  const scores = keys.map((key) => dot(q, key) * scale)
  const most = Math.max(...scores)
  const weights = scores.map((score) => Math.exp(score - most))
  const total = weights.reduce((a, b) => a + b, 0)
  return q.map((_, i) => values.reduce((sum, value, p) => sum + (weights[p]! / total) * value[i]!, 0))
}

export const readerOf = (tensors: Tensors) => {
  const has = (name: string): boolean => tensors.has(name)
  const of = (name: string): Float32Array => {
    const tensor = tensors.get(name)
    if (tensor === undefined) throw new Error(`the reference lacks ${name}`)
    return tensor.data
  }
  /** W x + b of the tensors `name`.weight [outputs, inputs] and `name`.bias. */
  const linear = (name: string, x: Vector, biased = has(`${name}.bias`)): number[] => {
    const w = of(`${name}.weight`)
    const b = biased ? of(`${name}.bias`) : null
    return Array.from({ length: w.length / x.length }, (_, o) => dot(w, x, o * x.length) + (b?.[o] ?? 0))
  }
  return { has, of, linear, vector: (name: string): number[] => [...of(name)] }
}
