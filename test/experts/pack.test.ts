/**
 * Stores of experts: what is packed, from which packages, what is refused, and what is left when packing does not end.
 */
import { spawn } from 'node:child_process'
import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { type CheckedExperts, checkExperts, type PackedExperts, packExperts } from '../../src/experts/pack.ts'
import { sha256 } from '../../src/hash.ts'
import { findExperts } from '../../src/models/files/experts-source.ts'
import { quantizePackage } from '../../src/models/quantize/quantize.ts'
import { processName } from '../../src/process-name.ts'
import { errorOf } from '../engine/helpers.ts'
import { temporaryFolder } from '../engine/packages.ts'
import { hasShared, sharedModel } from '../engine/paths.ts'
import { safetensors, type Tensor, writePackageTo } from '../engine/safetensors.ts'
import { BASE, randomDecoder } from '../models/decoders.ts'
import {
  graniteConfig,
  hybridTensors,
  nemotronConfig,
  qwen3NextConfig,
  qwen35Config,
} from '../models/hybrids/hybrid-packages.ts'

/** A package whose files can be written, of one that is shared. */
const copyOf = (name: string): string => {
  const dir = join(temporaryFolder(), name)
  mkdirSync(dir)
  for (const file of readdirSync(sharedModel(name))) {
    if (file === 'experts') continue
    if (file.endsWith('.safetensors')) writeFileSync(join(dir, file), readFileSync(join(sharedModel(name), file)))
    else cpSync(join(sharedModel(name), file), join(dir, file))
  }
  return dir
}
const pack = async (dir: string): Promise<PackedExperts> => packExperts({ source: await findExperts(dir) })
const check = async (dir: string): Promise<CheckedExperts> => checkExperts({ source: await findExperts(dir) })

const layerOf = (dir: string, layer: number): string => join(dir, 'experts', `layer-00${layer}.experts`)
const flip = (path: string, at: number): void => {
  const bytes = readFileSync(path)
  bytes[at]! ^= 8
  writeFileSync(path, bytes)
}

/** A mixture whose experts stand together, gate over up, and the same one with a tensor for each matrix. */
const bothForms = (dir: string): { readonly stacked: string; readonly single: string } => {
  const config = qwen3NextConfig()
  const stacked = hybridTensors(5, config, { form: 'fused' })
  const single = new Map(stacked)
  const put = (name: string, [E, rows, columns]: readonly number[], from: number, to: number, data: Float32Array) => {
    for (let e = 0; e < E!; e += 1) {
      const at = e * rows! * columns!
      const own: Tensor = { shape: [to - from, columns!], data: data.slice(at + from * columns!, at + to * columns!) }
      single.set(name.replace('{e}', String(e)), own)
    }
  }
  for (const [name, { shape, data }] of stacked) {
    const together = /^(.*experts)\.(gate_up|down)_proj$/.exec(name)
    if (together === null) continue
    const [, at, which] = together
    const rows = shape[1]!
    single.delete(name)
    if (which === 'down') put(`${at}.{e}.down_proj.weight`, shape, 0, rows, data)
    else {
      put(`${at}.{e}.gate_proj.weight`, shape, 0, rows / 2, data)
      put(`${at}.{e}.up_proj.weight`, shape, rows / 2, rows, data)
    }
  }
  const written = (name: string, tensors: ReadonlyMap<string, Tensor>): string => {
    mkdirSync(join(dir, name))
    return writePackageTo(join(dir, name), config, safetensors(tensors, 'F16'))
  }
  return { stacked: written('stacked', stacked), single: written('single', single) }
}

test('a store of experts that stand in one tensor has the bytes of the same experts one by one', async () => {
  const { stacked, single } = bothForms(temporaryFolder())
  const [a, b] = [await pack(stacked), await pack(single)]
  expect(a.digest).toBe(b.digest)
  for (const { file } of a.layers)
    expect(sha256(readFileSync(join(stacked, 'experts', file)))).toBe(
      sha256(readFileSync(join(single, 'experts', file))),
    )
})

const MIXTRAL = { ...BASE, model_type: 'mixtral', num_local_experts: 5, num_experts_per_tok: 2 }
const GRANITE = graniteConfig({ num_local_experts: 6, num_experts_per_tok: 2, intermediate_size: 13 })
const QWEN35 = { ...qwen3NextConfig(), ...qwen35Config(), model_type: 'qwen3_5_moe_text' }

