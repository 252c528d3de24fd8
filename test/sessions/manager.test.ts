import { execFileSync } from 'node:child_process'
import {
  closeSync,
  fstatSync,
  openSync,
  readdirSync,
  readFileSync,
  rmSync,
  utimesSync,
  writeFileSync,
  writeSync,
} from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import type { Model } from '../../src/engine/types.ts'
import { byteTokenizer } from '../../src/models/tokenizer/index.ts'
import type { SessionManager } from '../../src/sessions/manager.ts'
import type { Probe } from '../../src/sessions/probe.ts'
import { decodeSnapshot, encodeSnapshot } from '../../src/state/snapshot.ts'
import { bits, errorOf, feed, generate, open, sameBytes } from '../engine/helpers.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { demoModel } from '../operators/harness.ts'
import { ids, managed, smallPackage } from './helpers.ts'

const child = (...args: readonly string[]): Record<string, never> =>
  JSON.parse(execFileSync(process.execPath, [join(import.meta.dirname, 'child.ts'), ...args], { encoding: 'utf8' }))

let dir = ''
beforeAll(() => {
  dir = smallPackage()
})

describe('many sessions', () => {
  it('200 interleaved, in the memory of 12, are 200 that ran alone', { tags: 'slow' }, async () => {
    const model = await open(demoModel, { threads: 2 })
    const manager = managed(model, { maxResidentBytes: 12 * model.contextBytes })
    const sessions = Array.from({ length: 200 }, (_, n) => manager.createSession(`s${n}`))
    const input = (n: number): number[] => ids(n, 9, 256)
    let most = 0
    const work = async (n: number) => {
      const session = sessions[n]!
      const nats: number[] = []
      // Uneven pieces, so that sessions are at different places of their input in every batch.
      for (const [from, to] of [
        [0, 1 + (n % 4)],
        [1 + (n % 4), 6],
        [6, 9],
      ] as const) {
        nats.push(...(await manager.process(session, input(n).slice(from, to))).nats)
        most = Math.max(most, manager.stats.residentBytes)
      }
      const drawn = await manager.generate(session, { maxTokens: 3, temperature: 1, seed: n })
      return { nats: Float32Array.from(nats), drawn: drawn.ids, chain: session.chain }
    }
    const together = await Promise.all(sessions.map((_, n) => work(n)))
    expect(most).toBeLessThanOrEqual(12 * model.contextBytes)
    expect(manager.stats.spillReads).toBeGreaterThan(400)
    expect(manager.listSessions()).toHaveLength(200)
    for (const [n, { nats, drawn, chain }] of together.entries()) {
      const alone = model.createContext()
      expect(bits(nats)).toEqual(bits(await feed(model, alone, input(n))))
      const sampling = { temperature: 1, topK: 0, topP: 1, seed: BigInt(n) }
      expect(drawn).toEqual([...(await generate(model, alone, 3, sampling)).generated])
      expect(chain).toBe(alone.chain)
      alone.close()
    }
    expect(new Set(together.map(({ chain }) => chain)).size).toBe(200)
  })

  it('share one copy of the weights: 33 that read them from the kept file all see what changes in it', async () => {
    const large = smallPackage(3, { L: 3, H: 4, N: 64, F: 1024, V: 1024, D: { w: 8, a: 8, v: 8, g: 8 } })
    // A file that changed a moment ago has no seal.
    const then = Date.now() / 1000 - 60
    utimesSync(join(large, 'model.safetensors'), then, then)
    const packing = await open(large)
    await packing.keepPacked(join(large, 'model.safetensors.packed'))
    packing.close()
    const model = await open(large)
    expect(model.packed).not.toBeNull()
    const manager = managed(model)
    const sessions = Array.from({ length: 33 }, (_, n) => manager.createSession(`s${n}`))
    const last = (): Promise<number[]> =>
      Promise.all(sessions.map(async (session) => (await manager.process(session, [1, 2, 3])).nats.at(-1)!))
    const alike = Math.log(1024)
    for (const nats of await last()) expect(Math.abs(nats - alike)).toBeGreaterThan(1e-3)
    expect(manager.stats.residentBytes).toBe(33 * model.contextBytes)
    // Weights of zero expect every token alike. A session with a copy of its own would go on as before.
    const kept = openSync(join(large, 'model.safetensors.packed'), 'r+')
    writeSync(kept, new Uint8Array(fstatSync(kept).size))
    closeSync(kept)
    for (const nats of await last()) expect(nats).toBeCloseTo(alike, 5)
    rmSync(large, { recursive: true })
  })
})

