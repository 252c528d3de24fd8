/** Sessions of a model whose contexts have a last position, and whose tokenizer has an end of text. */
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { afterAll, describe, expect, onTestFinished, test } from 'vitest'
import type { OpenModelOptions } from '../../../src/engine/options.ts'
import type { Model } from '../../../src/engine/types.ts'
import { openModel } from '../../../src/models/open.ts'
import { byteTokenizer } from '../../../src/models/tokenizer/index.ts'
import type { Tokenizer } from '../../../src/models/tokenizer/types.ts'
import { advance } from '../../../src/operators/advance/advance.ts'
import { initialSession, type SessionState } from '../../../src/operators/advance/session-state.ts'
import { tokenizeEvent } from '../../../src/operators/pipeline/tokenize.ts'
import { validateRecord } from '../../../src/operators/pipeline/validate.ts'
import type { Output, Valid } from '../../../src/operators/types.ts'
import { type ChunkInput, MAX_RUN } from '../../../topics/chunks.ts'
import type { Generated } from '../../../topics/tokens.ts'
import { safetensors, writePackage } from '../../engine/packages.ts'
import { type Gpt2Sizes, gpt2ConfigOf, randomGpt2 } from '../../models/gpt2/gpt2.ts'
import { eventually } from '../../streams/helpers.ts'
import { type Bench, createBench, event, verified } from '../harness.ts'

const models: Model[] = []
afterAll(() => {
  for (const model of models) model.close()
})
const sizesOf = (P: number): Gpt2Sizes => ({ L: 1, H: 2, N: 4, F: 12, V: 256, P })
const gpt2 = async (P: number, options: OpenModelOptions = { threads: 1 }): Promise<Model> => {
  const model = await openModel(
    writePackage(gpt2ConfigOf(sizesOf(P)), safetensors(randomGpt2(21, sizesOf(P)))),
    options,
  )
  models.push(model)
  return model
}
const bytes = (eos: number | null = null): Tokenizer => ({ ...byteTokenizer(), eos })

const benchOf = async (model: Model, tokenizer = bytes(), url?: string): Promise<Bench> => {
  const bench = await createBench({ model, tokenizer }, 1, url === undefined ? {} : { url })
  onTestFinished(() => bench.close())
  return bench
}

const reasons = async (bench: Bench): Promise<string[]> =>
  (await bench.records('deadletters')).map(({ headers }) =>
    Buffer.from(headers.find(([name]) => name === 'continuo-reason')![1]).toString(),
  )
const text = (length: number): ChunkInput => ({ type: 'text', text: 'abcdefghij'.repeat(length).slice(0, length) })
const generate = (maxTokens: number, more: object = {}): ChunkInput => ({
  type: 'generate',
  requestId: 'r',
  maxTokens,
  ...more,
})
const idsOf = (events: readonly Generated[]): number[] => events.flatMap(({ ids }) => ids)

