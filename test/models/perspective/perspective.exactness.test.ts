/**
 * One arithmetic for the perspective family: instruction sets, threads, cuts, batches, and all that a store of experts
 * may do.
 *
 * @module-tag slow
 */
import { execFile } from 'node:child_process'
import { join } from 'node:path'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { beforeAll, describe, expect, it } from 'vitest'
import { judge, runExactness } from '../../../src/cli/bench/exactness.ts'
import type { OpenModelOptions } from '../../../src/engine/options.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { leastBytes, openPerspective } from './engine.ts'
import { type Change, perspectiveConfig, writePerspective } from './package.ts'
import { type Telling, tell } from './scenario.ts'
import { ODD, USUAL } from './variants.ts'

const PACKAGES: Readonly<Record<string, Change>> = { usual: USUAL, odd: ODD }
const NAMES = Object.keys(PACKAGES)
const dirs = {} as Record<string, string>
beforeAll(() => {
  for (const [i, name] of NAMES.entries())
    dirs[name] = writePerspective(join(temporaryFolder(), name), perspectiveConfig(PACKAGES[name]), 50 + i)
})

const told = async (dir: string, options: OpenModelOptions, telling: Telling): Promise<string> => {
  const model = await openPerspective(dir, options)
  const text = await tell(model, telling)
  model.close()
  return text
}
const TOGETHER: Telling = { chunk: 8, together: true }

describe('exactness of the perspective family', () => {
  it('instruction sets, threads, chunks and batches give one chain, one set of surprisals, tokens and logits', async () => {
    const matrix = { threads: [1, 2, 3], chunks: [1, 7, 60], batches: [1, 4], tokens: 70 }
    const { cases, ran } = await runExactness({ dirs: Object.values(dirs), matrix })
    expect(ran).toContain('generic')
    expect(cases).toHaveLength(ran.length * NAMES.length * 18)
    const verdict = judge(cases)
    expect(verdict.differing).toEqual([])
    expect(new Set(Object.values(verdict.chains)).size).toBe(NAMES.length)
  })

  it.each(NAMES)('%s: instruction sets draw and adapt alike', async (name) => {
    const child = fileURLToPath(new URL('scenario-child.ts', import.meta.url))
    const wanted = await told(dirs[name]!, { threads: 1 }, TOGETHER)
    const ran: string[] = []
    for (const isa of ['generic', 'avx2', 'avx512', 'avx512vnni', '']) {
      const { CONTINUO_ISA: _, ...rest } = process.env
      const { stdout } = await promisify(execFile)(process.execPath, [child, JSON.stringify({ dir: dirs[name] })], {
        env: isa === '' ? rest : { ...rest, CONTINUO_ISA: isa },
      })
      const found = JSON.parse(stdout) as { readonly isa: string; readonly told: string }
      if (found.isa === 'missing') continue
      if (isa !== '') expect(found.isa).toBe(isa)
      expect(found.told, found.isa).toBe(wanted)
      ran.push(found.isa)
    }
    expect(ran).toContain('generic')
  })

  it.each(NAMES)('%s: threads, cuts and company change nothing of draws and adaptations', async (name) => {
    const wanted = await told(dirs[name]!, { threads: 1 }, TOGETHER)
    const tellings: readonly Telling[] = [
      TOGETHER,
      { chunk: 1, together: false },
      { chunk: 5, together: true },
      { chunk: 64, together: false },
    ]
    for (const threads of [1, 2, 3]) {
      for (const telling of tellings)
        expect(await told(dirs[name]!, { threads }, telling), JSON.stringify({ threads, telling })).toBe(wanted)
    }
  })

  it.each(NAMES)('%s: nothing that the store does changes a bit', async (name) => {
    const wanted = await told(dirs[name]!, { threads: 1 }, TOGETHER)
    const two = await leastBytes(dirs[name]!)
    const settings: readonly NonNullable<OpenModelOptions['experts']>[] = [
      { bytes: two },
      { bytes: two, deltas: false, lookAhead: false },
      { bytes: 3 * two, policy: 'lfu' },
      { bytes: 3 * two, policy: 'lru' },
      { bytes: two + 4096, backend: 'threads', depth: 8 },
      { bytes: 2 * two, backend: 'threads', io: 'buffered', depth: 32 },
      { bytes: 2 * two, io: 'buffered' },
      { deltas: false },
      { lookAhead: false },
      { frequencies: true },
      { frequencies: true },
    ]
    for (const experts of settings) {
      for (const threads of [1, 3])
        expect(await told(dirs[name]!, { threads, experts }, TOGETHER), JSON.stringify({ threads, experts })).toBe(
          wanted,
        )
    }
  })
})
