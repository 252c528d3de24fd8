/**
 * How well packages read logs (docs/performance.md, Reading logs), beside compressors and beside what people use to
 * find new lines.
 *
 *   node bench/streams.ts [--models models/demo,…] [--logs DIR] [--names Apache,…] [--whole] [--planted SEED] [--threads 2]
 *
 * A log is a table DIR/NAME.csv (bench/streams/logs.ts). Its messages, or with --whole its lines with all that stands
 * before the messages, are read one after another, as one session from an empty state. Tables:
 *
 *   bits      of all lines, and of the lines from 1,001 on, as ratios to 7-Zip's PPMd of order 16; the first byte counts as 8 bits
 *   again     docs/formats.md, its lines in the first 64 kB, is read twice in one session: bits per byte of both times
 *   new lines a line is new if it is the first of its template; lines 1 to 100 are left out. AUC of every score; of the k highest, k being the number
 *             of new lines, the share that is new, and the share of the new ones that is among the 2k highest (logs with ten new lines or more);
 *             precision and recall of the references that say yes or no (bench/streams/miners.ts)
 *   planted   with --planted: lines of five kinds are planted behind line 800; their median place in the order by a score, and how many are in the
 *             top 2 %, over all logs
 *   silence   with --planted: a heartbeat among the lines stops behind line 800; how many lines later it is missed, and how many other kinds of lines are
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { bytes as bytesText, table } from '../src/cli/output.ts'
import { ContinuoError, messageOf } from '../src/errors.ts'
import { parseArgs } from './options.ts'
import { bitsBy, type Compressor, OTHERS, PPMD } from './streams/compressors.ts'
import { bytesOf, firstsOf, LEARNED, type LogLine, logsIn, readLog, textsOf, WARM } from './streams/logs.ts'
import { auc, findingOf, found, mean, median, placesOf } from './streams/measures.ts'
import { createMaskedSet, createPairs, createTree, masked } from './streams/miners.ts'
import { EVERY, KINDS, type Kind, MEANINGS, plant, plantHeartbeat } from './streams/planting.ts'
import { openReader, type Reader } from './streams/reader.ts'
import { SCORES, scoresOf, watched, watchedScores } from './streams/scores.ts'
import { root } from './support.ts'

const { values } = parseArgs({
  options: {
    models: { type: 'string', default: join(root, 'models', 'demo') },
    logs: { type: 'string', default: join(root, '..', 'shared', 'data', 'logs') },
    names: { type: 'string' },
    whole: { type: 'boolean', default: false },
    planted: { type: 'string' },
    threads: { type: 'string', default: '2' },
  },
})

/** A log with fewer new lines behind line 100 has an AUC, but no share of its k highest lines. */
const ENOUGH = 10
const TOP = 0.02
const DOCUMENT = join('docs', 'formats.md')
const DOCUMENT_BYTES = 2 ** 16

interface Scored {
  readonly name: string
  /** Of one log: of each line. */
  readonly scores: readonly number[]
}
interface Alarmed {
  readonly name: string
  readonly alarms: readonly boolean[]
}
interface Bits {
  readonly name: string
  readonly all: number | null
  readonly last: number | null
}
interface Judged {
  readonly name: string
  readonly bytes: number
  readonly lastBytes: number
  /** PPMd's first. */
  readonly bits: readonly Bits[]
  readonly labels: readonly boolean[]
  readonly scored: readonly Scored[]
  readonly alarmed: readonly Alarmed[]
}

const ALARMS: readonly (readonly [name: string, create: () => (text: string) => boolean])[] = [
  ['set of masked lines', createMaskedSet],
  ['template tree', createTree],
  [
    'template tree, masked words',
    () => {
      const tree = createTree()
      return (text) => tree(masked(text))
    },
  ],
]

