/** Checks of what a log holds: partitions that no worker could resume, and sessions that were set aside. */
import type { TopicNames } from '../../../topics/index.ts'
import { codeOf, messageOf } from '../../errors.ts'
import type { EventLog } from '../../streams/log.ts'
import { partitionsOf, stateOf } from '../common.ts'
import { duplicatesIn, tellDuplicate } from '../duplicate-sessions.ts'
import { plural } from '../output.ts'
import { type Check, fail, ok, warn } from './check.ts'

/** Sessions named at most; `continuo sessions` has them all. */
const MOST_NAMED = 3

export const checkSessions = async (log: EventLog, names: TopicNames): Promise<readonly Check[]> => {
  const broken: Check[] = []
  const stopped: string[] = []
  const places: [string, number][] = []
  for (let partition = 0; partition < (await partitionsOf(log, names)); partition += 1) {
    try {
      const { heads } = await stateOf(log, names, partition)
      for (const session of heads.keys()) places.push([session, partition])
      for (const head of heads.values())
        if (head.status === 'stopped') stopped.push(head.stopped?.reason ?? head.session)
    } catch (error) {
      if (codeOf(error) === 'DENIED') return [warn('state', messageOf(error), 'Sessions were not looked at.')]
      broken.push(
        fail('state', `partition ${partition}: ${messageOf(error)}`, 'See "When it refuses" in operations.md.'),
      )
    }
  }
  if (stopped.length > 0) {
    const more = stopped.length > MOST_NAMED ? ` … and ${stopped.length - MOST_NAMED} more` : ''
    broken.push(
      warn(
        'sessions',
        `${plural(stopped.length, 'session')} set aside: ${stopped.slice(0, MOST_NAMED).join(' ')}${more}`,
        `Their events are dead letters until then. continuo sessions --log ${log.url} lists them.`,
      ),
    )
  }
  const duplicates = duplicatesIn(places)
  for (const duplicate of duplicates.slice(0, MOST_NAMED)) {
    const { what, remedy } = tellDuplicate(duplicate)
    broken.push(warn('sessions', what, remedy))
  }
  if (duplicates.length > MOST_NAMED)
    broken.push(warn('sessions', `${plural(duplicates.length - MOST_NAMED, 'more session')} like that`, 'See above.'))
  return broken.length > 0 ? broken : [ok('state', `${plural(places.length, 'session')}, every head can be used`)]
}
