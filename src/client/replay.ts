/**
 * Dead letters sent again: the refused record goes to the end of its partition of the input, as it was, with one header
 * more that says which record it replays. A letter is replayed once. That header is the note of it, so nothing else is
 * kept: who replays claims the partition for replays, which ends what another replay has open, and looks for the
 * headers in the input before it writes. A replay that was killed has written each letter whole or not at all.
 */
import type { TopicNames } from '../../topics/index.ts'
import { ContinuoError, codeOf, messageOf } from '../errors.ts'
import { timeOf } from '../operators/pipeline/emit.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../streams/log.ts'
import { type DeadLetter, deadLettersOf, placeText } from './letters.ts'
import { textIn } from './records.ts'

/**
 * The header of a replayed record: `topic/partition/offset` of the refused one. Outputs carry it like any header of the
 * input.
 */
export const REPLAY_HEADER = 'continuo-replay'
/** Claims of replays are those of this group, beside those of the workers. */
const REPLAY_GROUP = 'continuo-replay'

/** Letters and bytes that are appended at once. */
const BATCH_LETTERS = 256
const BATCH_BYTES = 512 * 1024

/** Which letters; what is left out does not matter. */
export interface LetterFilter {
  /** The session that the key names. */
  readonly session?: string | undefined
  /** Partition of the refused record in the input. */
  readonly partition?: number | undefined
  /** Offset of the refused record in the input. */
  readonly offset?: number | undefined
  /** Offset of the letter's first part in the topic of dead letters. */
  readonly letter?: number | undefined
  /** A part of the reason. */
  readonly reason?: string | undefined
}

export const matches = (
  { at, key, reason, offset: place }: DeadLetter,
  { session, partition, offset, letter, reason: part }: LetterFilter,
): boolean =>
  (session === undefined || (key !== null && textIn(key) === session)) &&
  (partition === undefined || at.partition === partition) &&
  (offset === undefined || at.offset === offset) &&
  (letter === undefined || place === letter) &&
  (part === undefined || reason.includes(part))

/** What became of one letter. */
export type Replayed =
  | { readonly letter: DeadLetter; readonly outcome: 'replayed'; readonly offset: number }
  /** It had been replayed before, or cannot be: `why` is a sentence. */
  | { readonly letter: DeadLetter; readonly outcome: 'before' | 'refused'; readonly why: string }

/** Which letters are sent again, and who is told. */
export interface ReplayOptions extends LetterFilter {
  /** Names of the log's topics: `topicNames(log.prefix)`. */
  readonly names: TopicNames
  /** Partitions of the input. */
  readonly partitions: number
  /** Also letters that were replayed before, or of which that is not known any more. Default false. */
  readonly again?: boolean
  /** No further letter is replayed after it fires. */
  readonly signal?: AbortSignal
  /** Called for each letter when it is known what became of it. */
  readonly onLetter?: (done: Replayed) => void
}

/** How many letters had which outcome. */
export interface ReplayCounts {
  /** Sent again by this call. */
  readonly replayed: number
  /** Left out: sent again by an earlier call. */
  readonly before: number
  /** Left out: they cannot be events again. */
  readonly refused: number
}

/** Why the record cannot be an event again, whatever the model is; null: it can. */
const faultOf = ({ key, at, batch, fault }: DeadLetter, { chunks }: TopicNames): string | null => {
  if (fault !== null) return `The record cannot be put together: ${fault}.`
  if (batch !== null)
    return `It is a record batch (offsets ${batch}) that cannot be decoded. Let its producer send the events again.`
  if (key === null || key.length === 0) return 'It has no key, so it would be refused again. Send its bytes with a key.'
  return at.topic === chunks
    ? null
    : `It came from the topic ${at.topic}, and the input is ${chunks}. Name that topic: --input-topic ${at.topic}.`
}

/**
 * Replays in a partition of the input, by the offsets of the refused records; `known`: replays of older records may be
 * gone.
 */
const replaysIn = async (
  log: EventLog,
  topic: string,
  partition: number,
  from: number,
): Promise<{ readonly done: Map<number, number>; readonly known: number }> => {
  const done = new Map<number, number>()
  const prefix = `${topic}/${partition}/`
  const { begin, end } = await log.bounds(topic, partition)
  const start = Math.max(begin, from)
  if (start >= end) return { done, known: begin }
  for await (const { records } of log.read(topic, partition, start, { until: end, undecodable: true })) {
    for (const { headers, offset } of records) {
      for (const [name, value] of headers) {
        if (name !== REPLAY_HEADER) continue
        const place = textIn(value)
        if (place.startsWith(prefix)) done.set(Number(place.slice(prefix.length)), offset)
      }
    }
  }
  return { done, known: begin }
}

