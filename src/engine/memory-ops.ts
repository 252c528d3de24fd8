/**
 * The part of the graph builder that recurrent layers need: matrix memories, of which a Titans layer is made, causal
 * convolutions, Mamba-2's recurrence. native/backends/cpu/kernels/memory.h and docs/graph.md give the equations.
 */
import type { Counter, Names, State, Value, Vector, Write } from './builder-types.ts'
import type { Node } from './graph.ts'

/** How a matrix memory is written. */
export interface MemoryForm {
  readonly rule: 'titans' | 'delta' | 'hebbian'
  readonly retention: 'none' | 'l2' | 'elastic' | 'kl' | 'sphere'
  /** Period of each level, at least 1: the level writes at pulses that are multiples of its period. */
  readonly periods: readonly number[]
  /** A cap on the Frobenius norm; default: none. */
  readonly norm_max?: number
  readonly elastic_l1?: number
  readonly elastic_l2?: number
  /** The norm that `sphere` keeps. */
  readonly radius?: number
  /** The least that `kl` takes the logarithm of. */
  readonly floor?: number
}

/** Keys and values of one row of tokens, and the rings [w, channels] by the clock in which they are kept. */
export interface Keys {
  readonly k: Value
  readonly v: Value
  readonly keys: State
  readonly values: State
}

/** Operations of memories with levels (docs/titans.md). */
export interface MemoryOps {
  /** x / √(mean x² + eps) ⊙ weight within each group. */
  rmsnorm(out: string, x: Value, weight: Vector, options: { groups?: number; eps: number }): Value
  /** x / √(Σ x² + eps) within each group. */
  unit(out: string, x: Value, options: { groups: number; eps: number }): Value
  /** low + (high − low) · sigmoid(x); x holds equal parts, one for each number of `low`. */
  range(out: string, x: Value, options: { low: readonly number[]; high: readonly number[] }): Value
  /** x between low and high; x holds equal parts, one for each number of `low`. */
  clamp(out: string, x: Value, options: { low: readonly number[]; high: readonly number[] }): Value
  /**
   * Each of the equal groups of x `times` times, one after the other: [a, b] of two groups, twice, gives [a, a, b, b].
   */
  repeat(out: string, x: Value, options: { groups: number; times: number }): Value
  /**
   * Turns the pairs (i, i + m) of each head's channels by increments[i] · position / 2³² turns; there are m increments,
   * and what a head has behind 2m channels stays. The position is the last that the counter, or the clock, has counted
   * at this node.
   */
  rope(out: string, x: Value, counter: Counter, options: { heads: number; increments: readonly number[] }): Value
  /**
   * A causal convolution: weights [C · taps], of each channel its taps in order of time; state [taps − 1, C]; bias [C].
   * Its sums go through silu unless `activation` is none.
   */
  cacheConv(
    out: string,
    state: State,
    x: Value,
    weights: Vector,
    options?: { readonly bias?: Vector | undefined; readonly activation?: 'silu' | 'none' },
  ): Value
  /**
   * Mamba-2's recurrence on a state [heads, n, channels of a head]: x [C], step and share of the state that stays
   * [heads], B and C [groups · n], D [heads]. Head h reads group ⌊h · groups / heads⌋.
   */
  cacheSsm(
    out: string,
    state: State,
    operands: { x: Value; dt: Value; w: Value; B: Value; C: Value; D: Vector },
    heads: number,
  ): Value
  /**
   * Keeps the row's keys and values and attends to what its rings hold: the last w tokens since the context began, or
   * with `segment` those of the clock's present segment of so many pulses. Before them come persistent tokens (keys and
   * values [heads/shared, P, n], met by the query as it was before it turned) and context tokens, if there are any.
   */
  cacheAttend(
    out: string,
    q: Value,
    own: Keys,
    options: {
      heads: number
      shared?: number
      scale: number
      segment?: number
      context?: Keys
      persistent?: { readonly q: Value; readonly keys: Vector; readonly values: Vector }
    },
  ): Value
  /**
   * Writes M [levels, heads, key, value] with the row's k and v, and gives Σ softmax(logits)[level] · M_level q of what
   * stands then. θ, η and α [levels · heads] are learning rate, momentum (rule titans) and retention (l2, elastic, kl)
   * of the row; `momentum` is like M, `buffer` like M for the levels with a period above 1.
   */
  cacheMemory(
    out: string,
    memory: { readonly M: State; readonly momentum?: State | undefined; readonly buffer?: State | undefined },
    operands: {
      q: Value
      k: Value
      v: Value
      theta: Value
      eta?: Value | undefined
      alpha?: Value | undefined
      logits: Vector
    },
    options: MemoryForm & { readonly heads: number },
  ): Value
  /** The first state of M that `init` [levels, heads, value, key] stands for under this retention; zeros without it. */
  cacheMemoryFirst(M: State, init: Vector | null, options: MemoryForm & { readonly heads: number }): void
  /** mixed [heads, key, value] ← Σ softmax(logits)[level] · M_level; with `segment` only at pulses that begin one. */
  cacheMix(mixed: State, M: State, logits: Vector, options: { heads: number; segment?: number }): void
  /** Σ_key M[head, key, value] x[key], [heads · values]; of one head M may be [key, value]. */
  cacheRecall(out: string, M: State, x: Value, heads: number): Value
}

