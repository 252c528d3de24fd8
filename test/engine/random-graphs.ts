/** Graphs at random: memory of every kind, branches, loops, early ends; rows for them, and what running them leaves. */
import { join } from 'node:path'
import fc from 'fast-check'
import { buildGraph } from '../../src/engine/builder.ts'
import { autoDim, type Counter, pattern, plus, ref, ring, type Value } from '../../src/engine/builder-types.ts'
import type { Executor } from '../../src/engine/executor-types.ts'
import type { Graph } from '../../src/engine/graph.ts'
import type { Model } from '../../src/engine/types.ts'
import { ContinuoError } from '../../src/errors.ts'
import { random, safetensors, type Tensor, writePackage } from './packages.ts'

const C = 4
const next = random(11)
const tensor = (...shape: number[]): Tensor => ({
  shape,
  data: Float32Array.from({ length: shape.reduce((a, b) => a * b, 1) }, () => next() - 0.5),
})
const weights = new Map([
  ...[0, 1, 2].map((l): [string, Tensor] => [`W.${l}`, tensor(C, C)]),
  ['skip', tensor(2)] as [string, Tensor],
  ['b', tensor(C)] as [string, Tensor],
  ['taps', tensor(C, 3)] as [string, Tensor],
  ['levels', tensor(2, 2)] as [string, Tensor],
])

/** Of the clock: steps do not cross one. */
const SEGMENT = 6

