/** The perspective family against the published expectations: surprisals, routes, draws, adaptations, state. */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { beforeAll, describe, expect, it } from 'vitest'
import type { EngineContext } from '../../../src/engine/context.ts'
import type { Model } from '../../../src/engine/types.ts'
import { feed } from '../../engine/helpers.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import type { Adapted } from './adapt.ts'
import {
  adaptAs,
  drawAt,
  expectDrawn,
  expectNote,
  expectState,
  farthest,
  openPerspective,
  stateOf,
  type Tensors,
} from './engine.ts'
import type { Draw } from './mpd.ts'
import { logSoftmax } from './rows.ts'
import type { StateTensor } from './state.ts'
import { numbersOf, readStored, type StoredTensors } from './tensors.ts'

interface Expected {
  readonly ids: readonly number[]
  readonly draw_seed: number
  readonly logits: readonly number[]
  readonly nll: readonly (number | null)[]
  readonly total_nll: number
  readonly routes: readonly (readonly (readonly number[])[])[]
  /** What was not computed is not there. */
  readonly draws: readonly (Pick<Draw, 'fired' | 'entropy'> & Partial<Draw>)[]
  readonly drawn: Readonly<Record<string, readonly number[]>>
  readonly adapts: readonly {
    readonly at: number
    readonly asked: number
    readonly seed: number
    readonly tokens: number
    readonly evaluations: number
    readonly stages: Adapted['stages']
    readonly loss: number
    readonly binds: readonly (readonly [pulse: number, token: number, bank: number])[]
  }[]
}

// It is not ours to ship; CONTINUO_SHARED says where it is.
describe.skipIf(!hasShared)('the published package', () => {
  const dir = sharedModel('perspective-tiny')
  let expected: Expected
  let stored: StoredTensors
  beforeAll(() => {
    expected = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8')) as Expected
    stored = readStored(join(dir, 'expected.safetensors'))
  })

  /**
   * The tensors of the file under this prefix, in the order of the context, with those that the file does not have from
   * the context.
   */
  const storedOf = (prefix: string, own: Tensors): Map<string, Pick<StateTensor, 'shape' | 'dtype' | 'data'>> => {
    const found = [...stored.keys()].filter((name) => name.startsWith(prefix) && (prefix || !name.startsWith('after-')))
    expect(found.map((name) => name.slice(prefix.length)).filter((name) => !own.has(name))).toEqual([])
    return new Map(
      [...own].map(([name, tensor]) => {
        const wanted = stored.get(prefix + name)
        if (wanted === undefined) return [name, tensor]
        return [name, { ...wanted, dtype: wanted.dtype as StateTensor['dtype'], data: [...numbersOf(wanted)] }]
      }),
    )
  }

  /** Reads the ids with the adaptations between them, calling `after` behind each piece of at most `chunk`. */
  const read = async (
    model: Model,
    context: EngineContext,
    chunk: number,
    after: (count: number) => Promise<void> = async () => {},
  ): Promise<number[]> => {
    const { ids, adapts } = expected
    const nats: number[] = []
    const first = stateOf(model, context)
    for (const [j, end] of [...adapts.map(({ at }) => at), ids.length].entries()) {
      while (nats.length < end) {
        nats.push(...(await feed(model, context, ids.slice(nats.length, Math.min(end, nats.length + chunk)))))
        await after(nats.length)
      }
      const asked = adapts[j]
      if (asked === undefined) continue
      const bound = asked.binds.map(([pulse, token, bank]) => ({ pulse, token, bank }))
      // The file has no loss behind the last stage; it is that of the last accepted one, less its anchor.
      await adaptAs(
        model,
        context,
        { evaluations: asked.asked, seed: asked.seed },
        { ...asked, loss: { before: asked.loss, after: null }, bound },
      )
      const own = stateOf(model, context)
      expectState(own, storedOf(`after-adapt-${j}.`, own), first)
    }
    const own = stateOf(model, context)
    const wanted = storedOf('', own)
    expect([...wanted.keys()].filter((name) => !stored.has(name))).toEqual([])
    expectState(own, wanted, first)
    return nats
  }

  it.each([1, 5, 48])('gives the expected surprisals, logits, adaptations and state in pieces of %i', async (chunk) => {
    const model = await openPerspective(dir)
    const context = model.createContext()
    const nats = (await read(model, context, chunk)).slice(1)
    expect(farthest(nats, expected.nll.slice(1).map(Number))).toBeLessThan(1e-3)
    expect(Math.abs(nats.reduce((total, each) => total + each, 0) - expected.total_nll)).toBeLessThan(1e-2)
    expect(farthest(await model.logits(context), expected.logits)).toBeLessThan(1e-3)
  })

  it('draws from what its perspectives and its memory say', async () => {
    const model = await openPerspective(dir)
    const context = model.createContext()
    let drawn = 0
    await read(model, context, 1, async (count) => {
      const { entropy, fired, jsd = null, agreed = null, hdm = null, weight = null } = expected.draws[count - 1]!
      const { note } = await drawAt(model, context, expected.draw_seed)
      expectNote(note, { entropy, fired, jsd, agreed, hdm, weight })
      const logits = expected.drawn[count - 1]
      if (logits === undefined) return
      await expectDrawn(model, context, logSoftmax(Float64Array.from(logits)), expected.draw_seed)
      drawn += 1
    })
    expect(drawn).toBe(Object.keys(expected.drawn).length)
  })

  it('takes the expected experts, of a token by itself and of many at a time', async () => {
    const model = await openPerspective(dir)
    for (const rows of [1, 8, expected.routes.length]) {
      const executor = model.createExecutor()
      const routes: number[][][] = []
      for (let at = 0; at < expected.routes.length; at += rows) {
        executor.insert('token', expected.ids.slice(at, at + rows))
        await executor.step('step')
        const layers = [0, 1, 2, 3].map((layer) => executor.fetch(`${layer}.experts`).data as Int32Array)
        for (let row = 0; row < rows; row += 1) routes.push(layers.map((ids) => [ids[row]!]))
      }
      expect(routes).toEqual(expected.routes)
    }
  })
})