test.each([
  ['mixtral', MIXTRAL, randomDecoder(6, MIXTRAL), 5],
  ['granitemoehybrid', GRANITE, hybridTensors(7, GRANITE), 6],
  ['qwen3_5_moe_text', QWEN35, hybridTensors(8, QWEN35, { form: 'fused' }), 7],
] as const)('a store of %s holds its experts', async (_, config, tensors, experts) => {
  const dir = writePackageTo(temporaryFolder(), config, safetensors(tensors, 'BF16'))
  const packed = await pack(dir)
  expect(packed.sizes).toMatchObject({ coding: 'bf16', experts })
  expect((await check(dir)).digest).toBe(packed.digest)
})

test('experts without a gate are refused', async () => {
  const config = nemotronConfig({
    ...{ hybrid_override_pattern: 'ME*E', n_routed_experts: 7, num_experts_per_tok: 3, moe_intermediate_size: 13 },
    ...{ moe_shared_expert_intermediate_size: 10, routed_scaling_factor: 2.5, n_group: 1 },
  })
  const dir = writePackageTo(temporaryFolder(), config, safetensors(hybridTensors(9, config), 'BF16'))
  await expect(pack(dir)).rejects.toThrow('has experts without a gate; a store is for experts of gate, up and down.')
})

test('experts that `quantize` wrote are packed as they are', async () => {
  const dir = writePackageTo(temporaryFolder(), MIXTRAL, safetensors(randomDecoder(6, MIXTRAL), 'F32'))
  for (const [to, coding] of [
    ['q8', 'q8'],
    ['i4', 'i4'],
    ['ternary', 'ternary3'],
  ] as const) {
    const out = join(temporaryFolder(), to)
    await quantizePackage({ dir, out, to, group: 32 })
    const packed = await pack(out)
    expect(packed.sizes).toMatchObject({ coding, experts: 5, group: 32 })
    expect((await check(out)).digest).toBe(packed.digest)
  }
})

