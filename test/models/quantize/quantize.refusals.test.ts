import { appendFileSync, existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { inspectTensors } from '../../../src/engine/inspect.ts'
import type { QuantizeRequest } from '../../../src/models/quantize/quantize.ts'
import { errorOf } from '../../engine/helpers.ts'
import { randomRwkv7, rawSafetensors, safetensors, temporaryFolder, writePackage } from '../../engine/packages.ts'
import { CONFIG, newOut, q8, SIZES, write } from '../helpers.ts'

describe('a package that cannot be quantised', () => {
  /** The refusal's message; nothing may be left beside `out`. */
  const refusal = async (dir: string, more: Partial<QuantizeRequest> = {}): Promise<string> => {
    const parent = temporaryFolder()
    const { code, message } = await errorOf(() => q8(dir, join(parent, 'out'), more))
    expect(code).toBe('INVALID')
    expect(message).toMatch(/^\S.* .*\.$/)
    expect(readdirSync(parent)).toEqual([])
    return message
  }
  const config = (members: object): string =>
    writePackage({ ...CONFIG, ...members }, safetensors(randomRwkv7(1, SIZES)))
  const poisoned = (name: string, at: number, value: number): string => {
    const tensors = randomRwkv7(1, SIZES)
    tensors.get(name)!.data[at] = value
    return write('F32', tensors)
  }

  it('is no folder of a package', async () => {
    expect(await refusal(join(temporaryFolder(), 'nothing'))).toContain(
      'is not a model package: cannot read config.json',
    )
    const bare = temporaryFolder()
    writeFileSync(join(bare, 'config.json'), JSON.stringify(CONFIG))
    expect(await refusal(bare)).toContain('is not a model package: cannot read model.safetensors')
    mkdirSync(join(bare, 'model.safetensors'))
    expect(await refusal(bare)).toContain('is not a regular file')
  })

  it('has a config that says nothing, or something unknown', async () => {
    const file = safetensors(randomRwkv7(1, SIZES))
    expect(await refusal(writePackage('{', file))).toContain('is not JSON')
    expect(await refusal(writePackage({}, file))).toMatch(/has no model_type, expected one of: .*rwkv7/)
    expect(await refusal(config({ model_type: 'other' }))).toMatch(/holds a "other" model, expected one of: .*rwkv7/)
    expect(await refusal(config({ hidden_size: 5 }))).toContain('config.json says hidden_size is 5')
  })

  it('is to be rounded in a way that its format does not have, or with no text where one is needed, or with one too much', async () => {
    const text = join(temporaryFolder(), 'text')
    writeFileSync(text, '[1,2,3]')
    expect(await refusal(write(), { rounding: 'search' })).toContain('for q8, which has "nearest" alone')
    expect(await refusal(write(), { to: 'i4', rounding: 'compensated' })).toContain('there is no text to read')
    expect(await refusal(write(), { to: 'i4', rounding: 'search', calibrate: text })).toContain('reads none')
    expect(await refusal(write(), { calibrate: text })).toContain('the only one of q8, reads none')
  })

  it('is to be calibrated with what is no text of its', async () => {
    const refuse = (content: string): Promise<string> => {
      const path = join(temporaryFolder(), 'text')
      writeFileSync(path, content)
      return refusal(write(), { to: 'i4', calibrate: path })
    }
    expect(await refusal(write(), { to: 'i4', calibrate: '/nowhere/text' })).toContain(
      'cannot be read to calibrate with',
    )
    expect(await refuse('words')).toContain('is text, but this model has no tokenizer')
    expect(await refuse('[1,2,3]')).toContain('has 3 tokens, expected at least 256')
    expect(await refuse('[1,2,50]')).toContain('Token ids go from 0 to 49')
  })

  it('has a damaged file', async () => {
    expect(await refusal(writePackage(CONFIG, rawSafetensors('{"a":')))).toContain('broken header')
  })

  it('is quantised already, here or by another tool', async () => {
    const out = newOut()
    await q8(write(), out)
    expect(await refusal(out)).toContain(
      'is quantised already (q8, group 32), expected a package of F32, F16, BF16 or F64',
    )
    expect(await refusal(config({ quantization_config: { quant_method: 'gptq' } }))).toContain(
      'is quantised already (by "gptq")',
    )
    await q8(config({ quantization_config: null }), newOut())
  })

  it.each([
    Number.NaN,
    Infinity,
    -Infinity,
  ])('has %d among its weights: the tensor and the place are named', async (value) => {
    for (const to of ['q8', 'ternary'] as const) {
      expect(await refusal(poisoned('blocks.1.ffn.value.weight', 5000, value), { to })).toMatch(
        /^Tensor "blocks\.1\.ffn\.value\.weight" holds a number that is not finite \(NaN or infinity, element 5000\)/,
      )
    }
    expect(await refusal(poisoned('blocks.0.ln1.bias', 3, value))).toContain('"blocks.0.ln1.bias"')
  })

  it.each([
    ['F16', 0x7c00],
    ['F16', 0xfe00],
    ['BF16', 0x7f80],
    ['BF16', 0xffc1],
  ] as const)('has a %s of bits %i: the same', async (dtype, bits) => {
    const dir = write(dtype)
    const path = join(dir, 'model.safetensors')
    const file = readFileSync(path)
    const { offset } = inspectTensors(path).find(({ name }) => name === 'head.weight')!
    file.writeUInt16LE(bits, offset + 2 * 100)
    writeFileSync(path, file)
    expect(await refusal(dir)).toMatch(/^Tensor "head\.weight" .* element 100\)/)
  })

  it('has weights whose scale F16 does not have', async () => {
    const dir = poisoned('blocks.0.att.key.weight', 77 * 3 + 40, 1e8)
    expect(await refusal(dir)).toContain(
      'Tensor "blocks.0.att.key.weight" has weights too large for q8 in row 3, columns 32 and on',
    )
    expect(await refusal(dir, { to: 'ternary' })).toContain('too large for ternary3 in row 3')
  })

  it('has matrices of whole numbers', async () => {
    const dir = write()
    const path = join(dir, 'model.safetensors')
    const file = readFileSync(path)
    const length = Number(file.readBigUInt64LE(0))
    const header = file.toString('utf8', 8, 8 + length)
    writeFileSync(
      path,
      rawSafetensors(
        header.replace(/("blocks\.0\.att\.key\.weight":\{"dtype":")F32/, '$1I32'),
        file.subarray(8 + length),
      ),
    )
    expect(await refusal(dir)).toBe(
      'Tensor "blocks.0.att.key.weight" is I32, expected F32, F16, BF16 or F64: only those can be quantised.',
    )
  })

  it('changes while it is read', async () => {
    const change = (times: number): Promise<string> => {
      const dir = write()
      return refusal(dir, {
        onProgress: ({ done }) => {
          if (done > 0 && times-- > 0) appendFileSync(join(dir, 'model.safetensors'), 'x')
        },
      })
    }
    expect(await change(1)).toContain('changed while it was read; nothing was written')
    const shrinking = write()
    const path = join(shrinking, 'model.safetensors')
    const half = readFileSync(path).subarray(0, 50_000)
    expect(await refusal(shrinking, { onProgress: () => writeFileSync(path, half) })).toContain(
      'changed while it was read; nothing was written',
    )
  })
})

describe('the folder to write', () => {
  it('may be there when it is empty, and is refused when it holds anything', async () => {
    const dir = write()
    const empty = temporaryFolder()
    await q8(dir, `${empty}/`)
    expect(existsSync(join(empty, 'model.safetensors'))).toBe(true)
    const { code, message } = await errorOf(() => q8(dir, empty))
    expect(code).toBe('INVALID')
    expect(message).toContain('holds 2 files already, expected a new or empty folder')
    expect((await errorOf(() => q8(dir, dir))).message).toContain('holds 2 files already')
    const file = await errorOf(() => q8(dir, join(dir, 'config.json')))
    expect(file.code).toBe('INVALID')
    expect(file.message).toMatch(/cannot be the folder to write: .*Name another with --out\.$/)
  })

  it('is left alone when somebody fills it meanwhile, and nothing stays beside it', async () => {
    const parent = temporaryFolder()
    const out = join(parent, 'out')
    const meanwhile = (): void => {
      mkdirSync(out, { recursive: true })
      writeFileSync(join(out, 'other'), 'theirs')
    }
    const { code, message } = await errorOf(() => q8(write(), out, { onProgress: meanwhile }))
    expect(code).toBe('UNAVAILABLE')
    expect(message).toContain(`${out} could not be written: ENOTEMPTY`)
    expect(readdirSync(parent)).toEqual(['out'])
    expect(readdirSync(out)).toEqual(['other'])
  })

  it('is not made where its parent is missing', async () => {
    const out = join(temporaryFolder(), 'missing', 'out')
    const { code, message } = await errorOf(() => q8(write(), out))
    expect(code).toBe('UNAVAILABLE')
    expect(message).toContain(`${out} could not be written: ENOENT`)
  })

  it('is not there after an end in the middle, nor anything beside it', async () => {
    const parent = temporaryFolder()
    const stop = new AbortController()
    const seen: string[] = []
    let aborted = 0
    const writing = q8(write(), join(parent, 'out'), {
      signal: stop.signal,
      onProgress: ({ done }) => {
        seen.push(...readdirSync(parent))
        if (done === 0) return
        aborted += 1
        stop.abort('SIGINT')
      },
    })
    await expect(writing).rejects.toBe('SIGINT')
    expect(aborted).toBe(1)
    expect(seen[0]).toMatch(/^out\.[0-9a-f]{8}\.tmp$/)
    expect(readdirSync(parent)).toEqual([])
  })
})
