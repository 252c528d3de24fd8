/** A session of a plain decoder goes on with an external memory: as if its tokens had been read there. */
import { describe, expect, test } from 'vitest'
import type { Model } from '../../../src/engine/types.ts'
import { clockOf } from '../../../src/operators/advance/session-state.ts'
import { admit } from '../../../src/operators/sessions/admit.ts'
import { importPlain } from '../../../src/operators/sessions/import-plain.ts'
import { SessionManager } from '../../../src/sessions/manager.ts'
import { errorOf, open } from '../../engine/helpers.ts'
import { farthest, randomIds } from '../../models/decoder-suite.ts'
import { SETTINGS, type Setting, writeSetting } from '../../models/outer-memory/outer-memory-settings.ts'

const none = new Int32Array(0)
const [bare] = SETTINGS.filter(({ name }) => name === 'no sinks, no anchors, no tombstones')
/** Nothing is rounded, and every block can be brought back. */
const EXACT: Setting = {
  ...bare!,
  memory: {
    ...bare!.memory,
    ...{ kv_dtype: 'f32', cold_dtype: 'f32', sinks: 2 },
    retrieval: { ...bare!.memory.retrieval, every: 0, blocks: 12, policy: 'recent' },
  },
}

/**
 * The plain decoder and the one with a memory, on the same weights, and a session of the plain one that has read `ids`.
 */
const opened = async (setting: Setting, ids: readonly number[]) => {
  const { folder } = writeSetting(setting)
  const options = { threads: 2, keepPacked: false }
  const [model, plain] = [await open(folder, options), await open(folder, { ...options, withoutMemory: true })]
  const sessions = new SessionManager(plain)
  sessions.createSession('s')
  await sessions.process('s', ids)
  const file = await sessions.checkpointSession('s')
  await sessions.close()
  return { model, plain, snapshot: await admit(file, plain, null) }
}
const logitsOf = async (model: Model, state: Uint8Array, clock: Parameters<Model['openContext']>[1], ids: number[]) => {
  const context = await model.openContext(state, clock)
  await model.submit({ context, tokens: Int32Array.from(ids), nats: false })
  return model.logits(context)
}

describe('a session of a plain decoder', () => {
  test('has in an external memory what it had, to rounding, with all blocks brought back', async () => {
    const ids = randomIds(101, 27, 5)
    const { model, plain, snapshot } = await opened(EXACT, ids)
    const taken = await importPlain(snapshot, plain, model)
    // A window of 24 in blocks of 8 keeps 16 to 24 tokens.
    expect(taken.head).toMatchObject({ archived: 10, model: model.fingerprint })
    const context = await model.openContext(taken.state, clockOf(taken.head))
    const before = await model.logits(context)
    const blocks = Array.from({ length: 10 }, (_, block) => block)
    await model.submit({ context, tokens: none, nats: false, request: { type: 'retrieve', blocks } })
    await model.submit({ context, tokens: Int32Array.of(3, 4, 5), nats: false })
    const wanted = await logitsOf(plain, snapshot.state, clockOf(snapshot.head), [3, 4, 5])
    expect(farthest(await model.logits(context), [...wanted])).toBeLessThan(1e-5)
    // The last hidden vector came along.
    expect(before).toEqual(await logitsOf(plain, snapshot.state, clockOf(snapshot.head), []))
  })

  test.each(
    SETTINGS.filter(({ memory }) => memory.trimmer === null && memory.qformer === null),
  )('goes on as one that was read there archives and retrieves: $name', async (setting) => {
    const ids = randomIds(90, 27, 5)
    const { model, plain, snapshot } = await opened(setting, ids)
    const { head, state } = await importPlain(snapshot, plain, model)
    const read = model.createContext()
    const { events = [] } = await model.submit({ context: read, tokens: Int32Array.from(ids), nats: false })
    expect(head.archived).toBe(events.filter(({ type }) => type === 'archive').length)
    const context = await model.openContext(state, clockOf(head))
    const done = await model.submit({ context, tokens: Int32Array.from(randomIds(60, 27, 6)), nats: false })
    const left = done.events!.flatMap((event) => (event.type === 'archive' ? [event.block] : []))
    expect(left).toEqual(left.map((_, i) => head.archived! + i))
    expect(left.length).toBeGreaterThan(5)
    expect(await importPlain(snapshot, plain, model)).toEqual({ head, state })
  })

  test('is refused by a sentence where it has read nothing, and where modules need the text', async () => {
    const learned = SETTINGS.find(({ memory }) => memory.qformer !== null)!
    const { model, plain, snapshot } = await opened(learned, randomIds(20, 27, 5))
    expect(await errorOf(() => importPlain(snapshot, plain, model))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining("feed the session's text again"),
    })
    const fresh = { ...snapshot, head: { ...snapshot.head, conductor: { ...snapshot.head.conductor, origin: 20 } } }
    expect(await errorOf(() => importPlain(fresh, plain, model))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('has read nothing'),
    })
    // A context that has read something takes nothing over.
    const context = model.createContext()
    await model.submit({ context, tokens: Int32Array.of(1), nats: false })
    const cache = { keys: new Float32Array(1), values: new Float32Array(1), hidden: new Float32Array(1) }
    const request = { type: 'importPlain', plain: cache } as const
    expect(await errorOf(() => model.submit({ context, tokens: none, nats: false, request }))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('has read 1 tokens'),
    })
  })
})
