/** continuo experts: what it prints, and which words it does not take. */
import { cpSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { temporaryFolder } from '../engine/packages.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { continuo, json, MODEL } from './helpers.ts'

const copied = (): string => {
  const dir = temporaryFolder()
  for (const file of ['config.json', 'experts.safetensors'])
    cpSync(join(sharedModel('perspective-tiny'), file), join(dir, file))
  return dir
}

describe.skipIf(!hasShared)('continuo experts', () => {
  test('packs with a line for each layer, checks with one for all, and names the first fault', async () => {
    const dir = copied()
    const packed = await continuo(['experts', 'pack', dir])
    expect(packed.code).toBe(0)
    expect(packed.out).toMatch(
      /^layer +experts .*\n0 +16 +8\.2 kB +200\.7 kB +32 +16 +20\.4 % +28\.7 % \(9\.5 % to 48\.0 %\)\n(.*\n){3}Wrote \S+experts: 64 experts of ternary3, 802\.8 kB, 2\.61 bits a weight, in .*\ndigest [0-9a-f]{64}\n$/,
    )
    const checked = await continuo(['experts', 'check', dir])
    expect([checked.code, checked.out]).toEqual([
      0,
      expect.stringMatching(/is whole: 4 layers, 64 experts, 64 deltas, 802\.8 kB, digest/),
    ])
    const [told] = await json('experts', 'check', dir)
    expect(told).toMatchObject({
      dir,
      layers: expect.arrayContaining([expect.objectContaining({ layer: 3, deltas: 16 })]),
    })
    const path = join(dir, 'experts', 'layer-002.experts')
    const bytes = readFileSync(path)
    bytes[70_000]! ^= 1
    writeFileSync(path, bytes)
    const damaged = await continuo(['experts', 'check', dir])
    expect([damaged.code, damaged.err]).toEqual([
      3,
      expect.stringMatching(/layer-002\.experts: the record of expert 8 has the checksum/),
    ])
  })

  test.each([
    [['experts', 'park', 'x'], 2, 'experts takes pack or check, not "park". Did you mean pack?'],
    [['experts', 'pack'], 2, 'continuo experts needs DIR'],
    [['experts', 'pack', MODEL], 1, 'which has no experts; there is nothing to pack.'],
    [['experts', 'check', '/nowhere'], 1, '/nowhere is not a model package'],
  ] as const)('%j ends with %i and a sentence', async (args, code, sentence) => {
    const ended = await continuo([...args])
    expect([ended.code, ended.err]).toEqual([code, expect.stringContaining(sentence)])
  })

  test('model show draws the torus, with uses once there are some; the bound that cannot be is refused', {
    tags: 'slow',
  }, async () => {
    const dir = copied()
    for (const file of ['model.safetensors', 'tokenizer.json'])
      writeFileSync(join(dir, file), readFileSync(join(sharedModel('perspective-tiny'), file)))
    await continuo(['experts', 'pack', dir])
    const before = await continuo(['model', 'show', dir])
    expect(before.out).toMatch(
      /^experts +4 layers of 16, of which a token goes to 1\n +1,179,648 weights in all, 73,728 for a token$/m,
    )
    expect(before.out).toMatch(/^a token +reads 32\.8 kB where none of its experts is in memory, 8\.2 kB each$/m)
    expect(before.out).toContain('torus of 4 by 4; how often each expert is used is not known yet')
    const prompt = ['--prompt', 'harbour log', '--max-tokens', '20', '--seed', '1']
    const bounded = await continuo(['generate', '--model', dir, ...prompt, '--expert-bytes', '32768'])
    expect(bounded.code).toBe(0)
    const free = await continuo(['generate', '--model', dir, ...prompt, '--expert-policy', 'lru', '--no-look-ahead'])
    expect(free.out).toBe(bounded.out)
    const after = await continuo(['model', 'show', dir])
    expect(after.out).toMatch(/uses in a thousand tokens.*\n +layer 0 +layer 1 .*\n( +\d+){16}\n/)
    const [shown] = await json('model', 'show', dir)
    const { experts } = shown as { experts: { frequencies: readonly (readonly number[])[]; parts: readonly string[] } }
    expect(experts.frequencies.map((layer) => layer.length)).toEqual([16, 16, 16, 16])
    expect(experts.frequencies.flat().some((f) => f > 0)).toBe(true)
    expect(experts.parts).toEqual(['mpd', 'hdm', 'fmea', 'spp'])
    const small = await continuo(['generate', '--model', dir, ...prompt, '--expert-bytes', '9000'])
    expect([small.code, small.err]).toEqual([
      3,
      expect.stringContaining('--expert-bytes is 9000, and two experts of layer 0 need'),
    ])
  })
})
