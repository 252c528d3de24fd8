/** SessionManager.fork: a fork is what an export and an import give, and it leaves its parent alone. */
import { beforeAll, describe, expect, it, vi } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { byteTokenizer } from '../../src/models/tokenizer/index.ts'
import type { SessionManager } from '../../src/sessions/manager.ts'
import type { SessionHandle } from '../../src/sessions/types.ts'
import { decodeSnapshot } from '../../src/state/snapshot.ts'
import { bits, errorOf, open, sameBytes } from '../engine/helpers.ts'
import { safetensors, temporaryFolder, writePackage } from '../engine/packages.ts'
import { BASE, type DecoderConfig, randomDecoder } from '../models/decoders.ts'
import { demoModel } from '../operators/harness.ts'
import { ids, managed } from './helpers.ts'

const LONG: DecoderConfig = { ...BASE, max_position_embeddings: 900 }
let dir = ''
beforeAll(() => {
  dir = writePackage(LONG, safetensors(randomDecoder(3, LONG)))
})

const begun = async (manager: SessionManager, count = 300): Promise<SessionHandle> => {
  const session = manager.createSession('book')
  await manager.process(session, ids(5, count, 29))
  return session
}
const request = { maxTokens: 20, temperature: 1, seed: 8 } as const

/** Two sessions that do the same next. */
const expectTwins = async (
  model: Model,
  manager: SessionManager,
  a: SessionHandle,
  b: SessionHandle,
): Promise<void> => {
  const [read, alike] = [await manager.process(a, ids(6, 30, 29)), await manager.process(b, ids(6, 30, 29))]
  expect(bits(read.nats)).toEqual(bits(alike.nats))
  expect((await manager.generate(a, request)).ids).toEqual((await manager.generate(b, request)).ids)
  expect({ ...a.head, session: '' }).toEqual({ ...b.head, session: '' })
  const states = []
  for (const session of [a, b]) {
    const { state } = await decodeSnapshot(await manager.checkpointSession(session), model.layout)
    states.push(state)
  }
  expect(sameBytes(states[0]!, states[1]!)).toBe(true)
}

