/** Checks of the group that shares a log: whether every partition is served, and by whom. */
import { messageOf } from '../../errors.ts'
import { serviceOf } from '../../operators/worker/group-monitor.ts'
import type { EventLog, TopicInfo } from '../../streams/log.ts'
import { plural } from '../output.ts'
import { type Check, fail, ok, warn } from './check.ts'

export const checkGroup = async (log: EventLog, group: string, input: TopicInfo): Promise<Check> => {
  let members: Awaited<ReturnType<EventLog['members']>>
  try {
    members = await log.members(group)
  } catch (error) {
    return warn(
      'group',
      `who is in group "${group}" cannot be told: ${messageOf(error)}`,
      'Ask again, as a user who may describe the group.',
    )
  }
  if (members === null)
    return warn(
      'group',
      `"${group}" is being shared anew just now`,
      'Ask again in a moment; if it stays so, a member is silent: its session time-out ends it.',
    )
  const { members: sharing, unserved, idle, others } = serviceOf(members, input.name, input.partitions)
  const elsewhere = others.length === 0 ? '' : `; other members of the group read ${others.join(', ')}`
  if (sharing === 0) return ok('group', `no worker of group "${group}" reads ${input.name}${elsewhere}`)
  const read = `${plural(sharing, 'worker')} of group "${group}" read${sharing === 1 ? 's' : ''} ${input.name}`
  if (unserved.length > 0)
    return fail(
      'group',
      `${read}, and ${plural(unserved.length, 'partition')} of ${input.partitions} (${unserved.slice(0, 10).join(', ')}${unserved.length > 10 ? ', …' : ''}) ${unserved.length === 1 ? 'belongs' : 'belong'} to nobody${elsewhere}`,
      'A worker of an older version that leads the group serves its own topic only: stop those, or give each input topic a group of its own.',
    )
  if (idle > 0)
    return warn(
      'group',
      `${read}, and ${idle === sharing ? 'all' : idle} of them own no partition: there are ${input.partitions}${elsewhere}`,
      'They stand by and take over when another stops. More partitions, under a new prefix, would let them share the work.',
    )
  return ok('group', `${read}; every partition is served${elsewhere}`)
}
