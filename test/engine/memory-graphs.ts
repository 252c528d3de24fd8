/** Small graphs with a clock, rings, convolutions and matrix memories, and ways to spoil them. */
import { buildGraph, type GraphBuilder } from '../../src/engine/builder.ts'
import { ref, ring, type State, type Value } from '../../src/engine/builder-types.ts'
import type { Graph } from '../../src/engine/graph.ts'
import type { Keys, MemoryForm } from '../../src/engine/memory-ops.ts'
import { random, type Tensor } from './packages.ts'

/** 2 heads of 3 channels, 2 levels. */
export const [C, H, N, K] = [6, 2, 3, 2]
export const FORM = { rule: 'titans', retention: 'l2', periods: [1, 4], heads: H } as const
const next = random(5)
export const weights = new Map(
  Object.entries({ taps: [C, 3], gain: [C], learned: [C, 2], logits: [K, H], init: [K, H, N, N] }).map(
    ([name, shape]): [string, Tensor] => {
      const length = shape.reduce((product, extent) => product * extent, 1)
      return [name, { shape, data: Float32Array.from({ length }, () => next() - 0.5) }]
    },
  ),
)

const kit = (g: GraphBuilder) => ({
  x: g.dynamic('x', [C], 'f32'),
  at: g.dynamic('at', [], 'i32'),
  wide: g.dynamic('wide', [C + 1], 'f32'),
  gates: g.dynamic('gates', [K * H], 'f32'),
  gain: g.vector('gain', C, ref('gain')),
  taps: g.vector('taps', 3 * C, ref('taps')),
  learned: g.vector('learned', 2 * C, ref('learned')),
  logits: g.vector('logits', K * H, ref('logits')),
  init: g.vector('init', K * H * N * N, ref('init')),
})
export type Kit = ReturnType<typeof kit> & { readonly g: GraphBuilder }

/** One block over the kit's inputs. */
export const graphOf = (body: (kit: Kit) => Value | undefined, first?: (kit: Kit) => void): Graph => {
  const g = buildGraph()
  const all = { g, ...kit(g) }
  g.block('run', [all.x, all.at, all.wide, all.gates], () => ({ y: body(all) ?? g.tanh('y', all.x) }))
  if (first) {
    g.block('first', [], () => {
      first(all)
      return {}
    })
  }
  return g.finish()
}

interface Loose {
  declarations: Record<string, unknown>[]
  blocks: { name: string; inputs: string[]; nodes: Record<string, unknown>[] }[]
}
/** The graph after a change to the one node of this operation, or to all of its JSON. */
export const bent = (
  graph: Graph,
  op: string,
  change: (node: Record<string, unknown>, graph: Loose) => void,
): Graph => {
  const copy = structuredClone(graph) as unknown as Loose
  const node = copy.blocks.flatMap(({ nodes }) => nodes).find((each) => each.op === op)
  if (!node) throw new Error(`there is no ${op}`)
  change(node, copy)
  return copy as unknown as Graph
}
export const set = (members: Record<string, unknown>) => (node: Record<string, unknown>) =>
  void Object.assign(node, members)
export const without = (member: string) => (node: Record<string, unknown>) => void delete node[member]
export const inputs = (change: (names: string[]) => string[]) => (node: Record<string, unknown>) =>
  void Object.assign(node, { in: change(node.in as string[]) })

/** Attention over rings of `places`, for one row of keys or with context and persistent tokens. */
export const attending = ({
  keys = 8,
  values = 8,
  context = 8,
  contextValues = 8,
  channels = C,
  segment = 0,
} = {}): Graph =>
  graphOf(({ g, x, learned }) => {
    const clock = g.clock('clock')
    const table = (name: string, places: number): State => g.table(name, [ring(places, clock), channels])()
    const own: Keys = { k: x, v: x, keys: table('K', keys), values: table('V', values) }
    const more: Keys = { k: x, v: x, keys: table('HK', context), values: table('HV', contextValues) }
    const persistent = { q: x, keys: learned, values: learned }
    const options = { heads: H, scale: 1, context: more, persistent, ...(segment > 0 ? { segment } : {}) }
    return g.cacheAttend('y', x, own, options)
  })

/** Memory, mix and recall of one layer. */
export const remembering = (form: MemoryForm & { heads: number } = FORM, levels = K, slow = 1): Graph =>
  graphOf(
    ({ g, x, gates, logits }) => {
      g.clock('clock')
      const M = g.table('M', [levels, H, N, N])
      const momentum = form.rule === 'titans' ? g.table('S', [levels, H, N, N])() : undefined
      const buffer = slow > 0 ? g.table('G', [slow, H, N, N])() : undefined
      const mixed = g.table('mixed', [H, N, N])
      g.cacheMix(mixed(), M(), logits, { heads: H, segment: 6 })
      g.cacheRecall('c', mixed(), x, H)
      const eta = form.rule === 'titans' ? gates : undefined
      const alpha = ['l2', 'kl', 'elastic'].includes(form.retention) ? gates : undefined
      return g.cacheMemory(
        'y',
        { M: M(), momentum, buffer },
        { q: x, k: x, v: x, theta: gates, eta, alpha, logits },
        form,
      )
    },
    ({ g, init }) => g.cacheMemoryFirst({ state: 'M' } as State, init, form),
  )
export const convolving = (shape = [2, C]): Graph =>
  graphOf(({ g, x, taps }) => g.cacheConv('y', g.table('tail', shape)(), x, taps))
export const turning = (counter: 'clock' | 'counter' = 'clock'): Graph =>
  graphOf(({ g, x }) => {
    const by = counter === 'clock' ? g.clock('c') : g.counter('c')
    if (counter === 'counter') g.cacheIncrement(by)
    return g.rope('y', x, by, { heads: 1, increments: [1, 2, 3] })
  })
export const ranging = graphOf(({ g, gates, x }) => {
  g.range('z', gates, { low: [0, 0.5], high: [1, 2] })
  return g.tanh('y', x)
})
export const normed = graphOf(({ g, x, gain }) =>
  g.unit('y', g.rmsnorm('n', x, gain, { eps: 1 }), { groups: 2, eps: 1 }),
)
