/**
 * Mixtures whose experts are read from a store (docs/experts.md): the graph of a family that has its experts as stacks
 * of matrices in memory becomes one that asks the store for them. The numbers are the same bits. Where every layer has
 * experts, each layer also tells the store which experts the next ones are likely to want, by their own norms and
 * routers on this layer's input.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import type { ExpertStore } from '../../engine/experts.ts'
import {
  type ConstantDeclaration,
  type Declaration,
  type Graph,
  membersOf,
  type Node,
  type OpNode,
  tensorsOf,
} from '../../engine/graph.ts'
import { ContinuoError } from '../../errors.ts'
import { type LayerHeader, readHeader } from '../../experts/header.ts'
import { digestOf, fileOf, storeOf } from '../../experts/pack.ts'

/** Gate, up and down. */
export const STACKS = ['experts.gate_proj', 'experts.up_proj', 'experts.down_proj'] as const
const STORED = 'experts'
/** Layers ahead of which routes are predicted. */
const LOOK_AHEAD = 2

const isOp = (node: Node): node is OpNode => 'op' in node
const nameOf = (operand: string): string => operand.split('(')[0]!
const pickOf = (operand: string): string => /\((.*)\)$/.exec(operand)?.[1] ?? ''
const writes = (nodes: readonly Node[], name: string): OpNode | undefined =>
  nodes.findLast((node): node is OpNode => isOp(node) && node.out === name)

/** Gate, up or down of all layers in a graph. */
export const stackOf = (graph: Graph, name: string): ConstantDeclaration | undefined =>
  graph.declarations.find(
    (each): each is ConstantDeclaration => each.kind === 'constant' && each.layout === 'stack' && each.name === name,
  )

/** Whether the graph has experts of gate, up and down, as a store holds them. */
export const hasExperts = (graph: Graph): boolean => STACKS.every((name) => stackOf(graph, name) !== undefined)

/** The nodes that compute a row's experts from the input of the layer's feed-forward part, in order; and that input. */
const routeNodes = (
  nodes: readonly Node[],
  ids: string,
): { readonly route: readonly OpNode[]; readonly x: string } | null => {
  const route: OpNode[] = []
  for (let name = ids; ; ) {
    const node = writes(nodes, name)
    if (node === undefined) return null
    route.unshift(node)
    name = node.in![0]!
    // The norm before the router is the last of them.
    if (node.op === 'norm' || node.op === 'rmsnorm') return { route, x: name }
    if (route.length > 6) return null
  }
}

/** The same nodes for the layer `ahead` layers on, under names of their own. */
const moved = (
  route: readonly OpNode[],
  index: string,
  ahead: number,
  shapes: Map<string, Declaration>,
): readonly OpNode[] => {
  const own = new Set(route.map(({ out }) => out!))
  const renamed = (name: string): string => (own.has(name) ? `ahead.${ahead}.${name}` : name)
  return route.map((node) => {
    const declared = shapes.get(node.out!)!
    shapes.set(renamed(node.out!), { ...declared, name: renamed(node.out!) })
    const operand = (each: string): string =>
      pickOf(each) === index ? `${nameOf(each)}(${index}+${ahead})` : renamed(each)
    return { ...node, in: node.in!.map(operand), out: renamed(node.out!) }
  })
}

/**
 * What the index of all layers is called where every layer has experts, and how many there are; null: routes are not
 * predicted.
 */
type Ahead = { readonly index: string; readonly layers: number } | null

/**
 * Nodes that stand in the loop over the layers and are there for a layer only that has another one `ahead` layers on.
 */
const unlessLast = (nodes: readonly Node[], { index, layers }: NonNullable<Ahead>, ahead: number): readonly Node[] =>
  Array.from({ length: ahead }, (_, i) => layers - 1 - i).reduce<readonly Node[]>(
    (otherwise, equals) => [{ branch: index, equals, nodes: [], otherwise }],
    nodes,
  )

const stored = (pick: string): string => `${STORED}(${pick})`

/** Tells the store which experts the row goes to, and which it is likely to go to in the next layers. */
const hintsOf = (
  nodes: readonly Node[],
  ids: string,
  at: string,
  ahead: Ahead,
  shapes: Map<string, Declaration>,
): readonly Node[] => {
  const now: Node = { op: 'experts.ahead', in: [ids, stored(at)], count: 1 }
  const found = ahead && routeNodes(nodes, ids)
  if (ahead === null || found === null) return [now]
  const later = Array.from({ length: Math.min(LOOK_AHEAD, ahead.layers - 1) }, (_, i) => i + 1).flatMap((k) => {
    const route = moved(found.route, ahead.index, k, shapes)
    const hint = { op: 'experts.ahead', in: [route.at(-1)!.out!, stored(`${ahead.index}+${k}`)], count: 1 + k }
    return unlessLast([...route, hint], ahead, k)
  })
  return [now, ...later]
}

