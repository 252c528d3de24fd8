/**
 * A model with an external memory, on a stream: its events, what it tells, and that every way to the same
 * place is the same.
 */
import { readdirSync, readFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { type ModelPackage, openPackage } from '../../../src/models/open.ts'
import { SessionManager } from '../../../src/sessions/manager.ts'
import type { Head } from '../../../src/state/head.ts'
import type { ChunkInput } from '../../../topics/chunks.ts'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import type { MemoryEvent } from '../../../topics/observations.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { type Bench, createBench, event, verified } from '../harness.ts'
import { plant } from '../planting.ts'

const NAME = 'llama-tiny-memory'
interface Script {
  readonly steps: readonly { do: string; from: number; to: number; blocks?: number[] }[]
  readonly events: readonly Record<string, unknown>[]
}
const json = <T>(file: string): T => JSON.parse(readFileSync(join(sharedModel(NAME), file), 'utf8')) as T

/** The steps of script.json as events of the stream. */
const chunksOf = (): readonly ChunkInput[] => {
  const { token_ids: ids } = json<{ token_ids: number[] }>('expected.json')
  return json<Script>('script.json').steps.map((step): ChunkInput => {
    if (step.do === 'tokens') return { type: 'tokens', tokens: ids.slice(step.from, step.to) }
    if (step.do === 'reset') return { type: 'boundary', reset: true }
    if (step.do === 'archive') return { type: 'archive' }
    return { type: 'retrieve', ...(step.blocks !== undefined && { blocks: step.blocks }) }
  })
}
/** What has no number that was computed. */
const plain = (events: readonly object[]) =>
  events.map((each) =>
    Object.fromEntries(Object.entries(each).filter(([name]) => !['distance', 'k_norm', 'v_norm'].includes(name))),
  )

describe.skipIf(!hasShared)('an external memory, on a stream', () => {
  let shared: ModelPackage
  beforeAll(async () => {
    shared = await openPackage(sharedModel(NAME), { threads: 2, keepPacked: false })
  })
  afterAll(() => shared.model.close())
  const use = async (claim: (bench: Bench) => Promise<void>): Promise<void> => {
    const bench = await createBench(shared)
    try {
      await claim(bench)
    } finally {
      await bench.close()
    }
  }
  const told = async (bench: Bench, session: string): Promise<readonly MemoryEvent[]> =>
    (await bench.observations(session)).flatMap((each) => (each.type === 'remembered' ? each.events : []))

  test('does what its events ask, tells it where that was asked for, and is verified', () =>
    use(async (bench) => {
      const chunks = chunksOf()
      await bench.feed(event('loud', { type: 'open', memory: true }), ...chunks.map((each) => event('loud', each)))
      await bench.feed(...chunks.map((each) => event('quiet', each)))
      await bench.settle({ snapshotEvery: 50 })
      expect(plain(await told(bench, 'loud'))).toEqual(plain(json<Script>('script.json').events))
      expect(await told(bench, 'quiet')).toEqual([])
      const heads = await bench.heads()
      expect(heads.get('loud')!.chain).toBe(heads.get('quiet')!.chain)
      await verified(bench)
    }))

  test('goes on after each record in another worker, with and without a snapshot, as if nothing had been', () =>
    use(async (bench) => {
      const chunks = chunksOf()
      await bench.feed(...chunks.map((each) => event('straight', each)))
      await bench.settle()
      for (const [at, chunk] of chunks.entries()) {
        await bench.feed(event('broken', chunk))
        await bench.settle({ snapshotEvery: at % 2 === 0 ? 1 : 100_000, maxContexts: 1 })
      }
      const heads = await bench.heads()
      expect(heads.get('broken')!.chain).toBe(heads.get('straight')!.chain)
      expect(heads.get('broken')!.archived).toBe(heads.get('straight')!.archived)
      await verified(bench)
    }))

  test('refuses events that cannot be, with a sentence, and leaves the session as it was', () =>
    use(async (bench) => {
      const { token_ids: ids } = json<{ token_ids: number[] }>('expected.json')
      await bench.feed(event('s', { type: 'tokens', tokens: ids.slice(0, 100) }))
      await bench.settle()
      const before = (await bench.heads()).get('s')!
      await bench.feed(
        event('s', { type: 'retrieve', blocks: [before.archived!] }),
        event('s', { type: 'retrieve', blocks: [0, 0] }),
        event('s', { type: 'retrieve', blocks: [0, 1, 2] }),
        event('s', '{"type":"retrieve","blocks":[]}'),
        event('s', '{"type":"retrieve","blocks":[-1]}'),
      )
      await bench.settle()
      expect((await bench.records('deadletters')).length).toBe(5)
      expect((await bench.heads()).get('s')!.chain).toBe(before.chain)
      await bench.feed(event('s', { type: 'retrieve', blocks: [before.archived! - 1, 0] }))
      await bench.settle()
      expect((await bench.heads()).get('s')!.chain).not.toBe(before.chain)
      await verified(bench)
    }))

  test('gives a request that the memory refuses to the dead letters, and goes on', () =>
    use(async (bench) => {
      const { token_ids: ids } = json<{ token_ids: number[] }>('expected.json')
      await bench.feed(event('s', { type: 'tokens', tokens: ids.slice(0, 100) }))
      await bench.settle({ snapshotEvery: 1 })
      const before = (await bench.heads()).get('s')!
      // Its head counts one block more than its memory has, here and in its snapshot: within the tokens of its context.
      const altered = (head: Head): Head => ({ ...head, archived: before.archived! + 1 })
      await plant(bench, 's', { head: altered, inside: altered })
      const [at] = await bench.feed(
        event('s', { type: 'retrieve', blocks: [before.archived!] }),
        event('s', { type: 'tokens', tokens: ids.slice(100, 110) }),
      )
      const { worker } = await bench.settle()
      expect([...worker.refused.values()]).toEqual([])
      const [letter] = await bench.records('deadletters')
      const header = (name: string): string =>
        Buffer.from(letter!.headers.find(([known]) => known === name)![1]).toString()
      expect(header(DEAD_LETTER_HEADERS.offset)).toBe(String(at))
      const { archived } = before
      expect(header(DEAD_LETTER_HEADERS.reason)).toMatch(
        new RegExp(
          `^The memory refused a "retrieve" event: .*names block ${archived}, expected one of the ${archived} `,
        ),
      )
      expect((await bench.heads()).get('s')).toMatchObject({ status: 'open', conductor: { globalStep: 110 } })
    }))

  test('a snapshot holds what is new: archived blocks are blobs that later snapshots name again', {
    tags: 'slow',
  }, async () => {
    const store = temporaryFolder()
    const bench = await createBench(shared, 1, { blobStore: store })
    const blobs = (): number =>
      readdirSync(store, { recursive: true }).filter((path) => /[0-9a-f]{64}\./.test(String(path))).length
    try {
      const ids = Array.from({ length: 1500 }, (_, at) => (at * at + (at >> 3)) % 250)
      const seen: number[] = []
      for (let at = 0; at < 6; at += 1) {
        await bench.feed(event('s', { type: 'tokens', tokens: ids }))
        await bench.settle({ maxContexts: 1 })
        seen.push(blobs())
      }
      // 1,500 tokens archive some 94 blocks; 16 payloads of 2,112 bytes are a blob, and 256 rows of the index are.
      for (const at of [1, 2, 3, 4, 5]) expect(Math.abs(seen[at]! - seen[at - 1]! - 6.2)).toBeLessThan(1.5)
      const head = (await bench.heads()).get('s')!
      expect(head.snapshot!.blobs!.count).toBeGreaterThan(15)
      expect(head.snapshot!.bytes).toBeLessThan(200_000)
      await bench.feed(event('t', { type: 'tokens', tokens: Array.from({ length: 6 }, () => ids).flat() }))
      await bench.settle()
      expect((await bench.heads()).get('t')!.chain).toBe(head.chain)
      await verified(bench)
    } finally {
      await bench.close()
    }
  })

  test('a SessionManager archives, retrieves and shows what is there', async () => {
    const { token_ids: ids } = json<{ token_ids: number[] }>('expected.json')
    const sessions = new SessionManager(shared.model)
    try {
      const session = sessions.createSession('s')
      await sessions.process(session, ids.slice(0, 100))
      const { events } = await sessions.archive(session)
      expect(events.map(({ type }) => type)).toContain('archive')
      await sessions.retrieve(session, [1, 0])
      const memory = await sessions.memory(session)
      expect(memory).toMatchObject({
        blockSize: 16,
        tokens: 100,
        archived: 5,
        indexed: 6,
        injected: [0, 1],
        pending: null,
      })
      expect(memory!.tombstones).toHaveLength(5)
      await expect(sessions.retrieve(session, [9])).rejects.toThrow(
        'A "retrieve" event names block 9, expected one of the 5 blocks that were archived before it (0 to 4).',
      )
    } finally {
      await sessions.close()
    }
  })
})
