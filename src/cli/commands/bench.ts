import { availableParallelism } from 'node:os'
import type { Model } from '../../engine/types.ts'
import { startProgress } from '../../observe/progress.ts'
import { demoModel } from '../../places.ts'
import { type Measure, type Report, runRounds } from '../bench/measure.ts'
import { command, type ExitCode } from '../command.ts'
import { deviceFlag, expertFlags, runsOn, threadsFlag, withModel } from '../common.ts'
import { nearest, optional, optionalWhole, refuseIdle, usage, whole } from '../flags.ts'
import { count, plural, print, printJson, say, table } from '../output.ts'
import { exitCodeOfSignal, untilSignal } from '../signals.ts'

const IN_ROUNDS = ['decode', 'prefill', 'sessions', 'snapshot', 'commit'] as const
const NAMED = ['long', 'exactness'] as const
const ALL = [...IN_ROUNDS, ...NAMED]
type Name = (typeof ALL)[number]

const namesOf = (text: string | undefined): ReadonlySet<Name> => {
  if (text === undefined) return new Set(IN_ROUNDS)
  return new Set(
    text.split(',').map((part) => {
      const name = part.trim()
      const known = ALL.find((one) => one === name)
      if (known !== undefined) return known
      const meant = nearest(name, ALL)
      const hint = meant === null ? '' : ` Did you mean ${meant}?`
      throw usage(`--only takes ${ALL.join(', ')}, with commas between; "${name}" is none of them.${hint}`)
    }),
  )
}

interface Setup {
  readonly dir: string
  readonly model: Model
  readonly threads: number
  readonly sessions: number
}

const measuresOf = async (names: ReadonlySet<Name>, { dir, model, threads, sessions }: Setup): Promise<Measure[]> => {
  const engine = await import('../bench/engine.ts')
  const { commit } = await import('../bench/commit.ts')
  const { tokenWork } = await import('../bench/work.ts')
  const work = await tokenWork(dir)
  const making: Record<(typeof IN_ROUNDS)[number], () => Measure | Promise<Measure>> = {
    decode: () => engine.decode(model, work, threads),
    prefill: () => engine.prefill(model, work),
    sessions: () => engine.sessions(model, sessions),
    snapshot: () => engine.snapshot(model),
    commit: () => commit(model),
  }
  const measures: Measure[] = []
  for (const name of IN_ROUNDS) if (names.has(name)) measures.push(await making[name]())
  return measures
}

interface Found {
  readonly rounds: number
  readonly reports: ReadonlyMap<Name, Report>
  readonly exact: boolean
}

interface Wanted extends Setup {
  readonly names: ReadonlySet<Name>
  readonly rounds: number | undefined
  readonly signal: AbortSignal
  readonly onProgress: (line: string) => void
}

const measureAll = async (wanted: Wanted): Promise<Found> => {
  const { dir, model, names, signal, onProgress } = wanted
  const reports = new Map<Name, Report>()
  const measures = await measuresOf(names, wanted)
  let rounds = 0
  try {
    const done = await runRounds({
      measures,
      rounds: wanted.rounds,
      signal,
      onSample: (name, round) => onProgress(round === 0 ? `warming up: ${name}` : `round ${count(round)}: ${name}`),
    })
    rounds = done.rounds
    for (const [measure, samples] of done.samples) reports.set(measure.name as Name, measure.report(samples))
  } finally {
    for (const measure of measures) await measure.close()
  }
  const named = await import('../bench/named.ts')
  if (names.has('long') && !signal.aborted) reports.set('long', await named.long(model, { signal, onProgress }))
  let exact = true
  if (names.has('exactness') && !signal.aborted) {
    const { same, ...report } = await named.exactness(dir, { signal, onProgress, device: model.device })
    reports.set('exactness', report)
    exact = same
  }
  return { rounds, reports, exact }
}

const tableOf = (reports: ReadonlyMap<Name, Report>): string =>
  table(
    ['', 'what', '>median', 'least … greatest'],
    [...reports].flatMap(([name, { rows }]) =>
      rows.map(({ what, figure, spread }, at) => [at === 0 ? name : '', what, figure, spread]),
    ),
  )

export const bench = command({
  name: 'bench',
  about:
    'Measures this machine with a model: generating for one session and for many, reading, the state of a session out and in, and commits. Rounds of all measures take turns; a figure is the median of its rounds, beside it the least and the greatest.',
  flags: {
    model: optional('DIR', 'folder of a model, or a .gguf or .pth file (default: the shipped model)'),
    threads: threadsFlag,
    device: deviceFlag,
    ...expertFlags,
    rounds: optionalWhole('N', 'rounds of each measure (default: what half a minute takes)', { min: 1, max: 100_000 }),
    sessions: whole('N', 'sessions that generate together', 16, { min: 2, max: 1024 }),
    only: optional('NAMES', `these measures, with commas between: ${ALL.join(', ')}`),
  },
  notes: [
    'long and exactness take minutes and are measured only when named. long feeds one session 1,000,000 tokens and compares its speed',
    'with that of a session at token 1,000 next to it. exactness computes one sequence with every instruction set of this CPU, with 1, 2',
    'and 3 threads, in chunks of 1, 7, 64 and 512 tokens and in batches of 1, 3 and 16 sessions, where the model runs on a CUDA device',
    'there as well, and ends with 1 if any bit differs.',
    'Ctrl-C ends the bench with what was measured so far.',
  ].join('\n'),
  examples: [
    'bench',
    'bench --model models/demo --threads 1 --only decode,prefill',
    'bench --only exactness',
    'bench --device cpu',
  ],
  async run(flags, _args, given): Promise<ExitCode> {
    const names = namesOf(flags.only)
    if (!IN_ROUNDS.some((name) => names.has(name))) refuseIdle(given, ['rounds'], `--only ${IN_ROUNDS.join(', ')}`)
    if (!names.has('sessions')) refuseIdle(given, ['sessions'], '--only sessions')
    const dir = flags.model ?? demoModel
    const threads = flags.threads ?? Math.min(16, availableParallelism())
    return withModel(dir, { threads, device: flags.device }, async ({ model }) => {
      const on = await runsOn(model)
      const signal = untilSignal('Stopping: what was measured so far follows. Once more ends at once.')
      let line: string | null = null
      const progress = flags.json ? null : startProgress(process.stderr, () => line)
      let found: Found
      try {
        found = await measureAll({
          ...{ dir, model, threads, sessions: flags.sessions, names, rounds: flags.rounds, signal },
          onProgress: (now) => {
            line = now
          },
        })
      } finally {
        line = null
        progress?.stop()
      }
      const { rounds, reports, exact } = found
      const { modelType, parameters, fingerprint } = model
      if (flags.json) {
        const about = { dir, modelType, parameters, fingerprint }
        const values = Object.fromEntries([...reports].map(([name, report]) => [name, report.values]))
        printJson({ model: about, ...on, threads, rounds, complete: !signal.aborted, ...values })
      } else {
        const how = rounds === 0 ? '' : `, ${plural(rounds, 'round')}`
        const kernels = [...(on.gpu === undefined ? [] : [on.gpu]), on.isa].join(', ')
        print(`${dir}: ${modelType}, ${count(parameters)} parameters, ${kernels}, ${plural(threads, 'thread')}${how}`)
        if (reports.size > 0) print(`\n${tableOf(reports)}`)
      }
      if (!exact) say('One arithmetic is broken: the combinations named above gave other bits.')
      if (signal.aborted) return exitCodeOfSignal(signal)
      return exact ? 0 : 1
    })
  },
})
