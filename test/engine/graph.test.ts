/** Graphs as data: what is built is what is checked, serialised, and refused by name. */
import { describe, expect, it } from 'vitest'
import { buildGraph, type GraphBuilder } from '../../src/engine/builder.ts'
import { autoDim, pattern, plus, ref, ring, type Value } from '../../src/engine/builder-types.ts'
import { type Graph, type OpNode, parametersOf, tensorsOf } from '../../src/engine/graph.ts'
import { checkGraph, planGraph } from '../../src/engine/plan.ts'
import { errorOf } from './helpers.ts'

/** The least that is a language model: an embedding, a shift, a head. */
const small = (): Graph => {
  const g = buildGraph()
  const token = g.dynamic('token', [], 'i32')
  const emb = g.lookup('emb', [5, 4], ref('emb.weight'))
  const mix = g.vector('mix', 4, ref('mix'))
  const head = g.matrix('head', [5, 4], ref('head.weight'))
  const p = g.table('p', [4])
  const last = g.table('last', [4])
  const input = g.dynamic('h', [4], 'f32')
  g.block('step', [token], () => {
    const x = g.embed('x', token, emb)
    const hidden = g.lerp('hidden', x, g.cacheShift('before', p(), x), mix)
    return { hidden, previous: g.cacheShift('previous', last(), hidden) }
  })
  g.block('predict', [input], () => ({ logits: g.matmul('logits', input, head) }))
  return g.finish()
}

interface Loose {
  declarations: Record<string, unknown>[]
  blocks: { nodes: Record<string, unknown>[] }[]
}
/** The graph after a change to a copy of its JSON. */
const changed = (change: (graph: Loose, nodes: Record<string, unknown>[]) => void): Graph => {
  const copy = structuredClone(small()) as unknown as Loose
  change(copy, copy.blocks[0]!.nodes)
  return copy as unknown as Graph
}

/** One block over an f32 vector x of 4, with a bool `yes`, an i32 `at`, counters and tables to use. */
const block = (body: (g: GraphBuilder, x: Value, yes: Value<'bool'>, at: Value<'i32'>) => Value): Graph => {
  const g = buildGraph()
  const x = g.dynamic('x', [4], 'f32')
  const yes = g.dynamic('yes', [], 'bool')
  const at = g.dynamic('at', [], 'i32')
  g.block('run', [x, yes, at], () => ({ y: body(g, x, yes, at) }))
  return g.finish()
}

