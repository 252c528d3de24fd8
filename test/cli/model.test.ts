// @module-tag slow
import { cpSync, mkdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Graph } from '../../src/engine/graph.ts'
import { inspectTensors } from '../../src/engine/inspect.ts'
import { checkGraph, planGraph } from '../../src/engine/plan.ts'
import { readConfig } from '../../src/models/files/package.ts'
import { families } from '../../src/models/index.ts'
import { openModel } from '../../src/models/open.ts'
import { errorOf } from '../engine/helpers.ts'
import { randomRwkv7, safetensors, writePackage } from '../engine/packages.ts'
import { continuo, json, MODEL, temporary } from './helpers.ts'

interface Shown {
  readonly graph: Graph
  readonly fingerprint: string
  readonly layoutFingerprint: string
  readonly parameters: number
  readonly contextBytes: number
  readonly constants: readonly { readonly name: string; readonly stored: string; readonly bytes: number }[]
  readonly blocks: readonly { readonly name: string; readonly nodes: number; readonly peak: number }[]
  readonly plans?: unknown
  readonly trace?: {
    readonly tokens: number
    readonly microseconds: number
    readonly nodes: readonly { readonly node: string; readonly microseconds: number }[]
    readonly ops: readonly { readonly op: string; readonly nodes: number; readonly microseconds: number }[]
  }
}

const built = async (dir: string): Promise<Graph> =>
  families.get('rwkv7')!.build(await readConfig(dir), inspectTensors(join(dir, 'model.safetensors'))).graph

