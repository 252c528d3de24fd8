/**
 * The lines of a block as the engine counts them (native/compile/program.cc): loops unrolled, branches on an index
 * decided.
 */

import type { BlockPlan } from '../../engine/executor-types.ts'
import type { Block, Graph, Node } from '../../engine/graph.ts'

export interface UnrolledLine {
  /** Values of the indices of the loops it stands in, the outermost first. */
  readonly turns: readonly (readonly [index: string, turn: number])[]
  /** Operations: 1, or those in the arms of a branch on a value, which is one line. */
  readonly nodes: number
}

type Turns = UnrolledLine['turns']

/** Appends what runs of `nodes`; whether they certainly end the block. A return is no line. */
const emit = (graph: Graph, nodes: readonly Node[], turns: Turns, out: UnrolledLine[]): boolean => {
  for (const node of nodes) {
    if ('return' in node) return true
    if ('loop' in node) {
      const { loop, from, to, nodes: body } = node as Extract<Node, { readonly loop: string }>
      for (let turn = from; turn < to; turn += 1) if (emit(graph, body, [...turns, [loop, turn]], out)) return true
    } else if ('branch' in node) {
      const { branch, equals, nodes: then, otherwise = [] } = node as Extract<Node, { readonly branch: string }>
      const turnOf = (name: string): number | undefined => turns.find(([index]) => index === name)?.[1]
      if (equals !== undefined) {
        if (emit(graph, turnOf(branch) === equals ? then : otherwise, turns, out)) return true
        continue
      }
      const part = graph.indices.find(({ name }) => name === branch)
      if (part?.of !== undefined) {
        const value = part.at.indexOf(turnOf(part.of) ?? -1)
        const [arm, inside]: [readonly Node[], Turns] =
          value < 0 ? [otherwise, turns] : [then, [...turns, [branch, value]]]
        if (emit(graph, arm, inside, out)) return true
        continue
      }
      const arms: UnrolledLine[] = []
      const ended = [emit(graph, then, turns, arms), emit(graph, otherwise, turns, arms)]
      out.push({ turns, nodes: arms.reduce((sum, line) => sum + line.nodes, 0) })
      if (ended.every(Boolean)) return true
    } else {
      out.push({ turns, nodes: 1 })
    }
  }
  return false
}

export const unroll = (graph: Graph, block: Block): readonly UnrolledLine[] => {
  const lines: UnrolledLine[] = []
  emit(graph, block.nodes, [], lines)
  return lines
}

/** How much of a block runs for all rows of a step at once, and what its memory comes to. */
export interface BlockFigures {
  readonly name: string
  /** Rows that a step may have. */
  readonly rows: number
  /** Operations after unrolling. */
  readonly nodes: number
  /** Of those: each over all rows at once; several that take a row through together; row after row. */
  readonly alone: number
  readonly inStages: number
  readonly rowByRow: number
  /** Stages of several nodes, and of rows one after the other. */
  readonly stages: number
  readonly serialStages: readonly { readonly first: number; readonly last: number }[]
  /** Bytes of volatile memory for one row, and for all that a step may have. */
  readonly peak: number
  readonly peakOfStep: number
  readonly peakWithoutReuse: number
}

export const figuresOf = (graph: Graph, block: Block, plan: BlockPlan): BlockFigures => {
  const lines = unroll(graph, block)
  const nodesOf = (order: BlockPlan['stages'][number]['order']): number =>
    plan.stages
      .filter((stage) => stage.order === order)
      .flatMap(({ first, last }) => lines.slice(first, last + 1))
      .reduce((sum, { nodes }) => sum + nodes, 0)
  const [alone, inStages, rowByRow] = [nodesOf('row_parallel'), nodesOf('row_local'), nodesOf('row_serial')]
  const { name, rows, peak, peakWithoutReuse } = plan
  return {
    name,
    rows,
    nodes: alone + inStages + rowByRow,
    alone,
    inStages,
    rowByRow,
    stages: plan.stages.filter(({ order }) => order === 'row_local').length,
    serialStages: plan.stages.filter(({ order }) => order === 'row_serial').map(({ first, last }) => ({ first, last })),
    peak,
    peakOfStep: peak * rows,
    peakWithoutReuse,
  }
}
