/** Manifests: a state taken apart into blocks and put together again, and files that lie about it. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { join } from '../../src/bulk.ts'
import { buildGraph } from '../../src/engine/builder.ts'
import { autoDim, plus, ring } from '../../src/engine/builder-types.ts'
import { stateLayout } from '../../src/engine/layout.ts'
import { sha256 } from '../../src/hash.ts'
import type { FreshBlock, StateLayout } from '../../src/memory.ts'
import { assembly } from '../../src/state/assembly.ts'
import {
  type BlobNames,
  encodeManifest,
  PAGE_BYTES,
  pagesOf,
  readManifest,
  readOutline,
  withNames,
} from '../../src/state/manifest.ts'
import { checkWhole, filePieces, readSnapshotFile, type SnapshotFile } from '../../src/state/snapshot.ts'
import { cutParts } from '../engine/cut-parts.ts'
import { head } from './heads.ts'

/** A file with all its blocks, of each growth. */
const assemble = async (file: SnapshotFile, blocks: readonly (readonly Pick<FreshBlock, 'bytes'>[])[]) => {
  const whole = assembly(file)
  const all = blocks.flatMap((own, g) =>
    own.map(async ({ bytes }, block) => [await whole.place(g, block, bytes), bytes] as const),
  )
  for (const [hash, bytes] of await Promise.all(all)) expect(hash).toBe(sha256(bytes))
  return whole.finish()
}

const F32 = 4
const F16 = 2

/**
 * Two counters with tables of several shapes and dtypes, a table that does not grow, and rings of so many places: two
 * by the clock, one by a counter.
 */
const layout = (places: number): StateLayout => {
  const g = buildGraph()
  const clock = g.clock('clock')
  const length = g.counter('length', { max: 4000 })
  const beats = g.counter('beats', { max: 4000 })
  g.table('fixed', [3, 2])
  const K = g.table('K', [2, autoDim(length), 3])
  g.table('R', [2, ring(places, clock), 3])
  const V = g.table('V', [autoDim(length)])
  g.table('B', [2, 2, autoDim(beats)], { dtype: 'f16' })
  g.table('Q', [ring(places, length), 2])
  g.table('N', [ring(places, clock), 5], { dtype: 'f16' })
  const x = g.dynamic('x', [3], 'f32')
  g.block('step', [x], () => {
    g.cacheIncrement(length)
    g.cacheIncrement(beats)
    g.cacheWrite(K(0, plus(length, -1)), x)
    return { x: g.add('y', x, x) }
  })
  void V
  return stateLayout(g.finish())
}

const PLACES = 600
const LAYOUT = layout(PLACES)

const stateOf = (length: number, beats: number, places: number = PLACES, own: StateLayout = LAYOUT): Uint8Array => {
  const growing = length * (2 * 3 + 1) * F32 + beats * 4 * F16
  const rings = places * ((2 * 3 + 2) * F32 + 5 * F16)
  const state = Uint8Array.from({ length: 8 + 8 + 24 + growing + rings }, (_, at) => (at * 131 + (at >> 8)) & 0xff)
  const view = new DataView(state.buffer)
  for (const { name, offset } of own.first)
    if (name === 'length' || name === 'beats')
      view.setBigInt64(offset, BigInt(name === 'length' ? length : beats), true)
  return state
}

/** The state of a context that stands at the pulse, as a manifest. */
const written = async (length: number, beats: number, pulse = 1700, own = LAYOUT, places = PLACES) => {
  const state = stateOf(length, beats, places, own)
  const { hot, fresh } = await cutParts(own, state, { pulse, ends: [] })
  const names: BlobNames = fresh.map((each) =>
    each.map(({ run, bytes }, i) => ({ run, hash: sha256(bytes), place: `${i}`.padStart(16, 'c') })),
  )
  const file = await join(await encodeManifest(head(), hot, own, `${'a'.repeat(32)}/3`, names))
  return { state, hot, fresh, names, file }
}

