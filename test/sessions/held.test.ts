/**
 * What a tokenizer holds back belongs to the session until it is fed, and never after: in turns that end early, too.
 */
import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { openPackage } from '../../src/models/open.ts'
import type { Tokenizer } from '../../src/models/tokenizer/index.ts'
import { advance } from '../../src/operators/advance/advance.ts'
import { tokenizeEvent } from '../../src/operators/pipeline/tokenize.ts'
import { validateRecord } from '../../src/operators/pipeline/validate.ts'
import type { Tokenized, Valid } from '../../src/operators/types.ts'
import { createHistory } from '../../src/state/history.ts'
import { decodeSnapshot, encodeSnapshot } from '../../src/state/snapshot.ts'
import { errorOf, open } from '../engine/helpers.ts'
import { safetensors, temporaryFolder, writePackage } from '../engine/packages.ts'
import { gpt2ConfigOf, randomGpt2 } from '../models/gpt2/gpt2.ts'
import { readText, wordsOf256 } from '../models/tokenizer/fixtures.ts'
import { demoModel } from '../operators/harness.ts'
import { managed } from './helpers.ts'

let model: Model
let tokenizer: Tokenizer

beforeAll(async () => {
  const dir = temporaryFolder()
  for (const file of ['config.json', 'model.safetensors']) copyFileSync(join(demoModel, file), join(dir, file))
  writeFileSync(join(dir, 'tokenizer.json'), JSON.stringify(wordsOf256()))
  const opened = await openPackage(dir, { threads: 2 })
  model = opened.model
  tokenizer = opened.tokenizer!
})
afterAll(() => model.close())

const text = 'the memory of the stream'

it('a generation that is aborted has read what was held; nothing reads it again', async () => {
  const manager = managed(model, { tokenizer })
  const session = manager.createSession('s')
  await manager.process(session, text)
  expect(session.head.cursor.held).not.toBe('')
  const abort = new AbortController()
  const drawn = await manager.generate(session, {
    maxTokens: 100,
    temperature: 0,
    signal: abort.signal,
    onTokens: () => abort.abort(),
  })
  expect(drawn.finish).toBe('cancelled')
  expect(session.head.cursor.held).toBe(tokenizer.begun)
  const more = await manager.generate(session, { maxTokens: 5, temperature: 0 })
  const whole = managed(model, { tokenizer })
  const other = whole.createSession('s')
  await whole.process(other, text)
  const { ids } = await whole.generate(other, { maxTokens: drawn.ids.length + 5, temperature: 0 })
  expect([...drawn.ids, ...more.ids]).toEqual(ids)
  expect(session.chain).toBe(other.chain)
  expect(session.pulse).toBe(readText(tokenizer, [text]).length + ids.length)
})
it('a call that fails before its first token leaves what is held; one that fails behind it has read it', async () => {
  let limit = 0
  const manager = managed(model, {
    tokenizer,
    probeEvery: 1,
    onProbe({ pulse }) {
      if (pulse === limit) throw new Error('enough')
    },
  })
  limit = -1
  const session = manager.createSession('s')
  await manager.process(session, text)
  const { held } = session.head.cursor
  const begun = session.pulse
  limit = begun
  await expect(manager.process(session, [1, 2])).rejects.toThrow('enough')
  expect([session.pulse, session.head.cursor.held]).toEqual([begun, held])
  limit = begun + tokenizer.flush(held).length + 1
  await expect(manager.process(session, [1, 2])).rejects.toThrow('enough')
  expect([session.pulse, session.head.cursor.held]).toEqual([limit, tokenizer.begun])
})