describe('calls on one session', () => {
  it('take their turns in the order in which they were made', async () => {
    const model = await open(dir)
    const manager = managed(model)
    const session = manager.createSession('s')
    const calls = Array.from({ length: 20 }, (_, n) => manager.process(session, ids(n, 5, 40)))
    const closing = manager.closeSession(session)
    const late = errorOf(() => manager.process(session, [1]))
    const heads = (await Promise.all(calls)).map(({ head }) => head)
    expect(heads.map(({ conductor }) => conductor.globalStep)).toEqual(calls.map((_, n) => 5 * (n + 1)))
    const alone = model.createContext()
    for (let n = 0; n < 20; n += 1) await feed(model, alone, ids(n, 5, 40))
    expect(session.chain).toBe(alone.chain)
    await closing
    expect(await late).toMatchObject({ code: 'MISUSE', message: expect.stringContaining('closed before') })
    expect(session.status).toBe('closed')
    expect(manager.listSessions()).toEqual([])
  })

  it('one that fails leaves the next its turn, and changes nothing', async () => {
    const model = await open(dir)
    const manager = managed(model)
    const session = manager.createSession('s')
    const [first, bad, third] = await Promise.allSettled([
      manager.process(session, [1, 2]),
      manager.process(session, [3, 40]),
      manager.process(session, [4]),
    ])
    expect([first!.status, bad!.status, third!.status]).toEqual(['fulfilled', 'rejected', 'fulfilled'])
    const alone = model.createContext()
    await feed(model, alone, [1, 2, 4])
    expect(session.chain).toBe(alone.chain)
    expect(session.head.totals).toMatchObject({ tokens: 3, predictions: 2 })
  })

  it('a manager that closes lets calls finish, and removes its pages', async () => {
    const model = await open(dir)
    const spillDir = temporaryFolder()
    const manager = managed(model, { maxResidentBytes: 1, spillDir })
    const calls = ['a', 'b', 'c'].map((id) => manager.process(manager.createSession(id), ids(1, 50, 40)))
    const closing = manager.close()
    expect(await errorOf(() => manager.process('a', [1]))).toMatchObject({ code: 'MISUSE' })
    expect((await Promise.all(calls)).map(({ head }) => head.conductor.globalStep)).toEqual([50, 50, 50])
    await closing
    expect(readdirSync(spillDir)).toEqual([])
    expect(await errorOf(() => manager.close())).toMatchObject({ code: 'MISUSE' })
  })
})

describe('what is wrong is refused with a sentence', () => {
  const cases: Record<string, (model: Model) => unknown> = {
    'is open already': (model) => {
      const manager = managed(model)
      manager.createSession('s')
      manager.createSession('s')
    },
    'There is no session "x"': (model) => managed(model).process('x', [1]),
    'belongs to another manager': (model) => managed(model).process(managed(model).createSession('s'), [1]),
    'Text needs a tokenizer': (model) => {
      const manager = managed(model)
      return manager.process(manager.createSession('s'), 'text')
    },
    'Token 1 is 1.5': (model) => {
      const manager = managed(model)
      return manager.process(manager.createSession('s'), [1, 1.5])
    },
    'read nothing yet': (model) => {
      const manager = managed(model)
      return manager.generate(manager.createSession('s'), { maxTokens: 1 })
    },
    'field "topP"': async (model) => {
      const manager = managed(model)
      const session = manager.createSession('s')
      await manager.process(session, [1])
      return manager.generate(session, { maxTokens: 1, topP: 2 })
    },
    'maxResidentBytes is 0': (model) => managed(model, { maxResidentBytes: 0 }),
    'probeEvery goes with onProbe': (model) => managed(model, { probeEvery: 3 }),
    'tokens bounds a test': (model) => managed(model).createSession('s', { tokens: 5 }),
    'The id of a session': (model) => managed(model).createSession(''),
    'expected "stream" or "test"': (model) => managed(model).createSession('s', { phase: 'train' as 'test' }),
  }
  it.each(Object.keys(cases))('%s', async (sentence) => {
    const model = await open(dir)
    const { code, message } = await errorOf(() => cases[sentence]!(model))
    expect(message).toContain(sentence)
    expect(['INVALID', 'MISUSE']).toContain(code)
  })
})

