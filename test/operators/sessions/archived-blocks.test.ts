/**
 * Archived blocks of an external memory, wherever they lie: in memory, in files of the process, in the blob store. No
 * result knows it.
 *
 * @module-tag slow
 */
import { readdirSync, readFileSync, renameSync, statSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { sha256 } from '../../../src/hash.ts'
import { type ModelPackage, openPackage } from '../../../src/models/open.ts'
import { SessionManager } from '../../../src/sessions/manager.ts'
import type { SessionHandle, SessionManagerOptions } from '../../../src/sessions/types.ts'
import type { BlockCacheOptions } from '../../../src/state/block-cache.ts'
import { readOutline } from '../../../src/state/manifest.ts'
import { readSnapshotFile } from '../../../src/state/snapshot.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { eventually } from '../../streams/helpers.ts'
import { blobsIn, fileOf, freshFolder } from '../block-bench.ts'
import { type Bench, createBench, event, verified } from '../harness.ts'

/** 16 payloads of 2,112 bytes are a block that sleeps: 256 tokens. */
const ids = (count: number, from = 0): number[] =>
  Array.from({ length: count }, (_, i) => ((from + i) * (from + i) + ((from + i) >> 3)) % 250)

describe.skipIf(!hasShared)('archived blocks', () => {
  let shared: ModelPackage
  beforeAll(async () => {
    shared = await openPackage(sharedModel('llama-tiny-memory'), { threads: 2, keepPacked: false })
  })
  afterAll(() => shared.model.close())

  /** Reads, brings back what is far behind, forks and generates. */
  const lived = async (options: SessionManagerOptions) => {
    const warnings: string[] = []
    const sessions = new SessionManager(shared.model, { ...options, warn: (message) => warnings.push(message) })
    try {
      const [a, b] = [sessions.createSession('a'), sessions.createSession('b')]
      for (let at = 0; at < 6; at += 1) {
        for (const id of ['a', 'b']) await sessions.process(id, ids(500, 500 * at + (id === 'a' ? 0 : 7)))
        await sessions.retrieve('a', [0, 5 + at])
        await sessions.process('a', ids(40, at))
        await sessions.generate('a', { maxTokens: 10, seed: at })
      }
      const child = await sessions.fork('a', 'c')
      await sessions.retrieve(child, [1, 40])
      await sessions.process(child, ids(100, 9))
      await sessions.process('a', ids(700, 3))
      await sessions.retrieve('b', [2])
      await sessions.process('b', ids(20))
      const { blocks } = sessions.stats
      const checkpoint = await sessions.checkpointSession('a')
      const chains = [a, b, child].map(({ chain }) => chain)
      return { chains, state: sha256(checkpoint), blocks: blocks!, warnings }
    } finally {
      await sessions.close()
    }
  }

  test('in memory, in files, or neither: the same chains, states and forks', async () => {
    const all = await lived({})
    expect(all.blocks).toMatchObject({ fileReads: 0, storeReads: 0, fileUses: 0, storeUses: 0, fileBytes: 0 })
    expect(all.blocks.uses).toBeGreaterThan(6)
    expect(all.blocks.bytes).toBeGreaterThan(20 * 33_792)
    const dir = freshFolder()
    const none = await lived({ blockCacheBytes: 0, blockDir: dir })
    expect(none).toMatchObject({ chains: all.chains, state: all.state, warnings: [] })
    expect(none.blocks.fileReads).toBeGreaterThan(6)
    expect(none.blocks.fileReadBytes).toBe(none.blocks.fileReads * 33_792)
    // Others found their block still in memory.
    expect(none.blocks.fileUses).toBeGreaterThan(6)
    expect(none.blocks.fileUses).toBeLessThanOrEqual(none.blocks.fileReads)
    expect(none.blocks.fileUses).toBeLessThanOrEqual(none.blocks.uses)
    expect(none.blocks).toMatchObject({ storeUses: 0, storeReadBytes: 0 })
    expect(none.blocks.bytes).toBeLessThan(all.blocks.bytes / 2)
    expect(readdirSync(dir)).toEqual([])
    const some = await lived({ blockCacheBytes: 200_000 })
    expect(some).toMatchObject({ chains: all.chains, state: all.state, warnings: [] })
    // Where nothing else has them they stay, and that is said.
    const stuck = await lived({ blockCacheBytes: 0, blockDirBytes: 0 })
    expect(stuck).toMatchObject({ chains: all.chains, state: all.state })
    expect(stuck.warnings[0]).toContain('nothing in them is in the blob store yet. Blocks stay in memory')
    expect(stuck.blocks.fileReads).toBe(0)
  })

  test('spilling a context leaves its blocks where they are', async () => {
    const all = await lived({})
    for (const blockCacheBytes of [0, 1 << 30]) {
      const spilled = await lived({ maxResidentBytes: 1, blockCacheBytes })
      expect(spilled).toMatchObject({ chains: all.chains, state: all.state, warnings: [] })
    }
  })

  test('of a session that comes from a file whole leave memory at once, and come back as they were', async () => {
    const archived = 4000 / 16 - 3
    const rounds = [0, 1, 2, 3, 4]
    /** Each that is brought back lies in another block of the state. */
    const bringBack = async (sessions: SessionManager, session: SessionHandle, round: number): Promise<void> => {
      for (let at = round; at < archived; at += 16) {
        await sessions.retrieve(session, [at])
        await sessions.process(session, ids(3, at))
      }
    }
    const inMemory = new SessionManager(shared.model)
    inMemory.createSession('s')
    await inMemory.process('s', ids(4000))
    const file = await inMemory.checkpointSession('s')
    const chains: string[] = []
    for (const round of rounds) {
      const expected = await inMemory.fork('s', `e${round}`)
      await bringBack(inMemory, expected, round)
      chains.push(expected.chain)
    }
    await inMemory.close()
    const sessions = new SessionManager(shared.model, { blockCacheBytes: 0, blockDir: freshFolder() })
    try {
      for (const round of rounds) {
        const resumed = await sessions.resumeSession(file, { id: `s${round}` })
        await bringBack(sessions, resumed, round)
        await eventually(async () => expect(sessions.stats.blocks!.bytes).toBe(0))
        expect(resumed.chain).toBe(chains[round])
      }
    } finally {
      await sessions.close()
    }
  })

  test('one whose file was changed is a sentence, and its session ends there', async () => {
    const dir = freshFolder()
    const sessions = new SessionManager(shared.model, { blockCacheBytes: 0, blockDir: dir })
    try {
      sessions.createSession('s')
      await sessions.process('s', ids(1500))
      await eventually(async () => expect(sessions.stats.blocks!.bytes).toBe(0))
      for (const path of blobsIn(dir)) writeFileSync(path, readFileSync(path).fill(7, 100, 101))
      await sessions.retrieve('s', [0])
      await expect(sessions.process('s', ids(20))).rejects.toMatchObject({
        code: 'UNAVAILABLE',
        message: expect.stringContaining('The spill file of an archived block'),
      })
    } finally {
      await sessions.close()
    }
  })

  const chunks: readonly ChunkInput[] = [
    { type: 'tokens', tokens: ids(4000) },
    { type: 'retrieve', blocks: [0, 100] },
    { type: 'generate', requestId: 'r', maxTokens: 20, seed: 3 },
    { type: 'tokens', tokens: ids(300, 5) },
    { type: 'retrieve', blocks: [17] },
    { type: 'tokens', tokens: ids(2000, 11) },
  ]
  const chainOf = async (bench: Bench): Promise<string> => (await bench.heads()).get('s')!.chain
  const straight = async (): Promise<string> => {
    const bench = await createBench(shared)
    try {
      await bench.feed(...chunks.map((chunk) => event('s', chunk)))
      await bench.settle()
      return await chainOf(bench)
    } finally {
      await bench.close()
    }
  }

  for (const [name, blobStore, blocks] of [
    ['a folder', temporaryFolder(), {}],
    ['the log', undefined, {}],
    ['the log, and no files', undefined, { maxBytes: 0, maxFileBytes: 0 }],
    ['a folder, and no memory', temporaryFolder(), { maxBytes: 0 }],
    ['the log, and no memory', undefined, { maxBytes: 0 }],
  ] as [string, string | undefined, BlockCacheOptions][])
    test(`in ${name}: a worker that takes over reads what it needs`, async () => {
      const expected = await straight()
      const bench = await createBench(shared, 1, { ...(blobStore !== undefined && { blobStore }) })
      try {
        for (const [at, chunk] of chunks.entries()) {
          await bench.feed(event('s', chunk))
          const { worker } = await bench.settle({ snapshotEvery: 100, blocks })
          const seen = worker.contexts.blocks!
          // 15 blocks sleep; two at a time lie in the list.
          if (at === 1 || at === 2) expect(seen.storeReads).toBeLessThanOrEqual(5)
          if (at === 2) expect(seen.storeReads).toBeGreaterThan(0)
        }
        expect(await chainOf(bench)).toBe(expected)
        await verified(bench)
      } finally {
        await bench.close()
      }
    })

  test.each([
    ['a folder', temporaryFolder()],
    ['the log', undefined],
  ])('of many the manifest in %s has pages: its file stays small, and a worker that takes over finds them', async (_, blobStore) => {
    const bench = await createBench(shared, 1, { ...(blobStore !== undefined && { blobStore }) })
    try {
      for (let at = 0; at < 9; at += 1) {
        await bench.feed(event('s', { type: 'tokens', tokens: ids(16_000, at) }))
        await bench.settle({ snapshotEvery: 4000, compactFloor: 1 << 16 })
      }
      // 65,536 tokens are 256 blocks of 16 payloads.
      const outline = readOutline(await readSnapshotFile(await fileOf(bench, 's')))!
      expect(outline.pages.flat().length).toBe(2)
      await bench.feed(
        event('s', { type: 'retrieve', blocks: [0, 8000] }),
        event('s', { type: 'tokens', tokens: ids(40) }),
      )
      const { worker } = await bench.settle()
      expect(worker.contexts.blocks!.storeReads).toBeLessThan(8)
      const { chain } = (await bench.heads()).get('s')!
      await bench.feed(
        ...Array.from({ length: 9 }, (_, at) => event('t', { type: 'tokens', tokens: ids(16_000, at) })),
        event('t', { type: 'retrieve', blocks: [0, 8000] }),
        event('t', { type: 'tokens', tokens: ids(40) }),
      )
      await bench.settle({ snapshotEvery: 1 << 30 })
      expect((await bench.heads()).get('t')!.chain).toBe(chain)
      await verified(bench)
    } finally {
      await bench.close()
    }
  })

  test('what a snapshot writes follows from what is new, after 100 archived blocks and after 5,000', async () => {
    const blobStore = freshFolder()
    const bench = await createBench(shared, 1, { blobStore })
    try {
      const written = async (): Promise<number> => {
        const files = (await bench.records('snapshots')).reduce((sum, { value }) => sum + value!.length, 0)
        return blobsIn(blobStore).reduce((sum, path) => sum + statSync(path).size, files)
      }
      /** Bytes of eight snapshots, 1,024 tokens apart: whole blocks of everything. */
      const eight = async (from: number): Promise<number> => {
        const before = await written()
        for (let at = from; at < from + 8192; at += 1024) {
          await bench.feed(event('s', { type: 'tokens', tokens: ids(1024, at) }))
          await bench.settle({ compactFloor: 2 ** 40 })
        }
        return (await written()) - before
      }
      const upTo = async (from: number, to: number): Promise<void> => {
        await bench.feed(event('s', { type: 'tokens', tokens: ids(to - from, from) }))
        await bench.settle({ snapshotEvery: 2 ** 40, compactFloor: 2 ** 40 })
      }
      await upTo(0, 4096)
      const early = await eight(4096)
      await upTo(12_288, 81_920)
      const late = await eight(81_920)
      expect((await bench.heads()).get('s')!.archived).toBeGreaterThan(5000)
      expect(late / early).toBeLessThan(1.05)
      expect(late / early).toBeGreaterThan(0.95)
    } finally {
      await bench.close()
    }
  })

  test('one that is damaged in the blob store is found out when it is wanted, and computed again', async () => {
    const expected = await straight()
    const blobStore = freshFolder()
    const bench = await createBench(shared, 1, { blobStore })
    try {
      await bench.feed(event('s', chunks[0]!))
      await bench.settle({ snapshotEvery: 100 })
      for (const path of blobsIn(blobStore)) {
        const bytes = readFileSync(path)
        if (bytes.length === 33_792) writeFileSync(path, bytes.fill(bytes[99]! ^ 1, 99, 100))
      }
      await bench.feed(...chunks.slice(1).map((chunk) => event('s', chunk)))
      const warnings: string[] = []
      const { states, restored } = await bench.settle({ snapshotEvery: 100, warn: (message) => warnings.push(message) })
      expect(
        states.some(({ error }) =>
          /The blob with archived blocks \d+ to \d+ of session "s" .* is damaged in the blob store .*; continuo repair --session s /.test(
            String(error),
          ),
        ),
      ).toBe(true)
      expect(warnings.join()).toContain('is computed again from its first event.')
      expect(restored.length).toBe(2)
      expect(await chainOf(bench)).toBe(expected)
      // What was written anew is whole.
      await bench.feed(event('s', { type: 'retrieve', blocks: [3] }), event('s', { type: 'tokens', tokens: ids(9) }))
      const after = await bench.settle()
      expect(after.states.every(({ error }) => error === undefined)).toBe(true)
      await verified(bench)
    } finally {
      await bench.close()
    }
  })

  test('a blob store that is away is waited for', async () => {
    const expected = await straight()
    const blobStore = join(freshFolder(), 'store')
    const bench = await createBench(shared, 1, { blobStore })
    try {
      await bench.feed(event('s', chunks[0]!))
      await bench.settle({ snapshotEvery: 100 })
      const running = await bench.start({ snapshotEvery: 100, retryPause: 5 })
      // Nothing is read yet: so the session comes to memory, and its blocks stay away.
      await bench.feed(event('s', chunks[1]!))
      await running.idle()
      renameSync(blobStore, `${blobStore}.away`)
      writeFileSync(blobStore, 'no folder')
      await bench.feed(...chunks.slice(2).map((chunk) => event('s', chunk)))
      await eventually(async () =>
        expect(running.states.some(({ error }) => String(error).includes('could not be read'))).toBe(true),
      )
      renameSync(blobStore, `${blobStore}.file`)
      renameSync(`${blobStore}.away`, blobStore)
      await running.idle()
      await running.worker.stop()
      expect(await chainOf(bench)).toBe(expected)
      await verified(bench)
    } finally {
      await bench.close()
    }
  })
})