const readAll = async (readers: readonly Reader[], texts: readonly string[]) => {
  const bytes = bytesOf(texts)
  const lengths = texts.map((text) => Buffer.byteLength(text) + 1)
  const scored: Scored[] = []
  const bits: { readonly name: string; readonly bits: Float64Array }[] = []
  for (const reader of readers) {
    const each = await reader.bitsOf(bytes)
    bits.push({ name: reader.name, bits: each })
    for (const [i, scores] of scoresOf(lengths, bytes, each).entries())
      scored.push({ name: `${reader.name}: ${SCORES[i]![0]}`, scores })
    for (const { name, scores } of watchedScores(lengths, bytes, each))
      scored.push({ name: `${reader.name}: ${name}`, scores })
  }
  scored.push({ name: 'word pairs never seen', scores: texts.map(createPairs()) })
  return { bytes, bits, scored }
}

const packers = [PPMD, ...OTHERS].map((compressor) => ({ compressor, bitsOf: bitsBy(compressor) }))

const judge = async (readers: readonly Reader[], name: string, lines: readonly LogLine[]): Promise<Judged> => {
  const texts = textsOf(lines, values.whole)
  const { bytes, bits, scored } = await readAll(readers, texts)
  const first = bytesOf(texts.slice(0, LEARNED))
  const byPackers = packers.map(({ compressor, bitsOf }): Bits => {
    if (bitsOf === null) return { name: compressor.name, all: null, last: null }
    const all = bitsOf(bytes)
    return { name: compressor.name, all, last: all - bitsOf(first) }
  })
  const byReaders = bits.map((each): Bits => {
    const sumFrom = (at: number) => each.bits.subarray(at).reduce((a, b) => a + b, 0)
    return { name: each.name, all: sumFrom(0), last: sumFrom(first.length) }
  })
  return {
    ...{ name, bytes: bytes.length, lastBytes: bytes.length - first.length, bits: [...byPackers, ...byReaders] },
    labels: firstsOf(lines).slice(WARM),
    scored: scored.map((each) => ({ ...each, scores: each.scores.slice(WARM) })),
    alarmed: ALARMS.map(([alarm, create]) => ({ name: alarm, alarms: texts.map(create()).slice(WARM) })),
  }
}

const NONE = '–'
const figure = (value: number | null, digits = 3): string =>
  value === null || Number.isNaN(value) ? NONE : value.toFixed(digits)
const known = (numbers: readonly (number | null)[]): readonly number[] =>
  numbers.filter((value) => value !== null && !Number.isNaN(value)) as readonly number[]
const meanOf = (numbers: readonly (number | null)[]): number | null => {
  const some = known(numbers)
  return some.length === 0 ? null : mean(some)
}
const show = (title: string, header: readonly string[], rows: readonly (readonly string[])[]): void =>
  console.log(`\n${title}\n\n${table(header, rows)}`)

const showBits = (logs: readonly Judged[], part: 'all' | 'last', title: string): void => {
  const bytesIn = (log: Judged) => (part === 'all' ? log.bytes : log.lastBytes)
  const rows = logs[0]!.bits.map(({ name }, i) => {
    const each = logs.map((log) => log.bits[i]![part])
    const ratios = logs.map(({ bits }) => {
      const [mine, base] = [bits[i]![part], bits[0]![part]]
      return mine === null || base === null ? null : mine / base
    })
    const perByte = meanOf(each.map((value, n) => value && value / bytesIn(logs[n]!)))
    return [name, ...ratios.map((value) => figure(value)), figure(meanOf(ratios)), figure(perByte)]
  })
  const header = ['', ...logs.map(({ name }) => `>${name}`), '>mean', '>bits per byte']
  show(title, header, [['bytes', ...logs.map((log) => bytesText(bytesIn(log))), '', ''], ...rows])
}