describe('generation', () => {
  it('gives what the stream gives, run by run, and stops where it is told', async () => {
    const model = await open(demoModel, { threads: 2 })
    const manager = managed(model, { tokenizer: byteTokenizer() })
    const session = manager.createSession('s', { seed: 11 })
    await manager.process(session, 'Once upon a time ')
    const start = await manager.checkpointSession(session)
    const runs: string[] = []
    const whole = await manager.generate(session, {
      maxTokens: 40,
      temperature: 0.7,
      onTokens: ({ text }) => runs.push(text),
    })
    expect(whole).toMatchObject({ finish: 'length', text: runs.join('') })
    expect(runs).toHaveLength(3)
    expect(whole.ids).toHaveLength(40)
    // The same seed by another way; a stop string ends it early, and nothing behind it is fed.
    const stop = whole.text.slice(20, 23)
    const again = await manager.resumeSession(start, { id: 'again' })
    const cut = await manager.generate(again, { maxTokens: 40, temperature: 0.7, seed: 11, stop: [stop] })
    expect(cut.finish).toBe('stop')
    expect(cut.text).toBe(whole.text.slice(0, whole.text.indexOf(stop) + stop.length))
    expect(again.pulse).toBe(17 + cut.ids.length)
  })

  it('with penalties counts the same after a checkpoint, in a fork and where a probe cuts it', async () => {
    const model = await open(demoModel, { threads: 2 })
    const options = {
      ...{ maxTokens: 40, temperature: 0.7, seed: 4, minP: 0.02, repetitionPenalty: 1.3, frequencyPenalty: 0.4 },
      ...{ penaltyLast: 30, topLogprobs: 2 },
    }
    const told = async (manager: SessionManager, id: string) => {
      const { ids, logprobs, topLogprobs, head } = await manager.generate(id, options)
      return { ids, logprobs, topLogprobs, chain: head.chain }
    }
    const manager = managed(model, { tokenizer: byteTokenizer() })
    const session = manager.createSession('s')
    await manager.process(session, 'Once upon a time there was a time ')
    await manager.generate(session, { maxTokens: 9, temperature: 0 })
    await manager.resumeSession(await manager.checkpointSession(session), { id: 'resumed' })
    await manager.fork(session, 'forked')
    const file = await manager.checkpointSession(session)
    const whole = await told(manager, 's')
    expect(whole.topLogprobs).toHaveLength(40)
    expect(await told(manager, 'resumed')).toEqual(whole)
    expect(await told(manager, 'forked')).toEqual(whole)
    for (const probeEvery of [1, 7]) {
      const probed = managed(model, { tokenizer: byteTokenizer(), onProbe: () => undefined, probeEvery })
      await probed.resumeSession(file, { id: 's' })
      expect(await told(probed, 's')).toEqual(whole)
    }
    // What the file says was fed last does count.
    const { head, state } = await decodeSnapshot(file, model.layout)
    const { recent, ...forgetful } = head
    expect(Buffer.from(recent!, 'base64')).toHaveLength(4 * head.conductor.globalStep)
    await manager.resumeSession(await encodeSnapshot(forgetful, state, model.layout), { id: 'forgetful' })
    expect((await told(manager, 'forgetful')).ids).not.toEqual(whole.ids)
  })

  it('that is aborted ends with the run in hand, and the session goes on from there', async () => {
    const model = await open(dir)
    const manager = managed(model)
    const session = manager.createSession('s')
    await manager.process(session, [1])
    const abort = new AbortController()
    const { ids: drawn, finish } = await manager.generate(session, {
      maxTokens: 1000,
      temperature: 0,
      signal: abort.signal,
      onTokens: ({ index }) => (index === 16 ? abort.abort() : undefined),
    })
    expect(finish).toBe('cancelled')
    expect(drawn).toHaveLength(32)
    const none = await manager.generate(session, { maxTokens: 5, signal: abort.signal })
    expect(none).toMatchObject({ finish: 'cancelled', ids: [], text: '' })
    const next = await manager.generate(session, { maxTokens: 5, temperature: 0 })
    expect(next.finish).toBe('length')
    const alone = model.createContext()
    await feed(model, alone, [1])
    expect([...drawn, ...next.ids]).toEqual([...(await generate(model, alone, 37)).generated])
    expect(session.chain).toBe(alone.chain)
  })
})

