/**
 * Shares the partitions of each topic evenly among those members that subscribe to it, and lets members keep what they
 * have. A group may hold workers of several logs in one cluster, for the group's name has a default; each is served by
 * its own.
 *
 * A member tells, as user data of its join, how many partitions its topic has, and what it was given last and when.
 * Where two claim the same, the later is right: a stalled member does not know that it lost it. That the member itself
 * counts the partitions means that the leader needs no right to describe topics of others. Members of versions that do
 * not count are looked up, as far as the leader may.
 */
import type { PartitionAssigner } from 'kafkajs'
import { assign, type Holder } from '../assign.ts'
import { MemberAssignment, MemberMetadata } from './kafkajs.ts'

const NAME = 'continuo-sticky'
const VERSION = 0
/** Another member's word is not believed beyond it: what it says is memory here. */
const MAX_PARTITIONS = 100_000

export interface Ownership {
  readonly partitions: readonly number[]
  /** When it was received, ms since the epoch; 0 = never. */
  readonly since: number
}

interface Candidate extends Ownership {
  readonly member: string
  readonly topics: readonly string[]
  /** Partitions of its topic, by its own word; 0 where it says nothing. */
  readonly count: number
}

const NOTHING = { topics: [], partitions: [], since: 0, count: 0 }

const isCount = (value: unknown): value is number =>
  Number.isSafeInteger(value) && (value as number) > 0 && (value as number) <= MAX_PARTITIONS

/** The user data of a member; empty where it cannot be read. */
const candidate = (member: string, metadata: Buffer): Candidate => {
  try {
    const { topics, userData } = MemberMetadata.decode(metadata)
    const said = { ...NOTHING, member, topics: [...new Set(topics)] }
    try {
      const { partitions, since, count } = JSON.parse(String(userData)) as Partial<Candidate>
      if (!Array.isArray(partitions) || typeof since !== 'number') return said
      return { ...said, partitions, since, count: isCount(count) ? count : 0 }
    } catch {
      return said
    }
  } catch {
    return { ...NOTHING, member }
  }
}

/** The later one first. */
const bySeniority = (a: Candidate, b: Candidate): number => b.since - a.since || (a.member < b.member ? -1 : 1)

export interface AssignerOptions {
  readonly topic: string
  /** Partitions of the topic. */
  readonly count: number
  /** Read anew at each join. */
  readonly ownership: Ownership
  /** Partitions of another topic; 0 where that cannot be told. */
  readonly lookUp: (topic: string) => Promise<number>
}

export const createAssigner =
  ({ topic, count, ownership, lookUp }: AssignerOptions): PartitionAssigner =>
  () => ({
    name: NAME,
    version: VERSION,
    protocol: ({ topics }) => ({
      name: NAME,
      metadata: MemberMetadata.encode({
        version: VERSION,
        topics,
        userData: Buffer.from(JSON.stringify({ ...ownership, count })),
      }),
    }),
    assign: async ({ members }) => {
      const candidates = members.map(({ memberId, memberMetadata }) => candidate(memberId, memberMetadata))
      const assignments = new Map(candidates.map(({ member }) => [member, {} as Record<string, readonly number[]>]))
      for (const name of new Set(candidates.flatMap(({ topics }) => topics))) {
        const sharing = candidates.filter(({ topics }) => topics.includes(name)).sort(bySeniority)
        const told = name === topic ? count : Math.max(...sharing.map((each) => each.count))
        const holders: readonly Holder[] = sharing
        for (const [member, partitions] of assign(told > 0 ? told : await lookUp(name), holders))
          assignments.get(member)![name] = partitions
      }
      return [...assignments].map(([memberId, assignment]) => ({
        memberId,
        memberAssignment: MemberAssignment.encode({ version: VERSION, assignment, userData: Buffer.alloc(0) }),
      }))
    },
  })