describe('a context with a last position', () => {
  test('a chunk that would overflow it is refused whole; the session goes on with what fits, and closes', async () => {
    const bench = await benchOf(await gpt2(64))
    await bench.feed(
      event('s', text(50)),
      event('s', text(15)),
      event('s', { type: 'tokens', tokens: new Array(15).fill(7) }),
      event('s', text(10)),
      event('s', { type: 'boundary' }),
      event('s', generate(9)),
      event('s', text(1)),
      event('s', { type: 'close' }),
    )
    await bench.settle()
    const refused = await reasons(bench)
    expect(refused).toHaveLength(3)
    expect(refused[0]).toMatch(
      /^context overflow: 65 positions exceed the 64 of one context; session "s" has 50 in use\./,
    )
    expect(refused[1]).toMatch(/^context overflow: 65 positions/)
    expect(refused[2]).toMatch(/^context overflow: 65 positions .* has 64 in use/)
    const generated = await bench.generated()
    expect(idsOf(generated)).toHaveLength(4)
    expect(generated.map(({ finish }) => finish)).toEqual(['context'])
    const head = (await bench.heads()).get('s')!
    expect(head).toMatchObject({ status: 'closed', conductor: { globalStep: 64 } })
    await verified(bench)
    // The refused left no trace: without them the same.
    const reference = await benchOf(bench.model)
    await reference.feed(
      event('s', text(50)),
      event('s', text(10)),
      event('s', generate(9)),
      event('s', { type: 'close' }),
    )
    await reference.settle()
    expect((await reference.heads()).get('s')!.chain).toBe(head.chain)
  })

  test('a prompt that fills it ends a generation before its first token', async () => {
    const bench = await benchOf(await gpt2(64))
    await bench.feed(event('s', text(64)), event('s', generate(5)), event('s', generate(5, { stop: ['x'] })))
    await bench.settle()
    expect(await bench.generated()).toMatchObject([
      { ids: [], text: '', logprobs: [], fromPulse: 64, toPulse: 64, finish: 'context' },
      { ids: [], fromPulse: 64, toPulse: 64, finish: 'context' },
    ])
    await verified(bench)
  })

  test('asked for exactly what is left, a generation ends by its length', async () => {
    const bench = await benchOf(await gpt2(64))
    await bench.feed(event('s', text(44)), event('s', generate(20)))
    await bench.settle()
    expect((await bench.generated()).map(({ ids, finish }) => [ids.length, finish])).toEqual([
      [16, null],
      [4, 'length'],
    ])
    await verified(bench)
  })

  test('what a generation did not use is there for the next chunk, though all events were sent at once', async () => {
    const model = await gpt2(64)
    const free = await benchOf(model)
    await free.feed(event('s', text(30)), event('s', generate(30, { seed: 3 })))
    await free.settle()
    const drawn = idsOf(await free.generated())
    // Sampled, so some token stands there for the first time in the middle.
    const at = drawn.findIndex((id, i) => i >= 5 && i < 25 && drawn.indexOf(id) === i)
    expect(at).toBeGreaterThan(0)
    const bench = await benchOf(model, bytes(drawn[at]!))
    const left = 64 - 30 - at
    await bench.feed(
      event('s', text(30)),
      event('s', generate(30, { seed: 3 })),
      event('s', text(left + 1)),
      event('s', text(left)),
    )
    await bench.settle()
    expect(idsOf(await bench.generated())).toEqual(drawn.slice(0, at))
    expect(await reasons(bench)).toEqual([expect.stringMatching(/^context overflow: 65 positions/)])
    expect((await bench.heads()).get('s')!.conductor.globalStep).toBe(64)
    await verified(bench)
  })

  test('there is always room for the text that is held back', async () => {
    const bench = await benchOf(await gpt2(8))
    const half = (length: number): ChunkInput => ({ type: 'text', text: `${'x'.repeat(length)}\ud834` })
    await bench.feed(
      event('close', half(6)),
      event('close', half(5)),
      event('close', { type: 'close' }),
      event('generate', half(5)),
      event('generate', generate(3)),
      event('joined', half(4)),
      event('joined', { type: 'text', text: '\udd1e' }),
      event('joined', generate(3)),
    )
    await bench.settle()
    expect(await reasons(bench)).toEqual([
      expect.stringMatching(/^context overflow: 9 positions exceed the 8 .*"close"/),
    ])
    const heads = await bench.heads()
    expect(heads.get('close')).toMatchObject({ status: 'closed', totals: { tokens: 8 } })
    expect(heads.get('joined')).toMatchObject({ totals: { tokens: 8, generated: 0 }, cursor: { held: '' } })
    expect((await bench.generated()).map(({ ids, finish }) => [ids.length, finish])).toEqual([
      [0, 'context'],
      [0, 'context'],
    ])
    await verified(bench)
  })

  test('a boundary with reset, and an open after a close, begin anew with all positions', async () => {
    const bench = await benchOf(await gpt2(64))
    await bench.feed(
      event('s', text(60)),
      event('s', { type: 'boundary', reset: true }),
      event('s', text(60)),
      event('s', { type: 'close' }),
      event('s', { type: 'open' }),
      event('s', text(64)),
      event('s', text(1)),
    )
    await bench.settle()
    expect(await reasons(bench)).toHaveLength(1)
    expect((await bench.heads()).get('s')!.conductor).toMatchObject({ globalStep: 184, origin: 120 })
    await verified(bench)
  })

  test('a worker that takes over judges as the one before it would have, in the middle of a record, too', async () => {
    const bench = await benchOf(await gpt2(6000))
    await bench.feed(event('s', text(5900)), event('s', generate(80)), event('s', text(21)), event('s', text(20)))
    const running = await bench.start({ commitInterval: 0, snapshotEvery: 300 })
    await eventually(() => expect(running.commits.length).toBeGreaterThan(2))
    await running.worker.stop()
    const middle = (await bench.heads()).get('s')!
    expect(middle.cursor.complete && middle.cursor.offset === 3).toBe(false)
    await bench.settle()
    expect(await reasons(bench)).toEqual([expect.stringMatching(/^context overflow: 6001 positions exceed the 6000/)])
    expect((await bench.heads()).get('s')!.conductor.globalStep).toBe(6000)
    await verified(bench)
  })

  test('stopped inside a generation, it goes on to the same end of the context', { tags: 'slow' }, async () => {
    const model = await gpt2(6000)
    const [bench, reference] = [await benchOf(model), await benchOf(model)]
    for (const each of [bench, reference])
      await each.feed(event('s', text(20)), event('s', generate(7000, { seed: 4 })), event('s', text(1)))
    await reference.settle()
    const running = await bench.start({ commitInterval: 0, snapshotEvery: 500 })
    await eventually(() =>
      expect(running.commits.flatMap(({ steps }) => steps).some(({ head }) => head?.generation != null)).toBe(true),
    )
    await running.worker.stop()
    expect((await bench.heads()).get('s')!.generation!.index).toBeGreaterThan(0)
    await bench.settle()
    const events = await bench.generated()
    expect(idsOf(events)).toEqual(idsOf(await reference.generated()))
    expect(idsOf(events)).toHaveLength(5980)
    expect(events.at(-1)!.finish).toBe('context')
    expect((await bench.heads()).get('s')!.chain).toBe((await reference.heads()).get('s')!.chain)
    expect(await reasons(bench)).toEqual([expect.stringMatching(/^context overflow: 6001/)])
    await verified(bench)
  })

  test('windowed, a session reads on for ever; its log is not resumed by the model that refuses', async () => {
    const windowed = await gpt2(64, { threads: 1, overflow: 'window' })
    const dir = mkdtempSync(join(tmpdir(), 'continuo-'))
    onTestFinished(() => rmSync(dir, { recursive: true, force: true }))
    const url = `file:${join(dir, 'log.db')}`
    const bench = await benchOf(windowed, bytes(), url)
    await bench.feed(event('s', text(500)), event('s', generate(100)))
    await bench.settle()
    expect((await bench.heads()).get('s')!.conductor.globalStep).toBe(600)
    expect((await bench.generated()).at(-1)!.finish).toBe('length')
    await verified(bench)
    const other = await benchOf(await gpt2(64), bytes(), url)
    const running = await other.start()
    await eventually(() => expect(running.worker.refused.has(0)).toBe(true))
    expect(String(running.worker.refused.get(0))).toContain('state layout')
    await running.worker.stop()
  })
})

