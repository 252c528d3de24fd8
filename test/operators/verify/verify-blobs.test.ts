/**
 * verify of sessions in blocks: names of blocks against a recomputation by pieces, archived blocks that sleep
 * meanwhile, and the blobs themselves.
 *
 * @module-tag slow
 */
import { readdirSync, renameSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { manifestIn } from '../../../src/operators/snapshots/manifests.ts'
import { type Verification, type VerifyOptions, verifyLog } from '../../../src/operators/verify/verify.ts'
import { encodeManifest } from '../../../src/state/manifest.ts'
import { readSnapshotFile } from '../../../src/state/snapshot.ts'
import { fileOf, freshFolder, growingBenches, read, textOf } from '../block-bench.ts'
import { type Bench, event } from '../harness.ts'
import { heldBy, inFolder, inTopic, PAGED, tokens, wideBenches } from '../memory-bench.ts'
import { plantFile } from '../planting.ts'

const wide = wideBenches()
const growing = growingBenches()

const verification = (
  { log, names, model, tokenizer }: Bench,
  options: Partial<VerifyOptions> = {},
): Promise<Verification> => verifyLog({ log, names, model, tokenizer, format: 'json', ...options })

test('archived blocks go to files while a session is recomputed, and come back for what is compared', () =>
  wide.use(async (bench) => {
    for (const at of [0, 1, 2]) {
      await bench.feed(tokens('s', 400, at), event('s', { type: 'retrieve', blocks: [at] }))
      await bench.settle({ snapshotEvery: 300 })
    }
    const dir = freshFolder()
    const tiers: string[] = []
    let most = 0
    const blocks = { maxBytes: 0, dir, onRead: (tier: string) => tiers.push(tier) }
    const watch = (): void => {
      most = Math.max(most, readdirSync(dir, { recursive: true }).length)
    }
    const seen = await verification(bench, { blocks, onProgress: watch })
    expect(seen).toMatchObject({ findings: [], sessions: 1, blobsRead: 0 })
    expect(seen.snapshotsCompared).toBeGreaterThan(1)
    expect(tiers.length).toBeGreaterThan(100)
    expect(new Set(tiers)).toEqual(new Set(['file']))
    expect(most).toBeGreaterThan(100)
    expect(readdirSync(dir)).toEqual([])
  }))

test('where it begins at a snapshot, archived blocks come from the store, and one that is lost is a finding of its session', () =>
  wide.use(async (bench) => {
    await bench.feed(tokens('s', 400), tokens('t', 400, 3))
    await bench.settle({ compactFloor: 1 << 30 })
    await bench.log.trim(bench.names.chunks, 0, 1)
    for (const id of ['s', 't']) await bench.feed(event(id, { type: 'retrieve', blocks: [1, 4] }), tokens(id, 30, 7))
    await bench.settle({ compactFloor: 1 << 30 })
    const tiers: string[] = []
    const blocks = { maxBytes: 0, onRead: (tier: string) => tiers.push(tier) }
    const seen = await verification(bench, { blocks })
    expect(seen).toMatchObject({ findings: [], partial: [{ session: 's', fromPulse: 400 }] })
    expect(tiers).toContain('store')
    await inTopic.flip(bench, (await heldBy(bench, 's')).find(({ what }) => what === 'archived block 4')!)
    const { findings, headsCompared } = await verification(bench, { blocks })
    // Each snapshot that needs the block says so; how many there are depends on how commits fell.
    expect(new Set(findings.map(({ kind, session, message }) => `${kind} ${session} ${message.slice(0, 45)}`))).toEqual(
      new Set(['blob s The blob with archived block 4 of session "s"']),
    )
    // The other session was compared to its end.
    expect(headsCompared).toBeGreaterThan(0)
    expect(headsCompared).toBeLessThan(seen.headsCompared)
  }))

test('a manifest that names another block than the events give is a finding that says which', () =>
  growing.use(async (bench) => {
    await bench.feed(read('s', textOf(600)), read('t', textOf(600, 2)))
    await bench.settle()
    const other = (await manifestIn(bench.log, await readSnapshotFile(await fileOf(bench, 't'))))!
    const file = await readSnapshotFile(await fileOf(bench, 's'))
    const own = (await manifestIn(bench.log, file))!
    const names = [[own.names[0]![0]!, other.names[0]![1]!]]
    const { blobs } = (await bench.heads()).get('s')!.snapshot!
    const planted = await encodeManifest(file.head, file.state, bench.model.layout, own.store, names)
    await plantFile(bench, 's', planted, blobs)
    const { findings } = await verification(bench)
    expect(findings).toMatchObject([{ kind: 'snapshot', session: 's' }])
    expect(findings[0]!.message).toMatch(
      /^The snapshot differs from the recomputed state: it names positions 256 to 511 of the cache with the sha256 [0-9a-f]{12}…, and they have [0-9a-f]{12}…\.$/,
    )
  }))

test('a state whose rest was altered is a finding, too', () =>
  growing.use(async (bench) => {
    await bench.feed(read('s', textOf(600)))
    await bench.settle()
    const file = await readSnapshotFile(await fileOf(bench, 's'))
    const { names, store } = (await manifestIn(bench.log, file))!
    const { blobs } = (await bench.heads()).get('s')!.snapshot!
    const state = file.state.slice()
    state[state.length - 3]! ^= 1
    await plantFile(bench, 's', await encodeManifest(file.head, state, bench.model.layout, store, names), blobs)
    const { findings } = await verification(bench)
    expect(findings.map(({ message }) => message)).toEqual([
      'The snapshot differs from the recomputed state in the tensors of its own file.',
    ])
  }))

describe.each([
  { name: 'the topic', isFolder: false, where: /^continuo\.blobs, partition 0, offset \d+$/ },
  { name: 'a folder', isFolder: true, where: /^[0-9a-f]{32}\/0, place [0-9a-f]{16}$/ },
])('in $name', ({ isFolder, where }) => {
  test('verify --blobs reads each blob once, and says of each that is wrong what it holds and where it lies', () => {
    const folder = freshFolder()
    return wide.use(
      async (bench) => {
        await bench.feed(tokens('s', PAGED), event('t', { type: 'open', from: { session: 's' } }), tokens('t', 8))
        await bench.settle()
        const own = await heldBy(bench, 's')
        const all = new Set([...own, ...(await heldBy(bench, 't'))].map(({ hash, place }) => `${hash}.${place}`))
        expect(await verification(bench, { blobs: true })).toMatchObject({ findings: [], blobsRead: all.size })
        const damage = isFolder ? inFolder(folder) : inTopic
        for (const what of ['archived block 5', 'rows 0 to 255 of the index'])
          await damage.flip(bench, own.find((each) => each.what === what)!)
        // Of names alone nothing is wrong.
        expect((await verification(bench)).findings).toEqual([])
        const { findings, blobsRead } = await verification(bench, { blobs: true })
        expect(blobsRead).toBe(all.size - 2)
        expect(findings.map(({ session }) => session)).toEqual(['s', 's', 't', 't'])
        for (const each of findings) expect(each).toMatchObject({ kind: 'blob', where: expect.stringMatching(where) })
        const messages = findings.map(({ message }) => message).join('\n')
        expect(messages).toMatch(/^The blob with archived block 5 of session "s" \(sha256 /m)
        expect(messages).toMatch(/^The blob with rows 0 to 255 of the index of session "t" \(sha256 /m)
        await damage.flip(bench, own.find(({ what }) => what.startsWith('page'))!)
        const later = await verification(bench, { blobs: true })
        expect(later.findings.map(({ message }) => message).join('\n')).toContain(
          'page 0 of the names of archived blocks',
        )
      },
      isFolder ? { blobStore: folder } : {},
    )
  })
})

test('a store that is away is no finding: nothing is said of the log', () => {
  const folder = join(freshFolder(), 'store')
  return growing.use(
    async (bench) => {
      await bench.feed(read('s', textOf(600)))
      await bench.settle()
      renameSync(folder, `${folder}.away`)
      await expect(verification(bench, { blobs: true })).rejects.toMatchObject({
        code: 'UNAVAILABLE',
        message: expect.stringContaining('is away'),
      })
      renameSync(`${folder}.away`, folder)
      expect((await verification(bench, { blobs: true })).findings).toEqual([])
    },
    { blobStore: folder },
  )
})