/**
 * The refused record as it is sent again. A replay that was refused names the record that it was, and no longer what
 * that replayed.
 */
const recordOf = (letter: DeadLetter): OutRecord => {
  const { at, key, value, headers } = letter
  return {
    topic: at.topic,
    key,
    value,
    headers: [...headers.filter(([name]) => name !== REPLAY_HEADER), [REPLAY_HEADER, Buffer.from(placeText(at))]],
    timestamp: timeOf(letter),
  }
}

const replayPartition = async (
  log: EventLog,
  options: ReplayOptions,
  partition: number,
  tell: (done: Replayed) => void,
): Promise<void> => {
  const { names, again = false, signal } = options
  const letters = async function* (): AsyncGenerator<DeadLetter> {
    for await (const letter of deadLettersOf(log, names.deadletters, partition))
      if (matches(letter, options)) yield letter
  }
  let oldest = Number.POSITIVE_INFINITY
  for await (const { at } of letters()) oldest = Math.min(oldest, at.offset)
  if (oldest === Number.POSITIVE_INFINITY) return
  const writer: PartitionWriter = await log.claim(REPLAY_GROUP, names.chunks, partition)
  try {
    const { done, known } = await replaysIn(log, names.chunks, partition, oldest + 1)
    const batch: DeadLetter[] = []
    let bytes = 0
    const append = async (some: readonly DeadLetter[]): Promise<void> => {
      const offsets = await writer.append(some.map(recordOf))
      for (const [at, letter] of some.entries()) {
        done.set(letter.at.offset, offsets[at]!)
        tell({ letter, outcome: 'replayed', offset: offsets[at]! })
      }
    }
    const flush = async (): Promise<void> => {
      const some = batch.splice(0)
      bytes = 0
      try {
        await append(some)
      } catch (error) {
        // Nothing was written: one of them is too large by now, with its new header or because the topic takes less.
        if (codeOf(error) !== 'INVALID') throw error
        for (const letter of some)
          await append([letter]).catch((reason: unknown) => {
            if (codeOf(reason) !== 'INVALID') throw reason
            tell({ letter, outcome: 'refused', why: messageOf(reason) })
          })
      }
    }
    for await (const letter of letters()) {
      if (signal?.aborted) break
      const { offset } = letter.at
      const why = faultOf(letter, names)
      const replay = done.get(offset)
      if (why !== null) tell({ letter, outcome: 'refused', why })
      else if (replay !== undefined && !again)
        tell({
          letter,
          outcome: 'before',
          why: `It was replayed before, at offset ${replay}. --again replays it once more.`,
        })
      else if (offset + 1 < known && !again)
        tell({
          letter,
          outcome: 'refused',
          why: `Whether it was replayed is not known: the input begins at offset ${known}, and a replay before that is gone. --again replays it.`,
        })
      else {
        batch.push(letter)
        bytes += letter.value?.length ?? 0
        if (batch.length >= BATCH_LETTERS || bytes >= BATCH_BYTES) await flush()
      }
    }
    if (batch.length > 0 && !signal?.aborted) await flush()
  } catch (error) {
    if (codeOf(error) !== 'FENCED') throw error
    throw new ContinuoError(
      'FENCED',
      `Another replay of partition ${partition} began. What was replayed stays so; run it again for the rest.`,
      { cause: error },
    )
  } finally {
    await writer.close()
  }
}

/**
 * Sends dead letters to the input again, each once. Those that stand in the topic at the beginning: a replay that is
 * refused again is a letter of its own for the next call. Rejects with what the log rejects with, FENCED where another
 * replay of the same partition began meanwhile.
 */
export const replayDeadLetters = async (log: EventLog, options: ReplayOptions): Promise<ReplayCounts> => {
  const counts = { replayed: 0, before: 0, refused: 0 }
  const tell = (done: Replayed): void => {
    counts[done.outcome] += 1
    options.onLetter?.(done)
  }
  for (let partition = 0; partition < options.partitions && !options.signal?.aborted; partition += 1)
    if (options.partition === undefined || options.partition === partition)
      await replayPartition(log, options, partition, tell)
  return counts
}
