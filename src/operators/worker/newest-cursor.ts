/** The newest cursor of a partition, found from the end of the state topic, without the heads before it. */
import type { TopicNames } from '../../../topics/index.ts'
import { type PartitionCursor, partitionCursor } from '../../../topics/state.ts'
import { codeOf } from '../../errors.ts'
import type { EventLog, StoredRecord } from '../../streams/log.ts'
import { textOf } from '../../text.ts'
import { isGenesisCursor } from './partition-state.ts'

/** Records at the end of a state partition that are looked at first; each commit ends with its cursor. */
const LAST = 16
/** Times that a reader begins again because what it was about to read was trimmed. */
const TRIES = 5

const parsed = ({ value }: StoredRecord): PartitionCursor | null => {
  try {
    return partitionCursor.safeParse(JSON.parse(textOf(value ?? new Uint8Array(0)))).data ?? null
  } catch {
    return null
  }
}

const cursorIn = async (log: EventLog, topic: string, partition: number): Promise<PartitionCursor | null> => {
  const { begin, end } = await log.bounds(topic, partition)
  /** The oldest genesis cursor: it counts where no other cursor is there. */
  let genesis: StoredRecord | undefined
  let until = end
  for (let span = LAST; until > begin; span *= LAST) {
    const from = Math.max(begin, end - span)
    let found: StoredRecord | undefined
    let first: StoredRecord | undefined
    for await (const { records } of log.read(topic, partition, from, { until })) {
      for (const record of records) {
        if (record.key !== null && record.key.length > 0) continue
        if (isGenesisCursor(record)) first ??= record
        else found = record
      }
    }
    if (found !== undefined) return parsed(found)
    genesis = first ?? genesis
    until = from
  }
  return genesis === undefined ? null : parsed(genesis)
}

/**
 * The newest cursor of a partition; null where no worker has begun, or where it cannot be read. Its seal is not
 * checked: who trusts the state reads all of it (partition-state.ts).
 */
export const newestCursor = async (
  log: EventLog,
  { state }: TopicNames,
  partition: number,
): Promise<PartitionCursor | null> => {
  for (let tries = 1; ; tries += 1) {
    try {
      return await cursorIn(log, state, partition)
    } catch (error) {
      if (codeOf(error) !== 'POSITION' || tries === TRIES) throw error
    }
  }
}
