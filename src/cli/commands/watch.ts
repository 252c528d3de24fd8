import { createContextStore } from '../../operators/context-store.ts'
import { watchModel } from '../../places.ts'
import { bounded } from '../../watch/bounded.ts'
import { createCosts } from '../../watch/costs.ts'
import { beginsOf, createLines } from '../../watch/lines.ts'
import { createNovelty, type Novelty, type Standing } from '../../watch/novelty.ts'
import { command } from '../command.ts'
import { blockFlags, blocksOf, readingFlags, withModel } from '../common.ts'
import { optional, real, usage } from '../flags.ts'
import { openInput } from '../input.ts'
import { bytes, count, plural, print, printable, printJson, say } from '../output.ts'
import { exitCodeOfSignal, untilSignal } from '../signals.ts'

/** Below these a line is nothing to look at, however it stands among quieter ones. */
const LEAST = { structure: 2, values: 3 } as const
/** A line like one that was shown is counted; of more patterns than these the oldest are shown again. */
const MOST_PATTERNS = 4096
/** Characters of a line that are shown. */
const SHOWN = 400

type Part = keyof typeof LEAST
const PARTS = Object.keys(LEAST) as Part[]

/** Where a line stands out. */
const standsOut = (novelty: Novelty, top: number): readonly Part[] =>
  PARTS.filter((part) => {
    const { score, rank }: Standing = novelty[part]
    return rank !== null && rank >= 1 - top && score >= LEAST[part]
  })

const rounded = (number: number, digits: number): number => Number(number.toFixed(digits))

/** Records of a stream with the bits that they cost, as they come. */
async function* judged(
  pieces: AsyncIterable<Uint8Array | null>,
  costs: ReturnType<typeof createCosts>,
  join: RegExp | null,
): AsyncGenerator<{ readonly line: Uint8Array; readonly bits: Float64Array; readonly novelty: Novelty }> {
  const lines = createLines(join)
  const novelties = createNovelty()
  const read = async function* (records: readonly Uint8Array[]) {
    const all = await costs.read(records)
    for (const [i, line] of records.entries()) yield { line, bits: all[i]!, novelty: novelties.judge(line, all[i]!) }
  }
  for await (const piece of pieces) if (piece !== null) yield* read(lines.push(piece))
  yield* read(lines.flush())
}

const describe = (number: number, parts: readonly Part[], novelty: Novelty, line: string): void => {
  const ranks = parts.map((part) => `${part} ${novelty[part].rank!.toFixed(3)}`).join(', ')
  const text = printable(line.length > SHOWN ? `${line.slice(0, SHOWN)}…` : line)
  print(`${count(number).padStart(9)}  ${ranks}\n           ${text.replaceAll('\n', '\n           ')}`)
  const dear = novelty.words.map(({ word, bits }) => `${word} (${bits.toFixed(0)} bits)`).join(', ')
  if (dear !== '') print(`           new in it: ${printable(dear)}`)
}

export const watch = command({
  name: 'watch',
  about:
    'Reads a stream of lines with a model that learns it from nothing, and shows the lines that stand out: kinds of lines that were not there before (structure), and known kinds with a number that does not fit (values). The first hundred lines are only learned.',
  args: [{ name: 'FILE', help: 'the lines; - or nothing is standard input', required: false }],
  flags: {
    model: optional('DIR', 'folder of a model that learns what it reads (default: the shipped models/watch)'),
    top: real('SHARE', 'a line stands out that is among this share of the last thousand', 0.005, {
      min: 0.0001,
      max: 0.5,
    }),
    join: optional('REGEX', 'only lines that match begin a record; others are joined to the one before (stack traces)'),
    ...readingFlags,
    ...blockFlags,
  },
  notes: 'Nothing is kept when the command ends. docs/watch.md says what the two scores are and what they cannot see.',
  examples: ['watch /var/log/syslog', 'watch app.log --top 0.01 --join "^\\d{4}-"', 'watch app.log --json'],
  async run(flags, [file = '-'], given) {
    const join = flags.join === undefined ? null : beginsOf(flags.join)
    const input = await openInput(file)
    const stopping = untilSignal()
    return withModel(flags.model ?? watchModel, flags, async ({ model, tokenizer }) => {
      if (tokenizer === null)
        throw usage('This model has no tokenizer, and lines are text. Name a model that reads text.')
      const contexts = createContextStore(model, { warn: say, blocks: blocksOf(flags, given, model) })
      try {
        const costs = createCosts(contexts, contexts.createContext(), tokenizer)
        let [records, size, bits, shown] = [0, 0, 0, 0]
        const shownPatterns = bounded<true>(MOST_PATTERNS)
        let folded = 0
        for await (const { line, bits: own, novelty } of judged(input.read(stopping), costs, join)) {
          // A long file is not read to its end behind a signal.
          if (stopping.aborted) break
          records += 1
          size += line.length + 1
          const cost = own.reduce((a, b) => a + b, 0)
          bits += cost
          const parts = standsOut(novelty, flags.top)
          if (parts.length === 0) continue
          const key = `${parts.join(' ')} ${novelty.pattern}`
          const isRepeat = shownPatterns.get(key) !== undefined
          shownPatterns.set(key, true)
          if (isRepeat) folded += 1
          const text = Buffer.from(line).toString('utf8')
          if (flags.json) {
            const of = ({ score, rank }: Standing) => ({
              score: rounded(score, 3),
              rank: rank === null ? null : rounded(rank, 4),
            })
            printJson({
              line: records,
              standsOut: parts,
              structure: of(novelty.structure),
              values: of(novelty.values),
              pattern: novelty.pattern,
              seen: novelty.seen,
              bits: rounded(cost, 2),
              words: novelty.words.map(({ word, bits: cost }) => ({ word, bits: rounded(cost, 2) })),
              text,
            })
          } else if (!isRepeat) describe(records, parts, novelty, text)
          shown += 1
        }
        const perByte = size === 0 ? 0 : bits / size
        if (!flags.json)
          say(
            `${plural(records, 'line')}, ${bytes(size)}, ${perByte.toFixed(3)} bits per byte; ${count(shown)} stood out${folded > 0 ? `, ${count(folded)} of them like one that is shown` : ''}.`,
          )
        return stopping.aborted ? exitCodeOfSignal(stopping) : 0
      } finally {
        await contexts.close()
      }
    })
  },
})
