/**
 * A process that joins groups, leaves them in the midst of it, and ends by itself when nothing keeps it: `leaver.ts URL
 * TOPIC GROUP MS…`; of the n-th group, named `GROUP-n`, it leaves after so many ms. It reports when it has asked for
 * the topic, and begins when told.
 */
import { setTimeout as delay } from 'node:timers/promises'
import { openLog } from '../../src/streams/open.ts'

const [url = '', topic = '', group = '', ...moments] = process.argv.slice(2)
const log = await openLog(url, { sessionTimeout: 30_000 })
await log.bounds(topic, 0)
process.once('message', async () => {
  for (const [n, ms] of moments.entries()) {
    const membership = await log.join(`${group}-${n}`, topic)
    await delay(Number(ms))
    await membership.leave()
  }
  await log.close()
  process.disconnect()
})
process.send?.('ready')
