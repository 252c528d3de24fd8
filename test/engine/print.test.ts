/** A graph as text: every form it has, every name in it, and nothing invented. */
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { figuresOf, unroll } from '../../src/cli/show/unroll.ts'
import { buildGraph } from '../../src/engine/builder.ts'
import { autoDim, pattern, plus, ref, ring, type Value } from '../../src/engine/builder-types.ts'
import type { Graph, Node } from '../../src/engine/graph.ts'
import { inspectTensors } from '../../src/engine/inspect.ts'
import type { TensorEntry } from '../../src/engine/native.ts'
import { planGraph } from '../../src/engine/plan.ts'
import { aligned, persistentSizes, printGraph, storedConstants } from '../../src/engine/print.ts'
import { readConfig } from '../../src/models/files/package.ts'
import { families } from '../../src/models/index.ts'
import { hasShared, sharedModel } from './paths.ts'

/**
 * One of everything: loop, branches on an index and on a value, an early return, a table, a ring, growth, families,
 * quantisation.
 */
const everything = (): Graph => {
  const g = buildGraph()
  const l = g.index('l', 3)
  const emb = g.lookup('emb', [50, 64], ref('emb.weight'))
  const scale = g.vector('scale', 64, { ref: 'scales.all', row: 2 })
  const W = g.matrices('W', [64, 64], pattern('{l}.W', { storage: 'q8', scales: '{l}.W.scales', group: 32 }), {
    over: l,
    from: 1,
  })
  const head = g.matrix('head', [8, 64], ref('head', { transposed: true }))
  const norm = { weight: g.vector('n.w', 64, ref('n.w')), bias: g.vector('n.b', 64, ref('n.b')) }
  const seen = g.counter('seen')
  const length = g.counter('length', { max: 4096 })
  const S = g.table('S', [l, 64], { init: 0.5 })
  const window = g.table('window', [l, ring(256, seen), 64])
  const K = g.table('K', [autoDim(length), 64])
  const kept = g.table('kept', [64], { dtype: 'bf16' })
  const token = g.dynamic('token', [], 'i32')
  const stop = g.dynamic('stop', [], 'bool')
  g.block('step', [token, stop], () => {
    const x = g.norm('x', g.embed('e', token, emb), norm.weight, norm.bias, { groups: 2, eps: 1e-5 })
    g.cacheIncrement(length)
    g.cacheWrite(K(plus(length, -1)), x)
    g.loop(l, {}, () => {
      const before = g.cacheShift('before', S(l), x)
      g.branch(
        { index: l, equals: 0 },
        () => void g.mul('y', before, scale),
        () => void g.matmul('y', before, W(l)),
      )
      const y: Value = { name: 'y', shape: [64], dtype: 'f32' }
      g.cacheIncrement(seen, 2)
      g.cacheWrite(window(l, plus(seen, -1)), y)
      g.add('x', x, g.attend('a', y, window(l), window(l), { heads: 4, scale: 1 / Math.sqrt(16) }))
    })
    const odd = g.equal('odd', g.remainder('rest', token, 2), 1)
    g.branch(odd, () => {
      g.cacheWrite(kept(), g.cast('narrow', x, 'bf16'))
      g.cacheReset(window(0, 0))
    })
    g.branch(stop, () => {
      g.tanh('out', x)
      g.returns({ out: { name: 'out', shape: [64], dtype: 'f32' } })
    })
    return { out: g.attend('out', x, K(), K(), { heads: 2, scale: 0.1234567891 }) }
  })
  g.block('short', [token], () => {
    const part = g.slice('part', g.embed('e', token, emb), 0, 64)
    return { logits: g.matmul('logits', part, head) }
  })
  return g.finish()
}

const tensors: readonly TensorEntry[] = [
  { name: 'emb.weight', dtype: 'BF16', shape: [50, 64], file: 0, offset: 0, bytes: 6400 },
  { name: 'scales.all', dtype: 'F16', shape: [4, 1, 64], file: 0, offset: 0, bytes: 512 },
  ...[1, 2].flatMap((l) => [
    { name: `${l}.W`, dtype: 'I8', shape: [64, 64], file: 0, offset: 0, bytes: 4096 },
    { name: `${l}.W.scales`, dtype: 'F16', shape: [64, 2], file: 0, offset: 0, bytes: 256 },
  ]),
  { name: 'head', dtype: 'F32', shape: [64, 8], file: 0, offset: 0, bytes: 2048 },
  { name: 'n.w', dtype: 'F32', shape: [64], file: 0, offset: 0, bytes: 256 },
  { name: 'n.b', dtype: 'F32', shape: [64], file: 0, offset: 0, bytes: 256 },
]

