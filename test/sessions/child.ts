/** Another process with a model of its own. Prints one line of JSON. */
import { readFileSync } from 'node:fs'
import { openModel } from '../../src/models/open.ts'
import { SessionManager } from '../../src/sessions/manager.ts'

const [task, dir = '', argument = ''] = process.argv.slice(2)
const model = await openModel(dir, { threads: 2, keepPacked: false })
const manager = new SessionManager(model, { verifyWeights: false })

const tasks: Record<string, () => Promise<unknown>> = {
  /** Goes on from a checkpoint. */
  async resume() {
    const session = await manager.resumeSession(readFileSync(argument))
    const { nats } = await manager.process(session, [3, 1, 4, 1, 5, 9, 2, 6])
    const { ids, logprobs } = await manager.generate(session, { maxTokens: 20, temperature: 0.9, topP: 0.9, seed: 5 })
    const { pulse, chain, head } = session
    return { nats: [...nats], ids, logprobs, pulse, chain, cursor: head.cursor.offset }
  },
  /** Memory of the process with so many sessions that have all read something. */
  async rss() {
    const sessions = Array.from({ length: Number(argument) }, (_, n) => manager.createSession(`s${n}`))
    // One long call first, so that the engine's own scratch memory is as large as it gets.
    await manager.process(sessions[0]!, new Array(512).fill(1))
    await Promise.all(sessions.map((session) => manager.process(session, [1, 2, 3])))
    return { rss: process.memoryUsage.rss(), contextBytes: model.contextBytes }
  },
}
console.log(JSON.stringify(await tasks[task!]!()))
await manager.close()
model.close()
