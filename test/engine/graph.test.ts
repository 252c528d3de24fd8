import { describe, expect, it } from 'vitest'
import { buildGraph, checkGraph, type Graph } from '../../src/engine/graph.ts'
import { errorOf } from './helpers.ts'

/** The least that is a model: an embedding, a shift, a head. */
const small = (): Graph => {
  const g = buildGraph()
  const token = g.begin('step', { name: 'token', shape: [], dtype: 'i32' })
  const x = g.embed('x', token, g.table('emb', 5, 4, { tensor: 'emb.weight' }))
  const before = g.cacheShift('before', g.persistent('p', [4]), x)
  const hidden = g.lerp('hidden', x, before, g.vector('mix', 4, { tensor: 'mix' }))
  const previous = g.cacheShift('previous', g.persistent('last', [4]), hidden)
  const input = g.begin('predict', { name: 'h', shape: [4], dtype: 'f32' })
  const logits = g.matmul('logits', input, g.matrix('head', 5, 4, { tensor: 'head.weight' }))
  return g.finish({ hidden, previous, logits })
}

/** The graph after a change to a copy of its JSON. */
const changed = (
  change: (graph: { declarations: Record<string, unknown>[]; step: { nodes: Record<string, unknown>[] } }) => void,
): Graph => {
  const copy = structuredClone(small()) as unknown as Parameters<typeof change>[0]
  change(copy)
  return copy as unknown as Graph
}

describe('graphs', () => {
  it('a good graph passes, as a value and as JSON', () => {
    checkGraph(small())
    checkGraph(JSON.stringify(JSON.parse(JSON.stringify(small()))))
  })

  it.each<[string, Graph, string]>([
    [
      'an unknown name',
      changed(({ step }) => Object.assign(step.nodes[2]!, { in: ['x', 'before', 'mox'] })),
      'node "hidden" uses "mox", which is not declared',
    ],
    [
      'an unknown operation',
      changed(({ step }) => Object.assign(step.nodes[2]!, { op: 'slerp' })),
      'node "hidden" has the unknown op "slerp"',
    ],
    [
      'a shape that does not fit',
      changed(({ declarations }) => Object.assign(declarations.find(({ name }) => name === 'mix')!, { shape: [3] })),
      'input "mix" has shape [3], expected [4]',
    ],
    [
      'a declared shape that is not what the node gives',
      changed(({ declarations }) => Object.assign(declarations.find(({ name }) => name === 'x')!, { shape: [3] })),
      'node "x" gives shape [4], but "x" is declared [3]',
    ],
    [
      'a write to a constant',
      changed(({ step }) => Object.assign(step.nodes[2]!, { out: 'mix' })),
      'node "hidden" writes constant "mix"',
    ],
    [
      'a write to a dynamic',
      changed(({ step }) => Object.assign(step.nodes[2]!, { out: 'token' })),
      'node "hidden" writes dynamic "token"',
    ],
    [
      'a write to a persistent',
      changed(({ step }) => Object.assign(step.nodes[2]!, { out: 'p' })),
      'node "hidden" writes persistent "p"',
    ],
    [
      'a read of a persistent',
      changed(({ step }) => Object.assign(step.nodes[2]!, { in: ['x', 'p', 'mix'] })),
      'node "hidden" reads persistent "p"',
    ],
    ['a use before the definition', changed(({ step }) => step.nodes.reverse()), 'before anything wrote it'],
    [
      'a state that is none',
      changed(({ step }) => Object.assign(step.nodes[1]!, { state: 'mix' })),
      'state "mix" is constant, expected persistent',
    ],
    [
      'an orphaned persistent',
      changed(({ declarations }) => declarations.push({ kind: 'persistent', name: 'lonely', shape: [1], init: 0 })),
      'persistent "lonely" is used by no node',
    ],
  ])('%s is refused, naming node and variable', async (_, graph, says) => {
    expect(await errorOf(() => checkGraph(graph))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining(says),
    })
  })

  it('text that is no graph is refused', async () => {
    for (const text of ['', '[]', '{}', '{"format":"continuo-graph/2"}', 'x'.repeat(100)]) {
      expect((await errorOf(() => checkGraph(text))).code).toBe('INVALID')
    }
  })
})
