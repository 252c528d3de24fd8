/** Manifests: a state taken apart into blocks and put together again, and files that lie about it. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { join } from '../../src/bulk.ts'
import { buildGraph } from '../../src/engine/builder.ts'
import { autoDim, plus } from '../../src/engine/builder-types.ts'
import { cutParts } from '../../src/engine/growth.ts'
import { stateLayout } from '../../src/engine/layout.ts'
import { sha256 } from '../../src/hash.ts'
import type { StateLayout } from '../../src/memory.ts'
import { assembly, type BlobNames, encodeManifest, readManifest } from '../../src/state/manifest.ts'
import { checkWhole, filePieces, readSnapshotFile, type SnapshotFile } from '../../src/state/snapshot.ts'
import { head } from './heads.ts'

/** A file with all its blocks, of each growth. */
const assemble = async (file: SnapshotFile, blocks: readonly (readonly Uint8Array[])[]) => {
  const whole = assembly(file)
  const all = blocks.flatMap((own, g) =>
    own.map(async (bytes, block) => [await whole.place(g, block, bytes), bytes] as const),
  )
  for (const [hash, bytes] of await Promise.all(all)) expect(hash).toBe(sha256(bytes))
  return whole.finish()
}

/** Two counters with tables of several shapes and dtypes, and a table that does not grow. */
const layout = (): StateLayout => {
  const g = buildGraph()
  const length = g.counter('length', { max: 4000 })
  const beats = g.counter('beats', { max: 4000 })
  g.table('fixed', [3, 2])
  const K = g.table('K', [2, autoDim(length), 3])
  const V = g.table('V', [autoDim(length)])
  const B = g.table('B', [2, 2, autoDim(beats)], { dtype: 'f16' })
  const x = g.dynamic('x', [3], 'f32')
  g.block('step', [x], () => {
    g.cacheIncrement(length)
    g.cacheIncrement(beats)
    g.cacheWrite(K(0, plus(length, -1)), x)
    return { x: g.add('y', x, x) }
  })
  void [V, B]
  return stateLayout(g.finish())
}

const LAYOUT = layout()

const stateOf = (length: number, beats: number): Uint8Array => {
  const bytes = 8 + 8 + 24 + length * (2 * 3 * 4) + length * 4 + beats * 4 * 2
  const state = Uint8Array.from({ length: bytes }, (_, at) => (at * 131 + (at >> 8)) & 0xff)
  const view = new DataView(state.buffer)
  for (const { name, offset } of LAYOUT.first)
    if (name === 'length' || name === 'beats')
      view.setBigInt64(offset, BigInt(name === 'length' ? length : beats), true)
  return state
}

const written = async (length: number, beats: number) => {
  const state = stateOf(length, beats)
  const { hot, fresh } = await cutParts(LAYOUT, state, [])
  const names: BlobNames = fresh.map((own) =>
    own.map((bytes, i) => ({ hash: sha256(bytes), place: `${i}`.padStart(16, 'c') })),
  )
  const file = await join(await encodeManifest(head(), hot, LAYOUT, `${'a'.repeat(32)}/3`, names))
  return { state, fresh, names, file }
}

describe('a manifest', () => {
  test('and its blocks make the state again, for every length', async () => {
    const positions = fc.oneof(fc.nat(1100), fc.constantFrom(0, 255, 256, 257, 511, 512, 513, 768, 769))
    await fc.assert(
      fc.asyncProperty(positions, positions, async (length, beats) => {
        const { state, fresh, names, file } = await written(length, beats)
        const read = await readSnapshotFile(file)
        expect(readManifest(read)).toMatchObject({ store: `${'a'.repeat(32)}/3`, names })
        const whole = await assemble(read, fresh)
        expect(Buffer.compare(whole.state, state)).toBe(0)
        expect(whole.tensors).toEqual(LAYOUT.tensors(state))
      }),
    )
  })

  test('leaves out the blocks that are known, and only those', async () => {
    const state = stateOf(1100, 700)
    const all = await cutParts(LAYOUT, state, [])
    expect(all.frozen).toEqual([4, 2])
    const some = await cutParts(LAYOUT, state, [3, 2])
    expect(some.fresh.map((own) => own.length)).toEqual([1, 0])
    expect(Buffer.compare(some.fresh[0]![0]!, all.fresh[0]![3]!)).toBe(0)
    expect(Buffer.compare(some.hot, all.hot)).toBe(0)
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
    const short = [[fresh[0]![0]!, fresh[0]![1]!.subarray(1)], fresh[1]!]
    const read = await readSnapshotFile(file)
    await expect(assemble(read, short)).rejects.toThrow(/has a block of \d+ bytes; its tables have \d+/)
  })

  test('that contradicts itself is refused, though its checksum is right', async () => {
    const { file } = await written(600, 300)
    const honest = await readSnapshotFile(file)
    const { growth } = honest.manifest!
    const forged = async (change: Partial<NonNullable<SnapshotFile['manifest']>>): Promise<SnapshotFile> => {
      const manifest = { ...honest.manifest!, ...change }
      return readSnapshotFile(
        await join(await filePieces(honest.head, honest.state, honest.tensors, undefined, manifest)),
      )
    }
    const lies: readonly (readonly [Partial<NonNullable<SnapshotFile['manifest']>>, RegExp])[] = [
      [{ growth: growth.replace('"blocks":2', '"blocks":3') }, /names 3 blobs and has 4 blocks/],
      [{ growth: growth.replace('"blocks":2', '"blocks":-1') }, /in a form/],
      [{ growth: growth.replace('"blocks":2', '"blocks":1e300') }, /in a form/],
      [{ growth: growth.replace('"K",1', '"K",7') }, /blocks of a tensor "K"/],
      [{ growth: growth.replace('"K",1', '"none",1') }, /blocks of a tensor "none"/],
      [{ growth: growth.replace('"V",0', '"K",1') }, /blocks of a tensor "K"/],
      [{ growth: '{' }, /in a form/],
      [{ blobs: '' }, /names 0 blobs/],
      [{ store: '../../etc' }, /blobs lie in/],
    ]
    for (const [lie, message] of lies) await expect(forged(lie).then(readManifest)).rejects.toThrow(message)
  })
})
