/** The contract on a real broker; killed-broker.test.ts has what only a broker can do: die in the middle of a commit. */
import { describe, expect, test } from 'vitest'
import { openLog } from '../../src/streams/open.ts'
import { freshPrefix, ownBroker } from '../kafka/broker.ts'
import { contract } from './contract.ts'

const { kafka: broker, missing } = await ownBroker()

if (broker === undefined)
  describe.skip(`the kafka log (no Kafka here: ${missing})`, () => {
    test('needs a broker', () => expect(broker).toBeDefined())
  })
else
  contract('kafka', async () => ({
    newStore: async () => {
      const url = `kafka://${broker.brokers}/${freshPrefix()}`
      return { url, open: (options) => openLog(url, options) }
    },
    restart: () => broker.restart(),
    stop: () => broker.stop(),
    sessionTimeout: 2000,
    kills: 4,
  }))
