/** The bridge to the host: what may be written, what can be read, what a step leaves behind. */
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import { buildGraph, type GraphBuilder } from '../../src/engine/builder.ts'
import { plus, ref, ring, type Value } from '../../src/engine/builder-types.ts'
import { openGraph } from '../../src/engine/engine.ts'
import type { Executor, ExecutorOptions } from '../../src/engine/executor-types.ts'
import type { Dtype } from '../../src/engine/graph.ts'
import { errorOf, sameBytes, testDevice } from './helpers.ts'
import { safetensors, writePackage } from './packages.ts'

const weights = new Map([
  ['double', { shape: [4], data: Float32Array.of(2, 2, 2, 2) }],
  ['flip', { shape: [4, 4], data: Float32Array.of(0, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 1, 0, 0, 0) }],
])

interface Inputs {
  readonly x: Value
  readonly yes: Value<'bool'>
  readonly at: Value<'i32'>
}
/** An executor over one block "run" of f32 x [4], bool yes and i32 at. */
const run = async (
  body: (g: GraphBuilder, inputs: Inputs) => Readonly<Record<string, Value<Dtype>>>,
  options: ExecutorOptions = {},
): Promise<Executor> => {
  const g = buildGraph()
  const inputs = { x: g.dynamic('x', [4], 'f32'), yes: g.dynamic('yes', [], 'bool'), at: g.dynamic('at', [], 'i32') }
  g.block('run', [inputs.x, inputs.yes, inputs.at], () => body(g, inputs))
  const model = await openGraph(g.finish(), join(writePackage({}, safetensors(weights)), 'model.safetensors'), {
    threads: 2,
    ...testDevice,
  })
  onTestFinished(() => model.close())
  return model.createExecutor(options)
}
const step = async (
  executor: Executor,
  x: readonly number[],
  yes: readonly number[],
  at: readonly number[],
): Promise<void> => {
  executor.insert('x', x)
  executor.insert('yes', yes)
  executor.insert('at', at)
  await executor.step()
}
const list = (executor: Executor, name: string): number[] => Array.from(executor.fetch(name).data, Number)

