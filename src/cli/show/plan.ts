/**
 * How a block will run, as text: its figures, and with `--plan` where each volatile lies and while which lines it is
 * alive.
 */

import type { BlockPlan } from '../../engine/executor-types.ts'
import type { Block, Graph } from '../../engine/graph.ts'
import { aligned } from '../../engine/print.ts'
import { count, plural } from '../output.ts'
import { type BlockFigures, unroll } from './unroll.ts'

const span = ({ first, last }: { readonly first: number; readonly last: number }): string =>
  first === last ? `line ${first}` : `lines ${first} to ${last}`

export const figureLines = (figures: BlockFigures): readonly string[] => {
  const { rows, nodes, alone, inStages, stages, rowByRow, serialStages, peak, peakOfStep, peakWithoutReuse } = figures
  const together = inStages === 0 ? '' : ` (${count(inStages)} of them in ${plural(stages, 'stage', 'stages')})`
  const where = serialStages.length === 0 ? '' : ` (${serialStages.map(span).join(', ')})`
  const share = peakWithoutReuse === 0 ? 100 : (100 * peak) / peakWithoutReuse
  return [
    `  rows a step      1 to ${rows}`,
    `  after unrolling  ${plural(nodes, 'node')}: ${count(alone + inStages)} with all rows together${together}, ${count(rowByRow)} row by row${where}`,
    `  volatile memory  ${count(peak)} B a row, ${count(peakOfStep)} B with ${plural(rows, 'row')}; ${share.toFixed(1)} % of ${count(peakWithoutReuse)} B without reuse`,
  ]
}

const pictureWidth = 48

/** A bar over the lines of the block: where it is filled, the value is alive. */
const picture = (first: number, last: number, lines: number): string => {
  const scale = Math.min(pictureWidth, lines + 1) / (lines + 1)
  const begin = Math.floor(first * scale)
  const end = Math.max(begin + 1, Math.ceil((last + 1) * scale))
  return '·'.repeat(begin) + '█'.repeat(end - begin) + '·'.repeat(Math.max(0, Math.ceil((lines + 1) * scale) - end))
}

/** "l = 0: lines 2 to 48", of the outermost loops. */
const turnLines = (graph: Graph, block: Block): readonly string[] => {
  const turns = new Map<string, { first: number; last: number }>()
  for (const [line, { turns: open }] of unroll(graph, block).entries()) {
    const outermost = open[0]
    if (outermost === undefined) continue
    const key = `${outermost[0]} = ${outermost[1]}`
    const known = turns.get(key)
    if (known === undefined) turns.set(key, { first: line, last: line })
    else known.last = line
  }
  return aligned([...turns].map(([turn, lines]) => [`  ${turn}`, span(lines)]))
}

export const planLines = (graph: Graph, block: Block, plan: BlockPlan): readonly string[] => {
  const values = plan.values.toSorted((a, b) => a.first - b.first || a.last - b.last || a.offset - b.offset)
  const lineText = (line: number): string => (line === plan.lines ? 'end' : String(line))
  return [
    '',
    `  plan of ${block.name}: ${plural(plan.lines, 'line')}, ${plural(values.length, 'value')} of one row`,
    ...turnLines(graph, block),
    ...aligned(
      [
        ['  value', 'offset', 'bytes', 'from', 'to', ''],
        ...values.map(({ name, offset, bytes, first, last }) => [
          `  ${name}`,
          count(offset),
          count(bytes),
          lineText(first),
          lineText(last),
          picture(first, last, plan.lines),
        ]),
      ],
      [1, 2, 3, 4],
    ),
  ]
}
