/** Rings in blocks: a window's places go round, and what a capture leaves out stands in the captures before it. */
import fc from 'fast-check'
import { describe, expect, test } from 'vitest'
import { writeTitans } from '../../bench/titans-package.ts'
import { join } from '../../src/bulk.ts'
import type { OpenModelOptions } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import { sha256 } from '../../src/hash.ts'
import { assembly } from '../../src/state/assembly.ts'
import { type BlobNames, encodeManifest, endOf, readManifest, within } from '../../src/state/manifest.ts'
import { checkWhole, readSnapshotFile } from '../../src/state/snapshot.ts'
import { randomDecoder, windowedGemma3 } from '../models/decoders.ts'
import { gpt2ConfigOf, randomGpt2 } from '../models/gpt2/gpt2.ts'
import { head } from '../state/heads.ts'
import { bits, feed, open, sameBytes, testDevice } from './helpers.ts'
import { safetensors, temporaryFolder, writePackage } from './packages.ts'

type Kind = readonly [what: string, write: (places: number) => Promise<string> | string, options: OpenModelOptions]

const kinds: readonly Kind[] = [
  [
    'GPT-2 over a window, by a counter',
    (P) => {
      const sizes = { L: 2, H: 1, N: 2, F: 4, V: 16, P }
      return writePackage(gpt2ConfigOf(sizes), safetensors(randomGpt2(5, sizes)))
    },
    { overflow: 'window' },
  ],
  [
    'layers with a window beside layers that see all, by the clock',
    (window) => {
      const config = windowedGemma3(window)
      return writePackage(config, safetensors(randomDecoder(8, config)))
    },
    {},
  ],
  [
    'Titans, whose segments begin anew',
    async (segment) => {
      const folder = `${temporaryFolder()}/titans`
      const sizes = { hidden: 8, layers: 1, heads: 2, keyHeads: 1, headDim: 4, intermediate: 8, vocabulary: 16 }
      await writeTitans(folder, { ...sizes, composition: 'mac', levels: [1], segment })
      return folder
    },
    {},
  ],
]

/** What a session has written: blocks by their hashes, and the names in its newest manifest. */
interface Saved {
  readonly blobs: Map<string, Uint8Array>
  names: BlobNames
  origin: bigint
}

/**
 * Captures the context, with what is saved of it, and checks that only new runs were copied. Returns the manifest's
 * bytes.
 */
const capture = async ({ layout }: Model, context: ReturnType<Model['createContext']>, saved: Saved) => {
  const same = saved.origin === context.origin
  const before = same ? saved.names : layout.growth.map(() => [])
  const { hot, frozen, fresh } = await context.capture({ pulse: Number(context.pulse), ends: before.map(endOf) })
  saved.names = layout.growth.map((_, g) => {
    const known = within(before[g]!, frozen[g]!)
    const had = new Set(before[g]!.map(({ run }) => run))
    for (const { run } of fresh[g]!) expect(had.has(run)).toBe(false)
    const added = fresh[g]!.map(({ run, bytes }) => {
      saved.blobs.set(sha256(bytes), bytes)
      return { run, hash: sha256(bytes), place: '0'.repeat(16) }
    })
    const all = [...known, ...added]
    const { first, end } = frozen[g]!
    expect(all.map(({ run }) => run)).toEqual(Array.from({ length: end - first }, (_each, at) => first + at))
    return all
  })
  saved.origin = context.origin
  return join(await encodeManifest(head(Number(context.pulse)), hot, layout, 'topic', saved.names))
}

const restored = async ({ layout }: Model, file: Uint8Array, { blobs }: Saved) => {
  const read = await readSnapshotFile(file)
  const manifest = readManifest(read)
  if (manifest === null) throw new Error('expected a manifest')
  const whole = assembly(read)
  for (const [g, own] of manifest.names.entries())
    for (const [block, { hash }] of own.entries()) expect(await whole.place(g, block, blobs.get(hash)!)).toBe(hash)
  const { state, tensors } = await whole.finish()
  return checkWhole({ head: read.head, state }, tensors, layout).state
}

const edges = [1, 2, 255, 256, 257, 300, 511, 512, 513, 767, 768, 769, 1024, 1100]

describe.each(kinds)('%s', (what, write, options) => {
  test('a capture and the blocks before it make the state again, whatever the window, at any moment', {
    tags: what === kinds[0]![0] ? [] : ['slow'],
  }, async () => {
    const steps = fc.array(
      fc.record({ tokens: fc.oneof(fc.nat(40), fc.nat(700)), reset: fc.nat(5), captured: fc.boolean() }),
      { minLength: 1, maxLength: 7 },
    )
    const windows = fc.oneof(fc.integer({ min: 1, max: 1100 }), fc.constantFrom(...edges))
    await fc.assert(
      fc.asyncProperty(windows, steps, async (window, plan) => {
        const model = await open(await write(window), { threads: 1, ...options })
        const ring = model.layout.growth.find(({ places }) => places !== undefined)
        expect(ring?.places).toBe(window > 256 ? window : undefined)
        const context = model.createContext()
        const other = model.createContext()
        const saved: Saved = { blobs: new Map(), names: model.layout.growth.map(() => []), origin: -1n }
        let at = 0
        for (const { tokens, reset, captured } of plan) {
          if (reset === 0) context.reset()
          await feed(
            model,
            context,
            Array.from({ length: tokens }, (_, i) => ((at + i) * 7 + at) % 16),
            false,
          )
          at += tokens
          if (!captured || model.layout.growth.length === 0) continue
          const state = await restored(model, await capture(model, context, saved), saved)
          expect(sameBytes(state, context.serialize())).toBe(true)
          const { pulse, origin, chain } = context
          other.restore(state, { pulse, origin, chain })
          for (const each of [context, other]) await feed(model, each, [3], false)
          expect(other.chain).toBe(context.chain)
          expect(bits(await model.logits(other))).toEqual(bits(await model.logits(context)))
        }
        model.close()
      }),
      // Emulated kernels take a second for what the CPU does in some milliseconds.
      { numRuns: testDevice.device === 'cuda' ? 4 : 25 },
    )
  })
})
