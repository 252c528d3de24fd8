/**
 * The part of the graph builder that mixtures of experts need: scores become the numbers and weights of the experts
 * that a row goes to. native/backends/cpu/kernels/routing.h and docs/graph.md give the formulas.
 */
import type { Names, Stack, Value, Write } from './builder-types.ts'

/** Operations that route a row to some members of a stack (docs/graph.md). */
export interface RoutingOps {
  /** x · factor. */
  scale(out: string, x: Value, factor: number): Value
  /** exp(x) / Σ exp(x) over the whole vector. */
  softmax(out: string, x: Value): Value
  /** x / Σ x over the whole vector. */
  normalise(out: string, x: Value): Value
  /** The places of the `count` largest numbers, ascending; of equal numbers the first. NaN counts as −∞. */
  topk(out: string, x: Value, count: number): Value<'i32'>
  /** x at these places. */
  gather(out: string, x: Value, ids: Value<'i32'>): Value
  /** `[count, N]`: member ids[k] of the stack [E, N, C] times x [C], or times x[k] of x [count, C]. */
  routed(out: string, x: Value, ids: Value<'i32'>, stack: Stack): Value
  /** Σ_k weights[k] · x[k] of x [count, n]. */
  combine(out: string, x: Value, weights: Value): Value
}

export const routingOps = (write: Write, names: Names): RoutingOps => ({
  scale: (out, x, factor) => write('scale', out, names(x), x.shape, 'f32', { factor }),
  softmax: (out, x) => write('softmax', out, names(x), x.shape, 'f32'),
  normalise: (out, x) => write('normalise', out, names(x), x.shape, 'f32'),
  topk: (out, x, count) => write('topk', out, names(x), [count], 'i32', { count }),
  gather: (out, x, ids) => write('gather', out, names(x, ids), ids.shape, 'f32'),
  routed: (out, x, ids, stack) => write('routed', out, names(x, ids, stack), [ids.shape[0]!, stack.shape[1]], 'f32'),
  combine: (out, x, weights) => write('combine', out, names(x, weights), x.shape.slice(1), 'f32'),
})