describe.skipIf(!hasShared)('a store of experts', () => {
  test('has the bytes that another program wrote, with its deltas, and passes its check', async () => {
    const dir = copyOf('perspective-tiny')
    const packed = await pack(dir)
    const { store } = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8'))
    expect(packed.layers.map(({ file }) => file)).toEqual(Object.keys(store))
    for (const { file, recordBytes, payloadBytes, deltas, deltaBytes, fileBytes } of packed.layers) {
      const { sha256: hash, bytes, record, payload, deltas: listed } = store[file]
      expect(sha256(readFileSync(join(dir, 'experts', file)))).toBe(hash)
      expect([fileBytes, recordBytes, payloadBytes, deltas]).toEqual([bytes, record, payload, listed.length])
      expect(deltaBytes).toBe(listed.reduce((sum: number, [, , own]: readonly number[]) => sum + own!, 0))
    }
    const config = JSON.parse(readFileSync(join(dir, 'config.json'), 'utf8'))
    expect(packed.digest).toBe(config.experts.digest)
    // The source may go: a server needs the store alone.
    rmSync(join(dir, 'experts.safetensors'))
    expect((await check(dir)).digest).toBe(packed.digest)
    expect(readdirSync(join(dir, 'experts'))).toEqual(packed.layers.map(({ file }) => file))
  })

  test.each([
    ['qwen3moe-tiny', 'that stand one by one'],
    ['qwen3next-tiny', 'of a hybrid'],
  ])('of %s, with experts %s, holds each matrix', async (name) => {
    const dir = copyOf(name)
    const packed = await pack(dir)
    expect(packed.sizes).toMatchObject({ coding: 'bf16', experts: 8, channels: 64, inner: 32, group: 0, torus: null })
    const checked = await check(dir)
    expect(checked.digest).toBe(packed.digest)
    expect(checked.layers.map(({ deltas }) => deltas)).toEqual(packed.layers.map(() => 0))
    const again = await pack(dir)
    expect(again.digest).toBe(packed.digest)
  })

  test('of another model, damaged, or not whole is refused with its file', async () => {
    const dir = copyOf('perspective-tiny')
    await pack(dir)
    flip(layerOf(dir, 1), 9000)
    await expect(check(dir)).rejects.toThrow(/layer-001\.experts: the record of expert 0 has the checksum \d+, /)
    flip(layerOf(dir, 1), 9000)
    cpSync(layerOf(dir, 1), layerOf(dir, 2))
    await expect(check(dir)).rejects.toThrow('layer-002.experts is of layer 1 with 16 experts of 64 channels')
    rmSync(layerOf(dir, 2))
    await expect(check(dir)).rejects.toThrow('layer-002.experts is missing. Pack the experts again')
    rmSync(join(dir, 'experts'), { recursive: true })
    await expect(check(dir)).rejects.toThrow('There is no store of experts')
    flip(join(dir, 'experts.safetensors'), 300_000)
    const error = await errorOf(() => pack(dir))
    expect(error).toMatchObject({ code: expect.stringMatching(/REFUSED|INVALID/) })
    expect(readdirSync(dir).filter((name) => name.startsWith('experts'))).toEqual(['experts.safetensors'])
  })

  test('of a package without experts, or with others than its config.json says, is refused', async () => {
    await expect(pack(sharedModel('llama-tiny'))).rejects.toThrow(
      'is a "llama" model, which has no experts; there is nothing to pack.',
    )
    const dir = copyOf('perspective-tiny')
    const path = join(dir, 'config.json')
    const config = JSON.parse(readFileSync(path, 'utf8'))
    const refusedWith = async (experts: object, sentence: string) => {
      writeFileSync(path, JSON.stringify({ ...config, experts: { ...config.experts, ...experts } }))
      await expect(pack(dir)).rejects.toThrow(sentence)
    }
    await refusedWith({ count: 15 }, 'has 15 experts on a torus of 4 by 4')
    await refusedWith(
      { intermediate_size: 80 },
      'gate_proj.weight" as U8 [96, 13], expected U8 [80, 13] by config.json.',
    )
    await refusedWith({ group_size: 48 }, 'config.json has experts.group_size')
    await refusedWith({ digest: '0'.repeat(64) }, 'they belong to another model')
  })

  test('stays as it was where packing is stopped, and takes away what one that was killed left', async () => {
    const dir = copyOf('perspective-tiny')
    await pack(dir)
    const before = readFileSync(layerOf(dir, 0))
    const stopping = new AbortController()
    const request = {
      source: await findExperts(dir),
      signal: stopping.signal,
      onLayer: () => stopping.abort(new Error('enough')),
    }
    await expect(packExperts(request)).rejects.toThrow('enough')
    expect(readFileSync(layerOf(dir, 0)).equals(before)).toBe(true)
    const left = (owner: string | null, hex: string): string => {
      const folder = join(dir, `experts.${hex}.tmp`)
      mkdirSync(folder)
      if (owner !== null) writeFileSync(folder.replace(/tmp$/, 'owner'), owner)
      return folder
    }
    const own = processName()!
    const running = left(own, '00000001')
    const ended = left(own.replace(/-\d+-\d+$/, '-4194305-1'), '00000002')
    const ownerless = left(null, '00000003')
    await pack(dir)
    expect([running, ended, ownerless].map((folder) => existsSync(folder))).toEqual([true, false, false])
    await check(dir)
  })

  test('is the old one or the new one when its packing is killed, wherever that is', async () => {
    const dir = copyOf('perspective-tiny')
    const { digest } = await pack(dir)
    const main = join(import.meta.dirname, '..', '..', 'src', 'cli', 'main.ts')
    for (let kills = 0; kills < 6; kills += 1) {
      const child = spawn(process.execPath, [main, 'experts', 'pack', dir], { stdio: ['ignore', 'ignore', 'pipe'] })
      const gone = new Promise((resolve) => child.once('close', resolve))
      // The folder of the new store shows that it has begun; then some way further.
      const begun = () => readdirSync(dir).some((name) => name.endsWith('.tmp'))
      while (!begun() && child.exitCode === null) await new Promise((resolve) => setImmediate(resolve))
      for (let turns = 0; turns < kills * 40; turns += 1) await new Promise((resolve) => setImmediate(resolve))
      child.kill('SIGKILL')
      await gone
      expect((await check(dir)).digest).toBe(digest)
    }
    await pack(dir)
    expect(readdirSync(dir).filter((name) => name.startsWith('experts'))).toEqual(['experts', 'experts.safetensors'])
  })

  test('comes from shards that are links, as a cache of models has them', async () => {
    const dir = temporaryFolder()
    for (const file of readdirSync(sharedModel('qwen3moe-tiny')))
      symlinkSync(join(sharedModel('qwen3moe-tiny'), file), join(dir, file))
    const { digest } = await pack(dir)
    expect((await check(dir)).digest).toBe(digest)
  })
})
