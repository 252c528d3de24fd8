/** ask: appends the events of one session to the log, and reads from the log what the worker answers. */
import type { ChunkInput } from '../../../topics/chunks.ts'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import type { TopicNames } from '../../../topics/index.ts'
import { type Generated, generated } from '../../../topics/tokens.ts'
import { batched, chunkRecord } from '../../client/chunks.ts'
import { headersOf, textIn } from '../../client/records.ts'
import type { Tail } from '../../client/tail.ts'
import { ContinuoError } from '../../errors.ts'
import { ASKED_HEADER } from '../../operators/pipeline/asked.ts'
import { SHARE_HEADER } from '../../operators/pipeline/shares.ts'
import type { EventLog, Headers, RecordIn, StoredRecord } from '../../streams/log.ts'
import { Refusal } from '../refusal.ts'
import type { Unfinished } from './unfinished.ts'

export interface Topics {
  readonly log: EventLog
  readonly names: TopicNames
  readonly unfinished: Unfinished
  readonly tokens: Tail
  readonly deadLetters: Tail
  /** Of the events that are sent, beside those that every event has. */
  readonly headers?: Headers
}

/** Positions in the output topics before anything was sent: what the events cause comes at or behind them. */
export interface Place {
  readonly partition: number
  readonly tokensFrom: number
  readonly deadLettersFrom: number
}

/** The same with the position in the input topic: the events come at or behind it. */
export interface Begun extends Place {
  readonly chunksFrom: number
}

export interface Sent extends Begun {
  /** Of the events, in their order. */
  readonly offsets: readonly number[]
}

const placeOf = async ({ log, names }: Topics, session: string): Promise<Begun> => {
  const partition = await log.partitionOf(names.chunks, Buffer.from(session))
  const [chunks, tokens, letters] = await Promise.all([
    log.bounds(names.chunks, partition),
    log.bounds(names.tokens, partition),
    log.bounds(names.deadletters, partition),
  ])
  return { partition, chunksFrom: chunks.end, tokensFrom: tokens.end, deadLettersFrom: letters.end }
}

/** An event, and its session. */
export type FedTo = readonly [session: string, event: ChunkInput]
/** The session stands there where it is another one of the partition. */
export type Fed = ChunkInput | FedTo

const isOfOther = (fed: Fed): fed is FedTo => Array.isArray(fed)

/** What stands beside an event, for gateways that are asked for it later (operators/pipeline/asked.ts). */
export type AskedWith = (event: ChunkInput) => Uint8Array | undefined

/**
 * Appends the events, which count for this session and key, and returns their offsets. Rejects with what the log
 * rejects with; some may be in the log then. Throws a Refusal (429) where the session or the key has too many that are
 * not finished.
 */
const append = async (
  { log, names, unfinished, headers: more = [] }: Topics,
  session: string,
  key: string | null,
  feds: readonly Fed[],
  asked: AskedWith = () => undefined,
): Promise<number[]> => {
  const events = feds.map((fed) => (isOfOther(fed) ? fed : ([session, fed] as const)))
  const admitted = unfinished.admit(
    session,
    key,
    events.map(([, event]) => event),
  )
  const headers: Headers = [...more, ...(key === null ? [] : [[SHARE_HEADER, Buffer.from(key)] as const])]
  async function* records(): AsyncGenerator<RecordIn> {
    for (const [id, event] of events) {
      const beside = asked(event)
      yield {
        ...chunkRecord(id, event),
        headers: beside === undefined ? headers : [...headers, [ASKED_HEADER, beside]],
      }
    }
  }
  try {
    const offsets: number[] = []
    let partition = 0
    for await (const batch of batched(records()))
      for (const placed of await log.append(names.chunks, batch)) {
        partition = placed.partition
        offsets.push(placed.offset)
      }
    admitted.sent(partition, offsets)
    return offsets
  } catch (error) {
    admitted.failed()
    throw error
  }
}

/**
 * Appends the events, which may depend on the place. `key`: that of the client, by its name. Rejects as `append` does.
 */
export const send = async (
  topics: Topics,
  session: string,
  key: string | null,
  events: (place: Begun) => readonly Fed[],
  asked?: AskedWith,
): Promise<Sent> => {
  const place = await placeOf(topics, session)
  return { ...place, offsets: await append(topics, session, key, events(place), asked) }
}

/**
 * Asks for the end of a request. Whether it was in time is told by its last run, or by a dead letter. Rejects as
 * `append` does.
 */
export const sendCancel = async (
  topics: Topics,
  session: string,
  key: string | null,
  requestId: string,
): Promise<void> => {
  await append(topics, session, key, [{ type: 'cancel', requestId }])
}

