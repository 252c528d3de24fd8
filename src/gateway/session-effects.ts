/** Events of a session whose effect a request waits for, and names for sessions that stand beside another one. */
import { randomUUID } from 'node:crypto'
import type { Chunk } from '../../topics/chunks.ts'
import type { Observation } from '../../topics/observations.ts'
import { recordAsJson } from '../client/records.ts'
import { EventRefused, merged, refusalsOf, type Sent, send, wantedOf } from './answer/ask.ts'
import type { Answering } from './answer/job.ts'
import { type Attempt, attempted, attemptIn, begunNow, claimAt, nameOf, type Once } from './answer/once.ts'
import { nameIn } from './names.ts'
import { Refusal } from './refusal.ts'

/** An attempt that says nothing of an answer. */
const bareAttempt = (
  { body }: Once,
  place: Pick<Attempt, 'chunksFrom' | 'tokensFrom' | 'deadLettersFrom'>,
): Attempt => {
  const { chunksFrom, tokensFrom, deadLettersFrom } = place
  const nothing = { promptTokens: null, pulse: 0, start: 'plain', seed: 0 } as const
  return { ...begunNow(), body, chunksFrom, tokensFrom, deadLettersFrom, ...nothing }
}

export const sessionEffects = ({ service, turns }: Answering) => {
  const { topics, sessions, limits, closing } = service
  const { log, names } = topics

  /** What ends the wait for an effect, and what is said then. */
  const waiting = (gone: AbortSignal) => {
    const late = AbortSignal.timeout(limits.answer)
    const over = new AbortController()
    const ends = AbortSignal.any([gone, late, closing, over.signal])
    const slow = (where: string): Refusal =>
      new Refusal(
        late.aborted ? 504 : 503,
        `${where}, and it has not taken effect within ${limits.answer / 1000} seconds. Does a worker serve this log?`,
        {
          code: 'timeout',
        },
      )
    return { ends, over, slow }
  }

  /**
   * The first observation of this type that the event brings, once it took effect. Throws a Refusal where the worker
   * refused it, or was too slow.
   */
  const effectOf = async (
    id: string,
    key: string | null,
    event: Chunk,
    type: Observation['type'],
    gone: AbortSignal,
  ): Promise<Observation> => {
    const { ends, over, slow } = waiting(gone)
    const leave = await turns.enter(id, ends).catch((error: unknown) => {
      throw ends.aborted ? slow('Requests before this one are under way in the session') : error
    })
    try {
      const partition = await log.partitionOf(names.chunks, Buffer.from(id))
      const { end: from } = await log.bounds(names.observations, partition)
      const sent = await send(topics, id, key, () => [event])
      const [offset] = sent.offsets
      async function* effects(): AsyncGenerator<Observation> {
        for await (const record of topics.observations.records(partition, id, from, ends)) {
          const seen = recordAsJson('observations', record).value as Observation
          if (seen.type === type && seen.cause.offset === offset) yield seen
        }
      }
      const refusals = refusalsOf(topics, id, sent, wantedOf(sent, -1), ends)
      for await (const found of merged<Observation | Refusal>([effects(), refusals], () => over.abort())) {
        if (found instanceof Refusal) throw found
        await sessions.finished(id, offset!, ends)
        return found
      }
      throw slow(`The event is in the log at offset ${offset}`)
    } finally {
      leave()
    }
  }

  /**
   * Deletes the session by an event, and resolves once it is gone. Rejects with a Refusal (404) where there is none.
   */
  const deleteSession = async (id: string, key: string | null, gone: AbortSignal): Promise<void> => {
    await effectOf(id, key, { type: 'delete' }, 'deleted', gone).catch((error: unknown) => {
      // A deletion is refused where there is nothing to delete.
      if (!(error instanceof Refusal) || error.code !== 'event_refused') throw error
      throw new Refusal(404, error.message, { code: 'session_not_found', param: 'id' })
    })
  }

  /** A name that belongs to the partition of the parent: one that nobody has, or what follows from `unique`. */
  const nameBeside = async (parent: string, prefix = 'fork', unique?: string): Promise<string> => {
    const partitionOf = (id: string) => log.partitionOf(names.chunks, Buffer.from(id))
    const home = await partitionOf(parent)
    const name = await nameIn(
      home,
      partitionOf,
      (tried) => `${prefix}-${unique === undefined ? randomUUID() : `${unique}-${tried}`}`,
    )
    if (name !== null) return name
    throw new Refusal(400, `No name was found for a fork in partition ${home}. Name it: "session".`, {
      param: 'session',
    })
  }

  /**
   * Sends the events once, and resolves with where the first attempt of them is as soon as the worker has taken one, or
   * refused this one's first event; `isFirst`: it is this one. Throws a Refusal where the key was used for something
   * else, or no worker took any in time.
   */
  const sendOnce = async (
    id: string,
    key: string | null,
    events: readonly Chunk[],
    once: Once,
    gone: AbortSignal,
  ): Promise<{ readonly sent: Sent; readonly isFirst: boolean; readonly refusal: Refusal | null }> => {
    const { ends, over, slow } = waiting(gone)
    let claim = sessions.claim(id, once.key)
    if (claim === undefined) {
      let name = ''
      const sent = await send(topics, id, key, (place) => {
        const attempt = bareAttempt(once, place)
        name = nameOf(attempt)
        return attempted(events, once, attempt)
      })
      const first = sent.offsets[0]!
      async function* taken(): AsyncGenerator<null> {
        await sessions.finished(id, first, ends)
        // Later events of the session may have told that this one is over, whatever became of it.
        if (sessions.claim(id, once.key)?.attempt === name) yield null
      }
      const refusals = refusalsOf(topics, id, sent, { letter: (offset) => offset === first }, ends)
      let judged: Refusal | null | undefined
      for await (const found of merged<Refusal | null>([taken(), refusals], () => over.abort())) {
        judged = found
        break
      }
      if (judged === undefined) throw slow(`The events are in the log from offset ${first} on`)
      // Refused for another reason than that they were sent before, as any event may be.
      if (!(judged instanceof EventRefused) || judged.first === null) return { sent, isFirst: true, refusal: judged }
      claim = await claimAt(topics, sent, once.key, judged.first)
    }
    const { offset } = claim
    const partition = await log.partitionOf(names.chunks, Buffer.from(id))
    const attempt = attemptIn(claim, once)
    return {
      sent: { ...attempt, partition, offsets: events.map((_, at) => offset + at) },
      isFirst: false,
      refusal: null,
    }
  }

  return { effectOf, deleteSession, nameBeside, sendOnce }
}
