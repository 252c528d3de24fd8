/**
 * A device that is lost takes the contexts that rest, too: they are no reason to fail for whoever needs room, or stops.
 */
import { describe, expect, it, onTestFinished, vi } from 'vitest'
import type { Context } from '../../src/engine/context.ts'
import { createContextStore } from '../../src/operators/sessions/context-store.ts'
import { errorOf, open, sameBytes } from '../engine/helpers.ts'
import { createBench, event } from '../operators/harness.ts'
import { eventually } from '../streams/helpers.ts'
import { emulated } from './helpers.ts'
import { BYTES, rwkv7 } from './packages.ts'

// Read when the device is first looked at, which the imports do.
vi.hoisted(() => {
  process.env.CONTINUO_EMULATED_FAULT = '200'
})

const GONE = { code: 'UNAVAILABLE', message: expect.stringContaining('lost') }
const tokens = (count: number): Int32Array => Int32Array.from({ length: count }, (_, i) => (i * 7919) % 256)

describe.runIf(emulated)('contexts at rest on a device that is lost', () => {
  it('give way, and say that they are gone to whoever uses them next; a worker with such contexts stops in peace', async () => {
    const model = await open(rwkv7('F32', BYTES), { device: 'cuda' })
    const bench = await createBench({ model, tokenizer: null }, 2)
    onTestFinished(() => bench.close())
    const sessions = new Map<number, string>()
    for (const name of ['ash', 'beech', 'cedar', 'elm', 'fir', 'holly']) {
      sessions.set(await bench.log.partitionOf(bench.names.chunks, Buffer.from(name)), name)
    }
    const [resting, working] = [sessions.get(0)!, sessions.get(1)!]
    const read = (session: string, count: number) => event(session, { type: 'tokens', tokens: [...tokens(count)] })
    const running = await bench.start({ retryPause: 1 })
    await bench.feed(read(resting, 4))
    await running.idle()

    const two = 2 * model.contextBytes
    const warnings: string[] = []
    const warn = (message: string): void => void warnings.push(message)
    const residency = createContextStore(model, { maxBytes: two, warn })
    const [first, second, third] = ['1', '2', '3'].map((name) => residency.createContext(name)) as [
      Context,
      Context,
      Context,
    ]
    const use = (context: Context, count = 1) => residency.submit({ context, tokens: tokens(count), nats: false })
    await use(first)
    const saved = { state: await first.state(), head: { pulse: first.pulse, origin: first.origin, chain: first.chain } }
    await use(second)

    // On until the device is lost: by the worker's second partition, whose task begins again.
    const request = { type: 'generate', requestId: 'r', maxTokens: 100, temperature: 1, seed: 5 } as const
    await bench.feed(read(working, 9), event(working, request))
    await eventually(() => expect(running.states.map(({ state }) => state)).toContain('lost'))
    await running.idle()
    expect(running.states.filter(({ state }) => state === 'lost')).toEqual([
      { partition: 1, state: 'lost', error: expect.objectContaining(GONE) },
    ])

    await use(third)
    expect(residency.stats).toMatchObject({ resident: 2, spillWrites: 0, failures: 0 })
    expect(warnings).toEqual([])
    expect(await errorOf(() => use(first))).toMatchObject(GONE)
    expect(await errorOf(() => first.state())).toMatchObject(GONE)
    expect(await errorOf(() => use(second))).toMatchObject(GONE)
    await first.load(saved.state, saved.head)
    await second.load(saved.state, saved.head)
    await use(first, 9)
    await use(second, 9)
    expect(first.chain).toBe(second.chain)
    expect(sameBytes(await first.state(), await second.state())).toBe(true)
    await residency.close()

    await running.worker.stop()
    expect(running.states.filter(({ state }) => state === 'closed').map(({ partition }) => partition)).toEqual([0, 1])
    expect(running.states.filter(({ error }) => error !== undefined)).toHaveLength(1)
    expect((await bench.settle()).states.at(-1)).toMatchObject({ state: 'closed' })
    expect((await bench.heads()).get(resting)!.conductor.globalStep).toBe(4)
  })
})
