// @module-tag slow
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { measureLong } from '../../src/cli/bench/long.ts'
import { type Measure, runRounds } from '../../src/cli/bench/measure.ts'
import { quantile, spread } from '../../src/cli/bench/statistics.ts'
import { tokenWork } from '../../src/cli/bench/work.ts'
import { open } from '../engine/helpers.ts'
import { randomRwkv7, safetensors, writePackage } from '../engine/packages.ts'
import { newOut, q8 } from '../models/helpers.ts'
import { continuo, json, start, temporary } from './helpers.ts'

interface Figure {
  readonly median: number
  readonly min: number
  readonly max: number
}
type Found = Readonly<Record<string, Readonly<Record<string, unknown>>>>

const SIZES = { L: 2, H: 2, N: 32, F: 100, V: 70, D: { w: 8, a: 8, v: 8, g: 16 } }
const TINY = { L: 2, H: 1, N: 20, F: 24, V: 30, D: { w: 3, a: 3, v: 3, g: 3 } }
const small = (sizes = SIZES): string =>
  writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(1, sizes), 'BF16'))

describe('continuo bench', () => {
  it('measures all that needs no name, on the shipped model, in figures that hang together', async () => {
    const [found] = await json<Found>('bench', '--rounds', '2', '--threads', '1', '--sessions', '3')
    expect(found).toMatchObject({ threads: 1, rounds: 2, complete: true, model: { modelType: 'rwkv7' } })
    expect(found).not.toHaveProperty('long')
    expect(found).not.toHaveProperty('exactness')
    const { decode, prefill, sessions, snapshot, commit } = found!
    const { state, surprisal } = prefill as unknown as Record<string, { tokensPerSecond: Figure }>
    const figures = [
      decode!.tokensPerSecond,
      decode!.weightBytesPerSecond,
      decode!.memoryBytesPerSecond,
      decode!.fractionOfMemory,
      state!.tokensPerSecond,
      surprisal!.tokensPerSecond,
      sessions!.tokensPerSecond,
      sessions!.timesOneSession,
      snapshot!.serializeMs,
      snapshot!.restoreMs,
    ] as Figure[]
    for (const { median, min, max } of figures) {
      expect(min).toBeGreaterThan(0)
      expect(median).toBeGreaterThanOrEqual(min)
      expect(max).toBeGreaterThanOrEqual(median)
    }
    const bytesPerToken = decode!.weightBytesPerToken as number
    const [speed, weights] = figures as [Figure, Figure]
    expect(weights.max / speed.max).toBeCloseTo(bytesPerToken, 0)
    // A context of 6 layers: the inputs before, the matrix memory, and the last hidden vector, in f32.
    expect(snapshot!.bytes).toBe(4 * (6 * (192 + 192 + 3 * 64 * 64) + 192))
    expect(commit).toMatchObject({ commits: 20 })
    expect(commit!.p99Ms).toBeGreaterThanOrEqual(commit!.p50Ms as number)
  })

  it('measures only what is named, and shows people a table', async () => {
    const { code, out, err } = await continuo([
      'bench',
      '--only',
      'snapshot,decode',
      '--rounds',
      '1',
      '--model',
      small(),
    ])
    expect({ code, err }).toMatchObject({ code: 0 })
    expect(out).toMatch(/rwkv7, [\d,]+ parameters, \w+, \d+ threads?, 1 round\n/)
    expect(out).toMatch(/^decode +tokens\/s, one session +[\d,]+ +[\d,]+ … [\d,]+$/m)
    expect(out).toMatch(/^snapshot +ms to copy a context/m)
    expect(out).not.toMatch(/prefill|sessions together|commit/)
  })

  it.each([
    [['--only', 'decode,prefil'], '"prefil" is none of them. Did you mean prefill?'],
    [['--only', ''], '--only needs a value'],
    [['--only', 'decode,'], '"" is none of them.'],
    [['--threads', '0'], '--threads takes a whole number from 1 to 256; "0" is none.'],
    [['--threads', '257'], '--threads takes a whole number from 1 to 256; "257" is none.'],
    [['--rounds', '0'], '--rounds takes a whole number'],
    [['--sessions', '1'], '--sessions takes a whole number from 2 to 1024; "1" is none.'],
    [['--only', 'decode', '--sessions', '4'], '--sessions goes with --only sessions;'],
    [['--only', 'exactness', '--rounds', '4'], '--rounds goes with --only decode, prefill'],
  ])('refuses %j with 2 and a sentence', async (argv, part) => {
    const { code, out, err } = await continuo(['bench', ...argv])
    expect({ code, out }).toEqual({ code: 2, out: '' })
    expect(err).toContain(part)
    expect(err.trim().split('\n')).toHaveLength(1)
  })

  it('says of a model that is not there what it looked for', async () => {
    const missing = join(temporary(), 'nowhere')
    const { code, out, err } = await continuo(['bench', '--model', missing])
    expect({ code, out }).toEqual({ code: 1, out: '' })
    expect(err).toContain(`${missing} is not a model package`)
    expect(err).toContain('Expected a folder with config.json and model.safetensors')
  })

  it('ends on Ctrl-C with what was measured so far', async () => {
    const running = start(['bench', '--only', 'snapshot', '--rounds', '100000', '--model', small()])
    await running.saw(/round [\d,]+: snapshot/)
    running.child.kill('SIGINT')
    const { code, out, err } = await running.done
    expect(code).toBe(130)
    expect(err).toContain('Stopping: what was measured so far follows.')
    expect(out).toMatch(/^snapshot +ms to copy a context/m)
  })

  it('exactness runs every combination on a quantised model, and says that all gave one chain', async () => {
    const out = newOut()
    await q8(small(TINY), out)
    const [found] = await json<Found>('bench', '--only', 'exactness', '--model', out)
    expect(found).toMatchObject({ rounds: 0, complete: true })
    const { combinations, same, differing, chain, isas } = found!.exactness!
    expect(isas).toContain('generic')
    expect({ combinations, same, differing }).toEqual({
      combinations: (isas as string[]).length * 3 * 4 * 3,
      same: combinations,
      differing: [],
    })
    expect(chain).toMatch(/^[0-9a-f]{32}$/)
  })
})