describe('graphs', () => {
  it('a stack names the tensor of each of its matrices, and one tensor counts once', () => {
    const g = buildGraph()
    const l = g.index('l', 2)
    g.stacks('named', [3, 4, 2], pattern('h.{l}.e.{e}'), { over: l })
    g.stacks(
      'fused',
      [3, 4, 2],
      pattern('h.{l}.e', { view: { offset: 4, each: 8, repeat: 1, step: 0, parts: [[0, 4]] } }),
      { over: l },
    )
    g.stack('again', [3, 4, 2], ref('h.0.e.{e}'))
    const graph = g.finish()
    const named = graph.declarations.map((declaration) => tensorsOf(graph, declaration as never))
    expect(named[0]).toEqual(['h.0.e.0', 'h.0.e.1', 'h.0.e.2', 'h.1.e.0', 'h.1.e.1', 'h.1.e.2'])
    expect(named[1]).toEqual(['h.0.e', 'h.1.e'])
    expect(parametersOf(graph)).toBe(2 * 3 * 4 * 2 + 2 * 3 * 4 * 2)
  })

  it('a good graph passes, as a value and as JSON, and comes back from JSON unchanged', () => {
    checkGraph(small())
    const back = JSON.parse(JSON.stringify(small())) as Graph
    checkGraph(JSON.stringify(back))
    expect(back).toEqual(small())
  })

  it.each<[string, Graph, string]>([
    ...(
      [
        [
          'a view with more rows than the constant',
          { view: { repeat: 2, step: 4, parts: [[0, 4]] } },
          'gives 8 rows, expected 5',
        ],
        ['a view without parts', { view: { repeat: 1, step: 0, parts: [] } }, 'needs 1 to 1024 parts'],
        ['a part that is no list', { view: { repeat: 1, step: 0, parts: [5] } }, 'no list of from, count'],
        ['a view with a fraction', { view: { repeat: 1, step: 0, parts: [[0, 5, 0.5]] } }, 'not whole'],
        ['a view that repeats nothing', { view: { repeat: 0, step: 0, parts: [[0, 5]] } }, 'repeat'],
        ['columns of another width', { columns: { repeat: 1, step: 0, parts: [[0, 5]] } }, 'gives 5 rows, expected 4'],
        [
          'a transposed view',
          { transposed: true, view: { repeat: 1, step: 0, parts: [[0, 5]] } },
          'transposed constant',
        ],
        ['a map of a matrix', { map: 'one_plus' }, 'expected a vector with one_plus or neg_exp'],
        ['a stack of two axes', { layout: 'stack' }, 'which its layout cannot hold'],
      ] as const
    ).map(([what, member, says]): [string, Graph, string] => [
      what,
      changed(({ declarations }) => Object.assign(declarations.find(({ name }) => name === 'head')!, member)),
      says,
    ]),
    [
      'an unknown name',
      changed((_, n) => Object.assign(n[2]!, { in: ['x', 'before', 'mox'] })),
      'node lerp "hidden" uses "mox", which is not declared',
    ],
    ['an unknown operation', changed((_, n) => Object.assign(n[2]!, { op: 'slerp' })), 'there is no op "slerp"'],
    [
      'a shape that does not fit',
      changed(({ declarations }) => Object.assign(declarations.find(({ name }) => name === 'mix')!, { shape: [3] })),
      'input "mix" has shape [3], expected [4]',
    ],
    [
      'a declared shape that is not what the node gives',
      changed(({ declarations }) => Object.assign(declarations.find(({ name }) => name === 'x')!, { shape: [3] })),
      'node embed "x" gives f32 [4], but "x" is declared f32 [3]',
    ],
    [
      'a declared dtype that is not what the node gives',
      changed(({ declarations }) => Object.assign(declarations.find(({ name }) => name === 'x')!, { dtype: 'f16' })),
      'node embed "x" gives f32 [4], but "x" is declared f16 [4]',
    ],
    ['a write to a constant', changed((_, n) => Object.assign(n[2]!, { out: 'mix' })), 'writes constant "mix"'],
    ['a write to a dynamic', changed((_, n) => Object.assign(n[2]!, { out: 'token' })), 'writes dynamic "token"'],
    [
      'a write to a persistent',
      changed((_, n) => Object.assign(n[2]!, { out: 'p' })),
      'writes persistent "p"; a node\'s out is volatile, and persistents are written by cache operations',
    ],
    [
      'a cache write to a constant',
      changed((_, n) => n.splice(2, 0, { op: 'cache.write', in: ['x'], state: 'mix' })),
      'writes constant "mix"; cache operations write persistents and volatile tables only',
    ],
    [
      'a cache write to a dynamic',
      changed((_, n) => n.splice(2, 0, { op: 'cache.write', in: ['x'], state: 'h' })),
      'writes dynamic "h"; cache operations write persistents and volatile tables only',
    ],
    [
      'a read of a persistent',
      changed((_, n) => Object.assign(n[2]!, { in: ['x', 'p', 'mix'] })),
      'input "p" is persistent; only cache operations touch it',
    ],
    ['a use before the definition', changed((_, n) => n.unshift(n.splice(2, 1)[0]!)), 'before anything wrote it'],
    [
      'a state that is none',
      changed((_, n) => Object.assign(n[1]!, { state: 'mix' })),
      'state "mix" is constant, expected persistent',
    ],
    [
      'an orphaned persistent',
      changed(({ declarations }) =>
        declarations.push({ kind: 'persistent', name: 'lonely', dtype: 'f32', axes: [1], init: 0 }),
      ),
      'persistent "lonely" is used by no node',
    ],
    ['a block without an end', changed((_, n) => n.pop()), 'block "step" does not end with a return'],
    ['a node after the end', changed((_, n) => n.push({ op: 'tanh', in: ['x'], out: 'x' })), 'stands after a return'],
    [
      'an index outside its loop',
      block((g, x) => {
        const S = g.table('S', [g.index('l', 3), 4])
        return g.cacheShift('y', S({ index: 'l', extent: 3 }), x)
      }),
      'uses the index "l" outside the loop over it',
    ],
    [
      'a member outside its family',
      block((g, x) => {
        const l = g.index('l', 3)
        const b = g.vectors('b', 4, pattern('b.{l}'), { over: l, from: 1 })
        g.loop(l, {}, () => g.add('y', x, b(l)))
        return { name: 'y', shape: [4], dtype: 'f32' }
      }),
      'uses "b(l)" with 0, expected 1 to 2',
    ],
    [
      'a place outside its axis',
      block((g, x) => {
        g.cacheWrite(g.table('S', [3, 4])(3), x)
        return g.tanh('y', x)
      }),
      'picks 3 in "S(3)", expected 0 to 2',
    ],
    [
      'a value of one arm only',
      block((g, x, yes) => {
        g.branch(yes, () => void g.tanh('t', x))
        return g.tanh('y', { name: 't', shape: [4], dtype: 'f32' })
      }),
      'uses "t" before anything wrote it',
    ],
    [
      'a value that no turn before wrote',
      block((g, x) => {
        const l = g.index('l', 2)
        g.loop(l, {}, () => {
          g.branch(
            { index: l, equals: 1 },
            () => void g.tanh('t', x),
            () => void g.tanh('y', { name: 't', shape: [4], dtype: 'f32' }),
          )
        })
        return { name: 'y', shape: [4], dtype: 'f32' }
      }),
      '(l=0) uses "t" before anything wrote it',
    ],
    [
      'numbers of another dtype',
      block((g, x) => {
        const narrow = g.cast('n', x, 'f16')
        return g.tanh('y', narrow as unknown as Value)
      }),
      'input "n" is f16, expected f32: cast it',
    ],
    [
      'a write of another dtype',
      block((g, x) => {
        g.cacheWrite(g.table('S', [4], { dtype: 'f16' })(), x)
        return g.tanh('y', x)
      }),
      'state "S" is f16, expected f32: cast it',
    ],
    [
      'a counter that has no end read as a number',
      block((g, x) => {
        g.cacheCount('n', g.counter('pos'))
        return g.tanh('y', x)
      }),
      'counter "pos" has no max below 2³¹',
    ],
    [
      'a counter read modulo nothing',
      block((g, x) => {
        g.cacheCount('n', g.counter('pos'), { modulo: 0 })
        return g.tanh('y', x)
      }),
      'needs "modulo", a whole number from 1 to',
    ],
    [
      'growth without a bound',
      block((g, x) => {
        g.cacheWrite(g.table('K', [autoDim(g.counter('len')), 4])(0), x)
        return g.tanh('y', x)
      }),
      'grows with "len", whose bound is',
    ],
    [
      'keys and values that count apart',
      block((g, x) => {
        const [a, b] = [g.counter('a', { max: 9 }), g.counter('b', { max: 9 })]
        return g.attend('y', x, g.table('K', [autoDim(a), 4])(), g.table('V', [autoDim(b), 4])(), {
          heads: 2,
          scale: 1,
        })
      }),
      'do not follow the same counter',
    ],
  ])('%s is refused, naming node and variable', async (_, graph, says) => {
    expect(await errorOf(() => checkGraph(graph))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining(says),
    })
  })

  it('text that is no graph is refused', async () => {
    for (const text of ['', '[]', '{}', '{"format":"continuo-graph/1"}', 'x'.repeat(100)]) {
      expect((await errorOf(() => checkGraph(text))).code).toBe('INVALID')
    }
  })

  it('types keep vectors, matrices, tables and dtypes apart', () => {
    const g = buildGraph()
    const x = g.dynamic('x', [4], 'f32')
    const id = g.dynamic('id', [], 'i32')
    const matrix = g.matrix('W', [4, 4], ref('W'))
    const vector = g.vector('b', 4, ref('b'))
    const state = g.table('S', [4])()
    // @ts-expect-error a vector is no matrix
    const one = () => g.matmul('y', x, vector)
    // @ts-expect-error a matrix is no operand of add
    const two = () => g.add('y', x, matrix)
    // @ts-expect-error a state is read by cache operations only
    const three = () => g.tanh('y', state)
    // @ts-expect-error token ids are i32
    const four = () => g.embed('y', x, g.lookup('e', [4, 4], ref('e')))
    // @ts-expect-error ids are no operand of tanh
    const five = () => g.tanh('y', id)
    // @ts-expect-error a constant is never written
    const six = () => g.cacheWrite(vector, x)
    // @ts-expect-error a table does not count
    const seven = () => g.cacheIncrement(state)
    expect([one, two, three, four, five, six, seven]).toHaveLength(7)
  })

  it('families name their tensors, and parameters are counted once', () => {
    const g = buildGraph()
    const l = g.index('l', 3)
    g.matrices('W', [8, 4], pattern('blocks.{l}.W'), { over: l, from: 1 })
    g.vector('b', 8, ref('b'))
    const graph = g.finish()
    const families = graph.declarations.flatMap((d) => (d.kind === 'constant' ? [tensorsOf(graph, d)] : []))
    expect(families).toEqual([['blocks.1.W', 'blocks.2.W'], ['b']])
    expect(parametersOf(graph)).toBe(2 * 32 + 8)
  })

  it('rows go together unless a row needs what the row before it wrote at a later node', () => {
    const orders = (graph: Graph) => planGraph(graph)[0]!.stages.map(({ order }) => order)
    // A recurrence through the graph: read, compute, write.
    const recurrent = block((g, x) => {
      const S = g.table('S', [4])
      const y = g.tanh('y', g.add('sum', x, g.cacheRead('old', S())))
      g.cacheWrite(S(), y)
      return y
    })
    expect(orders(recurrent)).toEqual(['row_serial'])
    // Every row enters a position of its own in a table that grows, and reads after all have written.
    const growing = block((g, x) => {
      const n = g.counter('n', { max: 100 })
      const K = g.table('K', [autoDim(n), 4])
      g.cacheIncrement(n)
      g.cacheWrite(K(plus(n, -1)), x)
      return g.attend('y', x, K(), K(), { heads: 1, scale: 1 })
    })
    expect(orders(growing)).not.toContain('row_serial')
    // A ring forgets what an earlier row still has to see.
    const forgetting = block((g, x) => {
      const n = g.counter('n')
      const K = g.table('K', [ring(3, n), 4])
      g.cacheIncrement(n)
      g.cacheWrite(K(plus(n, -1)), x)
      return g.tanh('y', g.attend('a', x, K(), K(), { heads: 1, scale: 1 }))
    })
    expect(orders(forgetting)).toEqual(['row_parallel', 'row_serial', 'row_parallel'])
    expect((forgetting.blocks[0]!.nodes[1] as OpNode).state).toBe('K(n-1)')
  })
})
