import { observation } from '../../../topics/observations.ts'
import { follow } from '../../client/follow.ts'
import { eventIn } from '../../client/records.ts'
import { namesOf } from '../../client/topics.ts'
import { standsOut } from '../../novelty/stands-out.ts'
import { createContextStore } from '../../operators/sessions/context-store.ts'
import { watchModel } from '../../places.ts'
import { textOf } from '../../text.ts'
import { fieldOf } from '../../watch/field.ts'
import { beginsOf, createLines } from '../../watch/lines.ts'
import { createSessions, type Read, type Sessions } from '../../watch/sessions.ts'
import { openBeginning } from '../beginning.ts'
import { command, type ExitCode } from '../command.ts'
import {
  blockFlags,
  blocksOf,
  type LogValues,
  partitionsOf,
  readingFlags,
  SEAL_FLAGS,
  sealFlags,
  TLS_FLAGS,
  tlsFlags,
  withExistingLog,
  withModel,
} from '../common.ts'
import { encodingFlags } from '../encoding.ts'
import { on, optional, optionalWhole, real, refuseIdle, usage } from '../flags.ts'
import { openInput } from '../input.ts'
import { bytes, count, noEvent, plural, quoted, say } from '../output.ts'
import { exitCodeOfSignal, untilSignal } from '../signals.ts'
import { createShower, foundIn, type Shower } from '../standing-out.ts'

/** Records of a stream, read as they come. */
async function* readAll(
  pieces: AsyncIterable<Uint8Array | null>,
  sessions: Sessions,
  join: RegExp | null,
): AsyncGenerator<Read> {
  const lines = createLines(join)
  for await (const piece of pieces) if (piece !== null) yield* sessions.read(lines.push(piece))
  yield* sessions.read(lines.flush())
}

const outcome = (read: string, { shown, folded }: Shower): string =>
  `${read}; ${count(shown)} stood out${folded > 0 ? `, ${count(folded)} of them like one that is shown` : ''}.`

interface Following extends LogValues {
  readonly session: string | undefined
  readonly top: number
  readonly json: boolean
  readonly 'from-beginning': boolean
  readonly 'until-idle': number | undefined
}

/** The lines that sessions of a log tell of, as they are committed. */
const fromLog = (flags: Following): Promise<ExitCode> => {
  const signal = untilSignal()
  return withExistingLog(flags, async (log) => {
    const names = namesOf(log)
    const shower = createShower({ ...flags, named: flags.session === undefined })
    let lines = 0
    const records = follow(log, {
      topic: names.observations,
      partitions: await partitionsOf(log, names),
      session: flags.session,
      from: flags['from-beginning'] ? 'beginning' : 'end',
      untilIdle: flags['until-idle'],
      signal,
    })
    for await (const record of records) {
      const event = eventIn(observation, record)
      if (event === null) {
        say(noEvent(record))
        continue
      }
      if (event.type === 'observed') lines += event.lines?.length ?? 0
      for (const found of foundIn(event, flags.top)) shower.show(found)
    }
    if (!flags.json) say(outcome(plural(lines, 'line'), shower))
    return 0
  })
}

