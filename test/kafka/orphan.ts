/** Starts a broker and waits to be killed. */
import { startBroker } from '../../tools/kafka/embedded-broker.ts'

const { pid, brokers } = await startBroker()
process.send?.({ pid, brokers })
