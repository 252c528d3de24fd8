/**
 * Builds a model as data: declared memory, then two blocks of operations. The format and its rules are documented in
 * `native/graph.h`, which checks every name, kind and shape again before anything runs; here only output shapes are
 * inferred, so that a family's file reads like the paper.
 *
 * Shapes are those of one row (one token).
 */
import { callNative } from './native.ts'

export type Declaration =
  | {
      readonly kind: 'constant'
      readonly name: string
      readonly shape: readonly number[]
      /** `packed`: a matrix [outputs, inputs]; `rows`: a table to look up in; `vector`: broadcast over rows. */
      readonly layout: 'packed' | 'rows' | 'vector'
      /** The tensor's name in model.safetensors. */
      readonly tensor: string
      /** `packed` only: the file holds [inputs, outputs]. */
      readonly transposed?: boolean
      /** `vector` only: this row of a larger tensor. */
      readonly row?: number
    }
  | {
      readonly kind: 'dynamic'
      readonly name: string
      readonly shape: readonly number[]
      readonly dtype: 'i32' | 'f32'
    }
  | { readonly kind: 'persistent'; readonly name: string; readonly shape: readonly number[]; readonly init: number }
  | { readonly kind: 'volatile'; readonly name: string; readonly shape: readonly number[] }

export interface Node {
  readonly op: string
  readonly name: string
  readonly in: readonly string[]
  readonly out: string
  readonly state?: string
  readonly groups?: number
  readonly eps?: number
}

/** A graph as it is serialised: plain JSON. */
export interface Graph {
  readonly format: 'continuo-graph/1'
  readonly declarations: readonly Declaration[]
  /** Token → last hidden vector. `previous` is the hidden vector of the token before, out of a `cache.shift`. */
  readonly step: {
    readonly inputs: readonly string[]
    readonly nodes: readonly Node[]
    readonly hidden: string
    readonly previous: string
  }
  /** Hidden vector → logits. */
  readonly predict: { readonly inputs: readonly string[]; readonly nodes: readonly Node[]; readonly logits: string }
}

/** A declared variable, as an operand. */
export interface Variable {
  readonly name: string
  readonly shape: readonly number[]
}

export interface WeightSource {
  readonly tensor: string
  readonly transposed?: boolean
  readonly row?: number
}

type BlockName = 'step' | 'predict'

/**
 * Operations append a node to the current block and return the variable it writes, which is named after the node.
 * [n] below is a value or a constant vector of n numbers.
 */
export interface GraphBuilder {
  matrix(name: string, outputs: number, inputs: number, source: WeightSource): Variable
  table(name: string, rows: number, width: number, source: WeightSource): Variable
  vector(name: string, width: number, source: WeightSource): Variable
  persistent(name: string, shape: readonly number[], init?: number): Variable
  /** Begins a block; its one input is declared with it. */
  begin(block: BlockName, input: { name: string; shape: readonly number[]; dtype: 'i32' | 'f32' }): Variable

  /** Row `token` of a table. */
  embed(name: string, token: Variable, table: Variable): Variable
  /** matrix · x. */
  matmul(name: string, x: Variable, matrix: Variable): Variable
  /** (x − mean)/sqrt(var + eps) ⊙ weight + bias within each of `groups` equal groups of channels; biased variance. */
  norm(name: string, x: Variable, weight: Variable, bias: Variable, options: { groups?: number; eps: number }): Variable
  /** x / max(‖x‖, eps) within each group. */
  l2norm(name: string, x: Variable, options: { groups: number; eps: number }): Variable
  add(name: string, a: Variable, b: Variable): Variable
  mul(name: string, a: Variable, b: Variable): Variable
  /** a + (b − a) ⊙ t. */
  lerp(name: string, a: Variable, b: Variable, t: Variable): Variable
  tanh(name: string, x: Variable): Variable
  sigmoid(name: string, x: Variable): Variable
  /** max(x, 0)². */
  relu2(name: string, x: Variable): Variable
  /** exp(−e^(−1/2) · sigmoid(x)). */
  decay(name: string, x: Variable): Variable
  /** y + (Σ_j r_j k_j u_j) v within each group. */
  bonus(
    name: string,
    operands: { y: Variable; r: Variable; k: Variable; u: Variable; v: Variable },
    groups: number,
  ): Variable
  /** What this node was given for the token before (`state`'s first value for the first token of a context). */
  cacheShift(name: string, state: Variable, x: Variable): Variable
  /** RWKV-7's recurrence on `state` [heads, key channel, value channel]; see native/kernels/cpu/wkv7.h. */
  cacheWkv7(
    name: string,
    state: Variable,
    operands: { r: Variable; w: Variable; k: Variable; v: Variable; kk: Variable; a: Variable },
    heads: number,
  ): Variable

