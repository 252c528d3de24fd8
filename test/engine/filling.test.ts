/** States that come in parts: every way in which their blocks may come makes the context that was taken apart. */
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import type { EngineContext } from '../../src/engine/context.ts'
import { cudaStatus } from '../../src/engine/inspect.ts'
import type { DeviceKind } from '../../src/engine/options.ts'
import type { Model } from '../../src/engine/types.ts'
import { sha256 } from '../../src/hash.ts'
import type { BlockFile, BlockSink, StateParts, StateSource } from '../../src/memory.ts'
import { openPackage } from '../../src/models/open.ts'
import { openFamily } from '../families.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-filling-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

interface Block extends BlockFile {
  readonly bytes: Uint8Array
}

/** The blocks of parts, each with a file of its own. */
const blocksOf = ({ fresh }: StateParts, folder: string): readonly Block[] => {
  mkdirSync(folder, { recursive: true })
  return fresh.flatMap((own, g) =>
    own.map(({ run: block, bytes }) => {
      const path = join(folder, `${g}.${block}`)
      writeFileSync(path, bytes)
      return { g, block, bytes, path, hash: sha256(bytes) }
    }),
  )
}

const sourceOf = ({ hot, fresh }: StateParts, fill: StateSource['fill']): StateSource => ({
  hot,
  blocks: fresh.map(({ length }) => length),
  fill,
})

const headOf = ({ pulse, origin, chain }: EngineContext) => ({ pulse, origin, chain })

const LENGTH = 256 * 7 + 9

const { reason } = cudaStatus()
const devices: readonly DeviceKind[] = reason === '' ? ['cpu', 'cuda'] : ['cpu']

