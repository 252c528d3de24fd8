/** Embedded logs in temporary folders, closed and removed after their test. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { expect, onTestFinished } from 'vitest'
import { ContinuoError } from '../../src/errors.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { openLog } from '../../src/streams/open.ts'

export const temporaryLog = async (): Promise<EventLog> => {
  const folder = mkdtempSync(join(tmpdir(), 'continuo-client-'))
  const log = await openLog(`file:${join(folder, 'log.db')}`)
  onTestFinished(async () => {
    await log.close()
    rmSync(folder, { recursive: true })
  })
  return log
}

export const errorOf = async (call: () => Promise<unknown>): Promise<ContinuoError> => {
  const error = await call().catch((thrown: unknown) => thrown)
  return error instanceof ContinuoError ? error : expect.fail(`expected a ContinuoError, got ${String(error)}`)
}
