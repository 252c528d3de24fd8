/**
 * What ends an answer before its end: a client that goes away, the time that a gateway has for it, and the end of the
 * gateway.
 */
import type { FastifyReply } from 'fastify'
import { Refusal } from '../refusal.ts'
import { goneSignal, type Service } from '../service.ts'
import { answersTo, type Sent, sendCancel, type Wanted } from './ask.ts'
import type { Piece } from './pieces.ts'

/** What proxies write into their logs for a request whose client went away before it was answered. */
const CLIENT_GONE = 499

/** What ends an answer before its end, and why it did. `alone`: it goes on without its client. */
export const endingOf = (reply: FastifyReply, { limits, ended }: Service, alone = false) => {
  const gone = goneSignal(reply)
  const late = AbortSignal.timeout(limits.answer)
  const ends = AbortSignal.any([...(alone ? [] : [gone]), late, ended])
  const cut = (): Refusal =>
    late.aborted
      ? new Refusal(
          504,
          `There was no whole answer within ${limits.answer / 1000} seconds. Does a worker serve this log?`,
          { code: 'timeout' },
        )
      : gone.aborted
        ? new Refusal(CLIENT_GONE, 'The client went away.', { code: 'client_gone' })
        : new Refusal(503, 'The gateway is ending. Ask again.', { code: 'ending' })
  return { gone, ends, cut }
}

/** A request that is in the log. */
export interface Asked {
  readonly session: string
  readonly key: string | null
  readonly requestId: string
  readonly sent: Sent
  readonly wanted: Wanted
  /** Its session goes on after it. */
  readonly lasts: boolean
  /** Its last run was read, or it was refused. */
  over: boolean
}

/**
 * Ends a request that nobody reads any more. Where its session goes on, this waits for the end: the next request asks
 * what the last answer was.
 */
export const abandon = async ({ topics, sessions, limits, ended }: Service, asked: Asked): Promise<void> => {
  const { session, key, requestId, sent, wanted, lasts } = asked
  await sendCancel(topics, session, key, requestId)
  if (!lasts) return
  const until = AbortSignal.any([AbortSignal.timeout(limits.answer), ended])
  for await (const { finish, cause } of answersTo(topics, session, sent, wanted, until))
    if (finish !== null) await sessions.finished(session, cause.offset, until)
}

/**
 * Takes what comes of an answer that no client waits for: the next request of its session waits until it is over, or
 * this gateway's time for it.
 */
export const drain = async (coming: AsyncGenerator<Piece>, ends: AbortSignal): Promise<void> => {
  try {
    while (!(await coming.next()).done);
  } catch (error) {
    // A refusal is in the log, and is told to who asks for the response.
    if (!(error instanceof Refusal) && !ends.aborted) throw error
  }
}