const showAgain = async (readers: readonly Reader[]): Promise<void> => {
  const page = readFileSync(join(root, DOCUMENT)).subarray(0, DOCUMENT_BYTES)
  const document = page.subarray(0, page.lastIndexOf('\n') + 1)
  const twice = Buffer.concat([document, document])
  const rows: string[][] = []
  const row = (name: string, first: number, second: number) =>
    rows.push([
      ...[name, figure(first / document.length), figure(second / document.length)],
      `${figure(100 * (1 - second / first), 1)} %`,
    ])
  for (const { compressor, bitsOf } of packers) {
    if (bitsOf === null) rows.push([compressor.name, NONE, NONE, NONE])
    else {
      const first = bitsOf(document)
      row(compressor.name, first, bitsOf(twice) - first)
    }
  }
  for (const { name, bitsOf } of readers) {
    const bits = await bitsOf(twice)
    const sum = (part: Float64Array) => part.reduce((a, b) => a + b, 0)
    row(name, sum(bits.subarray(0, document.length)), sum(bits.subarray(document.length)))
  }
  const title = `A text read twice (${DOCUMENT}, ${document.length} bytes): bits per byte`
  show(title, ['', '>first', '>second', '>less'], rows)
}

const showNewLines = (logs: readonly Judged[]): void => {
  const kOf = ({ labels }: Judged): number => labels.filter(Boolean).length
  const some = logs.filter((log) => kOf(log) >= ENOUGH)
  const names = logs[0]!.scored.map(({ name }) => name)
  const alarms = logs[0]!.alarmed.map(({ name }) => name)

  const areas = [
    ...names.map((name, i) => ({ name, each: logs.map(({ scored, labels }) => auc(scored[i]!.scores, labels)) })),
    ...alarms.map((name, i) => ({
      name,
      each: logs.map(({ alarmed, labels }) => auc(alarmed[i]!.alarms.map(Number), labels)),
    })),
  ].map(({ name, each }) => {
    const least = known(each).length === 0 ? null : Math.min(...known(each))
    return [name, ...each.map((value) => figure(value)), figure(meanOf(each)), figure(least)]
  })
  show(
    `New lines behind line ${WARM}: AUC`,
    ['', ...logs.map((log) => `>${log.name} (${kOf(log)})`), '>mean', '>least'],
    areas,
  )
  if (some.length === 0) {
    console.log(`\nNo log has ${ENOUGH} new lines or more behind line ${WARM}.`)
    return
  }

  const header = ['', ...some.map((log) => `>${log.name} (${kOf(log)})`)]
  const highest = names.map((name, i) => {
    const within = (times: number) =>
      some.map((log) => found(log.scored[i]!.scores, log.labels, Math.round(times * kOf(log))))
    const at = within(1)
    return [name, ...at.map((value) => figure(value)), figure(mean(at)), figure(mean(within(2)))]
  })
  const title = `New lines: share of the k highest that is new; share of the new that is among the 2k highest (mean)`
  show(title, [...header, '>mean', '>in 2k'], highest)

  const alarmed = alarms.map((name, i) => {
    const each = some.map((log) => findingOf(log.alarmed[i]!.alarms, log.labels))
    return [
      ...[name, ...each.map(({ f1 }) => figure(f1)), figure(mean(each.map(({ f1 }) => f1)))],
      ...[figure(mean(each.map(({ precision }) => precision))), figure(mean(each.map(({ recall }) => recall)))],
    ]
  })
  show('New lines: F1 of alarms; precision and recall (means)', [...header, '>mean', '>precision', '>recall'], alarmed)
}

