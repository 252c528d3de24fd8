/** What a snapshot shows of an external memory by itself, without the model. */
import { describe, expect, test } from 'vitest'
import { outerMemoryOf } from '../../src/state/outer-memory.ts'
import { readSnapshotFile } from '../../src/state/snapshot.ts'
import { open } from '../engine/helpers.ts'
import { randomIds } from '../models/decoder-suite.ts'
import { SETTINGS, SUMMARIZE, writeSetting } from '../models/outer-memory/outer-memory-settings.ts'
import { managed } from '../sessions/helpers.ts'

describe.each(SETTINGS)('an external memory: $name', ({ memory, ...setting }) => {
  const { block_size: B, window: M, sinks: S } = memory

  test('shows by the sizes of its tables what its model says', async () => {
    const model = await open(writeSetting({ memory, ...setting }).folder, { threads: 1, keepPacked: false })
    const manager = managed(model)
    const session = manager.createSession('s')
    const ids = randomIds(150, SUMMARIZE, 6)
    for (const [from, to] of [
      [0, 1],
      [1, B - 1],
      [B - 1, B],
      [B, 2 * B + 1],
      [2 * B + 1, M + 1],
      [M + 1, 130],
      [130, 150],
    ] as const) {
      await manager.process(session, ids.slice(from, to))
      const file = await readSnapshotFile(await manager.checkpointSession(session))
      const seen = outerMemoryOf(file.tensors, file.state)!
      const { blockSize, ...others } = (await manager.memory(session))!
      expect(seen).toMatchObject(others)
      expect(blockSize).toBe(B)
      expect(seen.blockSize).toBe(to < B ? null : B)
      expect(seen.window).toBe(to - seen.archived * B)
      expect(seen.sinks).toBe(seen.archived === 0 ? 0 : S)
      expect(seen.controller).toBe(seen.pending === null ? 'Generating' : 'Retrieving')
    }
    const { topics, archived } = (await manager.memory(session))!
    const all = Array.from({ length: archived }, (_, block) => block)
    expect(topics.flatMap(({ blocks }) => blocks).toSorted((a, b) => a - b)).toEqual(memory.graph === null ? [] : all)
  })
})
