/**
 * What goes wrong with a device, made to go wrong by the emulator (native/test/emulate); on a GPU there is nothing to
 * make.
 */
import { execFile } from 'node:child_process'
import { fileURLToPath } from 'node:url'
import { promisify } from 'node:util'
import { describe, expect, it } from 'vitest'
import { continuo, DOCUMENT, MODEL } from '../cli/helpers.ts'
import { open } from '../engine/helpers.ts'
import { SETTINGS, writeSetting } from '../models/outer-memory/outer-memory-settings.ts'
import type { Answer, Asked } from './child.ts'
import { emulated } from './helpers.ts'
import { gpt2, rwkv7 } from './packages.ts'

const CHILD = fileURLToPath(new URL('child.ts', import.meta.url))
const ask = async (asked: Asked, env: Readonly<Record<string, string>> = {}): Promise<Answer> => {
  const { stdout } = await promisify(execFile)(process.execPath, [CHILD, JSON.stringify(asked)], {
    env: { ...process.env, ...env },
    maxBuffer: 1 << 26,
  })
  return JSON.parse(stdout) as Answer
}

const evaluate = (env: Readonly<Record<string, string>>) =>
  continuo(['eval', DOCUMENT, '--model', MODEL, '--device', 'cuda'], { env })

describe.runIf(emulated)('a device that cannot be used', () => {
  it('is not taken by who does not name it, where it is emulated', async () => {
    expect((await open(MODEL, { device: 'auto' })).device).toBe('cpu')
    expect((await open(MODEL, { device: 'cuda' })).device).toBe('cuda')
  })

  it.each([
    ['none', /^CUDA cannot be used: the NVIDIA driver shows no device: look at nvidia-smi, .+\n$/],
    ['driver', /^CUDA cannot be used: the NVIDIA driver speaks CUDA 11\.0, .+: update the driver, .+\n$/],
    ['old', /^CUDA cannot be used: the device emulated has compute capability 7\.5, .+: choose another .+\n$/],
  ])('is refused with what is missing and what to do: %s', async (kind, sentence) => {
    const env = { CONTINUO_EMULATED_DEVICE: kind }
    expect(await evaluate(env)).toEqual({ code: 1, signal: null, out: '', err: expect.stringMatching(sentence) })
    const { out } = await continuo(['doctor'], { env })
    expect(out).toMatch(/^warn {2}cuda .+; the engine runs on the CPU\n +→ [A-Z].+\.$/m)
  })

  it('is named, with its memory, by doctor where it can be used', async () => {
    const { out } = await continuo(['doctor'], { env: { CONTINUO_EMULATED_MEMORY: '5000000000' } })
    expect(out).toMatch(
      /^ok {4}cuda +emulated, compute capability 9\.0, 5\.00 GB free of 5\.00 GB: runs on the CPU, for tests/m,
    )
  })

  it('has too little memory for a model: what was asked for, what is free, and what to do', async () => {
    const { code, err } = await evaluate({ CONTINUO_EMULATED_MEMORY: String(3 << 20) })
    expect(code).toBe(1)
    expect(err).toMatch(
      /^The CUDA device has no memory left: \d+ MiB were asked for, [0-3] MiB of 3 MiB are free, .+ The CPU takes the model with the same bits: device "cpu"\.\n$/,
    )
  })

  it('breaks in the middle: what it was doing, and that contexts are to be rebuilt', async () => {
    const { code, err } = await evaluate({ CONTINUO_EMULATED_FAULT: '60' })
    expect(code).toBe(1)
    expect(err).toMatch(
      /^The CUDA device was lost when it tried to .+\(cudaErrorIllegalAddress\).+ from their snapshots\.\n$/,
    )
  })
})

describe.runIf(emulated)('more sessions than a device has memory for', () => {
  it.each([
    ['states of one size', () => rwkv7('F32', { L: 2, H: 4, N: 16, F: 40, V: 40, D: { w: 4, a: 4, v: 4, g: 4 } }), 14],
    ['caches that grow', gpt2, 21],
    ['an external memory, of which the host has its part', () => writeSetting(SETTINGS[0]!).folder, 90],
  ])('take turns, leave the device and come back, and have the bits of a large device and of the CPU: %s', async (_, dir, length) => {
    const asked = { dir: dir(), sessions: 7, length }
    const cpu = await ask({ ...asked, device: 'cpu' })
    const large = await ask({ ...asked, device: 'cuda' })
    // Room for the model and three contexts.
    const memory = large.modelBytes + Math.floor(3.5 * large.contextBytes)
    const small = await ask({ ...asked, device: 'cuda' }, { CONTINUO_EMULATED_MEMORY: String(memory) })
    expect(large.told).toEqual(cpu.told)
    expect(large.again).toEqual(cpu.told)
    expect(small.told).toEqual(cpu.told)
    expect(small.again).toEqual(cpu.told)
    expect(new Set(cpu.told.map(({ chain }) => chain)).size).toBe(asked.sessions)
    expect(memory).toBeLessThan(large.modelBytes + asked.sessions * large.contextBytes)
  })
})
