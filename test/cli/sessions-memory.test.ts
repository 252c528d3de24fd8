/**
 * `continuo sessions --memory`: the list, the topics, and where archived blocks lie, also where some of them are gone.
 */
import { readdirSync, rmSync } from 'node:fs'
import { join } from 'node:path'
import { expect, test } from 'vitest'
import { open } from '../engine/helpers.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { randomIds } from '../models/decoder-suite.ts'
import {
  RETRIEVE,
  SETTINGS,
  type Setting,
  SUMMARIZE,
  writeSetting,
} from '../models/outer-memory/outer-memory-settings.ts'
import { type Bench, createBench, event } from '../operators/harness.ts'
import { continuo, json } from './helpers.ts'

const named = (name: string): Setting => SETTINGS.find((each) => each.name === name)!
const ids = (count: number): number[] => randomIds(count, SUMMARIZE, 6)

/** A session of a model with this memory that has read `tokens`, with its snapshot. */
const read = async (
  setting: Setting,
  tokens: readonly number[],
  use: (bench: Bench) => Promise<void>,
  blobStore?: string,
): Promise<void> => {
  const model = await open(writeSetting(setting).folder, { threads: 1, keepPacked: false })
  const bench = await createBench({ model, tokenizer: null }, 1, { ...(blobStore !== undefined && { blobStore }) })
  try {
    await bench.feed(event('s', { type: 'tokens', tokens: [...tokens] }))
    await bench.settle({ snapshotEvery: 1 })
    await use(bench)
  } finally {
    await bench.close()
  }
}
const shown = async (...args: readonly string[]): Promise<string> => {
  const { code, out, err } = await continuo(['sessions', ...args, '--memory', 's'])
  expect({ code, err }).toEqual({ code: 0, err: '' })
  return out
}

test('draws the list, with nothing that is not in it', () =>
  read(named('no sinks, no anchors, no tombstones'), ids(130), async (bench) => {
    const out = await shown('--log', bench.url)
    expect(out).toMatch(
      /^Generating\. 130 tokens, 14 blocks archived of 8 tokens each; index version 30; last retrieval after token 128\.$/m,
    )
    expect(out).toMatch(/^ {2}window: 18 tokens$/m)
    expect(out).not.toMatch(/sinks|anchors|tombstones|Topics/)
    expect(out).toMatch(/^ {2}in the snapshot's own file: blocks 0 to 13, [\d.]+ kB$/m)
  }))

test('draws sinks and topics, and says what comes at the next beat', () =>
  read(named('topics of a Q-Former, and a walker, a beat later'), [...ids(139), RETRIEVE], async (bench) => {
    const out = await shown('--log', bench.url)
    expect(out).toMatch(
      /^Retrieving: blocks? \d+(, \d+| to \d+)? will be there at the next beat\. 140 tokens, 15 blocks/m,
    )
    expect(out).toMatch(/^ {2}sinks: the first 2 tokens$/m)
    expect(out).toMatch(/^Topics, and the archived blocks under each:\n( {2}node \d: \d+ blocks? \([\d, to]+\)\n)+/m)
    const [view] = await json<{
      controller: string
      pending: number[]
      topics: { slot: number; blocks: number[] }[]
      places: object[]
    }>('sessions', '--log', bench.url, '--memory', 's')
    expect(view).toMatchObject({ controller: 'Retrieving', blockSize: 8, window: 20, sinks: 2 })
    expect(view!.pending.length).toBeGreaterThan(0)
    expect(view!.topics.flatMap(({ blocks }) => blocks).toSorted((a, b) => a - b)).toEqual(
      Array.from({ length: 15 }, (_, block) => block),
    )
    expect(view!.places).toEqual([
      expect.objectContaining({ in: 'snapshot', from: 0, to: 15, blobs: 0, missing: [], untold: null }),
    ])
  }))

test('says which blocks lie in the topic', () =>
  read(SETTINGS[0]!, ids(1100), async (bench) => {
    const out = await shown('--log', bench.url)
    // 128 payloads of 448 bytes are a blob.
    expect(out).toMatch(
      /^Archived blocks lie:\n {2}in the topic continuo\.blobs: blocks 0 to 127, 1 blob, 57\.3 kB\n {2}in the snapshot's own file: blocks 128 to 13\d, /m,
    )
  }))

test('says which blocks lie in a folder, and which of them are gone; the rest is shown as ever', {
  tags: 'slow',
}, async () => {
  const store = temporaryFolder()
  await read(
    SETTINGS[0]!,
    ids(2200),
    async (bench) => {
      const flags = ['--log', bench.url, '--blob-store', store]
      const whole = await shown(...flags)
      expect(whole).toMatch(/: blocks 0 to 255, 2 blobs, 114\.7 kB$/m)
      expect(whole).toMatch(/^ {2}window: \d\d tokens$/m)
      const [view] = await json<{ places: { missing: number[] }[] }>('sessions', ...flags, '--memory', 's')
      expect(view!.places[0]!.missing).toEqual([])
      // Without the store nothing of the list is hidden.
      const without = await shown('--log', bench.url)
      expect(without).toMatch(/^ {2}in a blob store: blocks 0 to 255, 2 blobs, 114\.7 kB\. Name it, --blob-store/m)
      expect(without.split('\n').slice(0, 8)).toEqual(whole.split('\n').slice(0, 8))
      for (const path of readdirSync(store, { recursive: true }))
        if (/[0-9a-f]{64}\./.test(String(path))) rmSync(join(store, String(path)))
      const gone = await shown(...flags)
      expect(gone).toMatch(/: blocks 0 to 255, 2 blobs, 114\.7 kB\. Not there: blocks 0 to 255\.$/m)
      expect(gone.split('\n').slice(0, 8)).toEqual(whole.split('\n').slice(0, 8))
    },
    store,
  )
})
