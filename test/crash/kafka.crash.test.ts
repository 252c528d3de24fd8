import { describe, inject, test } from 'vitest'
import { temporaryFolder } from '../engine/packages.ts'
import { gpt2, rwkv7, titans } from './families.ts'
import { crash, QUICK } from './suite.ts'

const { brokers, missing } = inject('kafka')
const run = Date.now().toString(36)
const prefix = (family: string) => (name: string) => `kafka://${brokers}/crash-${run}-${family}-${name}`

describe.skipIf(brokers === null)(
  `a worker on Kafka, killed at every failpoint and at random, leaves what an undisturbed one leaves${missing === null ? '' : ` (no Kafka here: ${missing})`}`,
  { timeout: 1_200_000 },
  () => {
    test('with RWKV-7, a few times around a commit', () => crash(rwkv7, prefix('once'), QUICK))
    test('with RWKV-7, at least 50 times', { tags: 'slow' }, () => crash(rwkv7, prefix('rwkv7'), { kills: 50 }))
    test('with Titans, at least 24 times', { tags: 'slow' }, async () =>
      crash(await titans(temporaryFolder()), prefix('titans'), { kills: 24 }),
    )
    test('with GPT-2 and a window, at least 24 times', { tags: 'slow' }, () =>
      crash(gpt2('window', temporaryFolder()), prefix('gpt2'), { kills: 24 }),
    )
  },
)
