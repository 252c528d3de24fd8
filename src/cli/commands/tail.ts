import type { z } from 'zod'
import { alert } from '../../../topics/alerts.ts'
import type { TopicContract } from '../../../topics/common.ts'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import {
  type Adapted,
  type MemoryEvent,
  type Observation,
  observation,
  type Perspectives,
} from '../../../topics/observations.ts'
import { type Generated, generated } from '../../../topics/tokens.ts'
import { follow } from '../../client/follow.ts'
import { eventIn, headersOf, recordAsJson, textIn } from '../../client/records.ts'
import { namesOf } from '../../client/topics.ts'
import type { StoredRecord } from '../../streams/log.ts'
import { command } from '../command.ts'
import { inputTopicFlag, logFlags, partitionsOf, withExistingLog } from '../common.ts'
import { choice, on, optional, optionalWhole } from '../flags.ts'
import { noEvent, plural, preview, printJson, printRow, say, shortName, write } from '../output.ts'
import { untilSignal } from '../signals.ts'

/** "archive 12", "inject 3, 11": what an external memory did. */
const eventText = (event: MemoryEvent): string => {
  if ('blocks' in event) return `${event.type} ${event.blocks.join(', ')}`
  return 'block' in event ? `${event.type} ${event.block}` : event.type
}

const nats = (value: number | null): string => (value === null ? 'no number' : value.toFixed(3))

const BY = { cancel: 'a cancel', delete: 'the deletion of its session', time: '--adapt-time of its worker' } as const

const adaptedLine = ({ session, pulse, tokens, evaluations, stages, bound, loss, endedBy }: Adapted): string => {
  if (endedBy !== undefined)
    return `${session}  adaptation at pulse ${pulse} ended by ${BY[endedBy]}: nothing was learnt`
  const kept = stages.filter(({ accepted }) => accepted).length
  const what =
    loss === null
      ? 'nothing to learn from yet'
      : `${nats(loss.before)} to ${nats(loss.after)} nats a token  ${plural(evaluations, 'evaluation')}, ${kept} of ${plural(stages.length, 'stage')} kept, ${bound} bound`
  return `${session}  adapted at pulse ${pulse} to ${plural(tokens, 'token')}  ${what}`
}

const perspectivesLine = ({ session, requestId, fromPulse, toPulse, draws }: Perspectives): string => {
  const fired = draws.filter((draw) => draw.fired).length
  const apart = draws.filter(({ agreed }) => agreed === false).length
  const recalled = draws.filter(({ hdm }) => hdm?.hit).length
  return `${session} / ${requestId}  pulses ${fromPulse} to ${toPulse}  perspectives asked ${fired} times: ${apart} disagreed, ${recalled} recalled`
}

const observationLine = (value: Observation): string => {
  switch (value.type) {
    case 'opened':
      return `${value.session}  opened at pulse ${value.pulse}`
    case 'closed':
      return `${value.session}  closed at pulse ${value.pulse}  ${plural(value.tokens, 'token')} read, ${value.generated} generated`
    case 'remembered':
      return `${value.session}  memory  ${value.events.map(eventText).join('; ')}`
    case 'adapted':
      return adaptedLine(value)
    case 'perspectives':
      return perspectivesLine(value)
    case 'deleted':
      return `${value.session}  deleted at pulse ${value.pulse}`
    case 'observed': {
      const bits = value.bitsPerByte === null ? '' : `  ${value.bitsPerByte.toFixed(3)} bits per byte`
      const id = value.cause.id === null ? '' : `  ${value.cause.id}`
      return `${value.session}  pulses ${value.fromPulse} to ${value.toPulse}  ${value.nats.toFixed(2)} nats${bits}${id}`
    }
  }
}

/** Prints records of events; those that hold none are named and left out. */
const events =
  <T>(schema: z.ZodType<T>, print: (event: T) => void): ((record: StoredRecord) => void) =>
  (record) => {
    const event = eventIn(schema, record)
    if (event === null) say(noEvent(record))
    else print(event)
  }

