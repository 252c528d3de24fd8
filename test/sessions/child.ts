/** Another process with a model of its own: goes on from a checkpoint and prints one line of JSON. */
import { readFileSync } from 'node:fs'
import { openModel } from '../../src/models/open.ts'
import { SessionManager } from '../../src/sessions/manager.ts'

const [dir = '', checkpoint = ''] = process.argv.slice(2)
const model = await openModel(dir, { threads: 2, keepPacked: false })
const manager = new SessionManager(model, { verifyWeights: false })
const session = await manager.resumeSession(readFileSync(checkpoint))
const { nats } = await manager.process(session, [3, 1, 4, 1, 5, 9, 2, 6])
const { ids, logprobs } = await manager.generate(session, { maxTokens: 20, temperature: 0.9, topP: 0.9, seed: 5 })
const { pulse, chain, head } = session
console.log(JSON.stringify({ nats: [...nats], ids, logprobs, pulse, chain, cursor: head.cursor.offset }))
await manager.close()
model.close()
