/** What a gateway knows of sessions: that a record was worked off, whatever became of its session since. */
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { followSessions, type SessionsView } from '../../src/gateway/sessions-view.ts'
import type { ChunkInput } from '../../topics/chunks.ts'
import { type Bench, benches, event } from '../operators/harness.ts'

const { open } = benches()
const request: ChunkInput = { type: 'generate', requestId: 'r', maxTokens: 5 }
const text: ChunkInput = { type: 'text', text: 'The harbour master wrote more than that. ' }

let bench: Bench
let view: SessionsView
const offsets = new Map<string, number>()
/** A request of the session, and what came behind it. */
const LIVES: Readonly<Record<string, readonly ChunkInput[]>> = {
  stays: [],
  closed: [{ type: 'close' }],
  deleted: [{ type: 'delete' }],
  'deleted and new': [{ type: 'delete' }, { type: 'text', text: 'a' }],
  'closed and a fork of a younger one': [{ type: 'close' }, { type: 'open', from: { session: 'young' } }],
}

beforeAll(async () => {
  bench = await open()
  await bench.feed(event('young', { type: 'text', text: 'b' }))
  for (const [session, later] of Object.entries(LIVES)) {
    const [, asked] = await bench.feed(...[text, request, ...later].map((each) => event(session, each)))
    offsets.set(session, asked!)
  }
  await bench.settle()
  const watcher = { head: () => {}, cursor: () => {}, gone: () => {} }
  view = followSessions(bench.log, bench.names, 1, () => expect.unreachable(), watcher)
  await view.caughtUp
})
afterAll(async () => {
  await view.close()
  await bench.close()
})

describe('a request', () => {
  test.each(Object.keys(LIVES))('of a session that is %s is over', async (session) => {
    const patience = AbortSignal.timeout(10_000)
    await view.finished(session, offsets.get(session)!, patience)
    expect(patience.aborted).toBe(false)
  })

  test('that was not read yet is waited for, and one of a session that is deleted before is over then', async () => {
    const patience = AbortSignal.timeout(60_000)
    const [, asked, other] = await bench.feed(
      event('later', text),
      event('later', request),
      event('stays', request),
      event('later', { type: 'delete' }),
    )
    let over = false
    const waits = Promise.all([view.finished('later', asked!, patience), view.finished('stays', other!, patience)])
    void waits.then(() => {
      over = true
    })
    await view.finished('stays', offsets.get('stays')!, patience)
    expect(over).toBe(false)
    await bench.settle()
    await waits
    expect(patience.aborted).toBe(false)
  })
})
