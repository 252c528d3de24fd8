/** A bench with a model whose state is in blocks, and a blob store in a folder. */
import { mkdirSync, mkdtempSync, readdirSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, onTestFinished } from 'vitest'
import { openPackage } from '../../src/models/open.ts'
import { wholeFile } from '../../src/operators/snapshots/manifests.ts'
import { readSnapshot } from '../../src/operators/snapshots/snapshots.ts'
import { decodeSnapshot } from '../../src/state/snapshot.ts'
import { safetensors, writePackageTo } from '../engine/safetensors.ts'
import { gpt2ConfigOf, randomGpt2 } from '../models/gpt2/gpt2.ts'
import { type Bench, type BenchOptions, createBench, event, verified } from './harness.ts'

/** Of a block: 2 tables of 2 layers with 8 channels in f32. */
export const BLOCK_BYTES = 2 * 2 * 256 * 8 * 4

/** A folder for the length of a test. */
export const freshFolder = (): string => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-blobs-'))
  onTestFinished(() => rmSync(dir, { recursive: true, force: true }))
  return dir
}

/** Files below the folder, but for the marks of the log. */
export const blobsIn = (dir: string): readonly string[] =>
  readdirSync(dir, { recursive: true, withFileTypes: true })
    .filter((entry) => entry.isFile() && entry.name !== 'log')
    .map(({ parentPath, name }) => join(parentPath, name))
    .sort()

/** For the top of a test file. `window`: instead, a model that sees so many positions, however many there were. */
export const growingBenches = (window?: number) => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-growing-'))
  let shared: Awaited<ReturnType<typeof openPackage>>
  beforeAll(async () => {
    const sizes = { L: 2, H: 2, N: 4, F: 16, V: 256, P: window ?? 4096 }
    mkdirSync(dir, { recursive: true })
    writePackageTo(dir, gpt2ConfigOf(sizes), safetensors(randomGpt2(3, sizes)))
    shared = await openPackage(dir, { threads: 1, overflow: window === undefined ? 'refuse' : 'window' })
  })
  afterAll(() => {
    shared.model.close()
    rmSync(dir, { recursive: true, force: true })
  })
  return {
    async use(claim: (bench: Bench) => Promise<void>, options: BenchOptions = {}, partitions = 1): Promise<void> {
      const bench = await createBench(shared, partitions, options)
      try {
        await claim(bench)
      } finally {
        await bench.close()
      }
    },
  }
}

/** Text that differs with the seed from its first character on. */
export const textOf = (length: number, seed = 1): string =>
  Array.from({ length }, (_, at) => String.fromCharCode(97 + ((at * at + at * seed + seed * 7) % 26))).join('')

export const read = (session: string, text: string) => event(session, { type: 'text', text })

/** The newest snapshot of a session, as it lies in the log. */
export const fileOf = async (bench: Bench, session: string): Promise<Uint8Array> =>
  readSnapshot(bench.log, bench.names.snapshots, 0, (await bench.heads()).get(session)!)

/** The same with its blocks inside. */
export const exported = async (bench: Bench, session: string) =>
  decodeSnapshot(await wholeFile(bench.log, await fileOf(bench, session)), bench.model.layout)

/**
 * A session in a blob store has the head and the state of one without, wherever its snapshots fall. `resetAt`: the text
 * after which it is reset.
 */
export const expectSameAnywhere = (benches: ReturnType<typeof growingBenches>, resetAt?: number): Promise<void> =>
  benches.use(async (plain) => {
    const feed = async (bench: Bench, snapshotEvery: number): Promise<void> => {
      for (const [at, length] of [300, 1, 211, 513, 255, 256, 90].entries()) {
        await bench.feed(read('s', textOf(length, at)))
        if (at === resetAt) await bench.feed(event('s', { type: 'boundary', reset: true }), read('s', textOf(400, at)))
        await bench.feed(event('s', { type: 'generate', requestId: `r${at}`, maxTokens: 7, seed: at }))
        await bench.settle({ snapshotEvery })
      }
    }
    await feed(plain, 10_000)
    const wanted = await exported(plain, 's')
    for (const snapshotEvery of [50, 256]) {
      await benches.use(
        async (bench) => {
          await feed(bench, snapshotEvery)
          const { head, state } = await exported(bench, 's')
          expect(head.chain).toBe(wanted.head.chain)
          expect(Buffer.compare(state, wanted.state)).toBe(0)
          await verified(bench)
        },
        { blobStore: freshFolder() },
      )
    }
  })