/** Every node with its own words: what it writes, its op, its operands. */
const wordsOf = (nodes: readonly Node[]): readonly (readonly string[])[] =>
  nodes.flatMap((node): readonly (readonly string[])[] => {
    const { op, in: inputs = [], out, state, loop, branch, return: results } = node as unknown as Record<string, never>
    if (results !== undefined) return [['return', ...Object.entries(results).map(([role, name]) => `${role}: ${name}`)]]
    if (op !== undefined)
      return [[op, ...inputs, ...(out === undefined ? [] : [out]), ...(state === undefined ? [] : [state])]]
    const { nodes: then, otherwise = [] } = node as unknown as { nodes: readonly Node[]; otherwise?: readonly Node[] }
    return [[loop === undefined ? `if ${branch}` : `loop ${loop}`], ...wordsOf(then), ...wordsOf(otherwise)]
  })

const expectComplete = (graph: Graph): void => {
  const lines = printGraph(graph)
  for (const { name } of graph.declarations) {
    expect(
      lines.some((line) => line.match(/[^\s,]+/g)?.some((word) => word === name || word.startsWith(`${name}(`))),
    ).toBe(true)
  }
  for (const block of graph.blocks) {
    const from = lines.findIndex((line) => line.startsWith(`block ${block.name}(`))
    // One line a node, in the written order.
    let at = from
    for (const words of wordsOf(block.nodes)) {
      at += 1
      while (lines[at]?.trim() === 'else') at += 1
      for (const word of words) expect(lines[at]).toContain(word)
    }
  }
}

const packageGraph = async (dir: string): Promise<Graph> => {
  const config = await readConfig(dir)
  return families.get(config.model_type)!.build(config, inspectTensors(join(dir, 'model.safetensors'))).graph
}
const demo = join(import.meta.dirname, '..', '..', 'models', 'demo')

