import { expect, inject, test } from 'vitest'
import { FAILPOINTS } from '../../src/observe/failpoint.ts'
import { openLog } from '../../src/streams/open.ts'
import { appendAll, collect, crashUntil, createCrashTopics, expectSame, finish, scenario } from './suite.ts'

const { brokers, missing } = inject('kafka')

test.skipIf(brokers === null)(
  `a worker on Kafka, killed at least 50 times at every failpoint and at random, leaves what an undisturbed one leaves${missing === null ? '' : ` (no Kafka here: ${missing})`}`,
  { timeout: 1_200_000 },
  async () => {
    const rounds = scenario(120)
    const run = Date.now().toString(36)
    const disturbed = `kafka://${brokers}/crash-${run}-disturbed`
    const undisturbed = `kafka://${brokers}/crash-${run}-undisturbed`
    for (const url of [disturbed, undisturbed]) {
      const log = await openLog(url)
      await createCrashTopics(log)
      await log.close()
    }
    const { kills, fired } = await crashUntil(disturbed, rounds, 50)
    await finish(disturbed)
    await appendAll(undisturbed, rounds.flat())
    await finish(undisturbed)

    expectSame(await collect(disturbed), await collect(undisturbed))
    expect(kills).toBeGreaterThanOrEqual(50)
    expect([...FAILPOINTS].filter((name) => !fired.has(name))).toEqual([])
  },
)
