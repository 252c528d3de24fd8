/**
 * Workers on Kafka that are killed at every failpoint and at random.
 *
 * @module-tag slow
 */
import { describe, inject, test } from 'vitest'
import { temporaryFolder } from '../engine/packages.ts'
import { FAMILIES, inBlocks, openFamily } from '../families.ts'
import { BLOBS, BLOBS_IN_TOPIC, crash, dozens, dozensWith, FORKS, GREED, once, QUICK } from './suite.ts'

const { brokers, missing } = inject('kafka')
const run = Date.now().toString(36)
// GPT-2 that refuses what does not fit is tried on the embedded log.
const families = FAMILIES.filter(({ key }) => key !== 'gpt2-refuse')
// What is killed once on the embedded log only, in npm test.
const elsewhere = ['rwkv7', 'titans']
// Their states are of the kinds that the others have, and dozens of kills of each would take many minutes.
const onceOnly = ['rwkv7-q8', 'gpt2-window', 'qwen3', 'qwen3moe']
// A worker that lives for seconds moves no blob within a broker; test/operators/blobs/blob-topic.test.ts has it moved
// there.
const topicPlan = { ...BLOBS_IN_TOPIC, points: BLOBS_IN_TOPIC.points!.filter((name) => name !== 'blobs.moved') }
// What is killed behind the group's offsets is killed on the embedded log, and here among the dozens.
const few = { ...QUICK, kills: 2, points: QUICK.points!.filter((name) => name !== 'commit.offsets') }
const prefix = (which: string) => (name: string) => `kafka://${brokers}/crash-${run}-${which}-${name}`

describe.skipIf(brokers === null)(
  `a worker on Kafka, killed at every failpoint and at random, leaves what an undisturbed one leaves${missing === null ? '' : ` (no Kafka here: ${missing})`}`,
  { timeout: 1_200_000 },
  () => {
    test('with RWKV-7, a few times around a commit', async () =>
      crash(await openFamily('rwkv7', temporaryFolder()), prefix('few'), few))
    for (const { key, name } of families.filter((family) => !elsewhere.includes(family.key)))
      test(`with ${name}, around a commit while it generates`, { tags: 'long' }, async () =>
        crash(await openFamily(key, temporaryFolder()), prefix(`once-${key}`), once(key)),
      )
    for (const { key, name } of families.filter((family) => !onceOnly.includes(family.key)))
      test(`with ${name}, dozens of times`, { tags: dozensWith(key) }, async () =>
        crash(await openFamily(key, temporaryFolder()), prefix(key), dozens(key)),
      )
    test('with a hybrid, while sessions are forked', { tags: 'long' }, async () =>
      crash(await openFamily('qwen35', temporaryFolder()), prefix('forks'), FORKS),
    )
    test('with sessions that ask for far more than can be worked off', { tags: 'long' }, async () =>
      crash(await openFamily('rwkv7', temporaryFolder()), prefix('greed'), GREED),
    )
    test('with blocks in the log, from the writing of a blob to its removal', async () =>
      crash(await openFamily('qwen3', temporaryFolder()), prefix('topic'), topicPlan))
    test('with snapshots in blocks, from the writing of a blob to its removal', { tags: 'long' }, async () =>
      crash(inBlocks(await openFamily('qwen3', temporaryFolder()), temporaryFolder()), prefix('blocks'), BLOBS),
    )
  },
)
