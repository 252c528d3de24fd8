/** Checkpoints: what was altered is refused by name, whatever it is, and a refused checkpoint changes nothing. */
import fc from 'fast-check'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { sha256 } from '../../src/hash.ts'
import type { SessionManager } from '../../src/sessions/manager.ts'
import { pulseMismatch } from '../../src/state/head.ts'
import { decodeSnapshot } from '../../src/state/snapshot.ts'
import type { Head } from '../../topics/state.ts'
import { errorOf, feed, open, sameBytes } from '../engine/helpers.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { FAMILIES, openFamily } from '../families.ts'
import { forged } from './forged.ts'
import { ids, managed, SMALL, smallPackage } from './helpers.ts'

let dir = ''
beforeAll(() => {
  dir = smallPackage()
})

const begun = async (): Promise<{ model: Model; manager: SessionManager; blob: Uint8Array }> => {
  const model = await open(dir)
  const manager = managed(model)
  const session = manager.createSession('book')
  await manager.process(session, ids(5, 21, 40))
  return { model, manager, blob: await manager.checkpointSession(session) }
}

describe('a checkpoint', () => {
  it('is the file that continuo export writes: it decodes by the model and holds the whole state', async () => {
    const { model, blob } = await begun()
    const { head, state } = await decodeSnapshot(blob, model.layout)
    const alone = model.createContext()
    await feed(model, alone, ids(5, 21, 40))
    expect(sameBytes(state, alone.serialize())).toBe(true)
    expect(head).toMatchObject({
      session: 'book',
      chain: alone.chain,
      born: -1,
      conductor: { globalStep: 21, phase: 'stream' },
    })
    // `continuo import` takes only a session that stands between two records.
    expect(head.cursor).toMatchObject({ complete: true, pulse: 21, rng: 21 })
  })

  it('names the pulse of the stream: one that is not the memory’s is refused with the critical error', async () => {
    const { manager } = await begun()
    expect(await errorOf(() => manager.checkpointSession('book', { pulse: 25 }))).toEqual({
      code: 'REFUSED',
      message:
        'Stream/model pulse mismatch: stream at pulse 25, model at pulse 21. The continuum of memory is broken. Cannot resume.',
    })
    expect(await errorOf(() => manager.checkpointSession('book', { offset: -2 }))).toMatchObject({ code: 'INVALID' })
  })

  it('with any bit flipped is refused', async () => {
    const { manager, blob } = await begun()
    const places = fc.oneof(fc.nat(1200), fc.nat(blob.length - 1))
    await fc.assert(
      fc.asyncProperty(places, fc.nat(7), async (at, bit) => {
        const bad = blob.slice()
        bad[at]! ^= 1 << bit
        expect(await errorOf(() => manager.resumeSession(bad, { id: 'copy' }))).toMatchObject({ code: 'REFUSED' })
      }),
      { numRuns: 400 },
    )
    for (const length of [0, 7, 100, blob.length - 1]) {
      expect(await errorOf(() => manager.resumeSession(blob.subarray(0, length), { id: 'copy' }))).toMatchObject({
        code: 'REFUSED',
      })
    }
    expect(manager.listSessions().map(({ id }) => id)).toEqual(['book'])
    expect(manager.stats).toMatchObject({ resident: 1 })
    expect((await manager.resumeSession(blob, { id: 'copy' })).chain).toBe(manager.listSessions()[0]!.chain)
  })

  it.each(
    FAMILIES.filter(({ large }) => large !== true),
  )('of $name goes on in another model as if it had stayed, and with any bit flipped is refused', async ({ key }) => {
    const { dir: folder, overflow } = await openFamily(key, temporaryFolder())
    const [one, other] = [await open(folder, { threads: 1, overflow }), await open(folder, { threads: 3, overflow })]
    const [here, there] = [managed(one), managed(other)]
    here.createSession('book')
    await here.process('book', ids(5, 61, 256))
    await here.generate('book', { maxTokens: 17, seed: 3 })
    const blob = await here.checkpointSession('book')
    await fc.assert(
      fc.asyncProperty(fc.nat(blob.length - 1), fc.nat(7), async (at, bit) => {
        const bad = blob.slice()
        bad[at]! ^= 1 << bit
        expect(await errorOf(() => there.resumeSession(bad))).toMatchObject({ code: 'REFUSED' })
      }),
      { numRuns: 60 },
    )
    await there.resumeSession(blob)
    const further = async (manager: SessionManager) => {
      const { nats } = await manager.process('book', ids(6, 9, 256))
      const { ids: drawn, logprobs } = await manager.generate('book', { maxTokens: 12, seed: 4 })
      const { head, state } = await decodeSnapshot(await manager.checkpointSession('book'), one.layout)
      return { nats, drawn, logprobs, chain: head.chain, pulse: head.conductor.globalStep, state: sha256(state) }
    }
    expect(await further(there)).toEqual(await further(here))
  })

  it('holds what is only for people to read under its checksum, too', async () => {
    const { manager, blob } = await begun()
    const from = Buffer.from(blob).indexOf('"vitals":')
    const to = Buffer.from(blob).indexOf('}', from + 40)
    expect(Buffer.from(blob).toString('latin1', from, to)).toMatch(/^"vitals":"\{.*window.*levels/)
    for (let at = from; at < to; at += 1) {
      const bad = blob.slice()
      bad[at]! ^= 1
      expect(await errorOf(() => manager.resumeSession(bad, { id: `copy ${at}` }))).toMatchObject({ code: 'REFUSED' })
    }
  })

  const alterations: Record<string, [(head: Head) => unknown, string]> = {
    'the pulse of the stream': [
      (head) => ({ ...head, cursor: { ...head.cursor, pulse: 812 } }),
      pulseMismatch(812, 21).message,
    ],
    'the pulse of the model': [
      (head) => ({ ...head, conductor: { ...head.conductor, globalStep: 17 } }),
      pulseMismatch(21, 17).message,
    ],
    'the counter of the next draw': [
      (head) => ({ ...head, cursor: { ...head.cursor, rng: 3 } }),
      pulseMismatch(3, 21).message,
    ],
    'the origin of the context': [
      (head) => ({ ...head, conductor: { ...head.conductor, origin: 22 } }),
      pulseMismatch(22, 21).message,
    ],
    'the model': [(head) => ({ ...head, model: 'a'.repeat(64) }), 'was written by model aaaaaaaaaaaa'],
    'the layout': [
      (head) => ({ ...head, layout: 'b'.repeat(64) }),
      'with state layout bbbbbbbbbbbb…, the loaded model is ',
    ],
    'the chain': [(head) => ({ ...head, chain: 'xyz' }), 'has no readable header'],
    'the version': [(head) => ({ ...head, version: 2 }), 'has no readable header'],
    'the phase': [(head) => ({ ...head, conductor: { ...head.conductor, phase: 'train' } }), 'has no readable header'],
    'the status': [(head) => ({ ...head, status: 'closed' }), 'was closed: there is no memory to go on with'],
  }
  it.each(Object.keys(alterations))('in which %s was altered with care is refused by name', async (what) => {
    const { manager, blob } = await begun()
    const [head, sentence] = alterations[what]!
    const { code, message } = await errorOf(() => manager.resumeSession(forged(blob, { head }), { id: 'copy' }))
    expect(message).toContain(sentence)
    expect(code).toBe(what === 'the status' ? 'INVALID' : 'REFUSED')
    expect(manager.listSessions()).toHaveLength(1)
    expect(manager.stats).toMatchObject({ resident: 1 })
  })

  it('whose numbers are no numbers is refused by the engine; one of another model by its layout', async () => {
    const { manager, blob } = await begun()
    const state = (bytes: Uint8Array): Uint8Array => {
      new DataView(bytes.buffer).setFloat32(0, Number.NaN, true)
      return bytes
    }
    const noNumber = await errorOf(() => manager.resumeSession(forged(blob, { state }), { id: 'copy' }))
    expect(noNumber).toMatchObject({ code: 'REFUSED', message: expect.stringContaining('finite') })
    const wider = managed(await open(smallPackage(1, { ...SMALL, H: 3 })))
    expect(await errorOf(() => wider.resumeSession(blob))).toMatchObject({
      code: 'REFUSED',
      message: expect.stringMatching(/bytes, expected|has .* as/),
    })
    const twin = managed(await open(smallPackage(2)))
    expect(await errorOf(() => twin.resumeSession(blob))).toMatchObject({
      code: 'REFUSED',
      message: expect.stringContaining('was written by model'),
    })
    expect(await errorOf(() => manager.resumeSession([] as unknown as Uint8Array))).toMatchObject({ code: 'INVALID' })
    expect(await errorOf(() => manager.resumeSession(blob))).toMatchObject({ code: 'MISUSE' })
  })
})
