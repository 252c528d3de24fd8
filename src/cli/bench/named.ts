/** The measures that take minutes, and are taken only when they are named; each as a report. */
import type { DeviceKind } from '../../engine/options.ts'
import type { Model } from '../../engine/types.ts'
import { usage } from '../flags.ts'
import { bytes, count, plural } from '../output.ts'
import { type IsaCase, judge, MATRIX, runExactness } from './exactness.ts'
import { type LongEnd, measureLong } from './long.ts'
import { type Report, type Row, row } from './measure.ts'

export interface NamedOptions {
  readonly signal: AbortSignal
  readonly onProgress: (line: string) => void
}

const rowsOf = ({
  from,
  tokensPerSecond,
  controlTokensPerSecond,
  ratio,
  contextBytes,
  residentBytes,
}: LongEnd): Row[] => [
  row(`tokens/s from token ${count(from)} on`, tokensPerSecond, count),
  row('tokens/s at token 1,000, next to it', controlTokensPerSecond, count),
  row('ratio', ratio, (value) => value.toFixed(3)),
  { what: 'context, resident memory', figure: `${bytes(contextBytes)}, ${bytes(residentBytes)}`, spread: '' },
]

export const long = async (model: Model, { signal, onProgress }: NamedOptions): Promise<Report> => {
  if (model.positions !== null) {
    throw usage(
      `long feeds 1,000,000 tokens to one context; this model's takes ${count(model.positions)}. Leave it out.`,
    )
  }
  const report = await measureLong({
    model,
    signal,
    onProgress: (tokens) => onProgress(`long: token ${count(tokens)} of 1,000,000`),
  })
  const { begin, end } = report
  return { values: { ...report }, rows: [begin, end].flatMap((at) => (at === null ? [] : rowsOf(at))) }
}

export const exactness = async (
  dir: string,
  { signal, onProgress, device }: NamedOptions & { readonly device: DeviceKind },
): Promise<Report & { readonly same: boolean }> => {
  const each = MATRIX.threads.length * MATRIX.chunks.length * MATRIX.batches.length
  let done = 0
  const progressOf = ({ isa }: IsaCase): string => {
    done += 1
    return `exactness: ${isa}, ${plural(done, 'combination')}, ${each} a set of kernels`
  }
  const { cases, missing } = await runExactness({
    dirs: [dir],
    device,
    signal,
    onCase: (one) => onProgress(progressOf(one)),
  })
  const { combinations, same, differing, chains } = judge(cases)
  const chain = chains[dir] ?? null
  // What was compared, which after a Ctrl-C is not all that was asked for.
  const seen = <T>(of: (one: IsaCase) => T): readonly T[] => [...new Set(cases.map(of))]
  const isas = seen(({ isa }) => isa)
  const threads = seen((one) => one.threads)
  const chunks = seen(({ chunk }) => chunk)
  const batches = seen(({ batch }) => batch)
  const values = {
    combinations,
    same,
    differing,
    chain,
    isas,
    missing,
    threads,
    chunks,
    batches,
    tokens: MATRIX.tokens,
  }
  const varied = (what: string, all: readonly (string | number)[]): Row => ({
    what,
    figure: String(all.length),
    spread: all.join(', '),
  })
  const rows = [
    {
      what: 'combinations with the same bits',
      figure: `${same} of ${combinations}`,
      spread: chain === null ? '' : `chain ${chain}`,
    },
    varied('sets of kernels', isas),
    varied('numbers of threads', threads),
    varied('tokens a call', chunks),
    varied('sessions a batch', batches),
    ...differing.map((one) => ({ what: `other bits: ${one.case}`, figure: `session ${one.session}`, spread: '' })),
  ]
  return { values, rows, same: same === combinations }
}
