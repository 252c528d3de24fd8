// A stream in twenty lines: text goes into a log, a worker reads it and continues it, and the tokens come out of the
// log, each exactly once. Run it again, or kill it and run it again: the session goes on where its last commit stands.
import {
  demoModel,
  ensureTopics,
  feed,
  follow,
  generated,
  openLog,
  openPackage,
  startWorker,
  topicNames,
  workerDefaults,
} from 'continuo'

const log = await openLog('file:stream.db') // or kafka://127.0.0.1:9092/continuo
const names = topicNames(log.prefix)
const { partitions } = await ensureTopics(log, names)
const requestId = String(Date.now())
await feed(log, {
  topic: names.chunks,
  session: 'book',
  before: [{ type: 'text', text: 'The harbour froze in the first week of ' }],
  after: [{ type: 'generate', requestId, maxTokens: 80, temperature: 0.8, seed: 7 }],
})

const { model, tokenizer } = await openPackage(demoModel)
const worker = await startWorker({ ...workerDefaults, log, names, model, tokenizer, warn: console.error })
for await (const { value } of follow(log, { topic: names.tokens, partitions, session: 'book', from: 'beginning' })) {
  const event = generated.parse(JSON.parse(Buffer.from(value).toString()))
  if (event.requestId !== requestId) continue
  process.stdout.write(event.text)
  if (event.finish !== null) break
}
await worker.stop()
await log.close()
model.close()
