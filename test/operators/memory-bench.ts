/**
 * A bench with a decoder whose memory lies outside, so wide that each archived block is a blob: some 1,100 tokens have
 * all kinds of blobs, a page of names among them. And damage to blobs, wherever they lie.
 */
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { DatabaseSync } from 'node:sqlite'
import { afterAll, beforeAll } from 'vitest'
import type { BlobName } from '../../src/blobs/store.ts'
import { type ModelPackage, openPackage } from '../../src/models/open.ts'
import { type Repaired, repairPartition } from '../../src/operators/blobs/repair.ts'
import { blobsOf, manifestIn, pagesIn } from '../../src/operators/snapshots/manifests.ts'
import { readPartitionState } from '../../src/operators/worker/partition-state.ts'
import { readSnapshotFile } from '../../src/state/snapshot.ts'
import { safetensors, writePackageTo } from '../engine/safetensors.ts'
import { BASE, randomDecoder } from '../models/decoders.ts'
import { fileOf } from './block-bench.ts'
import { type Bench, type BenchOptions, createBench, event } from './harness.ts'

const CONFIG = {
  ...BASE,
  ...{ vocab_size: 256, hidden_size: 16, num_hidden_layers: 1, num_attention_heads: 1, num_key_value_heads: 1 },
  ...{ head_dim: 1040, intermediate_size: 16, max_position_embeddings: 512 },
}
const MEMORY = {
  format: 'continuo-memory/1',
  ...{ block_size: 4, window: 300, sinks: 2, kv_dtype: 'f32', cold_dtype: 'f32' },
  anchors: { tokens: 1, entries: 2 },
  tombstones: { count: 3, cooldown: 16 },
  retrieval: { every: 64, blocks: 2 },
}
/** Tokens with which a session has 256 archived blocks, and so a page. */
export const PAGED = 4 * 256 + 300

/** Writes the package; `seed` makes another model of the same layout. */
export const writeWide = (folder: string, seed = 4): string => {
  mkdirSync(folder, { recursive: true })
  writePackageTo(folder, CONFIG, safetensors(randomDecoder(seed, CONFIG)))
  writeFileSync(join(folder, 'memory.json'), JSON.stringify(MEMORY))
  return folder
}

/** For the top of a test file. */
export const wideBenches = (seed?: number) => {
  const dir = mkdtempSync(join(tmpdir(), 'continuo-wide-'))
  let shared: ModelPackage
  beforeAll(async () => {
    shared = await openPackage(writeWide(join(dir, 'model'), seed), { threads: 2, keepPacked: false })
  })
  afterAll(() => {
    shared.model.close()
    rmSync(dir, { recursive: true, force: true })
  })
  return {
    async use(claim: (bench: Bench) => Promise<void>, options: BenchOptions = {}): Promise<void> {
      const bench = await createBench(shared, 1, options)
      try {
        await claim(bench)
      } finally {
        await bench.close()
      }
    },
  }
}

export const ids = (count: number, from = 0): number[] =>
  Array.from({ length: count }, (_, i) => ((from + i) * (from + i) + ((from + i) >> 3)) % 250)

export const tokens = (session: string, count: number, from = 0) =>
  event(session, { type: 'tokens', tokens: ids(count, from) })

/** A blob of the newest snapshot of a session, and what it holds. */
export interface Held extends BlobName {
  readonly what: string
}

/** All of them, pages first. */
export const heldBy = async (bench: Bench, session: string): Promise<readonly Held[]> => {
  const manifest = (await manifestIn(bench.log, await readSnapshotFile(await fileOf(bench, session))))!
  return [...pagesIn(manifest), ...blobsOf(manifest)].map(({ hash, place, what }) => ({ hash, place, what }))
}

/** Some kinds of store, and how their blobs are damaged behind everybody's back. */
export interface Damage {
  /** One bit of the blob, in the middle of it. */
  flip(bench: Bench, blob: BlobName): Promise<void>
  /** null: nothing of a topic can be removed but what lies before it. */
  readonly remove: ((bench: Bench, blob: BlobName) => Promise<void>) | null
}

/** In a folder, or in that of a bucket: the file that the blob is. */
export const inFolder = (root: string): Damage => {
  const pathOf = async (bench: Bench, { hash, place }: BlobName): Promise<string> => {
    const [head] = (await bench.heads()).values()
    const { manifest } = await readSnapshotFile(await fileOf(bench, head!.session))
    return join(root, manifest!.store, `${hash}.${place}`)
  }
  return {
    async flip(bench, blob) {
      const path = await pathOf(bench, blob)
      const bytes = readFileSync(path)
      bytes[bytes.length >> 1]! ^= 4
      writeFileSync(path, bytes)
    },
    async remove(bench, blob) {
      rmSync(await pathOf(bench, blob))
    },
  }
}

/** In the topic of an embedded log: the record at its place. */
export const inTopic: Damage = {
  async flip(bench, { place }) {
    flipRecord(bench, bench.names.blobs, Number.parseInt(place, 16))
  },
  remove: null,
}

/** One bit of the value of a record of an embedded log. */
export const flipRecord = ({ url }: Bench, topic: string, offset: number, partition = 0): void => {
  const db = new DatabaseSync(url.slice('file:'.length))
  const where = 'topic = (SELECT id FROM topics WHERE name = ?) AND partition = ? AND "offset" = ?'
  const { value } = db.prepare(`SELECT value FROM records WHERE ${where}`).get(topic, partition, offset) as {
    value: Uint8Array
  }
  value[value.length >> 1]! ^= 4
  db.prepare(`UPDATE records SET value = ? WHERE ${where}`).run(value, topic, partition, offset)
  db.close()
}

/** What `continuo repair` does, of partition 0. */
export const repaired = async (
  bench: Bench,
  warn: (message: string) => void = () => undefined,
): Promise<readonly Repaired[]> => {
  const { log, names, model, tokenizer } = bench
  const engine = { model, tokenizer, submit: model.submit }
  const validate = { format: 'json', vocabSize: model.vocabSize, readsText: tokenizer !== null } as const
  const { heads, cancelled } = await readPartitionState(log, names, 0, 1 << 30)
  const deps = { log, names, model, engine, validate, cancelled, group: 'test', warn }
  const all: Repaired[] = []
  for await (const each of repairPartition(deps, { log, names, group: 'test', model, warn }, 0, heads.values()))
    all.push(each)
  return all
}
