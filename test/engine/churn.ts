/**
 * A process of its own, whose memory is looked at: contexts come, read a little and go; at most LIVE are there at once.
 */
import { openPackage } from '../../src/models/open.ts'

const LIVE = 100
const ROUNDS = 10

const { model } = await openPackage('models/demo', { threads: 1 })
const live = Array.from({ length: LIVE }, () => model.createContext())
const resident: number[] = []
for (let round = 0; round < ROUNDS; round += 1) {
  for (let n = 0; n < LIVE; n += 1) {
    live.shift()!.close()
    const context = model.createContext()
    await model.process([{ context, tokens: Int32Array.of(65, 66, 67), nats: true }])
    live.push(context)
  }
  resident.push(process.memoryUsage().rss)
}
console.log(JSON.stringify({ resident, contextBytes: model.contextBytes }))