describe.each(devices)('a state in parts, on the device %s', (device) => {
  let model: Model
  let context: EngineContext
  let parts: StateParts
  let blocks: readonly Block[]
  let state: Uint8Array
  beforeAll(async () => {
    const family = await openFamily('qwen3', dir)
    model = (await openPackage(family.dir, { threads: 1, device })).model
    context = model.createContext()
    const tokens = Int32Array.from({ length: LENGTH }, (_, i) => (i * i + 7 * i) % 256)
    await model.submit({ context, tokens, nats: false })
    parts = await context.capture({ pulse: LENGTH, ends: [] })
    blocks = blocksOf(parts, join(dir, device))
    state = await context.state()
    expect(blocks).toHaveLength(7)
  })
  afterAll(() => {
    context.close()
    model.close()
  })

  const ways: Readonly<Record<string, (sink: BlockSink, all: readonly Block[]) => Promise<void>>> = {
    'as bytes': async (sink, all) => {
      for (const { bytes, hash, ...place } of all) expect(await sink.bytes(place, bytes)).toBe(hash)
    },
    'as bytes, all at once, the last first': async (sink, all) => {
      await Promise.all([...all].reverse().map(({ bytes, ...place }) => sink.bytes(place, bytes)))
    },
    'as files': async (sink, all) => {
      expect(await sink.files(all)).toEqual(all.map(() => true))
    },
    'as files in several calls at once, and bytes': async (sink, all) => {
      const calls = [all.slice(0, 2), all.slice(2, 3), [], all.slice(3, 6)]
      await Promise.all([...calls.map((call) => sink.files(call)), sink.bytes(all[6]!, all[6]!.bytes)])
    },
  }

  test.each(Object.keys(ways))('comes %s', async (way) => {
    const source = sourceOf(parts, (sink) => ways[way]!(sink, blocks))
    const opened = await model.openContext(source, headOf(context))
    const loaded = model.createContext()
    await model.submit({ context: loaded, tokens: Int32Array.of(3, 4), nats: false })
    await loaded.load(source, headOf(context))
    const wanted = model.forkContext(context)
    const tokens = Int32Array.of(5, 6, 7)
    const generate = { count: 5, temperature: 0, topK: 0, topP: 1, seed: 1n }
    const next = await model.submit({ context: wanted, tokens, nats: true, generate })
    for (const made of [opened, loaded]) {
      expect(headOf(made)).toEqual(headOf(context))
      expect(Buffer.compare(await made.state(), state)).toBe(0)
      expect(await model.submit({ context: made, tokens, nats: true, generate })).toEqual(next)
    }
    for (const each of [opened, loaded, wanted]) each.close()
  })

  test('files that are gone, cut, longer or damaged are told, and may be put again', async () => {
    const folder = join(dir, device, 'bad')
    mkdirSync(folder, { recursive: true })
    const bad = (name: string, bytes: Uint8Array): string => {
      writeFileSync(join(folder, name), bytes)
      return join(folder, name)
    }
    const [, cut, long, damaged, folded] = blocks
    const flipped = Uint8Array.from(damaged!.bytes)
    flipped[1000]! ^= 4
    const paths = new Map([
      [0, join(folder, 'none')],
      [1, bad('cut', cut!.bytes.subarray(1))],
      [2, bad('long', new Uint8Array([...long!.bytes, 0]))],
      [3, bad('damaged', flipped)],
      [4, folder],
    ])
    expect(folded!.block).toBe(4)
    const source = sourceOf(parts, async (sink) => {
      const given = blocks.map((each) => ({ ...each, path: paths.get(each.block) ?? each.path }))
      expect(await sink.files(given)).toEqual([false, false, false, false, false, true, true])
      expect(await sink.files(blocks.slice(0, 2))).toEqual([true, true])
      for (const each of blocks.slice(2, 5)) expect(await sink.bytes(each, each.bytes)).toBe(each.hash)
    })
    const made = await model.openContext(source, headOf(context))
    expect(Buffer.compare(await made.state(), state)).toBe(0)
    made.close()
  })

  const whole = (sink: BlockSink) => sink.files(blocks)
  const refusals: readonly (readonly [string, (parts: StateParts) => StateSource, RegExp])[] = [
    ['a fault of the source', (of) => sourceOf(of, () => Promise.reject(new Error('no such store'))), /no such store/],
    [
      'a block that never came',
      (of) => sourceOf(of, async (sink) => void (await sink.files(blocks.slice(1)))),
      /blocks/,
    ],
    [
      'a block that comes twice',
      (of) => sourceOf(of, async (sink) => void (await Promise.all([whole(sink), whole(sink)]))),
      /is there already/,
    ],
    [
      'a block of another length',
      (of) =>
        sourceOf(of, async (sink) => {
          await sink.files(blocks.slice(1))
          await sink.bytes(blocks[0]!, blocks[0]!.bytes.subarray(4))
        }),
      /has a block of \d+ bytes; its tables have \d+/,
    ],
    [
      'a block that the state does not have',
      (of) => sourceOf(of, async (sink) => void (await sink.bytes({ g: 0, block: 7 }, blocks[0]!.bytes))),
      /no block 7/,
    ],
    [
      'a rest that is cut',
      (of) => sourceOf({ ...of, hot: of.hot.subarray(0, -4) }, async (sink) => void (await whole(sink))),
      /bytes/,
    ],
    [
      'fewer positions than its blocks have',
      (of) => sourceOf({ ...of, fresh: [[...of.fresh[0]!, of.fresh[0]![0]!]] }, async () => {}),
      /2048 positions in blocks, expected at most 1801/,
    ],
  ]

  test.each(refusals)('with %s is refused, and changes nothing', async (_, refused, message) => {
    const standing = model.forkContext(context)
    const before = [headOf(standing), standing.bytes]
    await expect(standing.load(refused(parts), headOf(context))).rejects.toThrow(message)
    await expect(model.openContext(refused(parts), headOf(context))).rejects.toThrow(message)
    expect([headOf(standing), standing.bytes]).toEqual(before)
    expect(Buffer.compare(await standing.state(), state)).toBe(0)
    standing.close()
  })

  test('whose model is closed meanwhile is refused', async () => {
    const family = await openFamily('qwen3', dir)
    const { model: other } = await openPackage(family.dir, { threads: 1, device })
    for (const way of Object.keys(ways)) {
      const source = sourceOf(parts, async (sink) => {
        if (way === Object.keys(ways)[0]) other.close()
        await ways[way]!(sink, blocks)
      })
      await expect(other.openContext(source, headOf(context))).rejects.toThrow(
        /the model is closed|The model is closed/,
      )
    }
  })

  test.each(['bytes', 'files'])('with a number that is not finite is refused where it stands, as %s', async (way) => {
    // Of the value cache, behind the first table: its second outer part, position 300, its last channel.
    const { tables } = model.layout.growth[0]!
    const [first, second] = tables
    const row = second!.row
    const at = 256 * first!.outer * first!.row + (256 + 44) * row + row - 4
    const bytes = Uint8Array.from(blocks[1]!.bytes)
    new DataView(bytes.buffer).setFloat32(at, Number.NaN, true)
    const path = join(dir, device, `nan-${way}`)
    writeFileSync(path, bytes)
    const bad = { ...blocks[1]!, bytes, path, hash: sha256(bytes) }
    const source = sourceOf(parts, async (sink) => {
      await sink.files(blocks.filter(({ block }) => block !== 1))
      if (way === 'bytes') expect(await sink.bytes(bad, bytes)).toBe(bad.hash)
      else expect(await sink.files([bad])).toEqual([true])
    })
    const element = (LENGTH + 300) * (row / 4) + row / 4 - 1
    await expect(model.openContext(source, headOf(context))).rejects.toThrow(
      `the state's "${second!.name}" holds a number that is not finite at element ${element}: the snapshot is damaged.`,
    )
  })
})
