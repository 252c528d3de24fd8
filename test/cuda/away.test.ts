/**
 * A device that is lost and does not come back: tasks ask for it ever more seldom, then the worker ends; nothing is
 * lost, and the CPU takes over.
 */
import { describe, expect, it, vi } from 'vitest'
import { open } from '../engine/helpers.ts'
import { createBench, event } from '../operators/harness.ts'
import { emulated } from './helpers.ts'
import { BYTES, rwkv7 } from './packages.ts'

// Read when the device is first looked at, which the imports do.
vi.hoisted(() => {
  process.env.CONTINUO_EMULATED_FAULT = '200'
})

const text = 'The harbour master wrote in his log that the tide had come in early. '.repeat(8)

describe.runIf(emulated)('a device that is lost and stays away', () => {
  it('is asked for again after pauses that double, until the worker gives up; another one serves the sessions elsewhere', async () => {
    const dir = rwkv7('F32', BYTES)
    const [cuda, cpu] = [await open(dir, { device: 'cuda' }), await open(dir, { device: 'cpu' })]
    const bench = await createBench({ model: cuda, tokenizer: null })
    const request = {
      type: 'generate',
      requestId: 'r',
      maxTokens: 20,
      temperature: 0.9,
      topP: 1,
      topK: 0,
      seed: 3,
    } as const
    const records = [
      event('s', { type: 'tokens', tokens: [...Buffer.from(text)] }),
      event('s', { ...request, stop: [] }),
    ]
    await bench.feed(...records)
    // What the emulated device is after its reset.
    process.env.CONTINUO_EMULATED_DEVICE = 'none'
    const warnings: string[] = []
    const away = await bench.start({ retryPause: 5, warn: (message) => warnings.push(message) })
    await expect(away.worker.over).rejects.toMatchObject({
      code: 'UNAVAILABLE',
      message:
        'The CUDA device was lost and could not be reset in this process: no CUDA-capable device is detected (cudaErrorNoDevice). Start the process again.',
    })
    await away.worker.stop()
    expect(warnings[0]).toMatch(/^Partition 0: The CUDA device was lost when it tried to .+ Trying again in 5 ms\.$/)
    expect(warnings[1]).toMatch(
      /^Partition 0: The CUDA device was lost by an earlier error, .+ Trying again in 10 ms\.$/,
    )
    const pauses = warnings.map((warning) => Number(/in (\d+) ms\.$/.exec(warning)![1]))
    expect(pauses).toEqual([5, 10, 20, 40, 80, 160, 320])

    const { states } = await bench.settle({ model: cpu })
    expect(states.at(-1)).toMatchObject({ state: 'closed', error: undefined })
    const other = await createBench({ model: cpu, tokenizer: null })
    await other.feed(...records)
    await other.settle()
    const [found] = await bench.generated()
    expect(found!.ids.length).toBeGreaterThan(0)
    expect(await bench.generated()).toEqual(await other.generated())
    expect((await bench.heads()).get('s')!.chain).toBe((await other.heads()).get('s')!.chain)
    await bench.close()
    await other.close()
  })
})