describe('the parts of the bench', () => {
  it('long compares a session at its end with one at token 1,000, and with itself at its beginning', async () => {
    const model = await open(small())
    const { begin, end } = await measureLong({
      model,
      tokens: 20_000,
      stretches: 3,
      signal: new AbortController().signal,
    })
    expect(begin!.from).toBe(1000)
    expect(end!.from).toBe(20_000 - 3 * 512)
    expect(end!.contextBytes).toBe(begin!.contextBytes)
    for (const { ratio } of [begin!, end!]) expect(ratio.median).toBeGreaterThan(0)
  })

  it('long gives what it has when it is stopped', async () => {
    const stopping = new AbortController()
    const model = await open(small())
    const { begin, end } = await measureLong({
      model,
      stretches: 1,
      signal: stopping.signal,
      onProgress: (tokens) => {
        if (tokens > 1512) stopping.abort()
      },
    })
    expect(begin).not.toBeNull()
    expect(end).toBeNull()
  })

  it('counts the weights that a token meets, in the bytes of their storage and padded to tiles of 64 outputs', async () => {
    const dir = small()
    const [C, D, tile] = [64, { w: 8, a: 8, v: 8, g: 16 }, 64]
    const lowRank = (l: number): number => 2 * C * (D.w + D.a + D.g + (l === 0 ? 0 : D.v))
    const step = [0, 1].reduce((sum, l) => sum + 4 * C * C + 2 * C * 100 + lowRank(l), 0)
    // Of a low-rank pair, the first has fewer outputs than a tile; the second has C.
    const padded = [0, 1].reduce(
      (sum, l) => sum + 4 * C * C + C * 128 + C * 100 + (l === 0 ? 3 : 4) * tile * C + lowRank(l) / 2,
      0,
    )
    expect(await tokenWork(dir)).toEqual({
      step: { weights: step, bytes: 2 * padded },
      predict: { weights: 70 * C, bytes: 2 * 128 * C },
    })
    const out = newOut()
    await q8(dir, out)
    // 64 inputs are two groups of 32 codes and a scale of two bytes.
    expect((await tokenWork(out)).predict).toEqual({ weights: 70 * C, bytes: 128 * 2 * (32 + 2) })
  })

  it('rounds take turns, the first is left out, and a stop keeps what was sampled', async () => {
    const order: string[] = []
    const stopping = new AbortController()
    const counting = (name: string, last: number): Measure => {
      let n = 0
      return {
        name,
        async sample() {
          order.push(name)
          if (n === last) stopping.abort()
          return { n: n++ }
        },
        report: () => ({ values: {}, rows: [] }),
        close: async () => {},
      }
    }
    const [a, b] = [counting('a', 2), counting('b', 9)]
    const { rounds, samples } = await runRounds({
      measures: [a, b],
      rounds: 5,
      signal: stopping.signal,
      onSample: () => {},
    })
    expect(order).toEqual(['a', 'b', 'a', 'b', 'a'])
    expect(rounds).toBe(1)
    expect(samples.get(a)).toEqual({ n: [1, 2] })
    expect(samples.get(b)).toEqual({ n: [1] })
  })

  it('a quantile is one of the values', () => {
    expect(quantile([3, 1, 2], 0.5)).toBe(2)
    expect(quantile([5], 0.99)).toBe(5)
    expect(spread([4, 9, 1])).toEqual({ median: 4, min: 1, max: 9 })
  })
})
