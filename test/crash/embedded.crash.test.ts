import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, test } from 'vitest'
import { FAMILIES, type FamilyKey, inBlocks, openFamily, slowWith } from '../families.ts'
import {
  BLOBS,
  BLOBS_IN_TOPIC,
  crash,
  dozens,
  dozensWith,
  FORKS,
  GREED,
  GREED_LONG,
  inStore,
  once,
  QUICK,
  QUICK_BLOBS,
  QUICK_FORKS,
} from './suite.ts'

const dir = mkdtempSync(join(tmpdir(), 'continuo-crash-'))
afterAll(() => rmSync(dir, { recursive: true, force: true }))

// Matrices of 8 bits and windows are tried on Kafka.
const families = FAMILIES.filter(({ key }) => key !== 'rwkv7-q8' && key !== 'gpt2-window')
// Those that npm test kills with a folder for blobs.
const inFolders: readonly FamilyKey[] = ['qwen3', 'gpt2-window']
// One of each kind of state is forked while workers are killed; test/operators/sessions/fork.test.ts forks them all.
const forked = FAMILIES.filter(({ key }) => key === 'rwkv7' || key === 'titans')
const on = (which: string) => (name: string) => `file:${join(dir, `${which}-${name}.db`)}`

describe('a worker on the embedded log, killed at every failpoint and at random, leaves what an undisturbed one leaves', {
  timeout: 900_000,
}, () => {
  test('with RWKV-7, a few times around a commit', async () => crash(await openFamily('rwkv7', dir), on('few'), QUICK))
  for (const { key, name } of families.filter((family) => family.key !== 'rwkv7'))
    test(`with ${name}, around a commit while it generates`, { tags: slowWith(key) }, async () =>
      crash(await openFamily(key, dir), on(`once-${key}`), once(key)),
    )
  for (const { key, name } of families)
    test(`with ${name}, dozens of times`, { tags: dozensWith(key) }, async () =>
      crash(await openFamily(key, dir), on(key), dozens(key)),
    )
  const blocks = async () => inBlocks(await openFamily('qwen3', dir), join(dir, 'store'))
  test('with snapshots in blocks, between a blob and the commit that names it', { tags: 'slow' }, async () =>
    crash(await blocks(), on('once-blocks'), QUICK_BLOBS),
  )
  test('with a window in blocks, between a blob and the commit that names it', { tags: ['slow', 'long'] }, async () =>
    crash(inBlocks(await openFamily('gpt2-window', dir), join(dir, 'windows')), on('once-window'), QUICK_BLOBS),
  )
  for (const { key, name } of FAMILIES.filter((family) => !inFolders.includes(family.key)))
    test(
      `with ${name} and a folder for blobs, between a snapshot and the commit that names it`,
      { tags: ['slow', 'long'] },
      async () =>
        crash(inBlocks(await openFamily(key, dir), join(dir, `store-${key}`)), on(`once-blocks-${key}`), inStore(key)),
    )
  test(
    'with sessions that are forked, between the birth of a fork and the commit of its first snapshot',
    { tags: 'slow' },
    async () => crash(await openFamily('qwen35', dir), on('few-forks'), QUICK_FORKS),
  )
  for (const { key, name } of forked)
    test(`with ${name}, while sessions are forked`, { tags: ['slow', 'long'] }, async () =>
      crash(await openFamily(key, dir), on(`forks-${key}`), FORKS),
    )
  test('with snapshots in blocks, while sessions are forked', { tags: 'slow' }, async () =>
    crash(await blocks(), on('forks-blocks'), FORKS),
  )
  test('with sessions that ask for far more than can be worked off', { tags: 'slow' }, async () =>
    crash(await openFamily('rwkv7', dir), on('greed'), GREED),
  )
  test('with such sessions, two dozen times', { tags: ['slow', 'long'] }, async () =>
    crash(await openFamily('rwkv7', dir), on('greed-long'), GREED_LONG),
  )
  test('with blocks in the log, between a blob and the commit that names it', { tags: ['slow', 'long'] }, async () =>
    crash(await openFamily('qwen3', dir), on('once-topic'), QUICK_BLOBS),
  )
  test('with blocks in the log, from the writing of a blob to its removal', { tags: 'slow' }, async () =>
    crash(await openFamily('qwen3', dir), on('topic'), BLOBS_IN_TOPIC),
  )
  test('with snapshots in blocks, from the writing of a blob to its removal', { tags: ['slow', 'long'] }, async () =>
    crash(await blocks(), on('blocks'), BLOBS),
  )
})
