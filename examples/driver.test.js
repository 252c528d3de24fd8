// A test without a broker: the embedded log, in a temporary folder, takes the place of Kafka. Nothing else is another
// than in production. Run it with: node --test driver.test.js
import assert from 'node:assert/strict'
import { mkdtemp, rm } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
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
  verifyLog,
  workerDefaults,
} from 'continuo'

const folder = await mkdtemp(join(tmpdir(), 'driver-'))
const { model, tokenizer } = await openPackage(demoModel)
after(async () => {
  model.close()
  await rm(folder, { recursive: true })
})

/** A log, its topics, and `ask`: feeds a text and a request, and returns the answer that a worker of its own gives. */
const driver = async (name) => {
  const log = await openLog(`file:${join(folder, name)}.db`)
  const names = topicNames(log.prefix)
  const { partitions } = await ensureTopics(log, names)
  const ask = async (session, requestId, text) => {
    const request = { type: 'generate', requestId, maxTokens: 40, temperature: 0.8, seed: 7 }
    await feed(log, { topic: names.chunks, session, after: [{ type: 'text', text }, request] })
    const worker = await startWorker({ ...workerDefaults, log, names, model, tokenizer, warn: assert.fail })
    let answer = ''
    for await (const { value } of follow(log, { topic: names.tokens, partitions, session, from: 'beginning' })) {
      const event = generated.parse(JSON.parse(Buffer.from(value).toString()))
      if (event.requestId === requestId) answer += event.text
      if (event.requestId === requestId && event.finish !== null) break
    }
    await worker.stop()
    return answer
  }
  return { log, names, ask }
}

test('a session goes on with all that it has read, whichever worker reads on', async () => {
  const { log, names, ask } = await driver('one')
  const first = await ask('book', 'a', 'The harbour froze in the first week of ')
  const second = await ask('book', 'b', ' And then ')
  assert.equal(first.length, 40)
  assert.notEqual(await ask('other', 'c', ' And then '), second)

  const again = await driver('again')
  assert.equal(await again.ask('book', 'a', 'The harbour froze in the first week of '), first)
  assert.equal(await again.ask('book', 'b', ' And then '), second)
  await again.log.close()

  const verified = await verifyLog({ log, names, model, tokenizer, format: 'json' })
  assert.deepEqual(verified.findings, [])
  assert.equal(verified.tokensCompared, 120)
  await log.close()
})
