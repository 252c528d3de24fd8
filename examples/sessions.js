// Sessions without a log: one model, one prompt, two continuations that share the memory of what they have in common.
import { demoModel, openPackage, SessionManager } from 'continuo'

const { model, tokenizer } = await openPackage(demoModel)
const manager = new SessionManager(model, { tokenizer, maxResidentBytes: 1 << 30 })
await manager.process(manager.createSession('prompt'), 'The harbour froze in the first week of ')
for (const seed of [1, 2]) {
  const session = await manager.fork('prompt', `seed-${seed}`)
  const { text } = await manager.generate(session, { maxTokens: 60, temperature: 0.8, seed })
  console.log(`${seed}: ${JSON.stringify(text)}`)
}
await manager.close()
model.close()
