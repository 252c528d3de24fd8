/** The event loop while large states are spilled, read back, copied and hashed: it goes on as at rest. */
import { monitorEventLoopDelay } from 'node:perf_hooks'
import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it } from 'vitest'
import { writeTitans } from '../../../bench/titans-package.ts'
import { openModel } from '../../../src/models/open.ts'
import { createContextStore } from '../../../src/operators/sessions/context-store.ts'
import { decodeSnapshot, encodeSnapshot } from '../../../src/state/snapshot.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { head } from '../../state/heads.ts'

/**
 * How many times as long as at rest the event loop of this machine may keep others waiting, at the 99th percentile.
 * With the copies, hashes and files of 32 MB on the loop it is a hundred times.
 */
const RATIO = 30

it('waits with large states about as long as at rest', { tags: 'slow' }, async () => {
  const dir = temporaryFolder()
  const sizes = { hidden: 64, layers: 6, heads: 16, keyHeads: 4, headDim: 128, intermediate: 64 }
  await writeTitans(dir, { composition: 'mal', levels: [1, 4], window: 16, segment: 16, ...sizes })
  const model = await openModel(dir, { threads: 1, device: 'cpu' })
  const contexts = createContextStore(model, { maxBytes: 1.5 * model.contextBytes, spillDir: dir })
  const both = [contexts.createContext('a'), contexts.createContext('b')]
  const round = async (): Promise<void> => {
    for (const context of both) {
      await contexts.submit({ context, tokens: Int32Array.of(1), nats: false })
      await decodeSnapshot(await encodeSnapshot(head(1), await context.state(), model.layout), model.layout)
    }
  }
  // The first one makes a context on the loop, to know what one takes.
  await round()
  const [rest, work] = [monitorEventLoopDelay({ resolution: 1 }), monitorEventLoopDelay({ resolution: 1 })]
  // By turns, because the machine has other work too.
  for (let n = 0; n < 4; n += 1) {
    work.enable()
    const begun = performance.now()
    await round()
    // A loop that stood is seen when it goes on.
    await sleep(2)
    work.disable()
    rest.enable()
    await sleep(performance.now() - begun)
    rest.disable()
  }
  expect(contexts.stats.spillReads).toBeGreaterThanOrEqual(8)
  expect(work.percentile(99) / rest.percentile(99)).toBeLessThan(RATIO)
  for (const context of both) context.close()
  await contexts.close()
  model.close()
})
