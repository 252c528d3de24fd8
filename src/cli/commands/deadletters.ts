import { type DeadLetter, deadLettersOf } from '../../client/letters.ts'
import { textIn } from '../../client/records.ts'
import { type LetterFilter, matches, type Replayed, replayDeadLetters } from '../../client/replay.ts'
import { namesOf } from '../../client/topics.ts'
import { command, type ExitCode } from '../command.ts'
import { inputTopicFlag, logFlags, partitionsOf, withExistingLog } from '../common.ts'
import { nearest, on, optional, optionalWhole, refuseIdle, usage } from '../flags.ts'
import { plural, preview, printJson, printRow, say, shortName } from '../output.ts'
import { exitCodeOfSignal, untilSignal } from '../signals.ts'

const asJson = ({ at, offset, key, value, timestamp, reason, batch, fault }: DeadLetter) => ({
  ...{ partition: at.partition, offset: at.offset, topic: at.topic, letter: offset, timestamp },
  ...{ session: key === null ? null : textIn(key), reason, bytes: value?.length ?? 0, batch, fault },
})

const who = ({ key }: DeadLetter): string => (key === null || key.length === 0 ? '(no key)' : shortName(textIn(key)))

const line = (letter: DeadLetter): string => {
  const { at, value, reason, batch, fault } = letter
  const what = batch === null ? preview(textIn(value)) : `the batch at offsets ${batch}`
  const broken = fault === null ? '' : `  (${fault})`
  return `${who(letter)}  partition ${at.partition}, offset ${at.offset}  ${reason}  ${what}${broken}`
}

const replayedLine = (done: Replayed): string => {
  const { letter } = done
  const what = `${who(letter)}  partition ${letter.at.partition}, offset ${letter.at.offset}`
  if (done.outcome === 'replayed') return `${what}  replayed at offset ${done.offset}`
  return `${what}  ${done.outcome === 'before' ? 'not replayed' : 'cannot be replayed'}: ${done.why}`
}

const replayedJson = (done: Replayed) => ({
  ...asJson(done.letter),
  outcome: done.outcome,
  ...(done.outcome === 'replayed' ? { replayedAt: done.offset } : { why: done.why }),
})

export const deadletters = command({
  name: 'deadletters',
  about:
    'Lists the events that could not be used, each with the reason. replay sends them to the input again as they were, each once: after the model, the session or the program that wrote them was put right.',
  args: [{ name: 'ACTION', help: 'replay; none: list', required: false }],
  flags: {
    ...logFlags,
    'input-topic': inputTopicFlag,
    session: optional('ID', 'only those of this session'),
    partition: optionalWhole('N', 'only those of this partition', { min: 0 }),
    offset: optionalWhole('N', 'only the event at this offset of the input', { min: 0 }),
    reason: optional('TEXT', 'only those whose reason contains this text'),
    all: on('with replay: all of them, where no other flag says which'),
    again: on('with replay: also those that were replayed before'),
  },
  notes:
    'A replayed event is a new record behind all others of its partition, with the header continuo-replay: TOPIC/PARTITION/OFFSET of the refused one, by which a later call knows that it was replayed. What is refused again is a dead letter again. SIGINT ends a replay between two of them; the exit code of a replay is 1 if a letter could not be replayed.',
  examples: [
    'deadletters --log file:continuo.db',
    'deadletters replay --log file:continuo.db --session book',
    'deadletters replay --log file:continuo.db --all --json',
  ],
  async run(flags, [action], given) {
    if (action !== undefined && action !== 'replay') {
      const hint = nearest(action, ['replay']) === null ? '' : ' Did you mean replay?'
      throw usage(`continuo deadletters takes replay, or nothing to list them; "${action}" is neither.${hint}`)
    }
    if (action === undefined) refuseIdle(given, ['all', 'again'], 'replay')
    const filter: LetterFilter = flags
    const isNarrow = [flags.session, flags.partition, flags.offset, flags.reason].some((each) => each !== undefined)
    if (action === 'replay' && isNarrow === flags.all)
      throw usage(
        flags.all
          ? '--all goes without --session, --partition, --offset and --reason: say which, or all.'
          : 'continuo deadletters replay needs to know which: --session, --partition, --offset, --reason, or --all.',
      )
    return withExistingLog(flags, async (log): Promise<ExitCode> => {
      const names = namesOf(log, flags['input-topic'])
      const partitions = await partitionsOf(log, names)
      if (flags.partition !== undefined && flags.partition >= partitions)
        throw usage(`--partition takes 0 to ${partitions - 1} in this log; ${flags.partition} is not there.`)
      if (action === undefined) {
        let found = 0
        for (let partition = 0; partition < partitions; partition += 1) {
          for await (const letter of deadLettersOf(log, names.deadletters, partition)) {
            if (!matches(letter, filter)) continue
            found += 1
            if (flags.json) printJson(asJson(letter))
            else printRow(line(letter))
          }
        }
        if (!flags.json) say(`${plural(found, 'dead letter')} in ${log.url}.`)
        return 0
      }
      const signal = untilSignal('Stopping: the letters in hand are replayed, no others. Once more ends at once.')
      const { replayed, before, refused } = await replayDeadLetters(log, {
        ...filter,
        ...{ names, partitions, again: flags.again, signal },
        onLetter: (done) => (flags.json ? printJson(replayedJson(done)) : printRow(replayedLine(done))),
      })
      if (!flags.json)
        say(
          `Replayed ${plural(replayed, 'dead letter')}; ${before} had been replayed before, ${refused} cannot be replayed.`,
        )
      if (signal.aborted) return exitCodeOfSignal(signal)
      return refused > 0 ? 1 : 0
    })
  },
})