describe('a manifest', () => {
  test('and its blocks make the state again, for every length, pulse and window', async () => {
    const edges = [0, 1, 255, 256, 257, 511, 512, 513, 768, 769]
    const positions = fc.oneof(fc.nat(1100), fc.constantFrom(...edges))
    const windows = fc.oneof(fc.integer({ min: 1, max: 1100 }), fc.constantFrom(...edges.slice(1)))
    await fc.assert(
      fc.asyncProperty(positions, positions, fc.nat(5000), windows, async (length, beats, pulse, places) => {
        const own = layout(places)
        const { state, hot, fresh, names, file } = await written(length, beats, pulse, own, places)
        const read = await readSnapshotFile(file)
        const sizes = fresh.map((each) => each.map(({ bytes }) => bytes.length))
        expect(readManifest(read)).toMatchObject({ store: `${'a'.repeat(32)}/3`, names, sizes })
        const whole = await assemble(read, fresh)
        expect(Buffer.compare(whole.state, state)).toBe(0)
        expect(whole.tensors).toEqual(own.tensors(state))
        // What the file holds itself and its blocks are the state once.
        expect(hot.length + sizes.flat().reduce((sum, bytes) => sum + bytes, 0)).toBe(state.length)
      }),
    )
  })

  test('leaves out the blocks that are known, and only those', async () => {
    const state = stateOf(1100, 700)
    const pulse = 1700
    const all = await cutParts(LAYOUT, state, { pulse, ends: [] })
    // Rings of 600 places have three blocks. Position 1699 lies in block 1 of lap 2, position 1099 in block 1 of lap 1.
    expect(all.frozen).toEqual([
      { first: 0, end: 4 },
      { first: 0, end: 2 },
      { first: 8, end: 10 },
      { first: 5, end: 7 },
    ])
    const some = await cutParts(LAYOUT, state, { pulse, ends: [3, 2, 9, 1] })
    expect(some.fresh.map((own) => own.map(({ run }) => run))).toEqual([[3], [], [9], [5, 6]])
    expect(some.fresh[0]).toEqual(all.fresh[0]!.slice(3))
    expect(some.fresh[2]).toEqual(all.fresh[2]!.slice(1))
    expect(Buffer.compare(some.hot, all.hot)).toBe(0)
  })

  test('of a version without blocks of rings is read as ever', async () => {
    const rings = new Set(['R', 'Q', 'N'])
    const old: StateLayout = { ...LAYOUT, growth: LAYOUT.growth.filter(({ places }) => places === undefined) }
    const { state, fresh, file } = await written(600, 300, 1700, old)
    const read = await readSnapshotFile(file)
    expect(read.manifest!.growth).not.toContain('ring')
    for (const { name, shape } of read.tensors) if (rings.has(name)) expect(shape).toContain(PLACES)
    const whole = await assemble(read, fresh)
    expect(Buffer.compare(whole.state, state)).toBe(0)
    expect(whole.tensors).toEqual(LAYOUT.tensors(state))
  })

  test('with any flipped bit fails its checksum, cannot be read, or names other tensors than the model', async () => {
    const { file, fresh } = await written(600, 300)
    await fc.assert(
      fc.asyncProperty(fc.nat(file.length - 1), fc.nat(7), async (at, bit) => {
        const bad = file.slice()
        bad[at]! ^= 1 << bit
        const taken = async (): Promise<void> => {
          const read = await readSnapshotFile(bad)
          const { state, tensors } = await assemble(read, fresh)
          checkWhole({ head: read.head, state }, tensors, LAYOUT)
        }
        await expect(taken()).rejects.toThrow(/^The (snapshot|state) /)
      }),
    )
  })

  test('with a block of another length is refused', async () => {
    const { fresh, file } = await written(600, 300)
    const short = fresh.map((own) => own.map(({ bytes }, i) => ({ bytes: i === 1 ? bytes.subarray(1) : bytes })))
    const read = await readSnapshotFile(file)
    await expect(assemble(read, short)).rejects.toThrow(/has a block of \d+ bytes; its tables have \d+/)
  })

  test('of many blocks names them in pages, and costs the same however many there are', { tags: 'slow' }, async () => {
    const sizes: number[] = []
    for (const blocks of [511, 512, 1023]) {
      const { hot, names } = await written(blocks * 256 + 5, 300)
      const bytes = pagesOf(LAYOUT, names).flat()
      const pages = pagesOf(LAYOUT, names).map((own) =>
        own.map((page, i) => ({ hash: sha256(page), place: `${i}`.padStart(16, 'e') })),
      )
      expect(pages.map(({ length }) => length)).toEqual([Math.floor(blocks / 256), 0, 0, 0])
      expect(bytes.every(({ length }) => length === PAGE_BYTES)).toBe(true)
      const store = `${'a'.repeat(32)}/3`
      const file = await join(await encodeManifest(head(), hot, LAYOUT, store, names, undefined, pages))
      sizes.push(file.length - hot.length)
      const read = await readSnapshotFile(file)
      expect(readOutline(read)).toMatchObject({ store, pages })
      const found = new Map(bytes.map((page) => [sha256(page), page]))
      expect(readManifest(read, found)).toMatchObject({ store, names, pages })
      expect(() => readManifest(read)).toThrow('has a page of 0 bytes, expected 10240')
      expect(() => readManifest(read, new Map([...found].map(([hash, page]) => [hash, page.subarray(40)])))).toThrow(
        'has a page of 10200 bytes, expected 10240',
      )
      // Other places: other pages.
      const moved = names.map((own) => own.map((blob) => ({ ...blob, place: 'f'.repeat(16) })))
      const others = pagesOf(LAYOUT, moved).flat()
      const again = await readSnapshotFile(
        await join(
          await withNames(
            read,
            moved,
            pages.map((own, g) => own.map((page, i) => ({ ...page, hash: g === 0 ? sha256(others[i]!) : page.hash }))),
          ),
        ),
      )
      expect(readManifest(again, new Map(others.map((page) => [sha256(page), page])))!.names).toEqual(moved)
      const growth = read.manifest!.growth.replace(/"pages":\d+/, '"pages":9')
      const lie = { ...read, manifest: { ...read.manifest!, growth } }
      expect(() => readManifest(lie)).toThrow(`has 9 pages with names of ${blocks} blocks`)
    }
    // 255 names and a page, no names and two pages, 255 names and three pages.
    expect(Math.abs(sizes[2]! - sizes[0]!)).toBeLessThan(150)
    expect(sizes[1]!).toBeLessThan(sizes[0]! - 200 * 40)
  })

  test('that contradicts itself is refused, though its checksum is right', async () => {
    const { file, fresh } = await written(600, 300)
    const honest = await readSnapshotFile(file)
    const { growth } = honest.manifest!
    const forged = async (change: Partial<NonNullable<SnapshotFile['manifest']>>): Promise<SnapshotFile> => {
      const manifest = { ...honest.manifest!, ...change }
      return readSnapshotFile(
        await join(await filePieces(honest.head, honest.state, honest.tensors, undefined, manifest)),
      )
    }
    const lies: readonly (readonly [Partial<NonNullable<SnapshotFile['manifest']>>, RegExp])[] = [
      [{ growth: growth.replace('"blocks":2', '"blocks":3') }, /names 7 blobs and has 8 blocks/],
      [{ growth: growth.replace('"blocks":2', '"blocks":-1') }, /in a form/],
      [{ growth: growth.replace('"blocks":2', '"blocks":1e300') }, /in a form/],
      [{ growth: growth.replace('"K",1', '"K",7') }, /blocks of a tensor "K"/],
      [{ growth: growth.replace('"K",1', '"none",1') }, /blocks of a tensor "none"/],
      [{ growth: growth.replace('"V",0', '"K",1') }, /blocks of a tensor "K" twice/],
      [{ growth: growth.replace('"ring":[600,8]', '"ring":[900,8]') }, /names 2 blocks of a ring that has 900 places/],
      [{ growth: growth.replace('"ring":[600,8]', '"ring":[256,8]') }, /names 2 blocks of a ring that has 256 places/],
      [{ growth: growth.replace('"ring":[600,8]', '"ring":[601,9]') }, /holds 256 places of the ring R, expected 89/],
      // Another block than the one that the file holds.
      [{ growth: growth.replace('"ring":[600,8]', '"ring":[600,9]') }, /holds 256 places of the ring R, expected 88/],
      [{ growth: growth.replace('"ring":[600,8]', '"ring":[600,-1]') }, /in a form/],
      [{ growth: growth.replace('"ring":[600,8]', '"ring":[600]') }, /in a form/],
      [{ growth: growth.replace('"ring":[600,8]', '"ring":[1e300,8]') }, /in a form/],
      [{ growth: '{' }, /in a form/],
      [{ blobs: '' }, /names 0 blobs/],
      [{ store: '../../etc' }, /blobs lie in/],
    ]
    for (const [lie, message] of lies) await expect(forged(lie).then(readManifest)).rejects.toThrow(message)
    // A ring that is said to grow has blocks of another length.
    const grown = await forged({ growth: growth.replace('"ring":[600,8],', '') })
    await expect(assemble(grown, fresh)).rejects.toThrow(/has a block of 2992 bytes; its tables have 8704/)
  })
})