/** A graph drawn from `seed`: the same seed, the same graph. */
export const graphOf = (seed: number): Graph => {
  const draw = random(seed)
  const below = (n: number): number => Math.floor(draw() * n)
  const g = buildGraph()
  const l = g.index('l', 3)
  const W = g.matrices('W', [C, C], pattern('W.{l}'), { over: l })
  const part = g.part('part', l, below(2) ? [1] : [0, 2])
  const some = g.matrices('some', [C, C], pattern('W.{part}'), { over: part })
  const b = g.vector('b', C, ref('b'))
  const free = g.counter('free')
  const bounded = g.counter('bounded', { max: 500 })
  const moody = g.counter('moody', { max: 500 })
  const counters: readonly Counter[] = [free, bounded, moody]
  const S = g.table('S', [l, 3, C], { init: 0.25 })
  const narrow = g.table('narrow', [C], { dtype: 'bf16' })
  const R = g.table('R', [5, C])
  const rings = [g.table('ring.free', [ring(3, free), C]), g.table('ring.moody', [ring(4, moody), C])]
  const grown = [
    g.table('grown.bounded', [l, autoDim(bounded), C], { init: 0.5 }),
    g.table('grown.moody', [l, autoDim(moody), C]),
  ]
  // What follows the clock, and what one head after the other keeps: 2 heads of 2 channels.
  const clock = g.clock('clock')
  const keys = g.table('clock.k', [l, ring(SEGMENT + 1, clock), C])
  const values = g.table('clock.v', [l, ring(SEGMENT + 1, clock), C])
  const shifted = g.table('shifted', [5, C])
  const tails = g.table('tails', [5, 2, C])
  const scans = g.table('scans', [5, 2, 2, 2])
  const M = g.table('M', [l, 2, 2, 2, 2])
  const G = g.table('G', [l, 1, 2, 2, 2])
  // What every row finds as the file has it, and what grows along two counters.
  const fast = g.volatileTables('fast', [1, C, C], pattern('W.{l}'), { over: l })
  const board = g.table('board', [autoDim(bounded), 2, autoDim(moody), C], { init: 0.125 })
  const mixed = g.table('mixed', [5, 2, 2, 2])
  const [taps, levels] = [g.vector('taps', 3 * C, ref('taps')), g.vector('levels', 4, ref('levels'))]
  const skip = g.vector('skip', 2, ref('skip'))
  const x = g.dynamic('x', [C], 'f32')
  const yes = g.dynamic('yes', [], 'bool')
  const at = g.dynamic('at', [], 'i32')

  g.block('run', [x, yes, at], () => {
    let fresh = 0
    let shifts = 0
    const name = (): string => `v${fresh++}`
    const y = g.tanh('y', x)
    const body = (known: Value[], depth: number, looping: boolean): void => {
      const pick = (): Value => known[below(known.length)]!
      const member = () => (looping && below(2) === 0 ? l : below(3))
      for (let n = 2 + below(5); n > 0; n -= 1) {
        const choice = below(31)
        const anywhere = () => (below(2) ? at : below(5))
        const segment = below(2) ? { segment: SEGMENT } : {}
        if (choice === 0) known.push(g.add(name(), pick(), below(2) ? pick() : b))
        else if (choice === 1) known.push(g.tanh(name(), pick()))
        else if (choice === 2) known.push(g.matmul(name(), pick(), W(member())))
        else if (choice === 3) g.lerp('y', y, pick(), pick())
        else if (choice === 4) known.push(g.cacheRead(name(), S(member(), below(3))))
        else if (choice === 5) g.cacheWrite(S(member(), below(3)), g.tanh(name(), pick()))
        else if (choice === 6) g.cacheWrite(R(at), pick())
        else if (choice === 7) known.push(g.cacheRead(name(), R(below(2) ? at : below(5))))
        else if (choice === 8 && depth === 0 && shifts < 3) {
          known.push(g.cacheShift(name(), g.table(`p${shifts++}`, [C])(), pick()))
        } else if (choice === 9) {
          const counter = counters[below(3)]!
          // A position is entered and written; elsewhere what was entered is attended to.
          g.cacheIncrement(counter)
          const value = g.tanh(name(), pick())
          if (counter === free) g.cacheWrite(rings[0]!(plus(free, -1)), value)
          else if (counter === bounded) g.cacheWrite(grown[0]!(member(), plus(bounded, -1)), value)
          else {
            g.cacheWrite(rings[1]!(plus(moody, -1)), value)
            g.cacheWrite(grown[1]!(member(), plus(moody, -1)), value)
          }
          const table = counter === free ? rings[0]!() : grown[counter === bounded ? 0 : 1]!(member())
          if (below(2)) known.push(g.attend(name(), pick(), table, table, { heads: 2, scale: 0.5 }))
        } else if (choice === 10) {
          const value = g.cast(name(), pick(), 'bf16')
          g.cacheWrite(narrow(), value)
        } else if (choice === 11) known.push(g.cast(name(), g.cacheRead<'bf16'>(name(), narrow()), 'f32'))
        else if (choice === 12 && depth < 2) {
          const inner = [...known]
          const other = [...known]
          g.branch(
            yes,
            () => {
              body(inner, depth + 1, looping)
              if (below(4) === 0) g.returns({ y })
            },
            below(2) ? () => body(other, depth + 1, looping) : undefined,
          )
        } else if (choice === 13 && !looping && depth === 0) g.loop(l, {}, () => body([...known], depth + 1, true))
        else if (choice === 14 && looping) {
          g.branch({ index: l, equals: below(3) }, () => body([...known], 2, looping))
        } else if (choice === 24 && looping) {
          const own = pick()
          const inside = (): void => void g.lerp('y', y, g.matmul(name(), own, some(part)), b)
          g.branch({ within: part }, inside, below(2) ? () => body([...known], 2, looping) : undefined)
        } else if (choice === 15) g.cacheReset(below(2) ? S(member()) : below(3) === 0 ? moody : R())
        else if (choice === 16) {
          const turned = { heads: below(2) + 1, increments: [683565276] }
          known.push(g.rope(name(), pick(), [clock, ...counters][below(4)]!, turned))
        } else if (choice === 17) {
          const own = { k: pick(), v: g.tanh(name(), pick()), keys: keys(member()), values: values(member()) }
          known.push(g.cacheAttend(name(), pick(), own, { heads: 2, scale: 0.5, ...segment }))
        } else if (choice === 18) {
          const options = {
            bias: below(2) ? b : undefined,
            activation: below(2) ? ('silu' as const) : ('none' as const),
          }
          known.push(g.cacheConv(name(), tails(anywhere()), pick(), taps, options))
        } else if (choice === 25) {
          const pair = g.slice(name(), g.sigmoid(name(), pick()), 0, 2)
          const [B, K] = [g.tanh(name(), pick()), below(2) ? pick() : g.slice(name(), pick(), 2, 4)]
          const keys = K.shape[0] === 2 ? g.slice(name(), B, 0, 2) : B
          const operands = { x: pick(), dt: pair, w: pair, B: keys, C: K, D: skip }
          known.push(g.cacheSsm(name(), scans(anywhere()), operands, 2))
        } else if (choice === 27) {
          const row = below(2) ? g.remainder(name(), at, C) : below(C)
          if (below(4) === 0) g.cacheReset(fast(member()))
          g.cacheWrite(fast(member(), 0, row), g.tanh(name(), pick()))
        } else if (choice === 28) known.push(g.cacheRecall(name(), fast(member()), pick(), 1))
        else if (choice === 29) {
          g.cacheIncrement(bounded)
          g.cacheIncrement(moody)
          const part = below(2)
          g.cacheWrite(board(plus(bounded, -1), part, plus(moody, -1)), g.tanh(name(), pick()))
          if (below(2)) known.push(g.cacheRead(name(), board(plus(bounded, -1), below(2), plus(moody, -1))))
        } else if (choice === 30) {
          if (below(2)) known.push(g.cacheShift(name(), fast(member(), 0, below(C)), pick()))
          else known.push(g.cacheRead(name(), fast(member(), 0, below(C))))
        } else if (choice === 26) {
          const half = g.slice(name(), pick(), 1, 3)
          const wide = g.repeat(name(), half, { groups: 1 + below(2), times: 2 })
          known.push(g.exp(name(), g.clamp(name(), wide, { low: [-2, 0], high: [0.5, 1] })))
        } else if (choice === 19) {
          const [q, k, v] = [pick(), pick(), pick()].map((each) => g.unit(name(), each, { groups: 2, eps: 0.1 }))
          const [theta, alpha] = [pick(), pick()].map((each) =>
            g.range(name(), each, { low: [0, 0.1], high: [1, 0.3] }),
          )
          const form = { rule: 'delta', retention: 'l2', periods: [1, 4], norm_max: 2, heads: 2 } as const
          const layer = member()
          const gates = { theta: theta!, alpha: alpha!, logits: levels }
          known.push(g.cacheMemory(name(), { M: M(layer), buffer: G(layer) }, { q: q!, k: k!, v: v!, ...gates }, form))
        } else if (choice === 20) {
          g.cacheMix(mixed(anywhere()), M(member()), levels, { heads: 2, ...segment })
          if (below(2)) known.push(g.cacheRecall(name(), mixed(anywhere()), pick(), 2))
        } else if (choice === 21) {
          known.push(g.cacheShift(name(), shifted(anywhere()), pick()))
          if (below(2)) known.push(g.cacheRecall(name(), mixed(anywhere()), pick(), 2))
        } else if (choice === 22) {
          const shares = g.softmax(name(), g.scale(name(), pick(), -1.5))
          const chosen = g.gather(name(), shares, g.topk(name(), shares, 3))
          known.push(g.combine(name(), g.cacheRead(name(), S(member())), g.normalise(name(), chosen)))
        } else if (choice === 23) known.push(g.scale(name(), pick(), 0.75))
        if (known.length > 8) known.splice(0, known.length - 8)
      }
    }
    body([x, y], 0, false)
    body([x, y], 0, false)
    return { y }
  })
  const graph = g.finish()
  // Persistents that no node came to use are not part of the graph.
  const text = JSON.stringify(graph.blocks)
  const used = (declared: string): boolean => text.includes(`"${declared}"`) || text.includes(`"${declared}(`)
  const follows = new Set(
    graph.declarations.flatMap((d) => {
      if (d.kind !== 'persistent' || 'counter' in d || !used(d.name)) return []
      return d.axes.flatMap((axis) =>
        typeof axis === 'number' || 'index' in axis ? [] : ['ring' in axis ? axis.counter : axis.grows],
      )
    }),
  )
  if (text.includes('"segment"') || text.includes('"periods"')) follows.add('clock')
  return {
    ...graph,
    declarations: graph.declarations.filter((d) => d.kind !== 'persistent' || used(d.name) || follows.has(d.name)),
  }
}

