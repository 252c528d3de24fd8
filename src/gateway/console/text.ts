/**
 * One session as it reads and writes: each token with its surprisal. Observations and generated tokens come from their
 * topics; the text that was read stands in the input record that an observation names, and becomes tokens again by the
 * model's tokenizer.
 */
import type { Chunk } from '../../../topics/chunks.ts'
import type { TopicNames } from '../../../topics/index.ts'
import { type Observation, type Observed, observation } from '../../../topics/observations.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { eventIn, textIn } from '../../client/records.ts'
import type { Tail } from '../../client/tail.ts'
import type { Tokenizer } from '../../models/tokenizer/index.ts'
import { ranksOf } from '../../novelty/stands-out.ts'
import { idsOf } from '../../operators/pipeline/tokenize.ts'
import { eventOf } from '../../operators/pipeline/validate.ts'
import type { EventLog } from '../../streams/log.ts'
import { generatedIn, merged } from '../answer/ask.ts'
import type { Reports } from './reports.ts'
import type { SessionEvent } from './types.ts'

/**
 * Records of the session that a stream begins with, and how many of the partition are looked through for them, at most.
 */
const WANTED = 64
const MOST_LOOKED = 16_384
const FIRST_LOOK = 256
/** Characters of a text that is shown as a whole. */
const MOST_TEXT = 65_536

/**
 * A position of the topic from which on there are `WANTED` records of the session, or as many as there are within the
 * bound.
 */
const placeOfLast = async (log: EventLog, topic: string, partition: number, session: string): Promise<number> => {
  const { begin, end } = await log.bounds(topic, partition)
  const key = Buffer.from(session)
  let from = end
  let found = 0
  for (let size = FIRST_LOOK; from > begin && end - from < MOST_LOOKED && found < WANTED; size *= 2) {
    const until = from
    from = Math.max(begin, until - size)
    for await (const { records } of log.read(topic, partition, from, { until, undecodable: true }))
      for (const record of records) if (record.key !== null && key.equals(record.key)) found += 1
  }
  return from
}

/**
 * Tokens as pieces of text. Characters that several tokens make up stand with the last of them, also where they come in
 * several calls; bytes that end a character whose beginning did not come are left out.
 */
export const createPieces = (tokenizer: Pick<Tokenizer, 'bytesOf'> | null) => {
  const decoder = new TextDecoder('utf-8', { ignoreBOM: true })
  let isFirst = true
  const withoutRest = (bytes: Uint8Array): Uint8Array => {
    const start = bytes.findIndex((byte) => (byte & 0xc0) !== 0x80)
    if (bytes.length > 0 && start !== -1) isFirst = false
    return start === -1 ? bytes.subarray(bytes.length) : bytes.subarray(start)
  }
  return (ids: ArrayLike<number>): string[] =>
    Array.from(ids, (id) => {
      if (tokenizer === null) return ` #${id}`
      const bytes = tokenizer.bytesOf(id)
      return decoder.decode(isFirst ? withoutRest(bytes) : bytes, { stream: true })
    })
}
type Pieces = ReturnType<typeof createPieces>

const eventAt = async (log: EventLog, topic: string, partition: number, offset: number): Promise<Chunk | null> => {
  try {
    for await (const { records } of log.read(topic, partition, offset, { until: offset + 1, maxBytes: 1 })) {
      const event = eventOf(JSON.parse(textIn(records[0]?.value ?? null)))
      return typeof event === 'string' ? null : event
    }
  } catch {
    // Trimmed, or none of ours: what is known of it is shown without its text.
  }
  return null
}

const NO_TOKENIZER: Tokenizer = {
  ...{ vocabSize: 0, eos: null, begun: '' },
  push: () => ({ ids: new Int32Array(0), held: '' }),
  pushBytes: () => ({ ids: new Int32Array(0), held: '' }),
  flush: () => new Int32Array(0),
  bytesOf: () => new Uint8Array(0),
}

/** The record whose tokens are being told. */
interface Reading {
  readonly offset: number
  readonly event: Chunk | null
  readonly ids: Int32Array
  /**
   * Tokens told of it; null: the first observation that was seen is not its first, so which tokens it speaks of is not
   * known.
   */
  told: number | null
}

