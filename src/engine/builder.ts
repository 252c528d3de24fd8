/**
 * Builds graphs. Each kind of memory has a type of its own, so that a vector where a matrix belongs, or a write to what
 * is read only, does not compile; the engine checks the rest (names, shapes, order) when the graph is loaded.
 *
 * Operations append a node where they stand and return the volatile they write, named as the first argument says. A
 * name may be written again: the later nodes then read what was written last. The written order is the order of work.
 */
import type {
  Operand as AnyOperand,
  Axis,
  Clock,
  Counter,
  Experts,
  Index,
  Lookup,
  Matrix,
  Member,
  Names,
  Over,
  Part,
  Pattern,
  Ref,
  Stack,
  State,
  Table,
  Pick as TermPick,
  Value,
  Vector,
  VolatileTable,
  VolatileTables,
  Write,
} from './builder-types.ts'
import { type ExpertOps, expertOps } from './expert-ops.ts'
import {
  type AxisDeclaration,
  type Block,
  type ConstantDeclaration,
  type Declaration,
  type Dtype,
  type Graph,
  type IndexDeclaration,
  isDerived,
  type Node,
} from './graph.ts'
import { type MemoryOps, memoryOps } from './memory-ops.ts'
import { type NgramOps, ngramOps } from './ngram-ops.ts'
import { type RoutingOps, routingOps } from './routing-ops.ts'

/** The second operand of an element-wise operation. */
type Operand = Value | Vector
/** Values of a block, by the names of its results. */
type Results = Readonly<Record<string, Value<Dtype>>>
/** Axes of one row. */
type Shape = readonly number[]

/**
 * Declares variables and appends operations to a graph (docs/graph.md). Names are given once; what is wrong is thrown
 * as INVALID, by the call or by `finish`.
 */
export interface GraphBuilder extends MemoryOps, RoutingOps, ExpertOps, NgramOps {
  /** An index that takes `extent` values from 0. */
  index(name: string, extent: number): Index
  /**
   * A part of an index: 0, 1 … number the values `at` of it, ascending. Members of a family over the part have those
   * values in the names of their tensors; `branch` opens it.
   */
  part(name: string, of: Index, at: readonly number[]): Part
  /** A constant [outputs, inputs], bound to a tensor. */
  matrix(name: string, shape: readonly [outputs: number, inputs: number], source: Ref): Matrix
  /** A family of matrices, one for each value of an index. */
  matrices(name: string, shape: readonly [outputs: number, inputs: number], source: Pattern, over: Over): Member<Matrix>
  /**
   * Matrices of one shape, which `{e}` in the tensor's name numbers; without it the tensor holds them all, one after
   * the other.
   */
  stack(name: string, shape: Stack['shape'], source: Ref): Stack
  /** A family of stacks, one for each value of an index. */
  stacks(name: string, shape: Stack['shape'], source: Pattern, over: Over): Member<Stack>
  /** Layers of the model's expert store: the numbers of the index' values are those of the store's layers. */
  expertLayers(name: string, shape: Experts['shape'], over: Over): Member<Experts>
  /** A constant [rows, width], of which a token takes a row. */
  lookup(name: string, shape: readonly [rows: number, width: number], source: Ref): Lookup
  /** A constant [width]. */
  vector(name: string, width: number, source: Ref): Vector
  /** A family of vectors, one for each value of an index. */
  vectors(name: string, width: number, source: Pattern, over: Over): Member<Vector>
  /** Positions ever entered; at most `max`. Without it 2⁵³, and then it can number a ring but not be read. */
  counter(name: string, options?: { readonly max?: number; readonly derived?: boolean }): Counter
  /** The context's own clock: no part of the state, and it moves by itself. A graph has at most one. */
  clock(name: string): Clock
  /** A persistent; every element begins as `init`, or as a block named "first", without inputs, leaves it. */
  table(
    name: string,
    axes: readonly Axis[],
    options?: {
      readonly init?: number
      readonly dtype?: Dtype
      readonly derived?: boolean
      readonly rewritten?: boolean
      readonly block?: number
    },
  ): Table
  /**
   * A volatile that is bound to a tensor: in every row it begins as the file has it, in f32, and cache operations may
   * write it. No other row sees what they wrote.
   */
  volatileTable(name: string, shape: Shape, source: Pick<Ref, 'ref'>): VolatileTable
  /** A family of volatile tables, one for each value of an index. */
  volatileTables(name: string, shape: Shape, source: Pick<Pattern, 'pattern'>, over: Over): VolatileTables
  /** A variable that the host inserts before a step: one value of this shape for each row. */
  dynamic<T extends Dtype>(name: string, shape: Shape, dtype: T): Value<T>