export interface Row {
  readonly x: readonly number[]
  readonly yes: number
  readonly at: number
}

/** Gives the rows of a step to the three inputs `x`, `yes` and `at`. */
export const insertRows = (executor: Executor, part: readonly Row[]): void => {
  executor.insert(
    'x',
    part.flatMap(({ x }) => x),
  )
  executor.insert(
    'yes',
    part.map(({ yes }) => yes),
  )
  executor.insert(
    'at',
    part.map(({ at }) => at),
  )
}

/** Everything the rows leave, or what stopped them, with each step as long as `cuts` says in turn. */
export const outcome = async (
  model: Model,
  rows: readonly Row[],
  cuts: readonly number[],
  memoryReuse: boolean,
  segments: boolean,
): Promise<string> => {
  const executor = model.createExecutor({ memoryReuse })
  const out: string[] = []
  for (let from = 0, i = 0; from < rows.length; i += 1) {
    const part = rows.slice(from, from + Math.min(cuts[i % cuts.length]!, segments ? SEGMENT - (from % SEGMENT) : 60))
    from += part.length
    insertRows(executor, part)
    try {
      await executor.step()
    } catch (error) {
      // Rows of one step after a fault are not rows that ran: only that it happened is comparable.
      if (error instanceof ContinuoError && error.code === 'REFUSED') return 'refused'
      throw error
    }
    out.push(Buffer.from(executor.fetch('y').data.buffer).toString('hex'))
  }
  return out.join('') + Buffer.from(executor.context.serialize()).toString('hex')
}

export const rowOf = fc.record({
  x: fc.array(fc.float({ min: -2, max: 2, noNaN: true }), { minLength: C, maxLength: C }),
  yes: fc.integer({ min: 0, max: 1 }),
  at: fc.integer({ min: 0, max: 4 }),
})

/** One to 60 rows, and lengths of the steps that take them. */
export const rowsOf = fc.array(rowOf, { minLength: 1, maxLength: 60 })
export const cutsOf = fc.array(fc.integer({ min: 1, max: 40 }), { minLength: 1, maxLength: 5 })

/** A safetensors file with the weights that the graphs name. */
export const weightsPath = (): string => join(writePackage({}, safetensors(weights)), 'model.safetensors')

/** Whether steps of the graph must end where a segment of the clock does. */
export const hasSegments = (graph: Graph): boolean => JSON.stringify(graph.blocks).includes('"segment"')
