/**
 * What exactness costs: the kernels of this CPU beside the same ones in free order (native/bench/free_order.h says what
 * is freed), in one process and in turns.
 *
 *   node bench/exactness.ts --model bench/peers/models/llama-0.1b-f16.gguf [--rounds 15] [--threads 2]
 *
 * Both sides compute one model of f16 or f32 with the same engine: only the table of kernels differs. Before anything
 * is timed their logits must agree as far as rounding explains. The ratio is the exact side's time over the free side's
 * in the same round, and the same of the CPU time of all threads, which counts on a machine with other work; medians,
 * with the least and the greatest round, and the ratio of the rounds with the least CPU time of each side. It builds a
 * program for itself (tools/exactness.mjs), which is no part of the package.
 */
import { execFileSync } from 'node:child_process'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describePackage } from '../src/models/open.ts'
import { parseArgs } from './options.ts'
import { median, root } from './support.ts'

const { values } = parseArgs({
  options: {
    model: { type: 'string', default: join(root, 'bench/peers/models/llama-0.1b-f16.gguf') },
    rounds: { type: 'string', default: '15' },
    threads: { type: 'string', default: '2' },
  },
})
/**
 * How far the logits of the two sides may be apart, over their deviation: f32 sums in two orders, and an exp within
 * 3·10⁻⁶.
 */
const MOST_APART = 1e-3

interface Line {
  readonly name: string
  /** Seconds and seconds of CPU, round by round. */
  readonly exact: readonly Seconds[]
  readonly free: readonly Seconds[]
}
type Seconds = readonly [wall: number, cpu: number]

const { request } = await describePackage(values.model, {}, console.error)
const [weights, more] = request.paths
if (weights === undefined || more !== undefined) throw new Error('The bench takes a model whose weights are one file.')
const folder = mkdtempSync(join(tmpdir(), 'continuo-exactness-'))
try {
  const graph = join(folder, 'graph.json')
  writeFileSync(graph, JSON.stringify(request.graph))
  const program = execFileSync(process.execPath, [join(root, 'tools/exactness.mjs')], { encoding: 'utf8' }).trim()
  const out = execFileSync(program.split('\n').at(-1)!, [graph, weights, values.threads, values.rounds], {
    encoding: 'utf8',
    stdio: ['ignore', 'pipe', 'inherit'],
  })
  const [first, ...lines] = out
    .trim()
    .split('\n')
    .map((line) => JSON.parse(line))
  const { isa, rms } = first as { readonly isa: string; readonly rms: number }
  if (!(rms < MOST_APART)) throw new Error(`The logits of the two sides are ${rms} of their deviation apart.`)
  console.log(`${isa}, ${values.threads} threads, ${values.rounds} rounds; logits ${rms} of their deviation apart`)
  console.log(
    `${''.padEnd(58)}${'exact, µs'.padStart(11)}${'free, µs'.padStart(11)}  time${' '.repeat(23)}CPU${' '.repeat(24)}least CPU`,
  )
  for (const { name, exact, free } of lines as Line[]) {
    const least = (side: readonly Seconds[]): number => Math.min(...side.map(([, cpu]) => cpu))
    const micros = (side: readonly Seconds[]): string =>
      (median(side.map(([wall]) => wall)) * 1e6).toFixed(1).padStart(11)
    const ratio = (which: 0 | 1): string => {
      const all = exact.map((seconds, round) => seconds[which] / free[round]![which])
      return `${median(all).toFixed(3)} (${Math.min(...all).toFixed(3)} to ${Math.max(...all).toFixed(3)})`.padEnd(27)
    }
    console.log(
      `${name.padEnd(58)}${micros(exact)}${micros(free)}  ${ratio(0)}${ratio(1)}${(least(exact) / least(free)).toFixed(3)}`,
    )
  }
} finally {
  rmSync(folder, { recursive: true, force: true })
}
