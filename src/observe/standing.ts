/** Sentences about a worker's place in its group: that it is idle, or that partitions have no worker. */
import type { Standing } from '../operators/worker/worker.ts'

const plural = (n: number, noun: string): string => `${n} ${noun}${n === 1 ? '' : 's'}`

/** Partitions named in one sentence, at most. */
const MAX_NAMED = 10

const named = (partitions: readonly number[]): string => {
  const rest = partitions.length - MAX_NAMED
  const shown = partitions.slice(0, MAX_NAMED).join(', ')
  return `${partitions.length === 1 ? 'Partition' : 'Partitions'} ${shown}${rest > 0 ? ` and ${rest} more` : ''}`
}

/** Says that a worker of a settled group has no partition; null for any other worker. */
export const idleness = ({ topic, group, partitions, owned, service }: Standing): string | null =>
  owned === null || owned.length > 0 || service === null
    ? null
    : `idle: 0 of ${plural(partitions, 'partition')} of ${topic}; ${plural(service.members, 'member')} of group "${group}" read it. Ready to take over.`

/** Names the partitions without a worker; null where every partition has one, or where the log does not say. */
export const gaps = ({ topic, group, service }: Standing): string | null => {
  if (service === null || service.unserved.length === 0) return null
  const others = service.others.length === 0 ? '' : `, some of whom read ${service.others.join(', ')}`
  return `${named(service.unserved)} of ${topic} ${service.unserved.length === 1 ? 'is' : 'are'} served by nobody: group "${group}" gave ${service.unserved.length === 1 ? 'it' : 'them'} to none of its members${others}. A worker of an older version may lead the group; such a one serves its own topic only. Stop those, or give each input topic a group of its own.`
}
