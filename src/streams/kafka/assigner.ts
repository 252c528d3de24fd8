/**
 * Shares partitions evenly and lets members keep what they have: each tells, as user data of its join, what it was given
 * last and when. Where two claim the same, the later is right: a stalled member does not know that it lost it.
 */
import type { PartitionAssigner } from 'kafkajs'
import { assign } from '../assign.ts'
import { MemberAssignment, MemberMetadata } from './kafkajs.ts'

const NAME = 'continuo-sticky'
const VERSION = 0

export interface Ownership {
  readonly partitions: readonly number[]
  /** When it was received, ms since the epoch; 0 = never. */
  readonly since: number
}

const readOwnership = (metadata: Buffer): Ownership => {
  const none: Ownership = { partitions: [], since: 0 }
  const userData = MemberMetadata.decode(metadata).userData
  if (userData === null || userData.length === 0) return none
  try {
    const { partitions, since } = JSON.parse(userData.toString('utf8')) as Partial<Ownership>
    return Array.isArray(partitions) && typeof since === 'number' ? { partitions, since } : none
  } catch {
    return none
  }
}

/** `ownership` is read anew at each join. */
export const createAssigner =
  (topic: string, ownership: Ownership): PartitionAssigner =>
  ({ cluster }) => ({
    name: NAME,
    version: VERSION,
    protocol: ({ topics }) => ({
      name: NAME,
      metadata: MemberMetadata.encode({ version: VERSION, topics, userData: Buffer.from(JSON.stringify(ownership)) }),
    }),
    assign: async ({ members }) => {
      const holders = members
        .map(({ memberId, memberMetadata }) => ({ member: memberId, ...readOwnership(memberMetadata) }))
        .sort((a, b) => b.since - a.since || (a.member < b.member ? -1 : 1))
      const shares = assign(cluster.findTopicPartitionMetadata(topic).length, holders)
      return [...shares].map(([memberId, partitions]) => ({
        memberId,
        memberAssignment: MemberAssignment.encode({
          version: VERSION,
          assignment: { [topic]: partitions },
          userData: Buffer.alloc(0),
        }),
      }))
    },
  })
