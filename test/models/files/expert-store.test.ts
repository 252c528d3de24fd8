import { chmodSync, existsSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import type { ExpertOptions, OpenModelOptions } from '../../../src/engine/options.ts'
import { packExperts } from '../../../src/experts/pack.ts'
import { findExperts } from '../../../src/models/files/experts-source.ts'
import { openModel } from '../../../src/models/open.ts'
import { quantizePackage } from '../../../src/models/quantize/quantize.ts'
import { testDevice } from '../../engine/helpers.ts'
import { temporaryFolder } from '../../engine/packages.ts'
import { copyWritable, hasShared, sharedModel, untouchedModel } from '../../engine/paths.ts'

/** A package that can be written to. */
const copyOf = (name: string): string => {
  const dir = join(temporaryFolder(), name)
  copyWritable(untouchedModel(name), dir)
  return dir
}

const text = Int32Array.from({ length: 70 }, (_, i) => (i * 37 + 11) % 200)

/** What a session computes: reads, then generates. */
const run = async (dir: string, options: OpenModelOptions = {}) => {
  const notes: string[] = []
  const warn = (note: string): unknown => notes.push(note)
  const model = await openModel(dir, { threads: 2, keepPacked: false, warn, ...testDevice, ...options })
  try {
    const context = model.createContext()
    const [read] = await model.process([{ context, tokens: text, nats: true }])
    const generate = { count: 40, temperature: 0.8, topK: 0, topP: 1, seed: 3n }
    const [drawn] = await model.process([{ context, tokens: new Int32Array(0), nats: false, generate }])
    const { chain } = context
    const { fingerprint, parameters, experts } = model
    return {
      chain,
      nats: [...read!.nats],
      drawn: [...drawn!.generated],
      fingerprint,
      parameters,
      statistics: experts?.statistics,
      notes,
    }
  } finally {
    model.close()
  }
}

const experts = (options: ExpertOptions): OpenModelOptions => ({ experts: { frequencies: false, ...options } })

describe.skipIf(!hasShared).each(['qwen3moe-tiny', 'qwen3next-tiny'])('%s with a store beside its weights', (name) => {
  it('computes the bits that it computes from its weights, whatever the bound, the reads and the policy', async () => {
    const dir = copyOf(name)
    const before = await run(dir)
    expect(before.statistics).toBeUndefined()
    await packExperts({ source: await findExperts(dir) })
    const weights = await run(dir, experts({ from: 'weights' }))
    expect(weights).toEqual(before)
    const ways: readonly ExpertOptions[] = [
      { bytes: 2 ** 26 },
      { bytes: 2 ** 17, backend: 'threads' },
      { bytes: 2 ** 17, lookAhead: false, policy: 'lru' },
      { bytes: 2 ** 17, io: 'buffered', policy: 'lfu' },
    ]
    const fingerprints = new Set<string>()
    for (const way of ways) {
      const { chain, nats, drawn, parameters, fingerprint, statistics } = await run(dir, experts(way))
      expect({ chain, nats, drawn, parameters }).toEqual({
        ...{ chain: before.chain, nats: before.nats, drawn: before.drawn, parameters: before.parameters },
      })
      expect(statistics!.uses).toBeGreaterThan(0)
      fingerprints.add(fingerprint)
    }
    // Where the experts come from is part of what a log is told of the model; how they are read is not.
    expect(fingerprints.size).toBe(1)
    expect(fingerprints.has(before.fingerprint)).toBe(false)
  })
})

describe.skipIf(!hasShared)('qwen3moe-tiny in fewer bits', () => {
  it.each(['q8', 'i4', 'ternary'] as const)('streams experts of %s with the bits that they have in memory', {
    tags: 'slow',
  }, async (to) => {
    const out = join(temporaryFolder(), to)
    await quantizePackage({ dir: sharedModel('qwen3moe-tiny'), out, to, group: 32 })
    const before = await run(out)
    await packExperts({ source: await findExperts(out) })
    const after = await run(out, experts({ bytes: 2 ** 20 }))
    expect([after.chain, after.drawn]).toEqual([before.chain, before.drawn])
    expect(after.statistics!.uses).toBeGreaterThan(0)
  })
})

describe.skipIf(!hasShared)('the bound', () => {
  it('must hold two experts, and is refused with the number otherwise', async () => {
    const dir = copyOf('qwen3moe-tiny')
    await packExperts({ source: await findExperts(dir) })
    await expect(run(dir, experts({ bytes: 1000 }))).rejects.toThrow(
      /--expert-bytes is 1000, and two experts of layer 0 need \d+ bytes. Give at least as many./,
    )
    await expect(run(dir, experts({ bytes: 0 }))).rejects.toThrow(
      'experts.bytes is 0, expected a whole number of bytes',
    )
    await expect(run(dir, experts({ deviceBytes: -1 }))).rejects.toThrow(
      'experts.deviceBytes is -1, expected a whole number of bytes, at least 0',
    )
    await expect(run(dir, experts({ depth: 99 }))).rejects.toThrow('experts.depth is 99, expected 8 to 32')
  })
})

describe.skipIf(!hasShared)('a store of another model', () => {
  it('is refused by name', async () => {
    const dir = copyOf('qwen3moe-tiny')
    await packExperts({ source: await findExperts(dir) })
    const layer = join(dir, 'experts', 'layer-000.experts')
    const bytes = readFileSync(layer)
    writeFileSync(layer, bytes.subarray(0, bytes.length - 4096))
    await expect(run(dir)).rejects.toThrow(/layer-000\.experts has \d+ bytes, expected \d+/)
    rmSync(layer)
    await expect(run(dir)).rejects.toThrow('layer-000.experts cannot be read. Pack the experts again')
  })
})

describe.skipIf(!hasShared)('a perspective model', () => {
  it('is packed when it is opened without a store, and says so; the next time it is not', async () => {
    const dir = copyOf('perspective-tiny')
    rmSync(join(dir, 'experts'), { recursive: true })
    const first = await run(dir, { experts: {} })
    expect(first.notes).toEqual([expect.stringContaining('Packed the experts of')])
    const second = await run(dir, { experts: {} })
    expect(second.notes).toEqual([])
    expect(second.chain).toBe(first.chain)
    // How often each expert was used stands beside the store from then on.
    expect(existsSync(join(dir, 'experts', 'frequencies.bin'))).toBe(true)
    expect(second.statistics!.warmBytes).toBeGreaterThan(0)
  })

  it('without store and source is refused with the command', async () => {
    const dir = copyOf('perspective-tiny')
    rmSync(join(dir, 'experts'), { recursive: true })
    rmSync(join(dir, 'experts.safetensors'))
    await expect(run(dir)).rejects.toThrow(/There is no store of experts .* Pack it: continuo experts pack/)
  })

  it('leaves a store alone that nobody may write', async () => {
    const dir = copyOf('perspective-tiny')
    chmodSync(join(dir, 'experts'), 0o555)
    try {
      await run(dir, { experts: {} })
      expect(existsSync(join(dir, 'experts', 'frequencies.bin'))).toBe(false)
    } finally {
      // A read-only folder could not be emptied when the temporary folder is removed.
      chmodSync(join(dir, 'experts'), 0o755)
    }
  })

  it('tells the phases of its opening, the health check last', async () => {
    const phases: string[] = []
    const model = await openModel(sharedModel('perspective-tiny'), {
      ...testDevice,
      ...experts({}),
      onPhase: (phase, ms) => {
        expect(ms).toBeGreaterThanOrEqual(0)
        phases.push(phase)
      },
    })
    model.close()
    expect(phases).toEqual(['config', 'experts', 'tokenizer', 'weights', 'health'])
  })
})
