/**
 * An external memory with every kind of setting, against a reference in double precision: events exactly, logits and
 * nats of each token closely.
 */
import { describe, expect, test } from 'vitest'
import { planGraph } from '../../../src/engine/plan.ts'
import type { MemoryRequest } from '../../../src/engine/work.ts'
import { describePackage, openModel } from '../../../src/models/open.ts'
import type { MemoryEvent } from '../../../topics/observations.ts'
import { farthest, randomIds } from '../decoder-suite.ts'
import { keyHeads } from '../decoders.ts'
import { type Happening, memoryReference } from './outer-memory-reference.ts'
import { RETRIEVE, SETTINGS, SUMMARIZE, writeSetting } from './outer-memory-settings.ts'

const COMPUTED = ['distance', 'k_norm', 'v_norm'] as const
const plain = (events: readonly object[]) =>
  events.map((event) =>
    Object.fromEntries(Object.entries(event).filter(([name]) => !COMPUTED.some((each) => each === name))),
  )
const expectEvents = (events: readonly MemoryEvent[], wanted: readonly Happening[]): void => {
  expect(plain(events)).toEqual(plain(wanted))
  for (const [i, event] of events.entries())
    for (const name of COMPUTED) {
      const [found, number] = [(event as Happening)[name], wanted[i]![name]] as [number?, number?]
      if (number !== undefined) expect(Math.abs(found! - number) / number, `${name} of event ${i}`).toBeLessThan(2e-4)
    }
}

/** −ln of the probability that these logits give the token. */
const surprisal = (logits: readonly number[], id: number): number => {
  const most = Math.max(...logits)
  return most + Math.log(logits.reduce((sum, logit) => sum + Math.exp(logit - most), 0)) - logits[id]!
}

test('the settings share a key head among one, two, four and eight query heads', () => {
  const shared = SETTINGS.map(({ config }) => config.num_attention_heads / keyHeads(config))
  expect([...new Set(shared)].toSorted((a, b) => a - b)).toEqual([1, 2, 4, 8])
})

describe.each(SETTINGS)('an external memory: $name', (setting) => {
  test('has a step whose rows go together, so that a CUDA device captures it', async () => {
    const { request } = await describePackage(writeSetting(setting).folder, {}, () => undefined)
    const orders = planGraph(request.graph).flatMap(({ stages }) => stages.map(({ order }) => order))
    expect(orders).not.toContain('row_serial')
  })

  test('does what the reference does', async () => {
    const { config, memory, seed } = setting
    const { folder, tensors, modules } = writeSetting(setting)
    const model = await openModel(folder, { threads: 2, keepPacked: false })
    const reference = memoryReference(config, tensors, memory, modules)
    const events: MemoryEvent[] = []
    const context = model.createContext()
    const ask = async (request: MemoryRequest): Promise<void> => {
      const done = await model.submit({ context, tokens: new Int32Array(0), nats: false, request })
      events.push(...(done.events ?? []))
    }
    try {
      const ids = randomIds(330, SUMMARIZE, seed + 2)
      for (const [id, places] of [
        [SUMMARIZE, [70, 201]],
        [RETRIEVE, [45, 90, 131, 250]],
      ] as const)
        for (const at of places) ids[at] = id
      let worst = 0
      let worstNats = 0
      let before: readonly number[] | null = null
      for (const [at, id] of ids.entries()) {
        const wanted = reference.feed(id)
        const done = await model.submit({ context, tokens: Int32Array.of(id), nats: true })
        events.push(...(done.events ?? []))
        if (before === null) expect(done.nats[0]).toBeNaN()
        else worstNats = Math.max(worstNats, Math.abs(done.nats[0]! - surprisal(before, id)))
        before = wanted
        if (at === 110) {
          reference.archive()
          await ask({ type: 'archive' })
        }
        if (at === 155) {
          reference.retrieve()
          await ask({ type: 'retrieve' })
        }
        if (at === 180) {
          reference.retrieve([1, 4])
          await ask({ type: 'retrieve', blocks: [4, 1] })
        }
        if (at % 9 === 0 || at === ids.length - 1)
          worst = Math.max(worst, farthest(await model.logits(context), wanted))
      }
      expect(reference.closest(), 'two numbers that were compared: take another seed').toBeGreaterThan(2e-5)
      expectEvents(events, reference.events)
      if (memory.graph !== null)
        expect(events.map(({ type }) => type)).toEqual(expect.arrayContaining(['node', 'split', 'merge']))
      expect(worst).toBeLessThan(1e-4)
      expect(worstNats).toBeLessThan(1e-4)
    } finally {
      model.close()
    }
  })
})
