/**
 * An external memory drawn as text: the list of slots from its beginning, then what is not in it, and where that lies.
 */
import type { ArchivePlace } from '../../operators/blobs/archive-places.ts'
import type { OuterMemoryView } from '../../state/outer-memory.ts'
import { bytes, count, plural } from '../output.ts'

/** Runs that are named before the rest is counted. */
const MOST_RUNS = 12

/** Blocks as runs: "0 to 3, 7". */
const runsText = (blocks: readonly number[]): string => {
  const runs: [number, number][] = []
  for (const block of blocks.toSorted((a, b) => a - b)) {
    const last = runs.at(-1)
    if (last !== undefined && last[1] === block - 1) last[1] = block
    else runs.push([block, block])
  }
  const named = runs.slice(0, MOST_RUNS).map(([from, to]) => (from === to ? String(from) : `${from} to ${to}`))
  const rest = runs.slice(MOST_RUNS).reduce((sum, [from, to]) => sum + to - from + 1, 0)
  return `${named.join(', ')}${rest === 0 ? '' : ` and ${count(rest)} more (--json names all)`}`
}

const named = (blocks: readonly number[]): string => `${blocks.length === 1 ? 'block' : 'blocks'} ${runsText(blocks)}`

const MOST_BAR = 40

const listLines = (memory: OuterMemoryView): readonly string[] => {
  const { injected, anchors, tombstones, archived, sinks, window } = memory
  const shown = anchors.filter(({ block }) => block < archived && !injected.includes(block))
  const marks = tombstones.map(({ from, to, attention }) => {
    const bar = '#'.repeat(Math.min(MOST_BAR, Math.round(attention * 10)))
    return `    ${from === to - 1 ? `block ${from}` : `blocks ${from} to ${to - 1}`}  ${attention.toFixed(3)} ${bar}`
  })
  return [
    'Attended to:',
    ...(sinks > 0 ? [`  sinks: the first ${plural(sinks, 'token')}`] : []),
    ...(shown.length > 0
      ? ['  anchors:', ...shown.map(({ block, offsets }) => `    block ${block}: tokens ${offsets.join(', ')}`)]
      : []),
    ...(marks.length > 0
      ? ['  tombstones, and how much each is attended to (1: like an average slot):', ...marks]
      : []),
    ...(injected.length > 0 ? [`  brought back: ${named(injected)}`] : []),
    `  window: ${window === null ? 'the tokens behind the archived blocks' : plural(window, 'token')}`,
  ]
}

const placeLine = ({ in: kind, where, from, to, bytes: size, blobs, missing, untold }: ArchivePlace): string => {
  const blocks = named(Array.from({ length: to - from }, (_, i) => from + i))
  if (kind === 'snapshot') return `  in the snapshot's own file: ${blocks}, ${bytes(size)}`
  const name = kind === 'topic' ? `in the topic ${where}` : where === null ? 'in a blob store' : `in ${where}`
  const told = untold ?? (missing.length === 0 ? '' : `Not there: ${named(missing)}.`)
  return `  ${name}: ${blocks}, ${plural(blobs, 'blob')}, ${bytes(size)}${told === '' ? '' : `. ${told}`}`
}

export const memoryLines = (memory: OuterMemoryView, places: readonly ArchivePlace[]): readonly string[] => {
  const { blockSize, injected, pending, archived, tokens, indexVersion, lastRetrieval, topics } = memory
  const back = new Set(injected)
  const asleep = Array.from({ length: archived }, (_, block) => block).filter((block) => !back.has(block))
  const controller = pending === null ? 'Generating' : `Retrieving: ${named(pending)} will be there at the next beat`
  const size = blockSize === null || archived === 0 ? '' : ` of ${blockSize} tokens each`
  const last = lastRetrieval === 0 ? 'no retrieval so far' : `last retrieval after token ${count(lastRetrieval)}`
  return [
    `${controller}. ${plural(tokens, 'token')}, ${plural(archived, 'block')} archived${size}; index version ${count(indexVersion)}; ${last}.`,
    ...listLines(memory),
    `Asleep: ${asleep.length === 0 ? 'nothing' : `${plural(asleep.length, 'block')} (${runsText(asleep)})`}.`,
    ...(topics.length === 0 ? [] : ['Topics, and the archived blocks under each:']),
    ...topics.map(({ slot, blocks }) => `  node ${slot}: ${plural(blocks.length, 'block')} (${runsText(blocks)})`),
    ...(places.length === 0 ? [] : ['Archived blocks lie:', ...places.map(placeLine)]),
  ]
}
