/**
 * What a program waits for beside sessions that read 512 tokens at a time, in the style of bench/calls.ts. The wait is
 * counted in tokens that the engine feeds to others meanwhile, so that no other process on the machine counts. The
 * negative control makes each call on a fork, of which the engine cannot know that its program calls again.
 *
 * @module-tag slow
 */
import { afterAll, beforeAll, describe, expect, it } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { openPackage } from '../../src/models/open.ts'
import { chatTurn } from '../../src/sessions/chat.ts'
import type { SessionManager } from '../../src/sessions/manager.ts'
import type { SessionHandle } from '../../src/sessions/types.ts'
import { demoModel } from '../operators/harness.ts'
import { ids, managed } from './helpers.ts'

const READERS = 8
const CALLS = 40
const ONE = { maxTokens: 1, temperature: 1, ignoreEnd: true } as const

let model: Model
beforeAll(async () => {
  model = (await openPackage(demoModel, { threads: 2 })).model
})
afterAll(() => model.close())

type Call = (manager: SessionManager, session: SessionHandle, n: number) => Promise<unknown>

const PROGRAMS: Readonly<Record<string, Call>> = {
  'that asks for one token at a time': (manager, session) => manager.generate(session, ONE),
  'in conversation': (manager, session, n) => {
    const said = Int32Array.from(ids(n, 16, model.vocabSize))
    const form = { stops: [], ask: () => ({ ids: said, exact: true }), answered: () => {} }
    return chatTurn(manager, session, form, '', ONE)
  },
}

describe.each(Object.entries(PROGRAMS))('a program %s', (_, call) => {
  it('waits for a few rows of sessions that read beside it, not for a step full of them', async () => {
    const manager = managed(model)
    const program = manager.createSession('program')
    await manager.process(program, ids(1, 16, model.vocabSize))
    let over = false
    const readers = Array.from({ length: READERS }, async (_, reader) => {
      const session = manager.createSession(`reader-${reader}`)
      for (let n = 0; !over; n += 1) await manager.process(session, ids(reader + READERS * n, 512, model.vocabSize))
    })
    const fed = { program: 0, stranger: 0 }
    const counted = async (who: keyof typeof fed, session: SessionHandle, n: number): Promise<void> => {
      const before = model.stats.tokens
      await call(manager, session, n)
      fed[who] += model.stats.tokens - before
    }
    for (let round = 0; round < 2; round += 1) {
      for (let n = 0; n < CALLS; n += 1) await counted('program', program, n)
      for (let n = 0; n < CALLS; n += 1) {
        const stranger = await manager.fork(program, `stranger-${round}-${n}`)
        await counted('stranger', stranger, n)
        await manager.closeSession(stranger)
      }
    }
    over = true
    await Promise.all(readers)
    // Without the wait both are alike; on an idle machine it is more than twice. A program that is slow to come back is
    // not waited for.
    expect(1.25 * fed.program).toBeLessThan(fed.stranger)
  })
})
