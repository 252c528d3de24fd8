/** What a worker tells of adaptations: how many, how long, and how long an evaluation took. */
import { expect, test } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import { hasShared } from '../engine/paths.ts'
import { script, tiny } from '../operators/adapting.ts'
import { createBench, event } from '../operators/harness.ts'

test.skipIf(!hasShared)('metrics tell how long adaptations took, and each of their evaluations', async () => {
  const { model, tokenizer } = await openPackage(tiny(), { threads: 2, keepPacked: false })
  const bench = await createBench({ model, tokenizer })
  const metrics = createMetrics({ log: bench.log, names: bench.names, model, worker: () => null })
  const value = async (name: string, part = name): Promise<number> => {
    const { values } = (await metrics.registry.getMetricsAsJSON()).find((each) => each.name === name)!
    const found = (values as readonly { readonly value: number; readonly metricName?: string }[]).filter(
      ({ metricName }) => metricName === undefined || metricName === part,
    )
    expect(found).toHaveLength(1)
    return found[0]!.value
  }
  try {
    // One that has nothing to learn from is not counted.
    await bench.feed(event('s', { type: 'open' }), event('s', { type: 'adapt', evaluations: 40 }))
    await bench.feed(...script().map((each) => event('s', each)))
    await bench.settle({ onAdapted: metrics.adapted })
    expect(await value('continuo_adapt_seconds', 'continuo_adapt_seconds_count')).toBe(2)
    expect(await value('continuo_adapt_evaluation_seconds', 'continuo_adapt_evaluation_seconds_count')).toBe(2)
    expect(await value('continuo_adapt_evaluations_total')).toBe(14 + 9)
    const seconds = await value('continuo_adapt_seconds', 'continuo_adapt_seconds_sum')
    const each = await value('continuo_adapt_evaluation_seconds', 'continuo_adapt_evaluation_seconds_sum')
    expect(seconds).toBeGreaterThan(each)
    expect(each).toBeGreaterThan(0)
  } finally {
    await bench.close()
    model.close()
  }
})
