import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { readGeneration } from '../../src/models/files/generation.ts'
import { recommendedSampling } from '../../src/models/files/sampling.ts'
import { temporaryFolder } from '../engine/packages.ts'

const read = (content: unknown) => {
  const dir = temporaryFolder()
  writeFileSync(join(dir, 'generation_config.json'), typeof content === 'string' ? content : JSON.stringify(content))
  return recommended(dir)
}
const recommended = async (dir: string) => recommendedSampling(dir, (await readGeneration(dir)).sampling)

describe('what a package recommends', () => {
  test('is temperature, top_k, top_p, min_p and repetition_penalty, with the defaults of the format; without do_sample the likeliest token', async () => {
    const all = { do_sample: true, temperature: 0.6, top_k: 20, top_p: 0.95 }
    expect(await read(all)).toEqual({ temperature: 0.6, topK: 20, topP: 0.95 })
    expect(await read({ do_sample: true })).toEqual({ temperature: 1, topK: 50, topP: 1 })
    expect(await read({ ...all, do_sample: false })).toEqual({ temperature: 0 })
    expect(await read({ temperature: 0.6 })).toEqual({ temperature: 0 })
    expect(await read({ ...all, min_p: null, repetition_penalty: null, eos_token_id: [1, 2] })).toEqual(await read(all))
    expect(await read({ ...all, min_p: 0.1, repetition_penalty: 1.1 })).toEqual({
      ...{ temperature: 0.6, topK: 20, topP: 0.95 },
      ...{ minP: 0.1, repetitionPenalty: 1.1 },
    })
    expect(await read({ repetition_penalty: 1.2, min_p: 0.1 })).toEqual({ temperature: 0, repetitionPenalty: 1.2 })
  })

  test('is refused where a request cannot have it, and where it cannot be read', async () => {
    await expect(read({ do_sample: true, repetition_penalty: 1e9 })).rejects.toThrow(
      /recommends repetition_penalty 1000000000 .* cannot be had/,
    )
    await expect(read({ do_sample: true, temperature: 1e-9 })).rejects.toThrow(/recommends temperature 1e-9/)
    await expect(read({ temperature: 'warm' })).rejects.toThrow(/cannot be used: temperature/)
    await expect(read('{')).rejects.toThrow(/is not JSON/)
    await expect(recommended(temporaryFolder())).rejects.toThrow(/has no generation_config.json/)
    await expect(read({ eos_token_id: 1 })).rejects.toThrow(/has no generation_config.json that recommends/)
  })
})
