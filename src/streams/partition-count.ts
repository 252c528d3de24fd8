/**
 * The number of partitions of a log does not change. A key's partition follows from the key's hash and that number:
 * after it changed, the events of a session arrive in one partition and its memory lies in another, so it would have
 * two memories.
 */
import { ContinuoError } from '../errors.ts'

export interface PartitionCount {
  /** The input topic, and how many partitions it has now. */
  readonly input: string
  readonly now: number
  /** How many it had when the state was written, and where that number comes from. */
  readonly before: number
  readonly witness: string
}

const count = (partitions: number): string => `${partitions} partition${partitions === 1 ? '' : 's'}`

/** The fault and its remedy. */
export const tellChange = ({ input, now, before, witness }: PartitionCount): { what: string; remedy: string } => ({
  what: `The input topic ${input} has ${count(now)}, and ${witness} ${before}: ${
    now > before ? 'partitions were added to the input' : 'the input was replaced'
  }. Which partition a session's events go to follows from that number, so the sessions that exist would go on in partitions where their memory is not. Nothing was changed, and outputs and state are as they were.`,
  remedy: `Kafka takes no partitions away again. Begin anew under another prefix: continuo migrate copies the input into a new log with ${count(now)}, in which a worker computes the sessions again (continuo migrate --from URL --to URL --partitions ${now}); or take the sessions over one by one with continuo export and import.`,
})

export const countChanged = (counts: PartitionCount): ContinuoError => {
  const { what, remedy } = tellChange(counts)
  return new ContinuoError('REFUSED', `${what} ${remedy}`)
}
