/** One arithmetic across instruction sets: the whole engine, forced to each in a process of its own. */
import { execFile } from 'node:child_process'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { randomRwkv7, safetensors, writePackage } from './packages.ts'

const open = new URL('../../src/models/open.ts', import.meta.url).href
// Odd sizes: edges of tiles, panels and blocks of every width.
const sizes = { L: 2, H: 3, N: 24, F: 301, V: 259, D: { w: 5, a: 7, v: 3, g: 11 } }
const dirs: string[] = []
beforeAll(() => {
  for (const dtype of ['F32', 'F16', 'BF16'] as const)
    dirs.push(writePackage({ model_type: 'rwkv7' }, safetensors(randomRwkv7(3, sizes), dtype)))
})

/** Chain and sum of surprisals after reading in odd pieces and generating, and the bits of the last logits. */
const compute = async (isa: string): Promise<string> => {
  const script = `
    import { createHash } from 'node:crypto'
    const { openModel } = await import(${JSON.stringify(open)})
    for (const dir of ${JSON.stringify(dirs)}) {
      const model = await openModel(dir, { threads: 2 })
      const [one, two] = [model.createContext(), model.createContext()]
      const ids = Int32Array.from({ length: 300 }, (_, i) => (i * 7919 + 13) % 259)
      const hash = createHash('sha256')
      for (const [from, to] of [[0, 1], [1, 14], [14, 27], [27, 300]]) {
        const tokens = ids.subarray(from, to)
        const results = await model.process([{ context: one, tokens, nats: true }, { context: two, tokens: ids.subarray(0, 5), nats: false }])
        hash.update(results[0].nats)
      }
      const counts = new Map(Array.from({ length: 60 }, (_, i) => [ids[i], 1 + i % 3]))
      const penalties = { repetition: 1.3, presence: 0.7, frequency: 0.1, counts }
      const drawing = { temperature: 0.9, topK: 50, topP: 0.9, seed: 7n, minP: 0.01, topLogprobs: 5, logitBias: new Map([[3, 1.7], [9, -3]]) }
      const generate = { ...drawing, penalties, count: 20 }
      const [drawn] = await model.process([{ context: one, tokens: new Int32Array(0), nats: false, generate }, { context: two, tokens: ids, nats: false }])
      hash.update(drawn.generated).update(drawn.top).update(drawn.topLogprobs)
      hash.update(await model.logits(one))
      console.log(one.chain, two.chain, hash.digest('hex'))
    }`
  const { stdout } = await promisify(execFile)(process.execPath, ['--input-type=module', '--eval', script], {
    env: { ...process.env, CONTINUO_ISA: isa },
  })
  return stdout
}

describe('CONTINUO_ISA', () => {
  it('generic, avx2 and avx512 give the same chains, surprisals, tokens and logits to the last bit', async () => {
    const refusal = await compute('none').catch((error: { stderr: string }) => error.stderr)
    expect(refusal).toContain('CONTINUO_ISA is "none", expected one that this CPU runs: ')
    const runnable = /this CPU runs: ([a-z0-9, ]+)\./.exec(refusal)![1]!.split(', ')
    expect(runnable).toContain('generic')
    const results = await Promise.all(runnable.map(compute))
    expect(results[0]).toMatch(/^([0-9a-f]{32} [0-9a-f]{32} [0-9a-f]{64}\n){3}$/)
    expect(new Set(results).size).toBe(1)
    for (const any of ['', 'all']) expect(await compute(any)).toBe(results[0])
  })
})