describe('a tokenizer with an end of text', () => {
  /** What a request draws that nothing ends. */
  const freely = async (model: Model, more: object): Promise<number[]> => {
    const bench = await benchOf(model)
    await bench.feed(event('s', text(30)), event('s', generate(40, more)))
    await bench.settle()
    return idsOf(await bench.generated())
  }

  test.each([
    ['one token at a time', { stop: ['no such text'] }],
    ['in slices', {}],
  ])('ends a generation where it is drawn, %s; it is neither emitted nor fed', async (_, how) => {
    const model = await gpt2(128)
    const drawn = await freely(model, { seed: 5, ...how })
    const firsts = drawn.flatMap((id, at) => (drawn.indexOf(id) === at ? [at] : []))
    // At the beginning, inside a slice, and right behind one: there the end is an event without tokens.
    expect(firsts).toEqual(expect.arrayContaining([0, 3, MAX_RUN]))
    for (const at of [0, 3, MAX_RUN]) {
      const bench = await benchOf(model, bytes(drawn[at]!))
      await bench.feed(event('s', text(30)), event('s', generate(40, { seed: 5, ...how })), event('s', text(4)))
      await bench.settle()
      const events = await bench.generated()
      expect(idsOf(events)).toEqual(drawn.slice(0, at))
      expect(events.map(({ finish }) => finish)).toEqual([...events.slice(1).map(() => null), 'eos'])
      expect(events.at(-1)!.ids).toHaveLength(at % MAX_RUN)
      await verified(bench)
      // The session stands as if what came out had been sent to it.
      const fed = await benchOf(model)
      await fed.feed(
        event('s', text(30)),
        event('s', { type: 'tokens', tokens: drawn.slice(0, at) }),
        event('s', text(4)),
      )
      await fed.settle()
      expect((await bench.heads()).get('s')!.chain).toBe((await fed.heads()).get('s')!.chain)
    }
  })

  test('an end without tokens behind the snapshot is restored and verified, also where all before it is gone', async () => {
    const model = await gpt2(128)
    const drawn = await freely(model, { seed: 5 })
    const bench = await benchOf(model, bytes(drawn[MAX_RUN]!))
    await bench.feed(event('s', text(30)), event('s', generate(40, { seed: 5 })))
    // The state is saved at the step before the last, at the same pulse.
    await bench.settle({ snapshotEvery: 30 + MAX_RUN })
    const head = (await bench.heads()).get('s')!
    expect(head.cursor).toMatchObject({ offset: 1, complete: true, pulse: 30 + MAX_RUN })
    expect(head.snapshot!.pulse).toBe(30 + MAX_RUN)
    await verified(bench)
    await bench.log.trim(bench.names.chunks, 0, 1)
    await verified(bench)
    await bench.feed(event('s', text(4)))
    const { restored } = await bench.settle()
    expect(restored).toEqual(['s'])
    await verified(bench)
  })

  test('left at any step of the generation, the session comes to the same end', async () => {
    const model = await gpt2(128)
    const drawn = await freely(model, { seed: 5 })
    const tokenizer = bytes(drawn[MAX_RUN]!)
    const engine = {
      model,
      tokenizer,
      submit: model.submit,
    }
    const records = [text(30), generate(40, { seed: 5 })].map((chunk, offset): Valid => {
      const { key, value } = event('s', chunk)
      const record = { topic: 't', partition: 0, offset, timestamp: 0, key, value, headers: [] }
      return validateRecord(record, { format: 'json', vocabSize: 256, readsText: true }) as Valid
    })
    /** Runs both events, leaving the iteration after each of `leaves` steps and beginning again. */
    const run = async (leaves: readonly number[]) => {
      const context = model.createContext()
      let session: SessionState | null = null
      const outputs: Output[] = []
      let steps = 0
      for (const record of records) {
        for (let done = false; !done; ) {
          const work = tokenizeEvent(record, session?.head, tokenizer, model)
          if (work.kind === 'rejected') throw new Error(work.reason)
          const fresh: boolean = session === null
          session ??= initialSession(work, model, context)
          for await (const step of advance(session, work, fresh, engine)) {
            outputs.push(...step.outputs)
            steps += 1
            done = step.done
            if (leaves.includes(steps)) break
          }
        }
      }
      context.close()
      return { outputs, head: session!.head, steps }
    }
    const whole = await run([])
    expect(whole.steps).toBe(3)
    expect(whole.outputs.at(-1)).toMatchObject({ value: { ids: [], finish: 'eos' } })
    expect(await run([1])).toEqual(whole)
    expect(await run([2])).toEqual(whole)
    expect(await run([1, 2])).toEqual(whole)
  })
})
