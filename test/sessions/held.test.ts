/** What a tokenizer holds back belongs to the session until it is fed, and never after: in turns that end early, too. */
import { copyFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { afterAll, beforeAll, expect, it } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { openPackage } from '../../src/models/open.ts'
import type { Tokenizer } from '../../src/models/tokenizer/index.ts'
import { temporaryFolder } from '../engine/packages.ts'
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
  expect(drawn.finish).toBe('aborted')
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
