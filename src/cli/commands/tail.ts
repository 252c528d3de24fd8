import { setTimeout as sleep } from 'node:timers/promises'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import type { Observation } from '../../../topics/observations.ts'
import type { Generated } from '../../../topics/tokens.ts'
import type { EventLog, StoredRecord } from '../../streams/log.ts'
import { command } from '../command.ts'
import { inputTopicFlag, logFlags, namesOf, partitionsOf, withExistingLog } from '../common.ts'
import { choice, on, optional, optionalWhole } from '../flags.ts'
import { plural, preview, print, printable, printJson } from '../output.ts'
import { untilSignal } from '../signals.ts'

const utf8 = new TextDecoder()
const textOf = (bytes: Uint8Array | null): string => (bytes === null ? '' : utf8.decode(bytes))

const headersOf = ({ headers }: StoredRecord): Record<string, string> =>
  Object.fromEntries(headers.map(([name, value]) => [name, textOf(value)]))

const asJson = (topic: string, record: StoredRecord): unknown => {
  const { partition, offset, timestamp, key } = record
  const place = { partition, offset, timestamp, session: key === null ? null : textOf(key) }
  if (topic === 'deadletters') {
    const headers = headersOf(record)
    const value = record.value === null ? null : Buffer.from(record.value).toString('base64')
    return { ...place, reason: headers[DEAD_LETTER_HEADERS.reason] ?? null, headers, valueBase64: value }
  }
  try {
    return { ...place, value: JSON.parse(textOf(record.value)) as unknown }
  } catch {
    return { ...place, valueBase64: record.value === null ? null : Buffer.from(record.value).toString('base64') }
  }
}

const observationLine = (value: Observation): string => {
  switch (value.type) {
    case 'opened':
      return `${value.session}  opened at pulse ${value.pulse}`
    case 'closed':
      return `${value.session}  closed at pulse ${value.pulse}  ${plural(value.tokens, 'token')} read, ${value.generated} generated`
    case 'observed': {
      const bits = value.bitsPerByte === null ? '' : `  ${value.bitsPerByte.toFixed(3)} bits per byte`
      const id = value.cause.id === null ? '' : `  ${value.cause.id}`
      return `${value.session}  pulses ${value.fromPulse} to ${value.toPulse}  ${value.nats.toFixed(2)} nats${bits}${id}`
    }
  }
}

/** Prints generated text as it comes; a heading where another session or request begins. */
const createTextPrinter = (single: boolean): ((record: StoredRecord) => void) => {
  let current = ''
  let atLineStart = true
  return (record) => {
    const value = JSON.parse(textOf(record.value)) as Generated
    const speaker = `${value.session} / ${value.requestId}`
    if (speaker !== current && !single) process.stdout.write(`${atLineStart ? '' : '\n'}── ${printable(speaker)}\n`)
    current = speaker
    process.stdout.write(printable(value.text))
    if (value.text !== '') atLineStart = value.text.endsWith('\n')
    if (value.finish === null) return
    if (!atLineStart) process.stdout.write('\n')
    atLineStart = true
  }
}

const createPrinter = (topic: string, single: boolean, json: boolean): ((record: StoredRecord) => void) => {
  if (json) return (record) => printJson(asJson(topic, record))
  if (topic === 'tokens') return createTextPrinter(single)
  if (topic === 'observations') {
    return (record) => print(printable(observationLine(JSON.parse(textOf(record.value)) as Observation)))
  }
  if (topic === 'deadletters') {
    return (record) => {
      const headers = headersOf(record)
      const { reason, partition, offset } = DEAD_LETTER_HEADERS
      const from = `partition ${headers[partition]}, offset ${headers[offset]}`
      print(
        printable(`${textOf(record.key) || '(no key)'}  ${from}  ${headers[reason]}  ${preview(textOf(record.value))}`),
      )
    }
  }
  return (record) => {
    print(
      printable(`${textOf(record.key)}  ${record.partition}/${record.offset}  ${preview(textOf(record.value), 100)}`),
    )
  }
}

interface Following {
  readonly log: EventLog
  readonly topic: string
  readonly fromBeginning: boolean
  readonly print: (record: StoredRecord) => void
  readonly signal: AbortSignal
}

/** Follows one partition. `reached` is told once when everything that was there at the start was printed. */
const follow = async (
  { log, topic, fromBeginning, print: show, signal }: Following,
  partition: number,
  wanted: Buffer | null,
  moved: () => void,
  reached: () => void,
): Promise<void> => {
  const { begin, end } = await log.bounds(topic, partition)
  const from = fromBeginning ? begin : end
  let caughtUp = from >= end
  if (caughtUp) reached()
  for await (const batch of log.read(topic, partition, from, { follow: true, undecodable: true, signal })) {
    for (const record of batch.records) {
      if (wanted === null || (record.key !== null && wanted.equals(record.key))) show(record)
      moved()
    }
    if (!caughtUp && batch.next >= end) {
      caughtUp = true
      reached()
    }
  }
}

export const tail = command({
  name: 'tail',
  about: 'Follows an output topic (or the input) in every partition and prints what comes. Ctrl-C ends it.',
  flags: {
    ...logFlags,
    session: optional('ID', 'only this session'),
    topic: choice(['tokens', 'observations', 'deadletters', 'chunks'], 'what to follow', 'tokens'),
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
      const done = new AbortController()
      signal.addEventListener('abort', () => done.abort())
      let last = performance.now()
      let behind = partitions
      const following: Following = {
        log,
        topic: names[flags.topic],
        fromBeginning: flags['from-beginning'],
        print: createPrinter(flags.topic, flags.session !== undefined, flags.json),
        signal: done.signal,
      }
      const wanted = flags.session === undefined ? null : Buffer.from(flags.session)
      const moved = (): void => {
        last = performance.now()
      }
      const readers = Array.from({ length: partitions }, (_, partition) =>
        follow(following, partition, wanted, moved, () => {
          behind -= 1
          moved()
        }),
      )
      const idle = async (): Promise<void> => {
        const patience = flags['until-idle']
        while (patience !== undefined && !done.signal.aborted) {
          if (behind === 0 && performance.now() - last >= patience) break
          await sleep(20, null, { signal: done.signal }).catch(() => {})
        }
        if (patience !== undefined) done.abort()
      }
      try {
        await Promise.all([...readers, idle()])
      } finally {
        done.abort()
      }
      return 0
    })
  },
})