/** `append` takes nodes without an output. */
export const memoryOps = (write: Write, append: (node: Node) => void, names: Names): MemoryOps => ({
  rmsnorm: (out, x, weight, { groups = 1, eps }) =>
    write('rmsnorm', out, names(x, weight), x.shape, 'f32', { groups, eps }),
  unit: (out, x, options) => write('unit', out, names(x), x.shape, 'f32', options),
  range: (out, x, options) => write('range', out, names(x), x.shape, 'f32', options),
  clamp: (out, x, options) => write('clamp', out, names(x), x.shape, 'f32', options),
  repeat: (out, x, { groups, times }) =>
    write('repeat', out, names(x), [x.shape[0]! * times], 'f32', { groups, times }),
  rope: (out, x, { counter }, { heads, increments }) =>
    write('rope', out, names(x), x.shape, 'f32', { state: counter, groups: heads, increments }),
  cacheConv: (out, state, x, weights, { bias, activation = 'silu' } = {}) =>
    write('cache.conv', out, names(x, weights, ...(bias ? [bias] : [])), x.shape, 'f32', {
      state: state.state,
      ...(activation === 'silu' ? {} : { activation }),
    }),
  cacheSsm: (out, state, { x, dt, w, B, C, D }, heads) =>
    write('cache.ssm', out, names(x, dt, w, B, C, D), x.shape, 'f32', { state: state.state, groups: heads }),
  cacheAttend: (out, q, own, { heads, shared = 1, scale, segment, context, persistent }) => {
    const row = ({ k, v, keys, values }: Keys) => names(k, v, keys, values)
    const inputs = [
      ...names(q),
      ...row(own),
      ...(context === undefined ? [] : row(context)),
      ...(persistent === undefined ? [] : names(persistent.q, persistent.keys, persistent.values)),
    ]
    const attributes = { groups: heads, shared, scale, ...(segment === undefined ? {} : { segment }) }
    return write('cache.attend', out, inputs, q.shape, 'f32', attributes)
  },
  cacheMemory: (out, { M, momentum, buffer }, { q, k, v, theta, eta, alpha, logits }, { heads, ...form }) => {
    const present = [q, k, v, theta, eta, alpha, logits, momentum, buffer].filter((each) => each !== undefined)
    return write('cache.memory', out, names(...present), q.shape, 'f32', { state: M.state, groups: heads, ...form })
  },
  cacheMemoryFirst: (M, init, { heads, ...form }) =>
    append({
      op: 'cache.memory.first',
      in: init === null ? [] : names(init),
      state: M.state,
      groups: heads,
      ...form,
    }),
  cacheMix: (mixed, M, logits, { heads, segment }) =>
    append({
      op: 'cache.mix',
      in: names(logits, M),
      state: mixed.state,
      groups: heads,
      ...(segment === undefined ? {} : { segment }),
    }),
  cacheRecall: (out, M, x, heads) =>
    write('cache.recall', out, names(x), [heads * M.shape.at(-1)!], 'f32', { state: M.state, groups: heads }),
})