describe('phases', () => {
  it('a test is bounded and assessed, and gives the nats and the chain of a stream', async () => {
    const model = await open(dir)
    const manager = managed(model)
    const test = manager.createSession('test', { phase: 'test', tokens: 300 })
    const stream = manager.createSession('stream')
    const input = ids(4, 400, 40)
    const first = await manager.process(test, input.slice(0, 290))
    expect(first.ended).toBe(false)
    const rest = await manager.process(test, input.slice(290))
    expect(rest).toMatchObject({ ended: true, head: { conductor: { phase: 'test', globalStep: 300 } } })
    expect(rest.nats).toHaveLength(10)
    expect(await errorOf(() => manager.process(test, [1]))).toMatchObject({ code: 'MISUSE' })
    const { nats } = await manager.process(stream, input.slice(0, 300))
    expect(bits(Float32Array.of(...first.nats, ...rest.nats))).toEqual(bits(nats))
    const [a, b] = [await manager.assess(test), await manager.assess(stream)]
    expect(a).toEqual({ ...b, session: 'test', phase: 'test' })
    expect(a).toMatchObject({ tokens: 300, predictions: 299, pulse: 300, chain: stream.chain })
    expect(a.bitsPerToken).toBeCloseTo(nats.slice(1).reduce((sum, each) => sum + each, 0) / Math.LN2 / 299, 6)
    expect(test.status).toBe('assessed')
    expect((await manager.process(stream, input.slice(300))).ended).toBe(false)
  })

  it('a test without a bound goes on until it is assessed; generated tokens count', async () => {
    const model = await open(dir)
    const manager = managed(model)
    const free = manager.createSession('free', { phase: 'test' })
    await manager.process(free, ids(1, 50, 40))
    await manager.assess(free)
    expect(await errorOf(() => manager.generate(free, { maxTokens: 1 }))).toMatchObject({ code: 'MISUSE' })
    const bound = manager.createSession('bound', { phase: 'test', tokens: 12 })
    await manager.process(bound, ids(1, 8, 40))
    const { ids: drawn, finish } = await manager.generate(bound, { maxTokens: 100 })
    expect([drawn.length, finish, bound.pulse]).toEqual([4, 'length', 12])
  })
})

describe('probes', () => {
  it('see the state before it moves, and change nothing', async () => {
    const model = await open(dir)
    const seen: (Pick<Probe, 'session' | 'pulse' | 'phase'> & { S: Float32Array; shape: readonly number[] })[] = []
    let escaped: Probe | null = null
    const manager = managed(model, {
      // Each look finds the context spilled, because another session had the memory.
      maxResidentBytes: 1,
      async onProbe(probe) {
        const { data, shape } = await probe.read('att.S')
        seen.push({ session: probe.session, pulse: probe.pulse, phase: probe.phase, S: data as Float32Array, shape })
        escaped = probe
      },
    })
    const [s, other] = [manager.createSession('s'), manager.createSession('other')]
    const alone = model.createContext()
    for (const tokens of [[1, 2, 3], [4], [5, 6]]) {
      const state = alone.serialize()
      const { offset, bytes, shape } = model.layout.tensors(state).find(({ name }) => name === 'att.S')!
      await manager.process(s, tokens)
      const { S, ...facts } = seen.at(-1)!
      expect(facts).toEqual({ session: 's', pulse: Number(alone.pulse), phase: 'stream', shape })
      expect(sameBytes(new Uint8Array(S.buffer), state.subarray(offset, offset + bytes))).toBe(true)
      await feed(model, alone, tokens)
      await manager.process(other, tokens)
    }
    expect(s.chain).toBe(alone.chain)
    expect(seen).toHaveLength(6)
    expect(await errorOf(() => escaped!.read('att.S'))).toMatchObject({ code: 'MISUSE' })
  })

  it('at every third pulse, wherever calls begin and end, also while it generates', async () => {
    const model = await open(dir)
    const pulses: number[] = []
    const manager = managed(model, { probeEvery: 3, onProbe: ({ pulse }) => void pulses.push(pulse) })
    const session = manager.createSession('s')
    const nats = [...(await manager.process(session, ids(2, 4, 40))).nats]
    nats.push(...(await manager.process(session, ids(3, 7, 40))).nats)
    const { ids: drawn, logprobs } = await manager.generate(session, { maxTokens: 8, temperature: 1, seed: 3 })
    expect(pulses).toEqual([0, 3, 6, 9, 12, 15, 18])
    const alone = model.createContext()
    expect(bits(Float32Array.from(nats))).toEqual(bits(await feed(model, alone, [...ids(2, 4, 40), ...ids(3, 7, 40)])))
    const expected = await generate(model, alone, 8, { temperature: 1, topK: 0, topP: 1, seed: 3n })
    expect(drawn).toEqual([...expected.generated])
    expect(logprobs).toEqual([...expected.logprobs])
    expect(session.chain).toBe(alone.chain)
  })

  it('that throw hold the token back; the session stays usable', async () => {
    const model = await open(dir)
    const manager = managed(model, {
      probeEvery: 1,
      async onProbe({ pulse, read }) {
        if (pulse === 5) throw new Error('enough')
        if (pulse === 7) await read('att.T')
      },
    })
    const session = manager.createSession('s')
    await expect(manager.process(session, ids(1, 9, 40))).rejects.toThrow('enough')
    expect(session.pulse).toBe(5)
    const blob = await manager.checkpointSession(session)
    const other = managed(model)
    const resumed = await other.resumeSession(blob)
    await other.process(resumed, [1, 2])
    const alone = model.createContext()
    await feed(model, alone, [...ids(1, 5, 40), 1, 2])
    expect(resumed.chain).toBe(alone.chain)
    const past = managed(model, { onProbe: ({ read }) => read('att.T').then(() => undefined) })
    expect(await errorOf(() => past.process(past.createSession('s'), [1]))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('Expected one of: '),
    })
  })
})

