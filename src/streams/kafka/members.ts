/** The members of a consumer group and the partitions of each: DescribeGroups, for people and health checks. */
import type { Member } from '../log.ts'
import { MemberAssignment, MemberMetadata } from './kafkajs.ts'
import type { Network } from './network.ts'

/**
 * Kafka describes members of a group only in this state; in the others its partitions are being assigned, or it has no
 * members.
 */
const STABLE = 'Stable'
const NOBODY: readonly string[] = ['Empty', 'Dead']

const topicsOf = (metadata: Buffer): readonly string[] => {
  try {
    return MemberMetadata.decode(metadata).topics
  } catch {
    return []
  }
}

const assignmentOf = (assignment: Buffer): Readonly<Record<string, readonly number[]>> => {
  try {
    return MemberAssignment.decode(assignment)?.assignment ?? {}
  } catch {
    return {}
  }
}

export const describeMembers = (network: Network, group: string): Promise<readonly Member[] | null> =>
  network.retry(`asking who is in group ${group}`, async () => {
    const broker = await network.common.to(await network.coordinator('group', group))
    const { groups } = await broker.describeGroups({ groupIds: [group] })
    const [found] = groups
    if (found === undefined || NOBODY.includes(found.state)) return []
    if (found.state !== STABLE) return null
    return found.members.flatMap(({ memberId, memberMetadata, memberAssignment }) => {
      const given = assignmentOf(memberAssignment)
      return topicsOf(memberMetadata).map((topic) => ({ member: memberId, topic, partitions: given[topic] ?? [] }))
    })
  })
