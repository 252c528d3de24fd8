/**
 * The orders of orders.test.ts on Kafka.
 *
 * @module-tag slow
 */
import { afterAll, describe, expect, inject, test } from 'vitest'
import { freshPrefix } from '../kafka/broker.ts'
import { createModels } from './models.ts'
import { playAll, type Seen } from './suite.ts'

const { brokers, missing } = inject('kafka')
const models = createModels()
afterAll(() => models.close())
const fresh = () => ({ url: `kafka://${brokers}/${freshPrefix()}` })
const shows = ({ tokens, heads, snapshots, deleted }: Seen): void => {
  for (const count of [tokens, heads, snapshots, deleted]) expect(count).toBeGreaterThan(0)
}

describe.skipIf(brokers === null)(
  `verify agrees on Kafka${missing === null ? '' : ` (no Kafka here: ${missing})`}`,
  { timeout: 3_600_000 },
  () => {
    test('after some tens of orders', async () => shows(await playAll('kafka', [1, 20], models, fresh)))
    test('after orders with workers that are killed', async () => {
      const seen = await playAll('kafka-killed', [100, 3], models, fresh)
      shows(seen)
      expect(seen.kills).toBeGreaterThan(0)
    })
    test('after hundreds of orders', { tags: 'long' }, async () =>
      shows(await playAll('kafka', [1000, 200], models, fresh)),
    )
    test('after dozens of orders with workers that are killed', { tags: 'long' }, async () =>
      shows(await playAll('kafka-killed', [2000, 40], models, fresh)),
    )
  },
)
