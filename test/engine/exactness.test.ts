/**
 * One arithmetic, all of it at once: instruction sets × threads × chunks × batches, on plain and on quantised weights,
 * with every family.
 */
import { beforeAll, describe, expect, it } from 'vitest'
import { type IsaCase, judge, runExactness } from '../../src/cli/bench/exactness.ts'
import { quantizePackage } from '../../src/models/quantize/quantize.ts'
import { FAMILIES, openFamily } from '../families.ts'
import { newOut } from '../models/helpers.ts'
import { randomRwkv7, safetensors, temporaryFolder, writePackage } from './packages.ts'

// Odd sizes: edges of tiles, groups and blocks, and a matrix whose rows take more than one block of 256 terms.
const SIZES = { L: 2, H: 2, N: 18, F: 259, V: 131, D: { w: 5, a: 7, v: 3, g: 11 } }
/** Thousands of runs, beside whatever else computes. */
const PATIENCE = 900_000
const FULL = { threads: [1, 2, 3], chunks: [1, 7, 64, 512], batches: [1, 3, 16], tokens: 530 }

describe.each([
  {
    name: 'exactness',
    matrix: { ...FULL, threads: [1, 3], chunks: [7, 512], batches: [1, 16], tokens: 300 },
    tags: [],
  },
  { name: 'exactness, of more threads, chunks and batches', matrix: FULL, tags: ['slow'] },
])('$name', ({ matrix, tags }) => {
  const combinations = matrix.threads.length * matrix.chunks.length * matrix.batches.length
  const dirs: string[] = []
  let cases: readonly IsaCase[] = []
  let ran: readonly string[] = []
  beforeAll(async () => {
    const plain = writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(5, SIZES), 'BF16'))
    dirs.push(plain)
    for (const to of ['q8', 'i4', 'ternary'] as const) {
      const out = newOut()
      await quantizePackage({ dir: plain, out, to, group: 32 })
      dirs.push(out)
    }
    ;({ cases, ran } = await runExactness({ dirs, matrix }))
  }, PATIENCE)

  it.each([
    ['bf16', 0],
    ['q8', 1],
    ['i4', 2],
    ['ternary', 3],
  ])('%s weights give one chain, one set of surprisals, tokens and logits in every combination', { tags }, (_, at) => {
    const own = cases.filter(({ dir }) => dir === dirs[at])
    expect(ran).toContain('generic')
    expect(own).toHaveLength(ran.length * combinations)
    expect(judge(own)).toEqual({
      combinations: own.length,
      same: own.length,
      differing: [],
      chains: { [dirs[at]!]: expect.stringMatching(/^[0-9a-f]{32}$/) },
    })
  })

  it('the four kinds of weights are four computations, and no two sessions of a batch are one', { tags }, () => {
    const widest = dirs.map((dir) => cases.find((one) => one.dir === dir && one.batch === 16)!.prints)
    expect(new Set(widest.flat()).size).toBe(4 * 16)
  })

  it('a single session that differs in a single case is found and named', { tags }, () => {
    const spoilt = cases.map((one, at) =>
      at === cases.length - 1 ? { ...one, prints: one.prints.with(5, 'other bits') } : one,
    )
    expect(judge(spoilt)).toMatchObject({
      same: cases.length - 1,
      differing: [{ case: `${ran.at(-1)}, 3 threads, chunks of 512, batch of 16`, session: 5 }],
    })
  })
})

describe.each([
  {
    name: 'exactness of every family',
    matrix: { threads: [1, 3], chunks: [7, 150], batches: [4], tokens: 110 },
    tags: [],
  },
  {
    name: 'exactness of every family, of more chunks and batches',
    matrix: { threads: [1, 3], chunks: [1, 7, 150], batches: [1, 4], tokens: 110 },
    tags: ['slow'],
  },
])('$name', ({ matrix, tags }) => {
  // The cases open packages without a window; RWKV-7 is above.
  const families = FAMILIES.filter(({ large, overflow }) => large !== true && overflow !== 'window')
  const dirs = new Map<string, string>()
  let all: Awaited<ReturnType<typeof runExactness>>
  beforeAll(async () => {
    for (const { key } of families) dirs.set(key, (await openFamily(key, temporaryFolder())).dir)
    all = await runExactness({ dirs: [...dirs.values()], matrix })
  }, PATIENCE)

  it.each(families)('$name: one chain, one set of surprisals, tokens and logits in every combination', { tags }, ({
    key,
  }) => {
    const own = all.cases.filter(({ dir }) => dir === dirs.get(key))
    expect(own).toHaveLength(all.ran.length * matrix.threads.length * matrix.chunks.length * matrix.batches.length)
    expect(judge(own).differing).toEqual([])
  })

  it('they are as many computations as families', { tags }, () => {
    const chains = families.map(({ key }) => judge(all.cases).chains[dirs.get(key)!])
    expect(new Set(chains).size).toBe(families.length)
  })
})
