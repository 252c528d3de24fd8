/**
 * What a worker tells of external memories: retrievals by reason, uses and reads by tier, and how long sessions waited.
 */
import { expect, test } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { createMetrics } from '../../src/observe/metrics.ts'
import type { Worker } from '../../src/operators/worker/worker.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { createBench, event } from '../operators/harness.ts'
import { eventually } from '../streams/helpers.ts'

/** 16 payloads of 2,112 bytes are a block that sleeps: 256 tokens. */
const BLOCK = 33_792
const ids = (count: number): number[] => Array.from({ length: count }, (_, i) => (i * i + (i >> 3)) % 250)

test.skipIf(!hasShared)(
  'metrics tell from where archived blocks came, what was read, and how long sessions waited',
  async () => {
    const { model, tokenizer } = await openPackage(sharedModel('llama-tiny-memory'), { threads: 2, keepPacked: false })
    const bench = await createBench({ model, tokenizer })
    let worker: Worker | null = null
    const metrics = createMetrics({ log: bench.log, names: bench.names, model, worker: () => worker })
    const value = async (name: string, label?: string, of?: string): Promise<number> => {
      const { values } = (await metrics.registry.getMetricsAsJSON()).find((each) => each.name === name)!
      const found = values.filter(({ labels }) => label === undefined || labels[label] === of)
      expect(found).toHaveLength(1)
      return Number(found[0]!.value)
    }
    const uses = (tier: string) => value('continuo_archived_uses_total', 'tier', tier)
    try {
      // No block is completed by the tokens that follow, so nothing is retrieved but by the events.
      await bench.feed(event('s', { type: 'tokens', tokens: ids(1490) }))
      await bench.settle({ snapshotEvery: 100 })
      // Another worker: what is archived lies in the log, and neither memory nor files keep it.
      const waited = model.stats.blockWaits
      const blocks = { maxBytes: 0, maxFileBytes: 0, onRead: metrics.brought }
      const running = await bench.start({ snapshotEvery: 1 << 30, blocks })
      worker = running.worker
      expect([await uses('memory'), await uses('file'), await uses('store')]).toEqual([0, 0, 0])
      await bench.feed(
        event('s', { type: 'retrieve', blocks: [0, 40] }),
        event('s', { type: 'tokens', tokens: [5, 6, 7] }),
      )
      await running.idle()
      // Two blocks of sixteen payloads, of which each was needed once, and what the list had before. That a block was
      // used is told once nothing holds it any more, which may be after the answer.
      const stats = worker.contexts.blocks!
      await eventually(async () => {
        const [fromStore, memory] = [await uses('store'), await uses('memory')]
        expect(fromStore).toBeGreaterThanOrEqual(2)
        expect(memory + fromStore).toBe(stats.uses)
      })
      expect(await uses('file')).toBe(0)
      const reads = stats.storeReads
      expect(await value('continuo_archived_read_bytes_total', 'tier', 'store')).toBe(reads * BLOCK)
      expect(await value('continuo_archived_read_bytes_total', 'tier', 'file')).toBe(0)
      expect(await value('continuo_retrievals_total', 'reason', 'event')).toBe(1)
      // The same blocks again: they are in the list, and nothing is read for them.
      const [again, more] = [
        event('s', { type: 'retrieve', blocks: [0, 40] }),
        event('s', { type: 'tokens', tokens: [8] }),
      ]
      await bench.feed(again, more)
      await running.idle()
      expect(stats.storeReads).toBe(reads)
      // A session waits where its step comes before what was read ahead of it, which is nearly always: another block
      // until one did.
      for (let block = 1; model.stats.blockWaits === waited; block += 1) {
        expect(block).toBeLessThan(40)
        await bench.feed(event('s', { type: 'retrieve', blocks: [block] }), event('s', { type: 'tokens', tokens: [5] }))
        await running.idle()
      }
      const waits = await value('continuo_retrieval_waits_total')
      expect(waits).toBe(model.stats.blockWaits)
      const seconds = await value('continuo_retrieval_wait_seconds_total')
      expect(seconds).toBeGreaterThan(0)
      await running.worker.stop()
    } finally {
      worker = null
      await bench.close()
      model.close()
    }
  },
)
