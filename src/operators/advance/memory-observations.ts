/** remembered: what a session's external memory did in one step, as observations. */
import type { MemoryEvent } from '../../../topics/observations.ts'
import type { WorkResult } from '../../engine/work.ts'
import type { Head } from '../../state/head.ts'
import { causeOf, type Output, type Tokenized } from '../types.ts'

/** A record of a log takes 1 MiB. */
const MOST_CHARACTERS = 512_000
const MOST_MOVED = 65_536

const shortened = (event: MemoryEvent): MemoryEvent =>
  event.type === 'split' && event.moved.length > MOST_MOVED
    ? { ...event, moved: event.moved.slice(0, MOST_MOVED) }
    : event

/** The events in runs that a record holds; no run depends on anything but the events. */
const runsOf = (events: readonly MemoryEvent[]): readonly MemoryEvent[][] => {
  const runs: MemoryEvent[][] = []
  let characters = MOST_CHARACTERS
  for (const event of events.map(shortened)) {
    const size = JSON.stringify(event).length
    if (characters + size > MOST_CHARACTERS) {
      runs.push([])
      characters = 0
    }
    runs.at(-1)!.push(event)
    characters += size
  }
  return runs
}

/** Nothing where the session did not ask for it. */
export const memoryObservations = (
  { settings, session }: Head,
  { record, event }: Tokenized,
  { events = [] }: Pick<WorkResult, 'events'>,
): readonly Output[] => {
  if (!settings.memory) return []
  const cause = causeOf(record, event.id ?? null)
  return runsOf(events).map((run) => ({
    to: 'observations',
    value: { type: 'remembered', version: 1, session, cause, events: run },
  }))
}
