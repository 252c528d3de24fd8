/** What `continuo doctor` says of CUDA: of every state that a machine and a build can be in. */
import { describe, expect, it } from 'vitest'
import { checkCuda } from '../../src/cli/doctor/cuda.ts'
import { cudaStatus } from '../../src/engine/inspect.ts'
import type { CudaStatus } from '../../src/engine/native.ts'

const H200: CudaStatus = {
  built: true,
  emulated: false,
  reason: '',
  name: 'NVIDIA H200',
  capability: '9.0',
  total: 150_000_000_000,
  free: 149_000_000_000,
  driver: 13010,
  runtime: 12080,
}
const NOTHING: CudaStatus = { ...H200, name: '', capability: null, total: 0, free: 0 }

describe('the cuda check of continuo doctor', () => {
  it('names the device, its memory and both versions where all is well', () => {
    expect(checkCuda(H200, 'NVIDIA H200, 143771 MiB')).toEqual({
      name: 'cuda',
      status: 'ok',
      detail: expect.stringMatching(
        /^NVIDIA H200, compute capability 9\.0, 149\.00 GB free of 150\.00 GB; the driver speaks CUDA 13\.1, built with 12\.8$/,
      ),
    })
  })

  it('finds nothing wrong with a machine that has neither a GPU nor a build for one', () => {
    const without = { ...NOTHING, built: false, reason: 'this build has none.', driver: 0, runtime: 0 }
    expect(checkCuda(without, null)).toEqual({ name: 'cuda', status: 'ok', detail: 'none; the engine runs on the CPU' })
    const idle = checkCuda(without, 'NVIDIA H200, 143771 MiB')
    expect(idle).toMatchObject({ status: 'warn', detail: expect.stringContaining('NVIDIA H200') })
    expect(idle.remedy).toMatch(/nvcc.*npm run setup.*CONTINUO_CUDA=on/)
  })

  it.each([
    ['there is no NVIDIA driver on this machine', ': ', 'install one, or take the CPU.'],
    ['the NVIDIA driver speaks CUDA 12.2, the engine was built with 13.0', ': ', 'update the driver.'],
    ['the NVIDIA driver shows no device', ': ', 'look at nvidia-smi.'],
    ['the device T4 has compute capability 7.5, the kernels need 8.0 or later (Ampere, 2020)', ': ', 'choose another.'],
    ['the device H200 cannot be used: busy (cudaErrorDevicesUnavailable)', '. ', 'Another process may hold it.'],
  ])('says that %s, and what to do about it', (wrong, between, mend) => {
    const check = checkCuda({ ...NOTHING, reason: `${wrong}${between}${mend}` }, null)
    expect(check).toEqual({
      name: 'cuda',
      status: 'warn',
      detail: `${wrong}; the engine runs on the CPU`,
      remedy: mend.slice(0, 1).toUpperCase() + mend.slice(1),
    })
  })

  it('reads what the engine itself says here', () => {
    const status = cudaStatus()
    const check = checkCuda(status, null)
    expect(check.status).toBe(status.built ? 'warn' : 'ok')
    // A driver that hides its devices (vitest.config.ts) is none that can be used.
    expect(status.reason).not.toBe('')
  })
})