  /** Appends a block; what `body` appends stands in it, what it returns are the block's results. */
  block(name: string, inputs: readonly Value<Dtype>[], body: () => Results): void
  /** Once for each value of the index, which `body` uses to pick members; unrolled before it runs. */
  loop(index: Index, range: { readonly from?: number; readonly to?: number }, body: () => void): void
  /**
   * On a bool of the row, or on the value of a loop's index, or on whether the index has one of the values of a part of
   * it; there the part has a value too, to pick members by.
   */
  branch(
    condition: Value<'bool'> | { readonly index: Index; readonly equals: number } | { readonly within: Part },
    then: () => void,
    otherwise?: () => void,
  ): void

  /** The graph's member `memory`: the engine's memory controller works between the tokens of its language model. */
  memory(settings: Readonly<Record<string, unknown>>): void
  /** The graph's member `perspective`: how its tokens are drawn and its sessions adapted. */
  perspective(settings: Readonly<Record<string, unknown>>): void

  /** Ends the block early, in an arm of a branch; names the same results as the block's end. */
  returns(results: Results): void

  /** Row `id` of a table. */
  embed(out: string, id: Value<'i32'>, table: Lookup): Value
  /** matrix · x. */
  matmul(out: string, x: Value, matrix: Matrix): Value
  /** (x − mean)/sqrt(var + eps) ⊙ weight + bias within each of `groups` equal groups of channels; biased variance. */
  norm(out: string, x: Value, weight: Vector, bias: Vector, options: { groups?: number; eps: number }): Value
  /** x / max(‖x‖, eps) within each group. */
  l2norm(out: string, x: Value, options: { groups: number; eps: number }): Value
  /** a + b, element by element. */
  add(out: string, a: Value, b: Operand): Value
  /** a ⊙ b, element by element. */
  mul(out: string, a: Value, b: Operand): Value
  /** a + (b − a) ⊙ t. */
  lerp(out: string, a: Value, b: Value, t: Operand): Value
  /** tanh(x). */
  tanh(out: string, x: Value): Value
  /** 1/(1 + e⁻ˣ). */
  sigmoid(out: string, x: Value): Value
  /** max(x, 0)². */
  relu2(out: string, x: Value): Value
  /** x · sigmoid(x). */
  silu(out: string, x: Value): Value
  /** x/2 · (1 + tanh(√(2/π) (x + 0.044715 x³))), the form GPT-2 calls gelu_new. */
  gelu(out: string, x: Value): Value
  /** x/2 · (1 + erf(x/√2)). */
  geluErf(out: string, x: Value): Value
  /** log(1 + eˣ). */
  softplus(out: string, x: Value): Value
  /** eˣ. */
  exp(out: string, x: Value): Value
  /** exp(−e^(−1/2) · sigmoid(x)). */
  decay(out: string, x: Value): Value
  /** y + (Σ_j r_j k_j u_j) v within each group. */
  bonus(out: string, operands: { y: Value; r: Value; k: Value; u: Vector; v: Value }, groups: number): Value
  /** Elements from … to − 1 of a vector, or of each of its `groups` equal groups. */
  slice<T extends Dtype>(out: string, x: Value<T>, from: number, to: number, groups?: number): Value<T>
  /** To nearest, ties to even; see native/base/cast.h for what does not fit. */
  cast<T extends Dtype>(out: string, x: Value<Dtype>, dtype: T): Value<T>
  /** a < b, element by element. */
  less<T extends 'i32' | 'f32'>(out: string, a: Value<T>, b: Value<T> | number): Value<'bool'>
  /** a = b, element by element. */
  equal<T extends 'i32' | 'f32'>(out: string, a: Value<T>, b: Value<T> | number): Value<'bool'>
  /** a mod b, from 0 to b − 1. */
  remainder(out: string, a: Value<'i32'>, b: Value<'i32'> | number): Value<'i32'>
  /**
   * Softmax attention of `heads` query heads over every position that keys and values hold; `shared` query heads share
   * a head of keys. q [heads · n], K and V [positions, heads/shared · n]; `scale` usually 1/√n.
   */
  attend(
    out: string,
    q: Value,
    keys: State,
    values: State,
    options: { heads: number; shared?: number; scale: number },
  ): Value

