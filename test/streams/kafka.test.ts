/**
 * The contract on a real broker; killed-broker.test.ts has what a broker of its own is needed for: that it ends and
 * comes again, or dies in the middle of a commit.
 */
import { describe, inject } from 'vitest'
import { storeOn } from './contract/fixture.ts'
import { contract } from './contract.ts'

const { brokers, missing } = inject('kafka')

describe.skipIf(brokers === null)(missing === null ? 'with Kafka' : `no Kafka here: ${missing}`, () =>
  contract('kafka', async () => ({
    newStore: () => storeOn(brokers!),
    restart: async () => {}, // Closed and opened again.
    stop: async () => {},
    sessionTimeout: 2000,
    kills: 4,
  })),
)