/**
 * Nodes with experts of a store in place of products with stacks; `shapes` loses the values that are written no more,
 * and gets new ones.
 */
const rewritten = (nodes: readonly Node[], shapes: Map<string, Declaration>, ahead: Ahead): readonly Node[] => {
  const product = (stack: string): number =>
    nodes.findIndex((node) => isOp(node) && node.op === 'routed' && nameOf(node.in![2]!) === stack)
  const inner = nodes.map((node) => ({
    ...node,
    ...('nodes' in node && { nodes: rewritten(node.nodes as readonly Node[], shapes, ahead) }),
    ...('otherwise' in node && { otherwise: rewritten(node.otherwise as readonly Node[], shapes, ahead) }),
  })) as readonly Node[]
  const [first, last] = [product(STACKS[0]), product(STACKS[2])]
  if (last < 0) return inner
  // From the gate to the way down: these nodes are the expert.
  const [gate, down] = [nodes[first] as OpNode, nodes[last] as OpNode]
  for (const node of nodes.slice(first, last)) shapes.delete((node as OpNode).out!)
  const [, ids, stack] = down.in as readonly [string, string, string]
  const at = pickOf(stack)
  return [
    ...inner.slice(0, first),
    ...hintsOf(nodes, ids, at, ahead, shapes),
    { op: 'experts', in: [gate.in![0]!, ids, stored(at)], out: down.out! },
    ...inner.slice(last + 1),
  ]
}

/** A graph whose experts lie in a store. */
export const withExpertStore = (graph: Graph, lookAhead: boolean): Graph => {
  const { shape, over, from } = stackOf(graph, STACKS[0])!
  const [E, F, C] = shape as readonly [number, number, number]
  const index = graph.indices.find(({ name }) => name === over)!
  const everywhere = lookAhead && index.of === undefined && (from ?? 0) === 0
  const volatiles = new Map(graph.declarations.map((each) => [each.name, each]))
  const ahead = everywhere && index.of === undefined ? { index: index.name, layers: index.extent } : null
  const blocks = graph.blocks.map((block) => ({ ...block, nodes: rewritten(block.nodes, volatiles, ahead) }))
  const layers: ConstantDeclaration = {
    kind: 'constant',
    name: STORED,
    shape: [E, F, C],
    layout: 'experts',
    pattern: `{${over}}`,
    over: over!,
    ...(from !== undefined && { from }),
  }
  const kept = graph.declarations.flatMap((declaration) => {
    if (declaration.name === STACKS[0]) return [layers]
    return STACKS.some((name) => name === declaration.name) || !volatiles.has(declaration.name) ? [] : [declaration]
  })
  const known = new Set(graph.declarations.map(({ name }) => name))
  const fresh = [...volatiles.values()].filter(({ name }) => !known.has(name))
  return {
    ...graph,
    declarations: [
      ...kept.filter(({ kind }) => kind !== 'persistent'),
      ...fresh,
      ...kept.filter(({ kind }) => kind === 'persistent'),
    ],
    blocks,
  }
}

/** The tensors that the experts stand in, with their scales. */
export const expertTensors = (graph: Graph): ReadonlySet<string> =>
  new Set(
    STACKS.flatMap((name) => {
      const stack = stackOf(graph, name)!
      const scales = stack.scales === undefined ? [] : tensorsOf(graph, { ...stack, pattern: stack.scales })
      return [...tensorsOf(graph, stack), ...scales]
    }),
  )

const headerOf = (dir: string, path: string): LayerHeader => {
  try {
    return readHeader(path)
  } catch (cause) {
    throw new ContinuoError(
      'REFUSED',
      `${path} cannot be read. Pack the experts again: continuo experts pack ${dir}.`,
      { cause },
    )
  }
}

/**
 * The store beside a mixture's weights, as the headers of its files say; null: there is none. Throws REFUSED for a file
 * that cannot be read.
 */
export const readStore = (dir: string, graph: Graph): (ExpertStore & { readonly coding: number }) | null => {
  const folder = storeOf(dir)
  if (!existsSync(folder)) return null
  const layers = membersOf(graph, stackOf(graph, STACKS[0])!)
  const headers = layers.map((layer) => headerOf(dir, join(folder, fileOf(layer))))
  return { folder, layers, digest: digestOf(headers), coding: headers.at(-1)?.coding ?? 0 }
}