  /**
   * The softmax weights by which `attend` weighs the values of `count` positions, from the one that the counter says:
   * of each head those of all positions, [heads · count]; 0 for positions that it does not see.
   */
  attendWeights(
    out: string,
    q: Value,
    keys: State,
    first: Counter,
    options: { heads: number; shared?: number; scale: number; count: number },
  ): Value

  /** The input of this node for the token before (the state's first value for the first token of a context). */
  cacheShift(out: string, state: State, x: Value): Value
  /**
   * RWKV-7's recurrence on a state [heads, key channel, value channel]; see native/backends/cpu/kernels/wkv7.h. v and
   * the output have value channels, the other operands key channels.
   */
  cacheWkv7(
    out: string,
    state: State,
    operands: { r: Value; w: Value; k: Value; v: Value; kk: Value; a: Value },
    heads: number,
  ): Value
  /** The numbers of a persistent, or of the part that picks leave, as they are now. */
  cacheRead<T extends Dtype = 'f32'>(out: string, state: State): Value<T>
  /** The counter's value, or what is left of it modulo a number: then the counter needs no max. */
  cacheCount(out: string, counter: Counter, options?: { readonly modulo?: number }): Value<'i32'>
  /** Replaces the numbers of a persistent, or of the part that picks leave. */
  cacheWrite(state: State, x: Value<Dtype>): void
  /** Moves a counter on by so many positions; default 1. */
  cacheIncrement(counter: Counter, by?: number): void
  /** Moves a counter back; default 1. What followed it forgets the positions behind. */
  cacheDecrement(counter: Counter, by?: number): void
  /** Back to the first value; of a counter: to 0, and what follows it forgets its positions. */
  cacheReset(state: State | Counter): void

  /** The graph as JSON. It is checked when a model is opened on it (`checkGraph`, `openGraph`). */
  finish(): Graph
}

const pickText = (pick: TermPick): string => {
  if (typeof pick === 'number') return String(pick)
  if ('of' in pick) return `${pickText(pick.of)}${pick.plus > 0 ? '+' : ''}${pick.plus === 0 ? '' : pick.plus}`
  if ('index' in pick) return pick.index
  return 'counter' in pick ? pick.counter : pick.name
}
const picked = (name: string, picks: readonly TermPick[]): string =>
  picks.length === 0 ? name : `${name}(${picks.map(pickText).join(',')})`

const axisDeclaration = (axis: Axis): AxisDeclaration => {
  if (typeof axis === 'number') return axis
  if ('index' in axis) return { index: axis.index }
  return 'ring' in axis ? { ring: axis.ring, counter: axis.counter.counter } : { grows: axis.grows.counter }
}
const axisExtent = (axis: Axis): number | null => {
  if (typeof axis === 'number') return axis
  if ('index' in axis) return axis.extent
  return 'ring' in axis ? axis.ring : null
}
const operandName = (operand: AnyOperand): string => {
  if ('matrix' in operand) return operand.matrix
  if ('lookup' in operand) return operand.lookup
  if ('vector' in operand) return operand.vector
  if ('stack' in operand) return operand.stack
  if ('experts' in operand) return operand.experts
  return 'state' in operand ? operand.state : operand.name
}