describe('a fork of a session', () => {
  it('is what an export and an import under another id give: head, state, nats and draws', async () => {
    const model = await open(dir)
    const manager = managed(model)
    const book = await begun(manager)
    await manager.generate(book, request)
    const fork = await manager.fork(book, 'fork')
    const imported = await manager.resumeSession(await manager.checkpointSession(book), { id: 'import' })
    expect(fork.head).toEqual({ ...imported.head, session: 'fork' })
    expect([fork.pulse, fork.chain]).toEqual([book.pulse, book.chain])
    expect(manager.listSessions().map(({ id }) => id)).toEqual(['book', 'fork', 'import'])
    await expectTwins(model, manager, fork, imported)
    // The parent did not move: it does the same when it is its turn.
    expect([book.pulse, fork.pulse]).toEqual([320, 370])
    await manager.process(book, ids(6, 30, 29))
    await manager.generate(book, request)
    expect(book.chain).toBe(fork.chain)
  })

  it('carries held text, and both read it by themselves', async () => {
    const model = await open(demoModel)
    const manager = managed(model, { tokenizer: byteTokenizer() })
    const session = manager.createSession('text')
    await manager.process(session, 'Once upon')
    const fork = await manager.fork('text', 'fork')
    expect(fork.head.cursor.held).toBe(session.head.cursor.held)
    const [a, b] = [await manager.process(session, ' a time'), await manager.process(fork, ' a time')]
    expect(bits(a.nats)).toEqual(bits(b.nats))
    expect(fork.chain).toBe(session.chain)
  })

  it('waits for the calls that were made before it, and calls made after it do not count', async () => {
    const manager = managed(await open(dir))
    const book = await begun(manager, 10)
    const generating = manager.generate(book, request)
    const forking = manager.fork(book, 'fork')
    const reading = manager.process(book, ids(2, 7, 29))
    const fork = await forking
    expect(fork.pulse).toBe(30)
    await Promise.all([generating, reading])
    expect([book.pulse, fork.pulse]).toEqual([37, 30])
  })

  it('stands when its parent was closed first, and forks of forks do', async () => {
    const model = await open(dir)
    const manager = managed(model)
    const book = await begun(manager, 600)
    const blob = await manager.checkpointSession(book)
    const child = await manager.fork(book, 'child')
    const grandchild = await manager.fork(child, 'grandchild')
    await manager.process(child, ids(9, 9, 29))
    await manager.closeSession(book)
    await manager.closeSession(child)
    await expectTwins(model, manager, grandchild, await manager.resumeSession(blob, { id: 'import' }))
  })

  it('of a session that is spilled reads it back, and forks are spilled and come back like others', async () => {
    const model: Model = await open(dir)
    const alone = managed(model)
    const want = await begun(alone)
    const manager = managed(model, { maxResidentBytes: Math.floor(1.8 * want.bytes), spillDir: temporaryFolder() })
    const book = await begun(manager)
    const other = manager.createSession('other')
    await manager.process(other, ids(4, 300, 29))
    await vi.waitFor(() => expect(manager.stats).toMatchObject({ resident: 1, spilled: 1 }))
    const forks = await Promise.all([1, 2, 3].map((n) => manager.fork(book, `fork${n}`)))
    // What forks share counts once: all of them fit where a second context of this size would not.
    await vi.waitFor(() => expect(manager.stats.spilled).toBe(1))
    expect(manager.stats.residentBytes).toBeLessThanOrEqual(1.8 * want.bytes)
    await manager.process(other, ids(3, 5, 29))
    const next = ids(6, 40, 29)
    const nats = bits((await alone.process(want, next)).nats)
    for (const fork of [...forks, book]) expect(bits((await manager.process(fork, next)).nats)).toEqual(nats)
    for (const fork of [...forks, book]) expect(fork.chain).toBe(want.chain)
  })

  it('has the options of a session that is resumed: phase, tokens of a test, seed', async () => {
    const manager = managed(await open(dir))
    const book = manager.createSession('book', { seed: 3 })
    await manager.process(book, ids(5, 12, 29))
    const [same, own] = [await manager.fork(book, 'same'), await manager.fork(book, 'own', { seed: 4 })]
    const free = { maxTokens: 12, temperature: 2 }
    const [a, b, c] = await Promise.all([book, same, own].map((session) => manager.generate(session, free)))
    expect(a!.ids).toEqual(b!.ids)
    expect(a!.ids).not.toEqual(c!.ids)
    const test = await manager.fork(book, 'test', { phase: 'test', tokens: 2 })
    expect((await manager.process(test, ids(1, 5, 29))).ended).toBe(true)
    expect(await errorOf(() => manager.fork(book, 'x', { tokens: 2 }))).toMatchObject({ code: 'INVALID' })
  })

  it('is refused for an id that is open, a session that is closed, and an id that no session may have', async () => {
    const manager = managed(await open(dir))
    const book = await begun(manager, 5)
    const taken = await errorOf(() => manager.fork(book, 'book'))
    expect(taken).toEqual({
      code: 'MISUSE',
      message: 'Session "book" is open already. Close it first, or use another id.',
    })
    // Taken while the fork waits for its turn.
    const waiting = manager.generate(book, request)
    const late = errorOf(() => manager.fork(book, 'late'))
    manager.createSession('late')
    expect(await late).toMatchObject({ code: 'MISUSE', message: expect.stringContaining('"late"') })
    await waiting
    expect(await errorOf(() => manager.fork(book, ''))).toMatchObject({ code: 'INVALID' })
    await manager.closeSession(book)
    expect(await errorOf(() => manager.fork(book, 'next'))).toMatchObject({ code: 'MISUSE' })
    expect(manager.listSessions().map(({ id }) => id)).toEqual(['late'])
  })
})
