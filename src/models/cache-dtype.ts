/**
 * Narrow caches: the graph of a model whose keys and values are kept as f16 or bf16. What is stored is rounded once, to
 * nearest, ties to even, when it is written; attention widens it exactly. Every family with tables for `attend` can
 * have them.
 */
import type { Block, Declaration, Graph, Node, OpNode } from '../engine/graph.ts'
import type { CacheDtype } from '../engine/options.ts'
import { ContinuoError } from '../errors.ts'

const CACHE_DTYPES: readonly CacheDtype[] = ['f32', 'f16', 'bf16']

const checked = (value: unknown, what: string): CacheDtype => {
  const found = CACHE_DTYPES.find((dtype) => dtype === value)
  if (found !== undefined) return found
  throw new ContinuoError('INVALID', `${what} is ${JSON.stringify(value)}, expected "f32", "f16" or "bf16".`)
}

/** What the option says, else what `cache_dtype` of config.json says, else f32. Throws INVALID for another value. */
export const cacheDtypeOf = (option: unknown, config: Readonly<Record<string, unknown>>): CacheDtype => {
  if (option !== undefined) return checked(option, 'cacheDtype')
  const { cache_dtype: told } = config
  return told === undefined || told === null ? 'f32' : checked(told, 'config.json, cache_dtype')
}

const nameOf = (operand: string): string => operand.split('(', 1)[0]!
const isOp = (node: Node): node is OpNode => 'op' in node

const opsOf = (nodes: readonly Node[]): readonly OpNode[] =>
  nodes.flatMap((node) => {
    if (isOp(node)) return [node]
    if (!('nodes' in node)) return []
    return [...opsOf(node.nodes), ...('otherwise' in node ? opsOf(node.otherwise ?? []) : [])]
  })

/** The graph with narrow keys and values. Throws INVALID for a model that has none. */
export const withCacheDtype = (graph: Graph, dtype: CacheDtype, modelType: string): Graph => {
  if (dtype === 'f32') return graph
  const caches = new Set(
    graph.blocks.flatMap(({ nodes }) =>
      opsOf(nodes).flatMap((node) => (node.op === 'attend' ? (node.in ?? []).slice(1).map(nameOf) : [])),
    ),
  )
  if (caches.size === 0) {
    throw new ContinuoError(
      'INVALID',
      `cacheDtype "${dtype}" was asked for, but a "${modelType}" model keeps no keys and values of all its positions. Leave it out.`,
    )
  }
  const rounded = new Map<string, Declaration>()
  const castOf = (node: OpNode): OpNode => {
    const out = `${nameOf(node.state!)}.rounded`
    const [value] = node.in!
    const source = graph.declarations.find(({ name }) => name === value)
    if (source !== undefined && 'shape' in source)
      rounded.set(out, { kind: 'volatile', name: out, shape: source.shape, dtype })
    return { op: 'cast', out, in: [value!], dtype }
  }
  const rewritten = (nodes: readonly Node[]): readonly Node[] =>
    nodes.flatMap((node): readonly Node[] => {
      if (isOp(node)) {
        if (node.op !== 'cache.write' || !caches.has(nameOf(node.state!))) return [node]
        const cast = castOf(node)
        return [cast, { ...node, in: [cast.out!] }]
      }
      if (!('nodes' in node)) return [node]
      const otherwise =
        'otherwise' in node && node.otherwise !== undefined ? { otherwise: rewritten(node.otherwise) } : {}
      return [{ ...node, nodes: rewritten(node.nodes), ...otherwise }]
    })
  const blocks = graph.blocks.map((block): Block => ({ ...block, nodes: rewritten(block.nodes) }))
  const declarations = graph.declarations.map(
    (declaration): Declaration =>
      declaration.kind === 'persistent' && 'dtype' in declaration && caches.has(declaration.name)
        ? { ...declaration, dtype }
        : declaration,
  )
  return { ...graph, declarations: [...declarations, ...rounded.values()], blocks }
}