/** An empty graph to build on. */
export const buildGraph = (): GraphBuilder => {
  const indices: IndexDeclaration[] = []
  const declarations: Declaration[] = []
  const volatiles = new Map<string, Value<Dtype>>()
  const blocks: Block[] = []
  let memory: Graph['memory']
  let perspective: Graph['perspective']
  let nodes: Node[] = []

  /** The nodes that `body` appends. */
  const collect = (body: () => void): readonly Node[] => {
    const outer = nodes
    const own: Node[] = []
    nodes = own
    try {
      body()
    } finally {
      nodes = outer
    }
    return own
  }

  const end = (results: Results): void => {
    nodes.push({ return: Object.fromEntries(Object.entries(results).map(([role, { name }]) => [role, name])) })
  }

  const write: Write = <T extends Dtype>(
    op: string,
    out: string,
    inputs: readonly string[],
    shape: Shape,
    dtype: T,
    attributes: Readonly<Record<string, unknown>> = {},
  ): Value<T> => {
    nodes.push({ op, in: inputs, out, ...attributes })
    const known = volatiles.get(out)
    // A second write with another shape or dtype is an error of the graph, which the engine names.
    if (known) return known as Value<T>
    const value: Value<T> = { name: out, shape, dtype }
    volatiles.set(out, value)
    declarations.push({ kind: 'volatile', name: out, shape, dtype })
    return value
  }
  const names: Names = (...operands) => operands.map(operandName)
  const like =
    (op: string) =>
    (out: string, x: Value): Value =>
      write(op, out, [x.name], x.shape, 'f32')
  const compared =
    (op: 'less' | 'equal') =>
    <T extends 'i32' | 'f32'>(out: string, a: Value<T>, b: Value<T> | number): Value<'bool'> =>
      typeof b === 'number'
        ? write(op, out, [a.name], a.shape, 'bool', { value: b })
        : write(op, out, [a.name, b.name], a.shape, 'bool')
  const constant = (name: string, shape: Shape, layout: ConstantDeclaration['layout'], source: object): void => {
    declarations.push({ kind: 'constant', name, shape, layout, ...source })
  }
  const family = ({ over, from }: Over): object => ({ over: over.index, ...(from === undefined ? {} : { from }) })

  return {
    index: (name, extent) => {
      indices.push({ name, extent })
      return { index: name, extent }
    },
    part: (name, of, at) => {
      indices.push({ name, of: of.index, at })
      return { index: name, extent: at.length, at }
    },
    matrix: (name, shape, source) => {
      constant(name, shape, 'packed', source)
      return { matrix: name, shape }
    },
    matrices: (name, shape, source, over) => {
      constant(name, shape, 'packed', { ...source, ...family(over) })
      return (at) => ({ matrix: picked(name, [at]), shape })
    },
    stack: (name, shape, source) => {
      constant(name, shape, 'stack', source)
      return { stack: name, shape }
    },
    stacks: (name, shape, source, over) => {
      constant(name, shape, 'stack', { ...source, ...family(over) })
      return (at) => ({ stack: picked(name, [at]), shape })
    },
    expertLayers: (name, shape, over) => {
      constant(name, shape, 'experts', { pattern: `{${over.over.index}}`, ...family(over) })
      return (at) => ({ experts: picked(name, [at]), shape })
    },
    lookup: (name, shape, source) => {
      constant(name, shape, 'rows', source)
      return { lookup: name, shape }
    },
    vector: (name, width, source) => {
      constant(name, [width], 'vector', source)
      return { vector: name, shape: [width] }
    },
    vectors: (name, width, source, over) => {
      constant(name, [width], 'vector', { ...source, ...family(over) })
      return (at) => ({ vector: picked(name, [at]), shape: [width] })
    },
    counter: (name, { max, derived = false } = {}) => {
      const more = { ...(max === undefined ? {} : { max }), ...(derived ? { derived } : {}) }
      declarations.push({ kind: 'persistent', name, counter: true, ...more })
      return { counter: name }
    },
    clock: (name) => {
      declarations.push({ kind: 'persistent', name, counter: true, clock: true })
      return { counter: name, clock: true }
    },
    table: (name, axes, { init = 0, dtype = 'f32', derived = false, rewritten = false, block } = {}) => {
      const more = {
        ...(derived && { derived }),
        ...(rewritten && { rewritten }),
        ...(block !== undefined && { block }),
      }
      declarations.push({ kind: 'persistent', name, dtype, init, axes: axes.map(axisDeclaration), ...more })
      return (...picks) => ({ state: picked(name, picks), shape: axes.slice(picks.length).map(axisExtent), dtype })
    },
    volatileTable: (name, shape, source) => {
      declarations.push({ kind: 'volatile', name, shape, dtype: 'f32', ...source })
      return (...picks) => ({ state: picked(name, picks), shape: shape.slice(picks.length), dtype: 'f32' })
    },
    volatileTables: (name, shape, source, over) => {
      declarations.push({ kind: 'volatile', name, shape, dtype: 'f32', ...source, ...family(over) })
      return (...picks) => ({ state: picked(name, picks), shape: shape.slice(picks.length - 1), dtype: 'f32' })
    },
    dynamic: (name, shape, dtype) => {
      declarations.push({ kind: 'dynamic', name, shape, dtype })
      return { name, shape, dtype }
    },

    block: (name, inputs, body) => {
      const own = collect(() => end(body()))
      blocks.push({ name, inputs: inputs.map((input) => input.name), nodes: own })
    },
    loop: (index, { from = 0, to = index.extent }, body) => {
      nodes.push({ loop: index.index, from, to, nodes: collect(body) })
    },
    branch: (condition, then, otherwise) => {
      const on =
        'index' in condition
          ? { branch: condition.index.index, equals: condition.equals }
          : { branch: 'within' in condition ? condition.within.index : condition.name }
      nodes.push({ ...on, nodes: collect(then), ...(otherwise ? { otherwise: collect(otherwise) } : {}) })
    },

    memory: (settings) => {
      memory = settings
    },
    perspective: (settings) => {
      perspective = settings
    },

    returns: end,

    embed: (out, id, table) => write('embed', out, [id.name, table.lookup], table.shape.slice(1), 'f32'),
    matmul: (out, x, matrix) => write('matmul', out, names(x, matrix), matrix.shape.slice(0, 1), 'f32'),
    norm: (out, x, weight, bias, { groups = 1, eps }) =>
      write('norm', out, names(x, weight, bias), x.shape, 'f32', { groups, eps }),
    l2norm: (out, x, options) => write('l2norm', out, names(x), x.shape, 'f32', options),
    add: (out, a, b) => write('add', out, names(a, b), a.shape, 'f32'),
    mul: (out, a, b) => write('mul', out, names(a, b), a.shape, 'f32'),
    lerp: (out, a, b, t) => write('lerp', out, names(a, b, t), a.shape, 'f32'),
    tanh: like('tanh'),
    sigmoid: like('sigmoid'),
    relu2: like('relu2'),
    silu: like('silu'),
    gelu: like('gelu'),
    geluErf: like('gelu_erf'),
    softplus: like('softplus'),
    exp: like('exp'),
    decay: like('decay'),
    bonus: (out, { y, r, k, u, v }, groups) => write('bonus', out, names(y, r, k, u, v), y.shape, 'f32', { groups }),
    slice: (out, x, from, to, groups = 1) =>
      write('slice', out, [x.name], [groups * (to - from)], x.dtype, { from, to, ...(groups > 1 ? { groups } : {}) }),
    cast: (out, x, dtype) => write('cast', out, [x.name], x.shape, dtype, { dtype }),
    less: compared('less'),
    equal: compared('equal'),
    remainder: (out, a, b) =>
      typeof b === 'number'
        ? write('remainder', out, [a.name], a.shape, 'i32', { value: b })
        : write('remainder', out, [a.name, b.name], a.shape, 'i32'),
    attend: (out, q, keys, values, { heads, shared = 1, scale }) =>
      write('attend', out, names(q, keys, values), q.shape, 'f32', { groups: heads, shared, scale }),

    attendWeights: (out, q, keys, first, { heads, shared = 1, scale, count }) =>
      write('attend.weights', out, names(q, keys), [heads * count], 'f32', {
        ...{ state: first.counter, groups: heads, shared, scale, count },
      }),

    ...memoryOps(write, (node) => nodes.push(node), names),
    ...routingOps(write, names),
    ...expertOps(write, (node) => nodes.push(node), names),
    ...ngramOps(write, (node) => nodes.push(node), names),

    cacheShift: (out, state, x) => write('cache.shift', out, [x.name], x.shape, 'f32', { state: state.state }),
    cacheWkv7: (out, state, { r, w, k, v, kk, a }, heads) =>
      write('cache.wkv7', out, names(r, w, k, v, kk, a), v.shape, 'f32', { state: state.state, groups: heads }),
    cacheRead: <T extends Dtype = 'f32'>(out: string, state: State) =>
      write(
        'cache.read',
        out,
        [],
        state.shape.map((extent) => extent ?? 0),
        state.dtype as T,
        { state: state.state },
      ),
    cacheCount: (out, counter, options = {}) =>
      write('cache.read', out, [], [], 'i32', { state: counter.counter, ...options }),
    cacheWrite: (state, x) => {
      nodes.push({ op: 'cache.write', in: [x.name], state: state.state })
    },
    cacheIncrement: (counter, by = 1) => {
      nodes.push({ op: 'cache.increment', state: counter.counter, by })
    },
    cacheDecrement: (counter, by = 1) => {
      nodes.push({ op: 'cache.decrement', state: counter.counter, by })
    },
    cacheReset: (state) => {
      nodes.push({ op: 'cache.reset', state: 'counter' in state ? state.counter : state.state })
    },

    finish: () => ({
      format: 'continuo-graph/2',
      indices,
      // What is derived stands behind the state.
      declarations: [...declarations.filter((each) => !isDerived(each)), ...declarations.filter(isDerived)],
      blocks,
      ...(memory === undefined ? {} : { memory }),
      ...(perspective === undefined ? {} : { perspective }),
    }),
  }
}