it('a session exported inside a record is refused where text is held: whether it was read is not said', async () => {
  const manager = managed(model, { tokenizer })
  const session = manager.createSession('s')
  await manager.process(session, text)
  const { head, state } = await decodeSnapshot(await manager.checkpointSession(session), model.layout)
  // As `continuo export` writes it while a worker generates: the text is fed, and still held until the record is
  // finished.
  const context = model.createContext()
  const { globalStep, origin } = head.conductor
  context.restore(state, { pulse: BigInt(globalStep), origin: BigInt(origin), chain: head.chain })
  const live = { head, context, history: createHistory() }
  const record = { topic: 'chunks', partition: 0, offset: 0, timestamp: 0, key: Buffer.from('s'), headers: [] }
  const value = Buffer.from(JSON.stringify({ type: 'generate', requestId: 'r', maxTokens: 40 }))
  const valid = validateRecord({ ...record, value }, { format: 'json', vocabSize: 256, readsText: true }) as Valid
  const work = tokenizeEvent(valid, head, tokenizer, model) as Tokenized
  let steps = 0
  for await (const step of advance(live, work, false, { model, tokenizer, submit: model.submit })) {
    steps += 1
    if (steps < 2) continue
    expect(step.head!.generation).not.toBeNull()
    break
  }
  const blob = await encodeSnapshot(live.head, context.serialize(), model.layout)
  context.close()
  expect(live.head.cursor).toMatchObject({ complete: false, held: head.cursor.held })
  expect(await errorOf(() => manager.resumeSession(blob, { id: 'copy' }))).toMatchObject({
    code: 'INVALID',
    message: expect.stringContaining('in the middle of the record at offset 0'),
  })
  // A checkpoint that would read so is not written.
  expect(await errorOf(() => manager.checkpointSession(session, { complete: false, token: 3 }))).toMatchObject({
    code: 'INVALID',
    message: expect.stringContaining('held'),
  })
})

it('what is held needs the tokenizer that held it', async () => {
  const manager = managed(model, { tokenizer })
  const session = manager.createSession('s')
  await manager.process(session, text)
  const blob = await manager.checkpointSession(session)
  expect(await errorOf(() => managed(model).resumeSession(blob))).toMatchObject({
    code: 'INVALID',
    message: expect.stringContaining('tokenizer'),
  })
  expect((await manager.resumeSession(blob, { id: 'copy' })).chain).toBe(session.chain)
})

it('a checkpoint that stands inside record 0 opens no gate: the first call is refused before its first token', async () => {
  const sizes = { L: 1, H: 2, N: 4, F: 12, V: 256, P: 300 }
  const gpt2 = await open(writePackage(gpt2ConfigOf(sizes), safetensors(randomGpt2(21, sizes))))
  const manager = managed(gpt2)
  const session = manager.createSession('s')
  await manager.process(session, [1, 2, 3])
  const other = managed(gpt2)
  const resumed = await other.resumeSession(
    await manager.checkpointSession(session, { offset: 0, token: 3, complete: false }),
  )
  expect(resumed.head.cursor).toMatchObject({ offset: 0, token: 3, complete: false })
  expect(await errorOf(() => other.process(resumed, new Array(298).fill(7)))).toMatchObject({
    code: 'INVALID',
    message: expect.stringMatching(/^context overflow: 301 positions/),
  })
  expect(resumed.pulse).toBe(3)
  await other.process(resumed, new Array(297).fill(7))
  expect(resumed.pulse).toBe(300)
})

it('a test ends its text: the last word is assessed, as far as the test reaches', async () => {
  const manager = managed(model, { tokenizer })
  const whole = readText(tokenizer, [text])
  const byIds = manager.createSession('ids', { phase: 'test' })
  await manager.process(byIds, whole)
  const expected = await manager.assess(byIds)
  const byText = manager.createSession('text', { phase: 'test' })
  await manager.process(byText, text)
  expect(byText.pulse).toBeLessThan(whole.length)
  expect(await manager.assess(byText)).toEqual({ ...expected, session: 'text' })
  expect(await manager.assess(byText)).toMatchObject({ pulse: whole.length })
  const short = manager.createSession('short', { phase: 'test', tokens: whole.length - 1 })
  await manager.process(short, text)
  expect(await manager.assess(short)).toMatchObject({ pulse: whole.length - 1 })
  // A stream goes on, so its text does, too.
  const stream = manager.createSession('stream')
  await manager.process(stream, text)
  const { held } = stream.head.cursor
  await manager.assess(stream)
  expect(stream.head.cursor.held).toBe(held)
})

it('a session that came from a log says in its checkpoint that its past lies elsewhere', async () => {
  const manager = managed(model, { tokenizer })
  const session = manager.createSession('s')
  await manager.process(session, text)
  const { head, state } = await decodeSnapshot(await manager.checkpointSession(session), model.layout)
  await manager.resumeSession(await encodeSnapshot({ ...head, born: 7 }, state, model.layout), { id: 'copy' })
  expect((await decodeSnapshot(await manager.checkpointSession('copy'), model.layout)).head).toMatchObject({ born: -1 })
})