const showPlanted = async (readers: readonly Reader[], logs: readonly string[], seed: number): Promise<void> => {
  /** Of each score, by kind: places of all planted lines of all logs. */
  const places: { readonly name: string; readonly byKind: Map<Kind, number[]> }[] = []
  for (const name of logs) {
    const { lines, marks } = plant(readLog(values.logs, name).lines, seed)
    const { scored } = await readAll(readers, textsOf(lines, values.whole))
    for (const [i, { name, scores }] of scored.entries()) {
      places[i] ??= { name, byKind: new Map() }
      const { byKind } = places[i]
      const each = placesOf(scores)
      for (const { at, kind } of marks) byKind.set(kind, [...(byKind.get(kind) ?? []), each[at]!])
    }
  }
  const cell = (each: readonly number[]): string =>
    `${figure(median(each))}, ${figure(each.filter((place) => place < TOP).length / each.length, 2)}`
  const rows = places.map(({ name, byKind }) => [name, ...KINDS.map((kind) => cell(byKind.get(kind) ?? []))])
  const header = ['', ...KINDS.map((kind) => `>${kind} (${places[0]?.byKind.get(kind)?.length ?? 0})`)]
  show(
    `Planted lines (seed ${seed}): median place in the order by the score; share in the top ${100 * TOP} %`,
    header,
    rows,
  )
  for (const kind of KINDS) console.log(`${kind}: ${MEANINGS[kind]}`)
}

/** What a line costs has no part in it, so no model reads the log. */
const showSilence = (logs: readonly string[], seed: number): void => {
  const rows = logs.map((name) => {
    const { lines, stop } = plantHeartbeat(readLog(values.logs, name).lines, seed)
    const texts = textsOf(lines, values.whole)
    const bytes = bytesOf(texts)
    const lengths = texts.map((text) => Buffer.byteLength(text) + 1)
    const judged = watched(lengths, bytes, new Float64Array(bytes.length))
    const silent = judged.flatMap(({ silence: { kinds } }, at) => kinds.map(({ pattern }) => ({ at, pattern })))
    const isBeat = ({ pattern }: { pattern: string }) => pattern.includes('beats so far')
    const missed = silent.filter(isBeat).map(({ at }) => at - stop)
    return [name, String(stop), missed.join(', ') || NONE, String(silent.filter((one) => !isBeat(one)).length)]
  })
  show(
    `A heartbeat every ${EVERY} lines that stops (seed ${seed}): at which line, how many lines later it is missed, and other kinds of lines that are`,
    ['', '>stops', '>missed after', '>others'],
    rows,
  )
}

const missing = (): readonly Compressor[] =>
  packers.filter(({ bitsOf }) => bitsOf === null).map(({ compressor }) => compressor)

const whole = (flag: 'threads' | 'planted', text: string): number => {
  if (!/^[0-9]{1,9}$/.test(text)) throw new ContinuoError('INVALID', `--${flag} is ${text}, expected a whole number.`)
  return Number(text)
}

/** The names that were given, or all tables in the folder. */
const namesOf = (folder: string): readonly string[] => values.names?.split(',').filter(Boolean) ?? logsIn(folder)

const run = async (): Promise<void> => {
  const names = namesOf(values.logs)
  if (names.length === 0)
    throw new ContinuoError(
      'INVALID',
      `${values.logs} has no tables. Expected logs as LogHub publishes them (NAME.csv); --logs DIR says where.`,
    )
  const threads = whole('threads', values.threads)
  const seed = values.planted === undefined ? null : whole('planted', values.planted)
  const readers: Reader[] = []
  try {
    for (const dir of values.models.split(',').filter(Boolean)) readers.push(await openReader(dir, threads))
    const logs: Judged[] = []
    for (const name of names) logs.push(await judge(readers, name, readLog(values.logs, name).lines))
    const what = values.whole ? 'whole lines' : 'messages'
    showBits(logs, 'all', `Bits of all lines, ${what}, as a ratio to PPMd's`)
    showBits(logs, 'last', `Bits of the lines from ${LEARNED + 1} on, ${what}, as a ratio to PPMd's`)
    for (const { name, program, install } of missing())
      console.log(`\n${name}: ${program} is missing. Install it: apt-get install ${install}`)
    await showAgain(readers)
    showNewLines(logs)
    if (seed !== null) {
      await showPlanted(readers, names, seed)
      showSilence(names, seed)
    }
  } finally {
    for (const reader of readers) reader.close()
  }
}
await run().catch((error: unknown) => {
  console.error(messageOf(error))
  process.exitCode = 1
})