  finish(ends: { hidden: Variable; previous: Variable; logits: Variable }): Graph
}

export const buildGraph = (): GraphBuilder => {
  const declarations: Declaration[] = []
  const blocks: Record<BlockName, { inputs: string[]; nodes: Node[] }> = {
    step: { inputs: [], nodes: [] },
    predict: { inputs: [], nodes: [] },
  }
  let current: BlockName = 'step'

  const declare = (declaration: Declaration): Variable => {
    declarations.push(declaration)
    return { name: declaration.name, shape: declaration.shape }
  }
  const node = (
    op: string,
    name: string,
    inputs: readonly Variable[],
    shape: readonly number[],
    extra: { state?: string; groups?: number; eps?: number } = {},
  ): Variable => {
    blocks[current].nodes.push({ op, name, in: inputs.map((input) => input.name), out: name, ...extra })
    return declare({ kind: 'volatile', name, shape })
  }
  const like =
    (op: string) =>
    (name: string, x: Variable): Variable =>
      node(op, name, [x], x.shape)

  return {
    matrix: (name, outputs, inputs, source) =>
      declare({ kind: 'constant', name, shape: [outputs, inputs], layout: 'packed', ...source }),
    table: (name, rows, width, source) =>
      declare({ kind: 'constant', name, shape: [rows, width], layout: 'rows', ...source }),
    vector: (name, width, source) => declare({ kind: 'constant', name, shape: [width], layout: 'vector', ...source }),
    persistent: (name, shape, init = 0) => declare({ kind: 'persistent', name, shape, init }),
    begin: (block, input) => {
      current = block
      blocks[block].inputs.push(input.name)
      return declare({ kind: 'dynamic', ...input })
    },

    embed: (name, token, table) => node('embed', name, [token, table], table.shape.slice(1)),
    matmul: (name, x, matrix) => node('matmul', name, [x, matrix], matrix.shape.slice(0, 1)),
    norm: (name, x, weight, bias, { groups = 1, eps }) =>
      node('norm', name, [x, weight, bias], x.shape, { groups, eps }),
    l2norm: (name, x, options) => node('l2norm', name, [x], x.shape, options),
    add: (name, a, b) => node('add', name, [a, b], a.shape),
    mul: (name, a, b) => node('mul', name, [a, b], a.shape),
    lerp: (name, a, b, t) => node('lerp', name, [a, b, t], a.shape),
    tanh: like('tanh'),
    sigmoid: like('sigmoid'),
    relu2: like('relu2'),
    decay: like('decay'),
    bonus: (name, { y, r, k, u, v }, groups) => node('bonus', name, [y, r, k, u, v], y.shape, { groups }),
    cacheShift: (name, state, x) => node('cache.shift', name, [x], x.shape, { state: state.name }),
    cacheWkv7: (name, state, { r, w, k, v, kk, a }, heads) =>
      node('cache.wkv7', name, [r, w, k, v, kk, a], r.shape, { state: state.name, groups: heads }),

    finish: ({ hidden, previous, logits }) => ({
      format: 'continuo-graph/1',
      declarations,
      step: { ...blocks.step, hidden: hidden.name, previous: previous.name },
      predict: { ...blocks.predict, logits: logits.name },
    }),
  }
}

/** Throws INVALID, naming node and variable, when a graph cannot run. `graph` may also be its JSON text. */
export const checkGraph = (graph: Graph | string): void => {
  callNative((addon) => addon.check(typeof graph === 'string' ? graph : JSON.stringify(graph)))
}
