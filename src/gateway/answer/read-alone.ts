/** Reads a text of a request in a session of its own, for what the worker reports of it. */
import type { ChunkInput } from '../../../topics/chunks.ts'
import type { Observation, Observed } from '../../../topics/observations.ts'
import { recordAsJson } from '../../client/records.ts'
import { Refusal } from '../refusal.ts'
import type { Service } from '../service.ts'
import { merged, refusalsOf, type Sent, send, wantedOf } from './ask.ts'

/** What a source yields until it is left. Throws the Refusal of the worker where it refuses an event. */
export async function* orRefused<T>(
  topics: Service['topics'],
  session: string,
  sent: Sent,
  source: (until: AbortSignal) => AsyncGenerator<T>,
  ends: AbortSignal,
): AsyncGenerator<T> {
  const over = new AbortController()
  const until = AbortSignal.any([ends, over.signal])
  const refusals = refusalsOf(topics, session, sent, wantedOf(sent, -1), until)
  for await (const found of merged<T | Refusal>([source(until), refusals], () => over.abort())) {
    if (found instanceof Refusal) throw found
    yield found
  }
}

/**
 * Feeds the events to a new session, and yields what is told of what it reads, until it is left or the signal fires.
 * Throws as `orRefused` and `send` do.
 */
export async function* readAlone(
  { topics }: Service,
  session: string,
  key: string | null,
  events: readonly ChunkInput[],
  ends: AbortSignal,
): AsyncGenerator<Observed> {
  const { log, names } = topics
  const partition = await log.partitionOf(names.chunks, Buffer.from(session))
  const { end: from } = await log.bounds(names.observations, partition)
  const sent = await send(topics, session, key, () => events)
  async function* observed(until: AbortSignal): AsyncGenerator<Observed> {
    for await (const record of topics.observations.records(partition, session, from, until)) {
      const seen = recordAsJson('observations', record).value as Observation
      if (seen.type === 'observed') yield seen
    }
  }
  yield* orRefused(topics, session, sent, observed, ends)
}

/** What no context of the model holds. */
export const tooLong = (tokens: number, positions: number, param: string): Refusal =>
  new Refusal(
    400,
    `This model's maximum context length is ${positions} tokens, and the ${param} has ${tokens}. Leave out what stands first.`,
    { code: 'context_length_exceeded', param },
  )
