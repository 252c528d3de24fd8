import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { describe, expect } from 'vitest'
import { openEmbeddedLog } from '../../src/streams/embedded/log.ts'
import type { EventLog, OpenLogOptions } from '../../src/streams/log.ts'
import { isCommitted } from './contract/commits.ts'
import { type Harness, setUp, TIMEOUT } from './contract/fixture.ts'
import { hasOneWriter } from './contract/writers.ts'
import { contract } from './contract.ts'

const harness = async (open: (url: string, options?: OpenLogOptions) => Promise<EventLog>): Promise<Harness> => {
  const folder = mkdtempSync(join(tmpdir(), 'continuo-log-'))
  let stores = 0
  return {
    sessionTimeout: 600,
    kills: 12,
    newStore: async () => {
      const path = join(folder, `log ${++stores}.db`)
      const url = `file:${encodeURI(path)}?prefix=suite`
      return {
        url,
        open: (options) => open(url, options),
        inspect: () => {
          const db = new DatabaseSync(path, { readOnly: true })
          expect(db.prepare('PRAGMA integrity_check').all()).toMatchObject([{ integrity_check: 'ok' }])
          db.close()
        },
      }
    },
    restart: async () => {}, // Closed and opened again is all the restart there is.
    stop: async () => rmSync(folder, { recursive: true }),
  }
}

contract('embedded', () => harness(openEmbeddedLog))

describe('the embedded log that had a large append, so that a thread commits,', { timeout: TIMEOUT }, () => {
  const warm = async (url: string, options?: OpenLogOptions): Promise<EventLog> => {
    const log = await openEmbeddedLog(url, options)
    const topic = 'warm.in'
    await log.createTopics([{ name: topic, partitions: 1, config: {} }])
    const writer = await log.claim(`warm ${stores++}`, topic, 0)
    await writer.append([{ topic, key: null, value: new Uint8Array(100_000) }])
    await writer.close()
    return log
  }
  let stores = 0
  const fixture = setUp(() => harness(warm))
  isCommitted(fixture)
  hasOneWriter(fixture)
})