describe('executor', () => {
  it('inserts dynamics, steps, fetches results and persistents', async () => {
    const executor = await run((g, { x }) => {
      const y = g.matmul(
        'y',
        g.mul('twice', x, g.vector('two', 4, ref('double'))),
        g.matrix('flip', [4, 4], ref('flip')),
      )
      return { y, before: g.cacheShift('before', g.table('kept', [4], { init: 7 })(), y) }
    })
    await step(executor, [1, 2, 3, 4, 5, 6, 7, 8], [1, 1], [0, 0])
    expect(executor.fetch('y')).toMatchObject({ dtype: 'F32', shape: [2, 4] })
    expect(list(executor, 'y')).toEqual([8, 6, 4, 2, 16, 14, 12, 10])
    expect(list(executor, 'before')).toEqual([7, 7, 7, 7, 8, 6, 4, 2])
    expect(executor.fetch('kept')).toEqual({ dtype: 'F32', shape: [4], data: Float32Array.of(16, 14, 12, 10) })
    // Persistents go on; they travel with the context.
    const state = executor.context.serialize()
    await step(executor, [1, 1, 1, 1], [0], [0])
    expect(list(executor, 'before')).toEqual([16, 14, 12, 10])
    executor.context.restore(state, executor.context)
    expect(list(executor, 'kept')).toEqual([16, 14, 12, 10])
  })

  it('only what may be written can be written, and only what lasts can be read', async () => {
    const executor = await run((g, { x }) => {
      const t = g.tanh('t', x)
      const y = g.sigmoid('y', g.mul('z', t, g.vector('two', 4, ref('double'))))
      g.cacheWrite(g.table('S', [4])(), y)
      return { y }
    })
    const says = async (call: () => unknown) => (await errorOf(call)).message
    expect(await says(() => executor.insert('two', [1, 2, 3, 4]))).toMatch(/"two" is constant: nobody writes it/)
    expect(await says(() => executor.insert('t', [1, 2, 3, 4]))).toMatch(/"t" is volatile: only the graph writes it/)
    expect(await says(() => executor.insert('S', [1, 2, 3, 4]))).toMatch(/"S" is persistent: only the graph writes it/)
    expect(await says(() => executor.insert('u', [1]))).toMatch(/declares no "u"/)
    expect(await says(() => executor.insert('x', [1, 2, 3]))).toMatch(/3 elements, expected a multiple of 4/)
    expect(await says(() => executor.insert('x', Int32Array.of(1, 2, 3, 4)))).toMatch(/is f32, expected a Float32Array/)
    expect(await says(() => executor.insert('at', [0.5]))).toMatch(/Element 0 of "at" is 0.5, expected a whole number/)
    expect(await says(() => executor.fetch('y'))).toMatch(/nothing to fetch before the first step/)
    expect(await says(() => executor.step('walk'))).toMatch(/no block "walk"/)
    executor.insert('x', [1, 2, 3, 4])
    expect(await says(() => executor.step())).toMatch(/needs "yes"; insert it before the step/)
    executor.insert('yes', [1, 0])
    executor.insert('at', [0])
    expect(await says(() => executor.step())).toMatch(/"yes" was given 2 rows and "x" 1/)
    executor.insert('yes', [1])
    await executor.step()
    // Dynamics are cleared by the step.
    expect(await says(() => executor.step())).toMatch(/needs "x"/)
    expect(await says(() => executor.fetch('x'))).toMatch(/dynamic and was cleared by the step/)
    expect(list(executor, 'two')).toEqual([2, 2, 2, 2])
    expect(await says(() => executor.fetch('t'))).toMatch(/planned into memory that later nodes/)
    expect(await says(() => executor.trace())).toMatch(/trace: true/)
    expect(list(executor, 'y')).toHaveLength(4)
    executor.insert('x', new Float32Array(4 * 129))
    executor.insert('yes', new Uint8Array(129))
    executor.insert('at', new Int32Array(129))
    expect(await says(() => executor.step())).toMatch(/129 rows, expected 1 to 128/)
  })

  it('without memory reuse every volatile can be fetched, with the same bits', async () => {
    const body = (g: GraphBuilder, { x }: Inputs) => {
      const t = g.tanh('t', x)
      return { y: g.sigmoid('y', g.mul('z', t, t)) }
    }
    const [planned, apart] = [await run(body), await run(body, { memoryReuse: false })]
    for (const executor of [planned, apart]) await step(executor, [1, -2, 3, 4], [1], [0])
    expect(apart.fetch('y').data).toEqual(planned.fetch('y').data)
    list(apart, 't').forEach((t, i) => {
      expect(t).toBeCloseTo(Math.tanh([1, -2, 3, 4][i]!), 6)
    })
  })

  it('branches by row, ends rows early, and resets what an arm did not write', async () => {
    const executor = await run(
      (g, { x, yes }) => {
        const n = g.counter('n', { max: 100 })
        const small = g.less('small', g.cacheCount('count', n), 2)
        const y = g.tanh('y', x)
        g.branch(
          yes,
          () => {
            g.mul('doubled', x, g.vector('two', 4, ref('double')))
            g.cacheIncrement(n)
            g.branch(small, () => g.returns({ y, small }))
          },
          () => {
            g.add('y', y, x)
          },
        )
        g.cacheWrite(g.table('S', [4])(), x)
        return { y, small }
      },
      { memoryReuse: false },
    )
    // Rows: yes, no, yes, yes, yes: the first two "yes" end early, so S holds the last row, and then only later ones
    // write.
    await step(executor, [0, 0, 0, 0, 1, 1, 1, 1, 2, 2, 2, 2, 3, 3, 3, 3, 4, 4, 4, 4], [1, 0, 1, 1, 1], [0, 0, 0, 0, 0])
    expect(list(executor, 'small')).toEqual([1, 1, 1, 0, 0])
    expect(list(executor, 'n')).toEqual([4])
    expect(list(executor, 'S')).toEqual([4, 4, 4, 4])
    expect(list(executor, 'doubled').filter((_, i) => i % 4 === 0)).toEqual([0, 0, 4, 6, 8])
    expect(list(executor, 'y')[4]).toBeCloseTo(Math.tanh(1) + 1, 6)
    await step(executor, [5, 5, 5, 5], [0], [0])
    expect(list(executor, 'doubled')).toEqual([0, 0, 0, 0])
  })

  it('counts up and down, forgets what it leaves, and faults outside an axis by name', async () => {
    const body = (g: GraphBuilder, { x, yes, at }: Inputs) => {
      const n = g.counter('n', { max: 3 })
      const K = g.table('K', [{ grows: n }, 4], { init: -1 })
      g.branch(
        yes,
        () => {
          g.cacheIncrement(n)
          g.cacheWrite(K(plus(n, -1)), x)
        },
        () => g.cacheDecrement(n),
      )
      return { y: g.cacheRead('y', K(at)) }
    }
    const executor = await run(body)
    await step(executor, [1, 1, 1, 1, 2, 2, 2, 2], [1, 1], [0, 1])
    expect(list(executor, 'y')).toEqual([1, 1, 1, 1, 2, 2, 2, 2])
    expect(executor.fetch('K')).toMatchObject({ shape: [2, 4] })
    await step(executor, [0, 0, 0, 0], [0], [0])
    expect(executor.fetch('K')).toMatchObject({ shape: [1, 4], data: Float32Array.of(1, 1, 1, 1) })
    expect(executor.fetch('n')).toEqual({ dtype: 'I64', shape: [], data: BigInt64Array.of(1n) })
    const state = executor.context.serialize()
    const fails = async (x: number, yes: readonly number[], at: readonly number[], says: RegExp) => {
      const error = await errorOf(() =>
        step(
          executor,
          yes.flatMap(() => [x, x, x, x]),
          yes,
          at,
        ),
      )
      expect(error.message).toMatch(says)
      expect(error.code).toBe('REFUSED')
      // A row that could not be done leaves the context to be restored.
      expect((await errorOf(() => step(executor, [1, 1, 1, 1], [1], [0]))).message).toMatch(/reset or restore/)
      executor.context.restore(state, executor.context)
    }
    await fails(1, [1], [2], /cache\.read "y": position 2 of "K" is not there, expected 0 to 1/)
    await fails(1, [1], [-1], /position -1 of "K" is not there/)
    await fails(1, [1, 1, 1], [0, 0, 0], /cache\.increment "n": the counter would become 4, expected 0 to 3/)
    await fails(1, [0, 0], [0, 0], /not there|would become -1/)
    expect(sameBytes(executor.context.serialize(), state)).toBe(true)
  })

  it('a ring remembers as many positions as it has places, whatever the chunks', async () => {
    const executor = await run((g, { x, at }) => {
      const n = g.counter('n')
      const K = g.table('K', [ring(3, n), 4])
      g.cacheIncrement(n)
      g.cacheWrite(K(plus(n, -1)), x)
      return { y: g.cacheRead('y', K(at)) }
    })
    const rows = (from: number, to: number) => Array.from({ length: to - from }, (_, i) => from + i)
    await step(
      executor,
      rows(0, 7).flatMap((t) => [t, t, t, t]),
      rows(0, 7).map(() => 1),
      [0, 0, 0, 1, 2, 3, 4],
    )
    expect(list(executor, 'y').filter((_, i) => i % 4 === 0)).toEqual([0, 0, 0, 1, 2, 3, 4])
    expect(list(executor, 'K').filter((_, i) => i % 4 === 0)).toEqual([6, 4, 5])
    expect((await errorOf(() => step(executor, [7, 7, 7, 7], [1], [4]))).message).toMatch(
      /position 4 of "K" is not there, expected 5 to 7/,
    )
  })

  it('a ring forgets with its counter, as far as its positions were left', async () => {
    const executor = await run((g, { x, yes, at }) => {
      const n = g.counter('n')
      const K = g.table('K', [2, ring(3, n), 4], { init: 9 })
      g.cacheIncrement(n)
      g.branch(g.equal('seven', at, 7), () => g.cacheDecrement(n, 2))
      g.branch(g.equal('eight', at, 8), () => g.cacheReset(n))
      g.branch(yes, () => g.cacheWrite(K(1, plus(n, -1)), x))
      return { y: g.tanh('y', x) }
    })
    const places = () => list(executor, 'K').filter((_, i) => i % 4 === 0)
    for (const t of [1, 2, 3, 4, 5]) await step(executor, [t, t, t, t], [1], [0])
    expect(places()).toEqual([9, 9, 9, 4, 5, 3])
    // Position 4 is left, and the 5 that was just entered; place 0 still holds position 3.
    await step(executor, [6, 6, 6, 6], [0], [7])
    expect(places()).toEqual([9, 9, 9, 4, 9, 9])
    await step(executor, [7, 7, 7, 7], [0], [8])
    expect(places()).toEqual([9, 9, 9, 9, 9, 9])
    expect(list(executor, 'n')).toEqual([0])
  })

  it('casts are explicit, round to nearest even, and show what does not fit', async () => {
    const types = ['f16', 'bf16', 'f8', 'i8', 'u8', 'i32', 'bool'] as const
    const executor = await run((g, { x }) => {
      const out: Record<string, Value<Dtype>> = {}
      for (const type of types) {
        const narrow = g.cast(type, x, type)
        g.cacheWrite(g.table(`S.${type}`, [4], { dtype: type })(), narrow)
        out[`${type}.back`] = g.cast(`${type}.back`, narrow, 'f32')
      }
      return out
    })
    await step(executor, [2.5, -0.2, 300, 1 / 3], [1], [0])
    expect(list(executor, 'f16.back')).toEqual([2.5, -0.199951171875, 300, 0.333251953125])
    expect(list(executor, 'bf16.back')).toEqual([2.5, -0.2001953125, 300, 0.333984375])
    expect(list(executor, 'f8.back')).toEqual([2.5, -0.203125, 288, 0.34375])
    expect(list(executor, 'i8.back')).toEqual([2, 0, 127, 0])
    expect(list(executor, 'u8.back')).toEqual([2, 0, 255, 0])
    expect(list(executor, 'i32.back')).toEqual([2, 0, 300, 0])
    expect(list(executor, 'bool.back')).toEqual([1, 1, 1, 1])
    expect(executor.fetch('S.f8').data).toEqual(Uint8Array.of(0x42, 0xa5, 0x79, 0x2b))
    expect(types.map((type) => executor.fetch(`S.${type}`).dtype)).toEqual([
      'F16',
      'BF16',
      'F8_E4M3',
      'I8',
      'U8',
      'I32',
      'BOOL',
    ])
    await step(executor, [1e6, -1e6, 460, 0], [1], [0])
    expect(list(executor, 'f16.back')).toEqual([Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY, 460, 0])
    expect(list(executor, 'f8.back')).toEqual([Number.NaN, Number.NaN, 448, 0])
    await step(executor, [465, 1e-7, 2 ** -9, 2 ** -10], [1], [0])
    expect(list(executor, 'f8.back')).toEqual([Number.NaN, 0, 2 ** -9, 0])
  })

  it('comparisons and remainders, of numbers and of values', async () => {
    const executor = await run((g, { at }) => {
      const three = g.remainder('three', at, 3)
      return {
        three,
        less: g.less('less', at, three),
        two: g.equal('two', three, 2),
        self: g.equal('self', three, three),
      }
    })
    await step(executor, new Array(16).fill(0), [1, 1, 1, 1], [5, -1, 6, 1])
    expect(list(executor, 'three')).toEqual([2, 2, 0, 1])
    expect(list(executor, 'less')).toEqual([0, 1, 0, 0])
    expect(list(executor, 'two')).toEqual([1, 1, 0, 0])
    expect(list(executor, 'self')).toEqual([1, 1, 1, 1])
  })

  it('traces every node with op, shape, rows, time and bytes', async () => {
    const executor = await run(
      (g, { x }) => {
        const y = g.matmul('y', g.tanh('t', x), g.matrix('flip', [4, 4], ref('flip')))
        return { y, before: g.cacheShift('before', g.table('kept', [4])(), y) }
      },
      { trace: true },
    )
    await step(executor, [1, 2, 3, 4, 5, 6, 7, 8], [1, 1], [0, 0])
    const trace = executor.trace()
    expect(trace.map(({ node, shape, rows }) => [node, shape, rows])).toEqual([
      ['tanh "t"', [4], 2],
      ['matmul "y"', [4], 2],
      ['cache.shift "before"', [4], 2],
    ])
    for (const { microseconds, bytes } of trace) {
      expect(microseconds).toBeGreaterThan(0)
      expect(bytes).toBeGreaterThanOrEqual(2 * 2 * 16)
    }
  })

  it('the watch names the first node that gave a number that is not finite', async () => {
    const executor = await run(
      (g, { x }) => {
        const big = g.mul('big', x, x)
        const odd = g.lerp('odd', big, big, x)
        return { y: g.tanh('y', odd) }
      },
      { watch: true },
    )
    await step(executor, [1, 2, 3, 4], [1], [0])
    const error = await errorOf(() => step(executor, [1, 2, 1e30, 4], [1], [0]))
    expect(error.message).toMatch(/first node to give a number that is not finite was mul "big"/)
  })
})
