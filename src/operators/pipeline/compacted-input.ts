/**
 * An input topic that Kafka compacts. Compaction removes every record of a key but the newest, and a session is the sum
 * of all records of its key: after a crash it is rebuilt from them, so a run on such a topic works until the first
 * crash after the first compaction.
 */
import { ContinuoError } from '../../errors.ts'
import type { EventLog, TopicInfo } from '../../streams/log.ts'

/** Kafka takes `compact`, `delete` and both, in any order. */
export const isCompacted = ({ config }: Pick<TopicInfo, 'config'>): boolean =>
  (config['cleanup.policy'] ?? '').split(',').some((policy) => policy.trim() === 'compact')

/** Whether the log compacts the topic; the embedded log compacts none, whatever its settings say. */
const compacts = async (log: EventLog, topic: string): Promise<boolean> =>
  log.kind === 'kafka' && (await log.topics([topic])).some((found) => found.name === topic && isCompacted(found))

const compactionRemedy = (topic: string): string =>
  `kafka-configs.sh --alter --entity-type topics --entity-name ${topic} --add-config cleanup.policy=delete`

const compactionText = (topic: string): string =>
  `Topic ${topic} is compacted (cleanup.policy): Kafka removes all but the newest record of each key, and a session is rebuilt from all of its records. Set it to delete: ${compactionRemedy(topic)}`

/** For `topics apply`: what to say about the input, or null. */
export const compactionWarning = async (log: EventLog, topic: string): Promise<string | null> =>
  (await compacts(log, topic)) ? compactionText(topic) : null

/**
 * Throws REFUSED for a compacted input: a run would lose sessions at some later crash, when nothing can be done about
 * it.
 */
export const refuseCompacted = async (log: EventLog, topic: string): Promise<void> => {
  if (await compacts(log, topic))
    throw new ContinuoError('REFUSED', `${compactionText(topic)}. Nothing was read or changed.`)
}

/** A possible cause of a replay that went wrong; empty where it is none. */
export const compactionHint = async (log: EventLog, topic: string): Promise<string> =>
  (await compacts(log, topic).catch(() => false))
    ? ` Topic ${topic} is compacted (cleanup.policy), which removes records that a replay needs: that may be the cause.`
    : ''
