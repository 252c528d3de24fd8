/**
 * What both logs promise. The claims are of the port (src/streams/log.ts), so nothing here knows SQLite or Kafka:
 * offsets only grow (Kafka's have gaps), and what was committed becomes visible soon, not at once.
 */
import { describe } from 'vitest'
import { isCommitted } from './contract/commits.ts'
import { type Harness, setUp, TIMEOUT } from './contract/fixture.ts'
import { hasGroups } from './contract/groups.ts'
import { asAWhole } from './contract/log.ts'
import { isRead } from './contract/reading.ts'
import { keepsRecords } from './contract/records.ts'
import { hasTopics } from './contract/topics.ts'
import { isTrimmed } from './contract/trimming.ts'
import { hasOneWriter } from './contract/writers.ts'

export type { Harness, Store } from './contract/fixture.ts'

export const contract = (name: string, start: () => Promise<Harness>): void => {
  describe(`the ${name} log`, { timeout: TIMEOUT }, () => {
    const fixture = setUp(start)
    keepsRecords(fixture)
    hasTopics(fixture)
    isRead(fixture)
    isCommitted(fixture)
    hasOneWriter(fixture)
    isTrimmed(fixture)
    hasGroups(fixture)
    asAWhole(fixture)
  })
}
