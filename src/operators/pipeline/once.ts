/**
 * once: an event or request that takes effect one time, however often it is sent. The events of a session with one key
 * belong to attempts, each a sending of them all. The attempt whose event comes first takes the key, which the head
 * remembers, and events of other attempts are refused. So a client that does not know whether its request is in the log
 * sends it again.
 */
import { type Claim, MOST_CLAIMS } from '../../../topics/state.ts'
import type { Head } from '../../state/head.ts'
import type { InputEvent, SessionEvent } from '../types.ts'

const onceOf = (event: InputEvent) => ('once' in event ? event.once : undefined)

/**
 * The attempt that has taken the event's key, where that is another one; undefined: the event is not to be done once,
 * or is the first.
 */
export const takenBy = ({ event }: Pick<SessionEvent, 'event'>, head: Head | undefined): Claim | undefined => {
  const once = onceOf(event)
  const found = once && head?.claims?.find(({ key }) => key === once.key)
  return found?.attempt === once?.attempt ? undefined : found
}

/** What the head remembers behind this event. */
export const claimsBehind = (
  { event, record }: Pick<SessionEvent, 'event' | 'record'>,
  claims: readonly Claim[] = [],
): Pick<Head, 'claims'> => {
  const once = onceOf(event)
  if (once === undefined || claims.some(({ key }) => key === once.key))
    return claims.length > 0 ? { claims: [...claims] } : {}
  const { key, attempt } = once
  return { claims: [...claims, { key, attempt, offset: record.offset }].slice(-MOST_CLAIMS) }
}
