/**
 * The stream in little memory: contexts of all partitions share one bound, and what a spill file loses is rebuilt from
 * the log.
 */
import { readdirSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { codeOf } from '../../../src/errors.ts'
import { createMetrics } from '../../../src/observe/metrics.ts'
import { largestNorms } from '../../../src/state/health.ts'
import type { MemoryReport } from '../../../src/state/memory-stats.ts'
import { continuo } from '../../cli/helpers.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { eventually } from '../../streams/helpers.ts'
import { type Bench, benches, event, verified } from '../harness.ts'

const { use, open } = benches()

const feedAll = async (bench: Bench, count: number): Promise<void> => {
  for (const text of ['All the winter ', 'long the harbour ', 'slept.'])
    for (let n = 0; n < count; n += 1) await bench.feed(event(`s${n}`, { type: 'text', text: `${text}${n}` }))
  for (let n = 0; n < count; n += 1)
    await bench.feed(event(`s${n}`, { type: 'generate', requestId: 'r', maxTokens: 20, seed: n }))
}

describe('a worker in the memory of two contexts', () => {
  test('commits what one with memory for all commits, over three partitions; the pages are gone when it stops', {
    tags: 'slow',
  }, async () => {
    const chains: Record<string, string>[] = []
    const texts: string[][] = []
    for (const bounded of [false, true]) {
      await use(async (bench) => {
        await feedAll(bench, 24)
        const spillDir = temporaryFolder()
        const maxResidentBytes = 2 * bench.model.contextBytes
        const healths: MemoryReport[] = []
        const running = await bench.start({
          maxContexts: 16,
          snapshotEvery: 20,
          onHealth: (seen) => healths.push(seen),
          ...(bounded && { maxResidentBytes, spillDir }),
        })
        await running.idle()
        const { residentBytes, resident, spilled, spillReads } = running.worker.contexts
        if (bounded) {
          expect(spillReads).toBeGreaterThan(24)
          expect(spilled).toBeGreaterThan(10)
          expect(residentBytes).toBeLessThanOrEqual(maxResidentBytes)
          const metrics = createMetrics({ ...bench, worker: () => running.worker })
          for (const seen of healths) metrics.health(seen)
          const largest = Math.max(...healths.map(({ health }) => largestNorms(health).get('att.S')!))
          expect(largest).toBeGreaterThan(1)
          const text = await metrics.registry.metrics()
          expect(text).toContain(`continuo_resident_bytes ${residentBytes}\n`)
          expect(text).toContain(`continuo_memory_norm{tensor="att.S"} ${largest}\n`)
          expect(text).toContain(`continuo_paged_contexts ${spilled}\n`)
          expect(text).toContain(`continuo_page_ins_total ${spillReads}\n`)
        } else expect([spilled, spillReads, resident > 2]).toEqual([0, 0, true])
        await running.worker.stop()
        expect(readdirSync(spillDir)).toEqual([])
        chains.push(Object.fromEntries([...(await bench.heads())].map(([id, { chain }]) => [id, chain]).sort()))
        texts.push(
          (await bench.generated()).map(({ session, text: part, index }) => `${session} ${index} ${part}`).sort(),
        )
        await verified(bench)
      }, 3)
    }
    expect(Object.keys(chains[0]!)).toHaveLength(24)
    expect(chains[1]).toEqual(chains[0])
    expect(texts[1]).toEqual(texts[0])
  })

  test('and in files of as many sends the others to the log, and commits the same', { tags: 'slow' }, async () => {
    const chains: Record<string, string>[] = []
    for (const bounded of [false, true]) {
      await use(async (bench) => {
        const spillDir = temporaryFolder()
        const maxResidentBytes = 2 * bench.model.contextBytes
        const maxSpillBytes = 3 * bench.model.contextBytes
        const running = await bench.start({
          maxContexts: 24,
          snapshotEvery: 1000,
          ...(bounded && { maxResidentBytes, maxSpillBytes, spillDir }),
        })
        const { contexts, tasks } = running.worker
        for (const round of [1, 2]) {
          await feedAll(bench, 24)
          await running.idle()
          if (!bounded) continue
          // What has no place in memory and files goes, once it is saved.
          await eventually(() => expect(contexts.residentBytes).toBeLessThanOrEqual(maxResidentBytes))
          expect(contexts.spillBytes).toBeLessThanOrEqual(maxSpillBytes)
          expect([...tasks.values()][0]!.liveContexts).toBeLessThanOrEqual(5)
          if (round === 2) expect(running.restored.length).toBeGreaterThanOrEqual(19)
        }
        if (!bounded) expect([running.restored.length, contexts.resident]).toEqual([0, 24])
        await running.worker.stop()
        chains.push(Object.fromEntries([...(await bench.heads())].map(([id, { chain }]) => [id, chain]).sort()))
        await verified(bench)
      }, 1)
    }
    expect(Object.keys(chains[0]!)).toHaveLength(24)
    expect(chains[1]).toEqual(chains[0])
  })

  test('whose spill file was damaged begins the task again from the log: nothing is refused, nothing is lost', {
    tags: 'slow',
  }, async () => {
    const bench = await open()
    const spillDir = temporaryFolder()
    await feedAll(bench, 6)
    const running = await bench.start({ maxResidentBytes: 1, spillDir, retryPause: 1 })
    await running.idle()
    await eventually(() => expect(running.worker.contexts.spilled).toBe(5))
    const folder = join(spillDir, readdirSync(spillDir)[0]!)
    for (const name of readdirSync(folder)) writeFileSync(join(folder, name), 'not what it was')
    for (let n = 0; n < 6; n += 1) await bench.feed(event(`s${n}`, { type: 'text', text: ' And then?' }))
    await eventually(() => expect(running.states.some(({ state }) => state === 'lost')).toBe(true))
    await running.idle()
    await running.worker.stop()
    const lost = running.states.find(({ state }) => state === 'lost')!
    expect(codeOf(lost.error)).toBe('UNAVAILABLE')
    expect(String(lost.error)).toMatch(/Session "s\d".*spill file/)
    expect(running.worker.refused.size).toBe(0)
    expect(new Set(running.restored).size).toBeGreaterThanOrEqual(5)
    expect([...(await bench.heads()).values()].map(({ totals }) => totals.generated)).toEqual(new Array(6).fill(20))
    await verified(bench)
    await bench.close()
  })

  test('whose spill file is missed when a context must make room begins the task again, too', async () => {
    const bench = await open()
    const spillDir = temporaryFolder()
    await feedAll(bench, 2)
    // A past of more than 64 tokens: a shorter one would be given back without its state.
    for (const id of ['s0', 's1'])
      await bench.feed(event(id, { type: 'text', text: 'It woke when the ice broke, late in March.' }))
    // Nothing of the two is in a snapshot: the third gets room when the state of the first, which is spilled, was
    // saved.
    const running = await bench.start({ maxResidentBytes: 1, maxContexts: 2, spillDir, retryPause: 1 })
    await running.idle()
    // A context leaves memory beside the events.
    await eventually(() => expect(running.worker.contexts.spilled).toBe(1))
    const folder = join(spillDir, readdirSync(spillDir)[0]!)
    // Files that are of no use any more go beside the events, too.
    await eventually(() => expect(readdirSync(folder)).toHaveLength(1))
    for (const name of readdirSync(folder)) writeFileSync(join(folder, name), 'not what it was')
    await bench.feed(event('third', { type: 'text', text: 'Who comes there?' }))
    await eventually(() => expect(running.states.some(({ state }) => state === 'lost')).toBe(true))
    await running.idle()
    await running.worker.stop()
    const { error } = running.states.find(({ state }) => state === 'lost')!
    expect([codeOf(error), String(error)]).toEqual([
      'UNAVAILABLE',
      expect.stringContaining('Session "s0": The spill file'),
    ])
    expect((await bench.heads()).get('third')).toMatchObject({ totals: { tokens: 16 } })
    await verified(bench)
    await bench.close()
  })

  test('says of --spill-dir alone, also under its former name --page-dir, that it would do nothing', async () => {
    const { code, err } = await continuo(['run', '--log', 'file:x.db', '--model', 'models/demo', '--page-dir', 'pages'])
    expect(code).toBe(2)
    expect(err).toContain('--spill-dir goes with --max-resident-bytes BYTES; here it would do nothing.')
  })
})
