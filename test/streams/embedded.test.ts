import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { expect } from 'vitest'
import { openEmbeddedLog } from '../../src/streams/embedded/log.ts'
import { contract } from './contract.ts'

contract('embedded', async () => {
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
        open: (options) => openEmbeddedLog(url, options),
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
})