/** The event in a record of the tokens topic. Throws REFUSED for what is none. */
export const generatedIn = (record: StoredRecord): Generated => {
  try {
    return generated.parse(JSON.parse(textIn(record.value)))
  } catch (cause) {
    throw new ContinuoError(
      'REFUSED',
      `The record at ${record.topic}, partition ${record.partition}, offset ${record.offset} is no event of that topic.`,
      { cause },
    )
  }
}

/** Values of several sources as they come; when the caller leaves, or one of them fails, `stop` ends the others. */
export async function* merged<T>(sources: readonly AsyncGenerator<T>[], stop: () => void): AsyncGenerator<T> {
  const next = (source: AsyncGenerator<T>) => source.next().then((result) => ({ source, result }))
  const pending = new Map(sources.map((source) => [source, next(source)]))
  try {
    while (pending.size > 0) {
      const { source, result } = await Promise.race(pending.values())
      if (result.done) pending.delete(source)
      else {
        pending.set(source, next(source))
        yield result.value
      }
    }
  } finally {
    stop()
    await Promise.allSettled(pending.values())
    await Promise.allSettled(sources.map((source) => source.return(undefined)))
  }
}

/** What the worker says of an event that it refused. */
export class EventRefused extends Refusal {
  /** That of the event. */
  readonly offset: number
  /** Of one that was to be done once, and was: that of the first event with its key. */
  readonly first: number | null
  constructor(offset: number, first: number | null, message: string, code: string) {
    super(400, message, { code })
    this.offset = offset
    this.first = first
  }
}

/**
 * The refusal that a dead letter tells. Of a context that is full, in the words and by the code that clients look for.
 */
export const refusalIn = (record: StoredRecord): EventRefused => {
  const headers = headersOf(record)
  const reason = headers[DEAD_LETTER_HEADERS.reason] ?? 'The event was refused without a reason.'
  const offset = Number(headers[DEAD_LETTER_HEADERS.offset])
  const first = headers[DEAD_LETTER_HEADERS.first]
  const of = first === undefined ? null : Number(first)
  const [, needed, most] = /^context overflow: (\d+) positions exceed the (\d+) of one context/.exec(reason) ?? []
  if (needed === undefined) return new EventRefused(offset, of, reason, 'event_refused')
  return new EventRefused(
    offset,
    of,
    `This model's maximum context length is ${most} tokens, and the request makes it ${needed}. Leave out what stands first, or begin another session.`,
    'context_length_exceeded',
  )
}

/** Of an answer whose session was set aside. */
export const setAside = (session: string): Refusal =>
  new Refusal(409, `Session "${session}" was set aside while it generated; GET /v1/sessions/ID says why.`, {
    code: 'session_stopped',
  })

/** Which records belong to a request. */
export interface Wanted {
  run(run: Generated): boolean
  /** Whether the dead letter is of one of its events; `offset` is that of the event. */
  letter(offset: number, record: StoredRecord): boolean
}

export const wantedOf = ({ offsets }: Sent, generate: number): Wanted => ({
  run: ({ cause }) => cause.offset === generate,
  letter: (offset) => offsets.includes(offset),
})

/** What the worker refuses of the events, as it comes; ends with the signal. */
export async function* refusalsOf(
  { deadLetters }: Topics,
  session: string,
  { partition, deadLettersFrom }: Place,
  wanted: Pick<Wanted, 'letter'>,
  signal: AbortSignal,
): AsyncGenerator<Refusal> {
  for await (const record of deadLetters.records(partition, session, deadLettersFrom, signal))
    if (wanted.letter(Number(headersOf(record)[DEAD_LETTER_HEADERS.offset]), record)) yield refusalIn(record)
}

/**
 * What a `generate` event brings, up to and with the run that has a `finish`. Throws a Refusal (400) where the worker
 * refused one of the events (the event is in the dead letters), and where the session was set aside (409). Where
 * `signal` is aborted the iteration ends without a `finish`.
 */
export async function* answersTo(
  topics: Topics,
  session: string,
  place: Place,
  wanted: Wanted,
  signal: AbortSignal,
): AsyncGenerator<Generated> {
  const over = new AbortController()
  const ends = AbortSignal.any([signal, over.signal])
  async function* runs(): AsyncGenerator<Generated> {
    for await (const record of topics.tokens.records(place.partition, session, place.tokensFrom, ends)) {
      const run = generatedIn(record)
      if (wanted.run(run)) yield run
    }
  }
  const refusals = refusalsOf(topics, session, place, wanted, ends)
  for await (const answer of merged<Generated | Refusal>([runs(), refusals], () => over.abort())) {
    if (answer instanceof Refusal) throw answer
    if (answer.finish === 'stopped') throw setAside(session)
    yield answer
    if (answer.finish !== null) return
  }
}
