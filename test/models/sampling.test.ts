import { writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, test } from 'vitest'
import { recommendedSampling } from '../../src/models/sampling.ts'
import { temporaryFolder } from '../engine/packages.ts'

const read = (content: unknown) => {
  const dir = temporaryFolder()
  writeFileSync(join(dir, 'generation_config.json'), typeof content === 'string' ? content : JSON.stringify(content))
  return recommendedSampling(dir)
}

describe('what a package recommends', () => {
  test('is temperature, top_k and top_p, with the defaults of the format; without do_sample the likeliest token', async () => {
    const all = { do_sample: true, temperature: 0.6, top_k: 20, top_p: 0.95 }
    expect(await read(all)).toEqual({ temperature: 0.6, topK: 20, topP: 0.95 })
    expect(await read({ do_sample: true })).toEqual({ temperature: 1, topK: 50, topP: 1 })
    expect(await read({ ...all, do_sample: false })).toEqual({ temperature: 0 })
    expect(await read({})).toEqual({ temperature: 0 })
    expect(await read({ ...all, min_p: null, repetition_penalty: 1, eos_token_id: [1, 2], num_beams: 1 })).toEqual(
      await read(all),
    )
  })

  test('is refused where the engine has no such setting, and where it cannot be read', async () => {
    await expect(read({ do_sample: true, repetition_penalty: 1.1 })).rejects.toThrow(
      /recommends repetition_penalty 1.1/,
    )
    await expect(read({ num_beams: 4 })).rejects.toThrow(/recommends num_beams 4/)
    await expect(read({ temperature: 'warm' })).rejects.toThrow(/malformed temperature/)
    await expect(read('{')).rejects.toThrow(/is not JSON/)
    await expect(recommendedSampling(temporaryFolder())).rejects.toThrow(/has no generation_config.json/)
  })
})