describe('a memory that diverges', () => {
  it('is reported by name while its numbers are still finite', async () => {
    const model = await open(dir)
    const warnings: string[] = []
    const manager = managed(model, { warn: (message) => warnings.push(message) })
    const session = manager.createSession('wild')
    await manager.process(session, [1, 2])
    await manager.assess(session)
    const { head, state } = await decodeSnapshot(await manager.checkpointSession(session), model.layout)
    expect(warnings).toEqual([])
    const large = state.slice()
    const { offset } = model.layout.tensors(large).find(({ name }) => name === 'att.S')!
    new DataView(large.buffer).setFloat32(offset, 3e30, true)
    const wild = await manager.resumeSession(await encodeSnapshot(head, large, model.layout), { id: 'wilder' })
    const { health } = await manager.assess(wild)
    expect(health.find(({ name, layer }) => name === 'att.S' && layer === 0)!.norm).toBeCloseTo(Math.fround(3e30), -20)
    expect(warnings).toHaveLength(1)
    expect(warnings[0]).toContain('Session "wilder" diverges: at pulse 2 the norm of att.S, layer 0, is 3.00e+30')
  })
})

describe('another process', () => {
  it('goes on bit by bit from a checkpoint, with the cursor that went with it', async () => {
    const model = await open(dir)
    const manager = managed(model)
    const session = manager.createSession('moved')
    await manager.process(session, ids(9, 30, 40))
    const blob = await manager.checkpointSession(session, { topic: 'lines', offset: 812 })
    const path = join(temporaryFolder(), 'moved.safetensors')
    writeFileSync(path, blob)
    const there = child(dir, path)
    const { nats } = await manager.process(session, [3, 1, 4, 1, 5, 9, 2, 6])
    const drawn = await manager.generate(session, { maxTokens: 20, temperature: 0.9, topP: 0.9, seed: 5 })
    const { pulse, chain } = session
    expect(there).toMatchObject({ nats: [...nats], ids: drawn.ids, logprobs: drawn.logprobs, pulse, chain })
    expect((await manager.resumeSession(blob, { id: 'back' })).head.cursor).toMatchObject({
      topic: 'lines',
      offset: 812,
      pulse: 30,
    })
  })
})

describe('weights', () => {
  it('that were changed while the model served are found at close', async () => {
    const changed = smallPackage(2)
    const model = await open(changed, { threads: 1, keepPacked: false })
    const first = managed(model, { verifyWeights: true })
    await first.process(first.createSession('s'), [1])
    await first.close()
    const second = managed(model, { verifyWeights: true })
    const path = join(changed, 'model.safetensors')
    const bytes = readFileSync(path)
    bytes[bytes.length - 1]! ^= 1
    writeFileSync(path, bytes)
    expect(await errorOf(() => second.close())).toMatchObject({
      code: 'REFUSED',
      message: expect.stringMatching(
        /model\.safetensors were changed while the model served: fingerprint \w{12}… when/,
      ),
    })
    rmSync(path)
    expect(await errorOf(() => model.verifyWeights())).toMatchObject({
      code: 'REFUSED',
      message: expect.stringContaining('cannot be read any more'),
    })
  })
})