/** Reads the observations of one session in their order. */
const createReader = (log: EventLog, names: TopicNames, partition: number, tokenizer: Tokenizer | null) => {
  let reading: Reading | null = null
  /** What the tokenizer holds back behind the last record. */
  let held = ''
  const pieces = createPieces(tokenizer)

  const begin = async (seen: Observed): Promise<Reading> => {
    const event = await eventAt(log, names.chunks, partition, seen.cause.offset)
    const { ids, held: next } =
      event === null
        ? { ids: new Int32Array(0), held: '' }
        : idsOf(event, { held, empty: seen.fromPulse === 0 }, tokenizer ?? NO_TOKENIZER)
    held = next
    const isFirst = reading !== null || (seen.last && seen.tokens === ids.length)
    return { offset: seen.cause.offset, event, ids, told: isFirst ? 0 : null }
  }

  const textOf = ({ event }: Reading, tokens: number): string => {
    if (event?.type === 'text') {
      const text = 'text' in event ? event.text : Buffer.from(event.bytes, 'base64').toString()
      return text.length > MOST_TEXT ? `…${text.slice(-MOST_TEXT)}` : text
    }
    return `[${tokens} tokens]`
  }

  return async (seen: Observed): Promise<SessionEvent | null> => {
    if (reading?.offset !== seen.cause.offset) reading = await begin(seen)
    const { ids, told } = reading
    const { fromPulse: from, toPulse: to, tokens, predictions, nats, surprisal, last } = seen
    if (tokens === 0) return null
    const mean = predictions === 0 ? null : nats / predictions
    const common = { type: 'read', from, to, offset: seen.cause.offset, mean } as const
    const fits = told !== null && told + tokens <= ids.length && (!last || told + tokens === ids.length)
    if (told !== null) reading.told = told + tokens
    if (surprisal === undefined || !fits) return { ...common, text: [textOf(reading, tokens)], nats: null }
    return { ...common, text: pieces(ids.subarray(told, told + tokens)), nats: surprisal }
  }
}

const writtenIn = (run: Generated, pieces: Pieces): SessionEvent => ({
  type: 'written',
  from: run.fromPulse,
  to: run.toPulse,
  requestId: run.requestId,
  index: run.index,
  text: pieces(run.ids),
  nats: run.logprobs.map((logprob) => -logprob),
  finish: run.finish,
})

/** What an observation tells of the lines that it ends; null: of none. */
const linesIn = ({ lines = [] }: Observed, at: number): SessionEvent | null => {
  const [first, last] = [lines[0], lines.at(-1)]
  if (first === undefined || last === undefined) return null
  const found = lines.flatMap((told) => {
    const { line, fromPulse: from, toPulse: to, bits, seen, silence, text, pattern, words } = told
    const ranks = ranksOf(told)
    if (text === undefined || pattern === undefined || words === undefined || Object.keys(ranks).length === 0) return []
    const before = told.first === undefined || told.last === undefined ? null : { first: told.first, last: told.last }
    const silent = silence && { silent: silence.kinds.map((kind) => ({ ...kind })) }
    return [{ line, from, to, at, ranks, bits, seen, before, text, pattern, words, ...silent }]
  })
  return { type: 'lines', first: first.line, last: last.line, found }
}

const MARKS: Readonly<Partial<Record<Observation['type'], string>>> = { opened: 'opened', closed: 'closed' }

const otherIn = (seen: Exclude<Observation, Observed>): SessionEvent => {
  switch (seen.type) {
    case 'remembered':
      return { type: 'blocks', events: seen.events }
    case 'perspectives':
      return {
        type: 'experts',
        from: seen.fromPulse,
        experts: seen.experts,
        fired: seen.draws.filter(({ fired }) => fired).length,
        draws: seen.draws.length,
      }
    case 'adapted':
      return {
        type: 'mark',
        from: seen.pulse,
        text: seen.endedBy ? 'an adaptation was ended' : `adapted with ${seen.evaluations} evaluations`,
      }
    default:
      return { type: 'mark', from: seen.pulse, text: MARKS[seen.type] ?? seen.type }
  }
}

export interface TextDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly tokens: Tail
  readonly observations: Tail
  readonly reports: Reports
  readonly tokenizer: Tokenizer | null
}

/**
 * Events of the session: those of its last records, and what is to come, until the signal fires. Rejects with what
 * reading the log rejects with.
 */
export async function* sessionEvents(
  { log, names, tokens, observations, reports, tokenizer }: TextDeps,
  session: string,
  signal: AbortSignal,
): AsyncGenerator<SessionEvent> {
  const partition = await log.partitionOf(names.chunks, Buffer.from(session))
  const over = new AbortController()
  const ends = AbortSignal.any([signal, over.signal])
  const readObserved = createReader(log, names, partition, tokenizer)
  async function* observed(): AsyncGenerator<SessionEvent> {
    const from = await placeOfLast(log, names.observations, partition, session)
    for await (const record of observations.records(partition, session, from, ends)) {
      const seen = eventIn(observation, record)
      if (seen === null) continue
      const events =
        seen.type === 'observed' ? [await readObserved(seen), linesIn(seen, record.timestamp)] : [otherIn(seen)]
      for (const event of events) if (event !== null) yield event
    }
  }
  async function* written(): AsyncGenerator<SessionEvent> {
    const from = await placeOfLast(log, names.tokens, partition, session)
    let request = ''
    let pieces = createPieces(tokenizer)
    for await (const record of tokens.records(partition, session, from, ends)) {
      const run = generatedIn(record)
      if (run.requestId !== request) pieces = createPieces(tokenizer)
      request = run.requestId
      yield writtenIn(run, pieces)
    }
  }
  async function* remembered(): AsyncGenerator<SessionEvent> {
    for await (const { pulse, norms, window, levels } of reports.of(session, ends))
      yield { type: 'memory', pulse, norms, window, levels }
  }
  yield* merged<SessionEvent>([observed(), written(), remembered()], () => over.abort())
}
