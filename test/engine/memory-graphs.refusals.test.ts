/** The clock, matrix memories and what feeds them, in graphs of one's own: refused by name where they do not fit. */
import { describe, expect, it } from 'vitest'
import { buildGraph } from '../../src/engine/builder.ts'
import { autoDim, plus, type State } from '../../src/engine/builder-types.ts'
import type { Graph } from '../../src/engine/graph.ts'
import { checkGraph, planGraph } from '../../src/engine/plan.ts'
import { errorOf } from './helpers.ts'
import {
  attending,
  bent,
  C,
  convolving,
  FORM,
  graphOf,
  H,
  inputs,
  K,
  normed,
  ranging,
  remembering,
  set,
  turning,
  without,
} from './memory-graphs.ts'

describe('graphs of matrix memories', () => {
  it('good ones pass, also as JSON', () => {
    const good = [attending(), attending({ segment: 8 }), remembering(), convolving(), turning(), ranging, normed]
    for (const graph of good) {
      checkGraph(graph)
      checkGraph(JSON.stringify(graph))
    }
    checkGraph(remembering({ ...FORM, rule: 'delta', retention: 'sphere', periods: [1, 1] }, K, 0))
  })

  it.each<[string, Graph, string]>([
    [
      'a gain of another width',
      bent(
        normed,
        'rmsnorm',
        inputs(([, w]) => ['wide', w!]),
      ),
      'has shape [6], expected [7]',
    ],
    [
      'a gain that is a value',
      bent(
        normed,
        'rmsnorm',
        inputs(([x]) => [x!, x!]),
      ),
      'input "x" must be a constant vector',
    ],
    ['a norm without ε', bent(normed, 'rmsnorm', without('eps')), 'needs a positive eps'],
    ['groups that do not divide', bent(normed, 'unit', set({ groups: 4 })), 'cannot split 6 channels into 4 groups'],
    ['lows without highs', bent(ranging, 'range', without('high')), 'needs "high", a list of numbers'],
    [
      'fewer lows than highs',
      bent(ranging, 'range', set({ low: [0] })),
      'its 1 lows and 2 highs cannot be levels of 4',
    ],
    ['levels of a width', bent(ranging, 'range', set({ low: [0, 0, 0], high: [1, 1, 1] })), 'cannot be levels of 4'],
    ['a low that is no number', bent(ranging, 'range', set({ low: ['0', 0] })), 'has a value in "low"'],

    [
      'too many increments',
      bent(turning(), 'rope', set({ increments: [1, 2, 3, 4] })),
      'has 4 increments for heads of 6 channels',
    ],
    ['no increments', bent(turning(), 'rope', without('increments')), 'needs "increments", a list of whole numbers'],
    ['an increment of 33 bits', bent(turning(), 'rope', set({ increments: [1, 2, 2 ** 32] })), 'below 2³²'],
    ['heads that do not divide', bent(turning(), 'rope', set({ groups: 4 })), 'cannot split 6 channels into 4 groups'],
    [
      'a clock that is raised',
      graphOf(({ g }) => void g.cacheIncrement(g.clock('c') as never)),
      'which moves by itself',
    ],
    [
      'a clock that is lowered',
      graphOf(({ g }) => void g.cacheDecrement(g.clock('c') as never)),
      'which moves by itself',
    ],
    [
      'a clock that is set back',
      graphOf(({ g }) => void g.cacheReset({ state: g.clock('c').counter } as never)),
      'which moves by itself',
    ],
    [
      'two clocks',
      bent(turning(), 'rope', (_, graph) => {
        graph.declarations.push({ kind: 'persistent', name: 'd', counter: true, clock: true })
      }),
      '"d" is a second clock; a context has one',
    ],
    [
      'a clock read as a number',
      graphOf(({ g }) => void g.cacheCount('n', g.clock('c') as never)),
      'counter "c" has no max below 2³¹',
    ],
    [
      'growth by the clock',
      graphOf(({ g, x }) => void g.cacheWrite(g.table('T', [autoDim(g.clock('c') as never), C])(0), x)),
      'grows with "c", whose bound is',
    ],

    [
      'too few taps',
      bent(
        convolving(),
        'cache.conv',
        inputs(([x]) => [x!, 'gain']),
      ),
      'expected from 2 to 64 for each of 6',
    ],
    [
      'taps of another width',
      bent(
        convolving(),
        'cache.conv',
        inputs(([, w]) => ['wide', w!]),
      ),
      'for each of 7 channels',
    ],
    ['a tail too long', convolving([3, C]), 'state "tail" has shape [3, 6], expected [2, 6]'],

    [
      'a ring by a counter',
      bent(attending(), 'cache.attend', (_, graph) => {
        graph.declarations.splice(0, 0, { kind: 'persistent', name: 'n', counter: true })
        const keys = graph.declarations.find(({ name }) => name === 'K')
        Object.assign(keys!, { axes: [{ ring: 8, counter: 'n' }, C] })
      }),
      'input "K" must be a ring that follows the clock',
    ],
    [
      'rings without a place for all positions',
      attending({ values: 5 }),
      'input "V" has 5 places, expected 8 like "K"',
    ],
    ['context of other places', attending({ context: 9 }), 'input "HK" has 9 places, expected 8 like "K"'],
    ['context values of other places', attending({ contextValues: 2 }), 'input "HV" has 2 places, expected 8 like "K"'],
    [
      'a segment longer than the ring',
      attending({ segment: 9 }),
      '"K" has 8 places, expected at least the segment\'s 9',
    ],
    ['keys of other channels', attending({ channels: 3 }), 'holds 3 channels of f32, expected 6'],
    ['heads that cannot share', bent(attending(), 'cache.attend', set({ shared: 3 })), 'cannot share 2 heads by 3'],
    ['no scale', bent(attending(), 'cache.attend', without('scale')), 'needs a positive scale'],
    [
      'a segment of none',
      bent(attending(), 'cache.attend', set({ segment: 0 })),
      'needs "segment", a whole number from 1',
    ],
    ...[4, 6, 7, 10, 11].map((count): [string, Graph, string] => [
      `${count} inputs of attention`,
      bent(
        attending(),
        'cache.attend',
        inputs((names) => names.slice(0, count)),
      ),
      count === 4 ? 'has 4 inputs, expected at least 5' : `has ${count} inputs, expected 5, and 4 more`,
    ]),
    [
      'persistent tokens of odd length',
      bent(
        attending(),
        'cache.attend',
        inputs((names) => [...names.slice(0, 10), 'logits', 'logits']),
      ),
      'input "logits" has 4 elements, expected 6 for each persistent token',
    ],
    [
      'persistent keys without values',
      bent(
        attending(),
        'cache.attend',
        inputs((names) => names.with(11, 'gain')),
      ),
      'input "gain" has shape [6], expected [12]',
    ],

    [
      'a rule that is none',
      bent(remembering(), 'cache.memory', set({ rule: 'oja' })),
      'unknown rule "oja", expected titans',
    ],
    ['no retention', bent(remembering(), 'cache.memory', without('retention')), 'needs its retention'],
    ['an unknown retention', bent(remembering(), 'cache.memory', set({ retention: 'l1' })), 'unknown retention "l1"'],
    ['no periods', bent(remembering(), 'cache.memory', without('periods')), 'needs "periods", one for each level'],
    ['a period of 0', bent(remembering(), 'cache.memory', set({ periods: [1, 0] })), 'no whole number from 1'],
    ['a negative cap', bent(remembering(), 'cache.memory', set({ norm_max: -1 })), 'needs norm_max to be a number'],
    [
      'a cap that f32 cannot hold',
      bent(remembering(), 'cache.memory', set({ norm_max: 1e39 })),
      'needs norm_max to be',
    ],
    [
      'one input too few',
      bent(
        remembering(),
        'cache.memory',
        inputs((n) => n.slice(1)),
      ),
      'has 8 inputs, expected 9',
    ],
    ['a momentum too many', bent(remembering(), 'cache.memory', set({ rule: 'delta' })), 'has 9 inputs, expected 7'],
    ['a gate too many', bent(remembering(), 'cache.memory', set({ retention: 'none' })), 'has 9 inputs, expected 8'],
    ['a buffer too many', bent(remembering(), 'cache.memory', set({ periods: [1, 1] })), 'has 9 inputs, expected 8'],
    [
      'gates of another width',
      bent(
        remembering(),
        'cache.memory',
        inputs((n) => n.with(3, 'x')),
      ),
      '"x" has shape [6], expected [4]',
    ],
    [
      'keys of another width',
      bent(
        remembering(),
        'cache.memory',
        inputs((n) => n.with(1, 'wide')),
      ),
      '"wide" has shape [7]',
    ],
    [
      'logits that are gates',
      bent(
        remembering(),
        'cache.memory',
        inputs((n) => n.with(6, 'gates')),
      ),
      'must be a constant vector',
    ],
    [
      'too many levels',
      remembering({ ...FORM, periods: [1, 4] }, 3),
      '"M" has shape [3, 2, 3, 3] of f32, expected [2, 2, n, n]',
    ],
    ['a buffer for each level', remembering(FORM, K, 2), '"G" has shape [2, 2, 3, 3] of f32, expected [1, 2, n, n]'],
    [
      'a buffer without a clock',
      bent(remembering({ ...FORM, rule: 'delta', retention: 'none' }), 'cache.mix', (node, graph) => {
        delete node.segment
        graph.declarations = graph.declarations.filter(({ name }) => name !== 'clock')
      }),
      'node cache.memory "y": has a period above 1, but the graph has no clock',
    ],
    [
      'segments without a clock',
      bent(
        remembering({ ...FORM, rule: 'delta', retention: 'none', periods: [1, 1] }, K, 0),
        'cache.mix',
        (_, graph) => {
          graph.declarations = graph.declarations.filter(({ name }) => name !== 'clock')
        },
      ),
      'has a segment, but the graph has no clock',
    ],
    [
      'a mix of other heads',
      bent(remembering(), 'cache.mix', set({ groups: 4 })),
      '"M" has shape [2, 2, 3, 3] of f32, expected [1, 4, n, n]',
    ],
    [
      'a mix into other shapes',
      bent(remembering(), 'cache.mix', set({ state: 'M(0,0)' })),
      'has shape [3, 3], expected [2, 3, 3]',
    ],
    [
      'a recall of all levels',
      bent(remembering(), 'cache.recall', set({ state: 'M' })),
      'has shape [2, 2, 3, 3], expected [2, 3, 3]',
    ],
    [
      'a recall by more channels',
      bent(
        remembering(),
        'cache.recall',
        inputs(() => ['wide']),
      ),
      'cannot split 7 channels into 2',
    ],
    [
      'two first states',
      bent(
        remembering(),
        'cache.memory.first',
        inputs(() => ['init', 'init']),
      ),
      'has 2 inputs, expected at most one',
    ],
    [
      'a first state of one level',
      bent(remembering(), 'cache.memory.first', set({ periods: [1] })),
      'expected [1, 2, n, n]',
    ],
    [
      'a first state too short',
      bent(
        remembering(),
        'cache.memory.first',
        inputs(() => ['taps']),
      ),
      'has shape [18], expected [36]',
    ],
    [
      'a block "first" with inputs',
      bent(remembering(), 'cache.memory.first', (_, graph) => {
        graph.blocks.find(({ name }) => name === 'first')!.inputs.push('x')
      }),
      'block "first" runs when the model is loaded and takes no inputs',
    ],
    [
      'a block "first" that counts',
      bent(remembering(), 'cache.memory.first', (_, graph) => {
        graph.declarations.push({ kind: 'persistent', name: 'n', counter: true })
        graph.blocks.find(({ name }) => name === 'first')!.nodes.unshift({ op: 'cache.increment', in: [], state: 'n' })
      }),
      'block "first" moves no counters',
    ],
  ])('%s', async (_, graph, says) => {
    expect(await errorOf(() => checkGraph(graph))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining(says),
    })
  })

  it('a head has at most 256 channels', async () => {
    const wide = (n: number): Graph => {
      const g = buildGraph()
      const x = g.dynamic('x', [n], 'f32')
      g.block('run', [x], () => ({ y: g.cacheRecall('y', g.table('M', [1, n, n])(), x, 1) }))
      g.block('first', [], () => {
        g.cacheMemoryFirst({ state: 'L' } as State, null, { ...FORM, periods: [1], heads: 1 })
        g.table('L', [1, 1, n, n])
        return {}
      })
      return g.finish()
    }
    checkGraph(wide(256))
    expect((await errorOf(() => checkGraph(wide(257)))).message).toContain('with n at most 256')
  })

  it('a segment says nothing to attention that has none', () => {
    // "segment" is a member of cache.attend; attend ignores it, as it ignores all members it does not know.
    const graph = graphOf(({ g, x }) => {
      const n = g.counter('n', { max: 9 })
      const T = g.table('T', [autoDim(n), C])
      g.cacheIncrement(n)
      g.cacheWrite(T(plus(n, -1)), x)
      return g.attend('y', x, T(), T(), { heads: H, scale: 1 })
    })
    expect(planGraph(bent(graph, 'attend', set({ segment: 3 })))).toEqual(planGraph(graph))
  })
})
