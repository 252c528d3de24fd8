/**
 * An external memory on a CUDA device: archived blocks that sleep, contexts that spill, forks and events have the CPU's
 * bits.
 */
import { describe, expect, it } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { sha256 } from '../../src/hash.ts'
import { admit } from '../../src/operators/sessions/admit.ts'
import { importPlain } from '../../src/operators/sessions/import-plain.ts'
import { SessionManager } from '../../src/sessions/manager.ts'
import type { SessionManagerOptions } from '../../src/sessions/types.ts'
import { open } from '../engine/helpers.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { randomIds } from '../models/decoder-suite.ts'
import { SETTINGS, writeSetting } from '../models/outer-memory/outer-memory-settings.ts'
import { openBoth } from './helpers.ts'

/** 16 payloads of 16 tokens each are a block that may sleep. */
const ids = (count: number, from = 0): number[] =>
  Array.from({ length: count }, (_, i) => ((from + i) * (from + i) + ((from + i) >> 3)) % 250)

const lived = async (model: Model, options: SessionManagerOptions) => {
  const sessions = new SessionManager(model, options)
  try {
    const session = sessions.createSession('s')
    await sessions.process('s', ids(420))
    await sessions.retrieve('s', [0, 3])
    await sessions.generate('s', { maxTokens: 10, seed: 5 })
    const child = await sessions.fork('s', 'child')
    await sessions.process('s', ids(40, 3))
    await sessions.retrieve(child, [1, 9])
    await sessions.process(child, ids(30, 9))
    await sessions.archive('s')
    await sessions.process('s', ids(30, 4))
    const states = [sha256(await sessions.checkpointSession('s')), sha256(await sessions.checkpointSession('child'))]
    return { chains: [session.chain, child.chain], states, reads: sessions.stats.blocks!.fileReads }
  } finally {
    await sessions.close()
  }
}

it('a session of the plain decoder is taken over on a CUDA device with the bits of the CPU', async () => {
  const { folder } = writeSetting(SETTINGS[0]!)
  const { cpu, cuda } = await openBoth(folder)
  const plain = await open(folder, { withoutMemory: true, device: 'cpu', keepPacked: false })
  const sessions = new SessionManager(plain)
  sessions.createSession('s')
  await sessions.process('s', randomIds(90, 27, 5))
  const snapshot = await admit(await sessions.checkpointSession('s'), plain, null)
  await sessions.close()
  expect(await importPlain(snapshot, plain, cuda)).toEqual(await importPlain(snapshot, plain, cpu))
})

describe.skipIf(!hasShared)('an external memory on a CUDA device', () => {
  it('has the bits of the CPU, wherever its blocks and its contexts lie', async () => {
    const { cpu, cuda } = await openBoth(sharedModel('llama-tiny-memory'))
    const expected = await lived(cpu, {})
    expect(await lived(cuda, {})).toEqual(expected)
    const asleep = await lived(cuda, { blockCacheBytes: 0, maxResidentBytes: 1 })
    expect(asleep).toEqual({ ...expected, reads: asleep.reads })
    expect(asleep.reads).toBeGreaterThan(1)
  })
})
