/**
 * The demo on a broker with Kafka's own bounds for session time-outs; the tests' broker allows shorter ones.
 *
 * @module-tag slow
 */
import { afterAll, describe, expect, it } from 'vitest'
import { ownBroker } from '../kafka/broker.ts'
import { json } from './helpers.ts'

const { kafka, missing } = await ownBroker({ config: { 'group.min.session.timeout.ms': '6000' } })
afterAll(() => kafka?.stop())

describe.skipIf(kafka === undefined)(
  `continuo demo on Kafka${kafka === undefined ? ` (none here: ${missing})` : ''}`,
  () => {
    it('reads, generates and resumes where no session time-out below 6 s is allowed', async () => {
      const log = `kafka://${kafka!.brokers}/demo`
      expect(await json('demo', '--log', log)).toMatchObject([{ run: 1, resumedAt: 0, pulse: 13_254, tokens: 400 }])
      expect(await json('demo', '--log', log)).toMatchObject([{ run: 2, resumedAt: 13_254, pulse: 13_654 }])
    })
  },
)