describe('a graph as text', () => {
  it('has every form there is', () => {
    expect(`\n${printGraph(everything(), { tensors }).join('\n')}\n`).toMatchInlineSnapshot(`
      "
      indices
        l = 0 … 2

      constants
        emb             [50, 64]  rows    emb.weight           BF16          6,400 B
        scale           [64]      vector  row 2 of scales.all  F16             128 B
        W(l), l from 1  [64, 64]  packed  {l}.W                q8, group 32  8,704 B
        head            [8, 64]   packed  head, transposed     F32           2,048 B
        n.w             [64]      vector  n.w                  F32             256 B
        n.b             [64]      vector  n.b                  F32             256 B

      dynamics
        token  []  i32
        stop   []  bool

      persistents
        seen    counter                    i64   init 0          8 B
        length  counter to 4,096           i64   init 0          8 B
        S       [l, 64]                    f32   init 0.5      768 B
        window  [l, ring 256 by seen, 64]  f32   init 0    196,608 B
        K       [grows with length, 64]    f32   init 0          0 B  and 256 B a position
        kept    [64]                       bf16  init 0        128 B

      volatiles
        [64]  f32   256 B a row  e, x, before, y, a, out, part
        []    i32     4 B a row  rest
        []    bool    1 B a row  odd
        [64]  bf16  128 B a row  narrow
        [8]   f32    32 B a row  logits

      block step(token, stop)
        e                   = embed(token, emb)                                                    [64]
        x                   = norm(e, n.w, n.b)                groups 2, eps 1e-5                  [64]
        length              ← cache.increment()                by 1
        K(length-1)         ← cache.write(x)
        loop l = 0 … 2
          before            = cache.shift(x; S(l))                                                 [64]
          if l = 0
            y               = mul(before, scale)                                                   [64]
          else
            y               = matmul(before, W(l))                                                 [64]
          seen              ← cache.increment()                by 2
          window(l,seen-1)  ← cache.write(y)
          a                 = attend(y, window(l), window(l))  groups 4, shared 1, scale 0.25      [64]
          x                 = add(x, a)                                                            [64]
        rest                = remainder(token, 2)                                                  [] i32
        odd                 = equal(rest, 1)                                                       [] bool
        if odd
          narrow            = cast(x)                          dtype bf16                          [64] bf16
          kept              ← cache.write(narrow)
          window(0,0)       ← cache.reset()
        if stop
          out               = tanh(x)                                                              [64]
          return out: out
        out                 = attend(x, K, K)                  groups 2, shared 1, scale 0.123457  [64]
        return out: out

      block short(token)
        e       = embed(token, emb)                  [64]
        part    = slice(e)            from 0, to 64  [64]
        logits  = matmul(part, head)                 [8]
        return logits: logits
      "
    `)
  })

  it('names every declaration and every node, in the written order', async () => {
    expectComplete(everything())
    expectComplete(await packageGraph(demo))
  })

  it('says what follows a block where it is asked to, and nothing of a file it was not told of', () => {
    const lines = printGraph(everything(), { after: ({ name }) => [`-- ${name}`] })
    expect(lines.filter((line) => line.startsWith('--'))).toEqual(['-- step', '-- short'])
    expect(lines.join('\n')).not.toMatch(/BF16|\bB +$/)
    expect(lines.join('\n')).toContain('q8, group 32')
  })

  it('counts the bytes that the file and a context hold', () => {
    expect(storedConstants(everything(), tensors)).toEqual([
      { name: 'emb', members: 1, stored: 'BF16', bytes: 6400 },
      { name: 'scale', members: 1, stored: 'F16', bytes: 128 },
      { name: 'W', members: 2, stored: 'q8, group 32', bytes: 2 * (4096 + 256) },
      { name: 'head', members: 1, stored: 'F32', bytes: 2048 },
      { name: 'n.w', members: 1, stored: 'F32', bytes: 256 },
      { name: 'n.b', members: 1, stored: 'F32', bytes: 256 },
    ])
    expect(persistentSizes(everything())).toEqual([
      { name: 'seen', bytes: 8, bytesPerPosition: 0 },
      { name: 'length', bytes: 8, bytesPerPosition: 0 },
      { name: 'S', bytes: 3 * 64 * 4, bytesPerPosition: 0 },
      { name: 'window', bytes: 3 * 256 * 64 * 4, bytesPerPosition: 0 },
      { name: 'K', bytes: 0, bytesPerPosition: 256 },
      { name: 'kept', bytes: 128, bytesPerPosition: 0 },
    ])
  })

  it('unrolls to as many lines as the engine does', async () => {
    for (const graph of [everything(), await packageGraph(demo)]) {
      for (const plan of planGraph(graph)) {
        const block = graph.blocks.find(({ name }) => name === plan.name)!
        expect(unroll(graph, block)).toHaveLength(plan.lines)
        const { nodes, alone, inStages, rowByRow } = figuresOf(graph, block, plan)
        expect(alone + inStages + rowByRow).toBe(nodes)
      }
    }
    // Six lines in each of three turns of the loop; a branch on a value is one line, whatever its arms hold.
    const [step] = everything().blocks
    const lines = unroll(everything(), step!)
    expect(lines.map(({ turns }) => turns.map(([, turn]) => turn).join()).join('')).toBe('000000111111222222')
    expect(lines.slice(-3).map(({ nodes }) => nodes)).toEqual([3, 1, 1])
    const figures = figuresOf(everything(), step!, planGraph(everything())[0]!)
    expect(figures.serialStages.at(-1)!.last).toBe(lines.length - 1)
    expect(figures.rowByRow).toBeGreaterThan(0)
  })

  it('aligns columns, leaves out those with nothing in them, and lets whole lines pass', () => {
    expect(aligned([['a', '', '1'], 'a line of its own', ['bbb', '', '22']], [2])).toEqual([
      'a     1',
      'a line of its own',
      'bbb  22',
    ])
  })
})

describe('volatile memory planned by liveness takes at most 40 % of what it would', () => {
  const expectSmall = async (dir: string): Promise<void> => {
    const [step] = planGraph(await packageGraph(dir))
    expect(step!.name).toBe('step')
    expect(step!.peak / step!.peakWithoutReuse).toBeLessThanOrEqual(0.4)
  }

  it('in the shipped model', () => expectSmall(demo))

  it.skipIf(!hasShared).each(['tiny-rwkv7', 'rwkv7-reverse'])('in %s', (name) => expectSmall(sharedModel(name)))
})