/** Prints generated text as it comes; a heading where another session or request begins. */
const createTextPrinter = (single: boolean): ((event: Generated) => void) => {
  let current = ''
  let atLineStart = true
  return (value) => {
    const speaker = `${value.session} / ${value.requestId}`
    if (speaker !== current && !single)
      write(`${atLineStart ? '' : '\n'}── ${shortName(value.session)} / ${shortName(value.requestId)}\n`)
    current = speaker
    write(value.text)
    if (value.text !== '') atLineStart = value.text.endsWith('\n')
    if (value.finish === null) return
    if (!atLineStart) process.stdout.write('\n')
    atLineStart = true
  }
}

const createPrinter = (
  topic: TopicContract['name'],
  single: boolean,
  json: boolean,
): ((record: StoredRecord) => void) => {
  if (json) return (record) => printJson(recordAsJson(topic, record))
  if (topic === 'tokens') return events(generated, createTextPrinter(single))
  if (topic === 'observations')
    return events(observation, (value) => printRow(observationLine({ ...value, session: shortName(value.session) })))
  if (topic === 'alerts')
    return events(alert, ({ session, standsOut, line }) =>
      printRow(`${shortName(session)}  line ${line.line}  ${standsOut.join(', ')}  ${line.text ?? ''}`),
    )
  if (topic === 'deadletters') {
    return (record) => {
      const headers = headersOf(record)
      const { reason, partition, offset } = DEAD_LETTER_HEADERS
      if (headers[reason] === undefined || headers[offset] === undefined) {
        say(noEvent(record))
        return
      }
      const from = `partition ${headers[partition]}, offset ${headers[offset]}`
      printRow(
        `${shortName(textIn(record.key)) || '(no key)'}  ${from}  ${headers[reason]}  ${preview(textIn(record.value))}`,
      )
    }
  }
  return (record) => {
    printRow(
      `${shortName(textIn(record.key))}  ${record.partition}/${record.offset}  ${preview(textIn(record.value), 100)}`,
    )
  }
}

/** After so long without a record of the session that was asked for, its name may be wrong, ms. */
const SILENCE = 3000

export const tail = command({
  name: 'tail',
  about: 'Follows an output topic (or the input) in every partition and prints what comes. Ctrl-C ends it.',
  flags: {
    ...logFlags,
    session: optional('ID', 'only this session'),
    topic: choice(['tokens', 'observations', 'alerts', 'deadletters', 'chunks'], 'what to follow', 'tokens'),
    'input-topic': inputTopicFlag,
    'from-beginning': on('print what is already there first'),
    'until-idle': optionalWhole('MS', 'end when nothing came for so long', { min: 0 }),
  },
  examples: [
    'tail --log file:continuo.db --session book --from-beginning',
    'tail --log file:continuo.db --topic observations --json',
  ],
  async run(flags) {
    const signal = untilSignal()
    return withExistingLog(flags, async (log) => {
      const names = namesOf(log, flags['input-topic'])
      const partitions = await partitionsOf(log, names)
      const show = createPrinter(flags.topic, flags.session !== undefined, flags.json)
      const records = follow(log, {
        topic: names[flags.topic],
        partitions,
        session: flags.session,
        from: flags['from-beginning'] ? 'beginning' : 'end',
        untilIdle: flags['until-idle'],
        signal,
      })
      const { session } = flags
      let nothing = session !== undefined
      const tellNothing = (): void => {
        if (!nothing) return
        nothing = false
        say(
          `Nothing of session "${shortName(session!)}" ${flags['from-beginning'] ? 'is' : 'has come'} in ${names[flags.topic]} yet. continuo sessions lists the sessions that there are.`,
        )
      }
      const silence = setTimeout(tellNothing, SILENCE).unref()
      for await (const record of records) {
        nothing = false
        show(record)
      }
      clearTimeout(silence)
      tellNothing()
      return 0
    })
  },
})