describe('continuo model show', () => {
  it('prints head, memory, code and figures of the shipped model', async () => {
    const { code, out, err } = await continuo(['model', 'show', MODEL])
    expect({ code, err }).toEqual({ code: 0, err: '' })
    for (const line of [
      /^parameters +3,131,328;/m,
      /^tokenizer +bytes; 256 tokens$/m,
      /^ {2}l = 0 … 5$/m,
      /^ {2}att\.v1\(l\), l from 1 +\[32, 192\] +packed +blocks\.\{l\}\.att\.v1, transposed +BF16 +61,440 B$/m,
      /^ {2}att\.S +\[l, 3, 64, 64\] +f32 +init 0 +294,912 B$/m,
      /^ {2}loop l = 0 … 5$/m,
      /^ {4}att\.before += cache\.shift\(att\.u; att\.p\(l\)\) +\[192\]$/m,
      /^ {2}return hidden: hidden, previous: hidden\.previous$/m,
      /^ {2}rows a step +1 to 128$/m,
      /^ {2}after unrolling +\d+ nodes: \d+ with all rows together \(\d+ of them in \d+ stages\), 0 row by row$/m,
      /^ {2}volatile memory +[\d,]+ B a row, [\d,]+ B with 128 rows; \d+\.\d % of [\d,]+ B without reuse$/m,
    ]) {
      expect(out).toMatch(line)
    }
    expect(out).not.toMatch(/undefined|NaN|\[object/)
    expect(out).not.toMatch(/plan of|trace of/)
  })

  it('gives as JSON the graph that the family builds, and what an opened model says of itself', async () => {
    const [shown] = await json<Shown>('model', 'show', MODEL)
    const graph = await built(MODEL)
    expect(shown!.graph).toEqual(JSON.parse(JSON.stringify(graph)))
    checkGraph(shown!.graph)
    const model = await openModel(MODEL, { threads: 1 })
    onTestFinished(() => model.close())
    const { fingerprint, layoutFingerprint, parameters, contextBytes } = model
    expect(shown).toMatchObject({ fingerprint, layoutFingerprint, parameters, contextBytes })
    const file = inspectTensors(join(MODEL, 'model.safetensors')).reduce((sum, { bytes }) => sum + bytes, 0)
    expect(shown!.constants.reduce((sum, { bytes }) => sum + bytes, 0)).toBe(file)
    // A line is a node where no branch depends on a value.
    expect(shown!.blocks.map(({ name, nodes, peak }) => [name, nodes, peak])).toEqual(
      planGraph(graph).map(({ name, lines, peak }) => [name, lines, peak]),
    )
    expect([shown!.plans, shown!.trace]).toEqual([undefined, undefined])
  })

  it('looks without loading weights: it shows a model whose numbers the engine refuses', async () => {
    const sizes = { L: 2, H: 2, N: 8, F: 24, V: 30, D: { w: 4, a: 4, v: 4, g: 4 } }
    const tensors = randomRwkv7(1, sizes)
    tensors.get('head.weight')!.data[3] = Number.NaN
    const dir = writePackage({ model_type: 'rwkv7' }, safetensors(tensors))
    expect(await errorOf(() => openModel(dir, { threads: 1 }))).toMatchObject({ code: 'INVALID' })
    const { code, out } = await continuo(['model', 'show', dir])
    expect(code).toBe(0)
    expect(out).toMatch(/^tokenizer +none: token ids only; 30 tokens$/m)
    const traced = await continuo(['model', 'show', dir, '--trace', '1'])
    expect({ code: traced.code, out: traced.out }).toEqual({ code: 1, out: '' })
    expect(traced.err).toContain('"head.weight" holds NaN at element 3')
  })

  it('--plan shows where each value lies and while which lines it is alive', async () => {
    const { out } = await continuo(['model', 'show', MODEL, '--plan'])
    const [step, predict] = planGraph(await built(MODEL))
    const rows = out.match(/^ {2}\S+ +[\d,]+ +[\d,]+ +\d+ +(?:\d+|end) {2}·*█+·*$/gm)!
    expect(rows).toHaveLength(step!.values.length + predict!.values.length)
    expect(out).toMatch(/^ {2}plan of step: \d+ lines, \d+ values of one row\n {2}l = 0 +lines 2 to \d+$/m)
    expect(new Set(rows.slice(0, step!.values.length).map((row) => row.match(/[·█]+$/)![0].length))).toEqual(
      new Set([48]),
    )
    const [shown] = await json<Shown>('model', 'show', MODEL, '--plan')
    expect(shown!.plans).toEqual([step, predict])
  })

  it('--trace times every node of a step and sums them by operation', async () => {
    const dir = join(temporary(), 'copy')
    cpSync(MODEL, dir, { recursive: true })
    const [shown] = await json<Shown>('model', 'show', dir, '--trace', '3')
    const { tokens, microseconds, nodes, ops } = shown!.trace!
    expect(tokens).toBe(3)
    expect(nodes.map(({ node }) => node)).toContain('matmul "ffn.v" (l=5)')
    expect(nodes.map((node) => node.microseconds)).toEqual(nodes.map((node) => node.microseconds).sort((a, b) => b - a))
    expect(ops.map(({ op }) => op).sort()).toEqual([...new Set(nodes.map(({ node }) => node.split(' ')[0]!))].sort())
    expect(ops.reduce((sum, op) => sum + op.nodes, 0)).toBe(nodes.length)
    for (const sum of [ops, nodes].map((list) => list.reduce((all, each) => all + each.microseconds, 0))) {
      expect(sum).toBeCloseTo(microseconds, 6)
    }
    const { out } = await continuo(['model', 'show', dir, '--trace', '1'])
    expect(out).toMatch(/^trace of step: 1 token, [\d,]+ µs, the fastest of 7;/m)
    expect(out).toMatch(/^ *share +node +shape +rows +µs +GB\/s$/m)
    expect(out).toMatch(/^ *\d+\.\d % +matmul +\d+ +[\d.]+ +[\d.]+$/m)
    expect(out).toMatch(/^and \d+ nodes more, \d+\.\d % together; --json has all$/m)
  })

  it.each([
    [['model'], 'continuo model needs ACTION'],
    [['model', 'show'], 'continuo model needs DIR'],
    [['model', 'shw', MODEL], 'continuo model takes show, not "shw". Did you mean show?'],
    [['model', 'convert', MODEL], 'continuo model takes show, not "convert".'],
    [['model', 'show', MODEL, 'b'], '"b" is too much'],
    [['model', 'show', MODEL, '--trace', '0'], '--trace takes a whole number from 1 to 128; "0" is none.'],
    [['model', 'show', MODEL, '--trace', '129'], '--trace takes a whole number from 1 to 128; "129" is none.'],
    [['model', 'show', MODEL, '--trace', 'x'], '--trace takes a whole number from 1 to 128; "x" is none.'],
    [['model', 'show', MODEL, '--trace'], '--trace needs a value: --trace TOKENS.'],
  ])('ends with 2 and a sentence for %j', async (argv, part) => {
    const { code, out, err } = await continuo(argv)
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toContain(part)
    expect(err.trim().split('\n')).toHaveLength(1)
  })

  it('ends with 1 and a sentence for what is no model', async () => {
    const folder = temporary()
    const strange = join(folder, 'strange')
    mkdirSync(strange)
    writeFileSync(join(strange, 'config.json'), '{"model_type":"abacus"}')
    for (const [dir, part] of [
      [join(folder, 'nowhere'), 'is not a model package: cannot read config.json'],
      [strange, 'holds a "abacus" model, expected one of: '],
    ] as const) {
      const { code, out, err } = await continuo(['model', 'show', dir])
      expect({ code, out }).toEqual({ code: 1, out: '' })
      expect(err).toContain(part)
      expect(err.trim().split('\n')).toHaveLength(1)
    }
  })
})
