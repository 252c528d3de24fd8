/**
 * The part of the graph builder for experts that lie in a store, and for what the perspective family computes beside
 * them. docs/graph.md gives the formulas.
 */
import type { Experts, Names, State, Value, Vector, Write } from './builder-types.ts'
import type { Node } from './graph.ts'

/** Operations on experts that lie in a store (docs/experts.md). */
export interface ExpertOps {
  /**
   * Squared distances [experts] of a point [2] on a torus from the experts' positions [experts · 2], moved by offsets
   * [experts, 2].
   */
  torus(out: string, z: Value, positions: Vector, offsets?: State): Value
  /**
   * The `count` experts of least distance in order of rank, from rank `first` on (0); of equal distances the lower
   * expert first.
   */
  nearest(out: string, distances: Value, count: number, first?: Value<'i32'>): Value<'i32'>
  /** [count, C]: down(silu(gate x) ⊙ up x) of each of these experts of a layer of the store. */
  experts(out: string, x: Value, ids: Value<'i32'>, layer: Experts): Value
  /**
   * Tells the store which experts of a layer are wanted, `ahead` layers before they are (0: now). No number comes of
   * it.
   */
  expertsAhead(ids: Value<'i32'>, layer: Experts, ahead: number): void
  /** y projected on the half-spaces n_j · y ≤ offset_j + inflation: normals [h · C], offsets [h]. */
  project(
    out: string,
    y: Value,
    normals: Vector,
    offsets: Vector,
    options: { iterations: number; inflation: number },
  ): Value
  /** Whole numbers −127 … 127 under one scale, which is dropped. */
  whole(out: string, x: Value): Value<'i8'>
  /** y + B (A x): A [rank, inputs], B [outputs, rank]. */
  adapter(out: string, y: Value, x: Value, A: State, B: State): Value
  /** The perspective decay recurrence on a state [r, E]: γ, v [E]; k, q [r]. */
  cachePdr(
    out: string,
    state: State,
    operands: { gamma: Value; k: Value; q: Value; v: Value },
    write: 'convex' | 'plain',
  ): Value
}

export const expertOps = (write: Write, append: (node: Node) => void, names: Names): ExpertOps => ({
  torus: (out, z, positions, offsets) =>
    write('torus', out, names(z, positions, ...(offsets ? [offsets] : [])), [positions.shape[0] / 2], 'f32'),
  nearest: (out, distances, count, first) =>
    write('nearest', out, names(distances, ...(first ? [first] : [])), [count], 'i32', { count }),
  experts: (out, x, ids, layer) => write('experts', out, names(x, ids, layer), [ids.shape[0]!, layer.shape[2]], 'f32'),
  expertsAhead: (ids, layer, ahead) => append({ op: 'experts.ahead', in: names(ids, layer), count: ahead + 1 }),
  project: (out, y, normals, offsets, options) =>
    write('project', out, names(y, normals, offsets), y.shape, 'f32', options),
  whole: (out, x) => write('whole', out, names(x), x.shape, 'i8'),
  adapter: (out, y, x, A, B) => write('adapter', out, names(y, x, A, B), y.shape, 'f32'),
  cachePdr: (out, state, { gamma, k, q, v }, how) =>
    write('cache.pdr', out, names(gamma, k, q, v), v.shape, 'f32', { state: state.state, write: how }),
})