export const watch = command({
  name: 'watch',
  about:
    'Reads a stream of lines with a model that learns it from nothing, and shows the lines that stand out: kinds of lines that were not there before (structure), known kinds with a number or a word that does not fit (values), lines that come over and over (rate), and kinds that came again and again and do not any more (silence). The first hundred lines are only learned.',
  args: [{ name: 'FILE', help: 'the lines; - or nothing is standard input', required: false }],
  flags: {
    model: optional('DIR', 'folder of a model that learns what it reads (default: the shipped models/watch)'),
    top: real('SHARE', 'a line stands out that is among this share of the last thousand', 0.005, {
      min: 0.0001,
      max: 0.5,
    }),
    log: optional('URL', 'show what sessions of this log tell that were opened with "novelty" (feed --novelty)'),
    ...tlsFlags,
    session: optional('ID', 'with --log: only this session'),
    'from-beginning': on('with --log: what is already there first'),
    'until-idle': optionalWhole('MS', 'with --log: end when nothing came for so long', { min: 0 }),
    from: optional('EXPORT', 'begin with what the session in this file has read, which continuo export wrote'),
    ...sealFlags,
    sessions: optional(
      'FIELD',
      'a session for each value of this field, which learns its lines alone: the number of a word, or a name (host=…, a member of JSON)',
    ),
    explain: on('show the nearest earlier line too'),
    join: optional('REGEX', 'only lines that match begin a record; others are joined to the one before (stack traces)'),
    ...encodingFlags,
    ...readingFlags,
    ...blockFlags,
  },
  notes:
    'Without --log nothing is kept when the command ends. docs/watch.md says what the scores are and what they cannot see.',
  examples: [
    'watch /var/log/syslog',
    'watch app.log --top 0.01 --join "^\\d{4}-"',
    'watch app.log --json',
    'watch /var/log/syslog --sessions 4 --explain',
    'watch today.log --from yesterday.safetensors',
    'watch --log file:continuo.db --from-beginning',
  ],
  async run({ log, ...flags }, [file = '-'], given) {
    if (log !== undefined) {
      const idle = [
        'model',
        'join',
        'sessions',
        'explain',
        'from',
        'encoding',
        ...SEAL_FLAGS,
        ...Object.keys(readingFlags),
        ...Object.keys(blockFlags),
      ].filter((name) => given.has(name))
      if (file !== '-' || idle.length > 0)
        throw usage(
          `With --log the sessions of a log are watched, which a worker reads: leave out ${file !== '-' ? quoted(file) : `--${idle[0]}`}.`,
        )
      return fromLog({ ...flags, log })
    }
    if (flags.from === undefined) refuseIdle(given, SEAL_FLAGS, '--from EXPORT')
    refuseIdle(given, ['session', 'from-beginning', 'until-idle', ...TLS_FLAGS], '--log URL')
    const join = flags.join === undefined ? null : beginsOf(flags.join)
    const field = flags.sessions === undefined ? undefined : fieldOf(flags.sessions)
    const input = await openInput(file, flags.encoding)
    const stopping = untilSignal()
    return withModel(flags.model ?? watchModel, flags, async ({ model, tokenizer }) => {
      if (tokenizer === null)
        throw usage('This model has no tokenizer, and lines are text. Name a model that reads text.')
      const contexts = createContextStore(model, { warn: say, blocks: blocksOf(flags, given, model) })
      try {
        const beginning =
          flags.from === undefined ? undefined : await openBeginning(flags.from, flags, { model, tokenizer }, contexts)
        const sessions = createSessions(contexts, tokenizer, { field, beginning, explains: flags.explain })
        let [records, size, bits] = [0, 0, 0]
        const shower = createShower({ ...flags, named: field !== undefined })
        for await (const read of readAll(input.read(stopping), sessions, join)) {
          const { session, line, number, bits: own, novelty } = read
          // A long file is not read to its end behind a signal.
          if (stopping.aborted) break
          records += 1
          size += line.length + 1
          const cost = own.reduce((a, b) => a + b, 0)
          bits += cost
          const parts = standsOut(novelty, flags.top)
          if (parts.length === 0) continue
          const [pattern, words] = [novelty.pattern(), novelty.words()]
          shower.show({
            ...novelty,
            ...(field !== undefined && { session }),
            ...(flags.explain && { nearest: read.nearest() }),
            ...{ standsOut: parts, pattern, words, line: number, bits: cost, text: textOf(line) },
          })
        }
        const perByte = size === 0 ? 0 : bits / size
        const of = field === undefined ? '' : ` of ${plural(sessions.begun, 'session')}`
        const read = `${plural(records, 'line')}${of}, ${bytes(size)}, ${perByte.toFixed(3)} bits per byte`
        if (!flags.json) say(outcome(read, shower))
        if (sessions.forgotten > 0)
          say(
            `${plural(sessions.forgotten, 'session')} that came least lately gave way to others; where one came again it began anew. Split the stream, or name a field with fewer values.`,
          )
        return stopping.aborted ? exitCodeOfSignal(stopping) : 0
      } finally {
        await contexts.close()
      }
    })
  },
})
