/** Where the time of a step goes, node by node. */

import type { BlockPlan, TraceEntry } from '../../engine/executor-types.ts'
import type { Graph } from '../../engine/graph.ts'
import type { Model } from '../../engine/types.ts'
import { ContinuoError } from '../../errors.ts'
import { count, plural, table } from '../output.ts'

/** Time and bytes of all nodes of one operation together. */
interface OpSum {
  readonly op: string
  readonly nodes: number
  readonly microseconds: number
  readonly bytes: number
}

export interface Trace {
  readonly block: 'step'
  readonly tokens: number
  readonly repeats: number
  /** Time of the fastest repeat: the sum over its nodes. */
  readonly microseconds: number
  /** The slowest first. */
  readonly nodes: readonly TraceEntry[]
  readonly ops: readonly OpSum[]
}

const repeats = 7
const shownNodes = 40

const total = (entries: readonly { readonly microseconds: number }[]): number =>
  entries.reduce((sum, { microseconds }) => sum + microseconds, 0)

/**
 * `token`: the name of the input of block "step", one i32 a row. Throws INVALID where a step cannot take that many
 * tokens.
 */
export const traceInput = (graph: Graph, plans: readonly BlockPlan[], tokens: number): string => {
  const name = graph.blocks.find((block) => block.name === 'step')?.inputs ?? []
  const input = graph.declarations.find((declaration) => declaration.name === name[0])
  const isToken = name.length === 1 && input?.kind === 'dynamic' && input.dtype === 'i32' && input.shape.length === 0
  if (!isToken) {
    throw new ContinuoError(
      'INVALID',
      'The graph has no block "step" that takes a token, so there is nothing to trace.',
    )
  }
  const { rows } = plans.find((plan) => plan.name === 'step')!
  if (tokens > rows) {
    throw new ContinuoError(
      'INVALID',
      `A step of this model has at most ${plural(rows, 'row')}; trace that many tokens or fewer.`,
    )
  }
  return input.name
}

/** One step of `tokens` rows from an empty context, a few times; the fastest. */
export const traceStep = async (model: Model, input: string, tokens: number): Promise<Trace> => {
  const executor = model.createExecutor({ trace: true })
  // Spread over the vocabulary, so that the embedding's rows lie apart as those of a text do.
  const ids = Int32Array.from({ length: tokens }, (_, i) => (i * 7919) % model.vocabSize)
  const { context } = executor
  const empty = context.serialize()
  const { pulse, origin, chain } = context
  let best: readonly TraceEntry[] | undefined
  for (let repeat = 0; repeat < repeats; repeat += 1) {
    // A reset leaves the clock where it is; levels and segments follow it, and each repeat is to do the same work.
    context.restore(empty, { pulse, origin, chain })
    executor.insert(input, ids)
    await executor.step('step')
    const entries = executor.trace()
    if (best === undefined || total(entries) < total(best)) best = entries
  }
  context.close()
  const nodes = best!.toSorted((a, b) => b.microseconds - a.microseconds)
  const ops = new Map<string, OpSum>()
  for (const { node, microseconds, bytes } of nodes) {
    const op = node.split(' ', 1)[0]!
    const sum = ops.get(op) ?? { op, nodes: 0, microseconds: 0, bytes: 0 }
    ops.set(op, { op, nodes: sum.nodes + 1, microseconds: sum.microseconds + microseconds, bytes: sum.bytes + bytes })
  }
  return {
    block: 'step',
    tokens,
    repeats,
    microseconds: total(nodes),
    nodes,
    ops: [...ops.values()].toSorted((a, b) => b.microseconds - a.microseconds),
  }
}

/** Bytes a microsecond are megabytes a second. */
const rate = (bytes: number, microseconds: number): string =>
  microseconds > 0 ? (bytes / microseconds / 1e3).toFixed(2) : '-'

export const traceLines = ({ tokens, microseconds, nodes, ops }: Trace): readonly string[] => {
  const share = (part: number): string => `${((100 * part) / microseconds).toFixed(1)} %`
  const shown = nodes.slice(0, shownNodes)
  const rest = nodes.slice(shownNodes)
  return [
    `trace of step: ${plural(tokens, 'token')}, ${count(microseconds)} µs, the fastest of ${repeats}; nodes are timed one by one`,
    ...table(
      ['>share', 'node', 'shape', '>rows', '>µs', '>GB/s'],
      shown.map(({ node, shape, rows, microseconds: took, bytes }) => [
        share(took),
        node,
        `[${shape.join(', ')}]`,
        String(rows),
        took.toFixed(1),
        rate(bytes, took),
      ]),
    ).split('\n'),
    ...(rest.length === 0
      ? []
      : [`and ${plural(rest.length, 'node')} more, ${share(total(rest))} together; --json has all`]),
    '',
    ...table(
      ['>share', 'op', '>nodes', '>µs', '>GB/s'],
      ops.map(({ op, nodes: many, microseconds: took, bytes }) => [
        share(took),
        op,
        String(many),
        took.toFixed(1),
        rate(bytes, took),
      ]),
    ).split('\n'),
  ]
}
