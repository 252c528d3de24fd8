import { cpSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { expect, it } from 'vitest'
import { exitCodeOf } from '../../src/cli/commands/run.ts'
import { withModel } from '../../src/cli/common.ts'
import { ensureTopics, namesOf } from '../../src/client/topics.ts'
import { ContinuoError } from '../../src/errors.ts'
import { createLogger } from '../../src/observe/log.ts'
import type { EventLog } from '../../src/streams/log.ts'
import { type Hosted, host, type Outcome } from '../../src/worker/host.ts'
import { MODEL, temporary, withLog } from '../cli/helpers.ts'

const folder = temporary()
let logs = 0

/** Runs until idle on a log whose bounds fail `times` times once the task runs, as a broker's would that is away. */
const untilIdle = (
  code: 'UNAVAILABLE' | 'DENIED',
  times: number,
  { dir = MODEL, onStarted = () => {} }: { readonly dir?: string; readonly onStarted?: () => void } = {},
): Promise<{ outcome: Outcome; failed: number }> =>
  withLog(`file:${join(folder, `${code}-${++logs}.db`)}`, async (log) => {
    const names = namesOf(log)
    await ensureTopics(log, names)
    let hosted: Hosted | undefined
    let failed = 0
    const failing: EventLog = {
      ...log,
      async bounds(topic, partition) {
        const running = hosted?.worker.tasks.get(0)?.state === 'running'
        if (!running || topic !== names.chunks || failed === times) return log.bounds(topic, partition)
        failed += 1
        throw new ContinuoError(code, 'The broker is away.')
      },
    }
    let outcome: Outcome | undefined
    await withModel(dir, { threads: 1 }, async (loaded) => {
      outcome = await host({
        log: failing,
        names,
        loaded,
        settings: {
          ...{ group: 'continuo', format: 'json', commitInterval: 10, snapshotEvery: 1000, maxContexts: 4 },
          compactFloor: 1000,
        },
        untilIdle: 0,
        metrics: null,
        logger: createLogger({ level: 'silent', write: () => {}, short: true }),
        stopping: new AbortController().signal,
        onStarted: (started) => {
          hosted = started
          onStarted()
        },
      })
      return 0
    })
    return { outcome: outcome!, failed }
  })

it('a run until idle outlives a log that does not answer for a moment', async () => {
  expect(await untilIdle('UNAVAILABLE', 2)).toMatchObject({ outcome: { ended: 'idle', unclean: [] }, failed: 2 })
})

it('a run until idle ends with any other failure of its log', async () => {
  await expect(untilIdle('DENIED', 1)).rejects.toThrow('The broker is away.')
})

it('a run whose weights were changed meanwhile says so at its end', async () => {
  const dir = temporary()
  cpSync(MODEL, dir, { recursive: true })
  const path = join(dir, 'model.safetensors')
  const onStarted = (): void => {
    // As a file is replaced: the process goes on with the one that it has open.
    const bytes = readFileSync(path)
    bytes[bytes.length - 1]! ^= 1
    rmSync(path)
    writeFileSync(path, bytes)
  }
  const { outcome } = await untilIdle('UNAVAILABLE', 0, { dir, onStarted })
  expect(outcome.unclean.map(String)).toEqual([expect.stringContaining('were changed while the model served')])
  expect(exitCodeOf(outcome)).toBe(3)
})
