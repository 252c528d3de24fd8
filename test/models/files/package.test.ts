import { copyFileSync, mkdirSync, readFileSync, renameSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { readPackage } from '../../../src/models/files/package.ts'
import { openPackage } from '../../../src/models/open.ts'
import { defaultOut, quantizePackage } from '../../../src/models/quantize/quantize.ts'
import { errorOf, feed, open } from '../../engine/helpers.ts'
import { randomRwkv7, safetensors, type Tensors, temporaryFolder, toFla, writePackage } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { rawSafetensors } from '../../engine/safetensors.ts'
import { gpt2ConfigOf, randomGpt2 } from '../gpt2/gpt2.ts'
import { torchFile } from './containers.ts'

const gptSizes = { L: 2, H: 2, N: 8, F: null, V: 50, P: 32 }
const rwkvSizes = { L: 2, H: 2, N: 8, F: 24, V: 60, D: { w: 4, a: 4, v: 4, g: 4 } }
const gptTensors = randomGpt2(1, gptSizes)
const rwkvTensors = randomRwkv7(2, rwkvSizes)

const part = (
  tensors: Tensors,
  keep: (at: number) => boolean,
): Map<string, Tensors extends ReadonlyMap<string, infer T> ? T : never> =>
  new Map([...tensors].filter((_, at) => keep(at)))

const SHARDS = ['model-00001-of-00002.safetensors', 'model-00002-of-00002.safetensors'] as const

/** A folder whose tensors lie in two files by turns; `change` damages the list. */
const sharded = (change: (map: Record<string, string>) => void = () => {}): string => {
  const dir = temporaryFolder()
  writeFileSync(join(dir, 'config.json'), JSON.stringify(gpt2ConfigOf(gptSizes)))
  const map: Record<string, string> = {}
  SHARDS.forEach((file, turn) => {
    const own = part(gptTensors, (at) => at % 2 === turn)
    writeFileSync(join(dir, file), safetensors(own))
    for (const name of own.keys()) map[name] = file
  })
  change(map)
  writeFileSync(
    join(dir, 'model.safetensors.index.json'),
    JSON.stringify({ metadata: { total_size: 1 }, weight_map: map }),
  )
  return dir
}

const chainOf = async (path: string): Promise<{ readonly chain: string; readonly fingerprint: string }> => {
  const model = await open(path)
  const context = model.createContext()
  await feed(model, context, [3, 1, 4, 1, 5, 9, 2, 6])
  return { chain: context.chain, fingerprint: model.fingerprint }
}
const refusal = async (path: string): Promise<string> => {
  const { code, message } = await errorOf(() => openPackage(path))
  expect(code).toBe('INVALID')
  return message
}

describe('weights in several files', () => {
  it('are the model that one file makes: the same chain, the same fingerprint', async () => {
    const whole = writePackage(gpt2ConfigOf(gptSizes), safetensors(gptTensors))
    expect(await chainOf(sharded())).toEqual(await chainOf(whole))
  })

  it('must be those that the list says', async () => {
    expect(await refusal(sharded((map) => (map['wte.weight'] = '../elsewhere/model.safetensors')))).toContain(
      'without a path',
    )
    expect(await refusal(sharded((map) => (map['wte.weight'] = '..\\other')))).toContain('without a path')
    expect(await refusal(sharded((map) => (map['wte.weight'] = '..')))).toContain('without a path')
    expect(await refusal(sharded((map) => (map['wte.weight'] = SHARDS[1])))).toContain(
      `${SHARDS[0]} holds the tensor "wte.weight", but`,
    )
    expect(await refusal(sharded((map) => delete map['wte.weight']))).toContain('does not name it')
    expect(await refusal(sharded((map) => (map['more.weight'] = SHARDS[0])))).toContain(
      `says that ${SHARDS[0]} holds the tensor "more.weight", but it does not`,
    )
    expect(await refusal(sharded((map) => (map['more.weight'] = 'model-3.safetensors')))).toContain('cannot open')
    expect(await refusal(sharded((map) => ((map as Record<string, unknown>)['wte.weight'] = 7)))).toContain(
      'no weight_map',
    )
    const many = sharded((map) => {
      for (let i = 0; i < 600; i += 1) map[`t${i}`] = `file${i}`
    })
    expect(await refusal(many)).toContain('names 602 files, expected 1 to 512')
  })

  it('are refused where one of them is exchanged while they are loaded', async () => {
    const dir = sharded()
    const found = await readPackage(dir)
    await found.checkUnchanged()
    copyFileSync(join(dir, SHARDS[1]), join(dir, 'copy'))
    renameSync(join(dir, 'copy'), join(dir, SHARDS[1]))
    expect(await errorOf(() => found.checkUnchanged())).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining(`${SHARDS[1]} was exchanged`) as string,
    })
  })

  it('are quantised into one file', async () => {
    const whole = writePackage(gpt2ConfigOf(gptSizes), safetensors(gptTensors))
    const [from, to] = [join(temporaryFolder(), 'sharded'), join(temporaryFolder(), 'whole')]
    await quantizePackage({ dir: sharded(), out: from, to: 'q8', group: 32 })
    await quantizePackage({ dir: whole, out: to, to: 'q8', group: 32 })
    expect(await chainOf(from)).toEqual(await chainOf(to))
  })
})

describe('pytorch_model.bin', () => {
  it('is the model that safetensors of the same numbers make', async () => {
    const config = gpt2ConfigOf(gptSizes)
    const whole = writePackage(config, safetensors(gptTensors))
    const dir = temporaryFolder()
    writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
    writeFileSync(join(dir, 'pytorch_model.bin'), torchFile(gptTensors))
    expect(await chainOf(dir)).toEqual(await chainOf(whole))
  })

  it('may be in shards too', async () => {
    const config = gpt2ConfigOf(gptSizes)
    const dir = temporaryFolder()
    writeFileSync(join(dir, 'config.json'), JSON.stringify(config))
    const map: Record<string, string> = {}
    for (const turn of [0, 1]) {
      const own = part(gptTensors, (at) => at % 2 === turn)
      writeFileSync(join(dir, `part${turn}.bin`), torchFile(own))
      for (const name of own.keys()) map[name] = `part${turn}.bin`
    }
    writeFileSync(join(dir, 'pytorch_model.bin.index.json'), JSON.stringify({ weight_map: map }))
    expect(await chainOf(dir)).toEqual(await chainOf(writePackage(config, safetensors(gptTensors))))
  })
})

describe('RWKV-7 as its author publishes it', () => {
  const pth = (tensors: Tensors, name = 'RWKV-x070-test.pth'): string => {
    const dir = temporaryFolder()
    writeFileSync(join(dir, name), torchFile(tensors))
    return dir
  }

  it('is named by its file or by the folder that holds it, and is the model of the same safetensors', async () => {
    const dir = pth(rwkvTensors)
    const same = writePackage({ model_type: 'rwkv7' }, safetensors(rwkvTensors))
    const wanted = await chainOf(same)
    expect(await chainOf(dir)).toEqual(wanted)
    expect(await chainOf(join(dir, 'RWKV-x070-test.pth'))).toEqual(wanted)
  })

  it('is read in every format of its numbers; F64 is rounded once', async () => {
    for (const dtype of ['BFloat16', 'Double'] as const) {
      const dir = temporaryFolder()
      writeFileSync(join(dir, 'm.pth'), torchFile(rwkvTensors, dtype))
      const same = safetensors(rwkvTensors, dtype === 'Double' ? 'F32' : 'BF16')
      expect((await chainOf(dir)).chain).toBe((await chainOf(writePackage({ model_type: 'rwkv7' }, same))).chain)
    }
  })

  it('is quantised with a config.json of its own', async () => {
    const dir = pth(rwkvTensors)
    const file = join(dir, 'RWKV-x070-test.pth')
    expect(defaultOut(file, 'q8')).toBe(join(dir, 'RWKV-x070-test-q8'))
    const [a, b] = [join(temporaryFolder(), 'a'), join(temporaryFolder(), 'b')]
    await quantizePackage({ dir: file, out: a, to: 'q8', group: 32 })
    const same = writePackage({ model_type: 'rwkv7' }, safetensors(rwkvTensors))
    await quantizePackage({ dir: same, out: b, to: 'q8', group: 32 })
    expect(await chainOf(a)).toEqual(await chainOf(b))
  })

  it('is refused by name where it is another model of its author, or wants to run code', async () => {
    const first = rwkvTensors.get('blocks.0.att.x_r')!
    const named = (name: string): Promise<string> => refusal(pth(new Map([...rwkvTensors, [name, first]])))
    expect(await named('blocks.0.ffn.s_emb.weight')).toContain('v7a, v7b or v8 (tensor "blocks.0.ffn.s_emb.weight")')
    expect(await named('blocks.1.att.qq')).toContain('v7a, v7b or v8')
    expect(await named('blocks.0.att.time_maa_x')).toContain('an RWKV-6 model')
    expect(await named('blocks.0.att.time_decay')).toContain('an RWKV-5 model')
    expect(await refusal(pth(gptTensors))).toContain('no RWKV model')
    const dir = temporaryFolder()
    const code = Buffer.from('\x80\x02cos\nsystem\nX\x04\0\0\0true\x85R.', 'latin1')
    writeFileSync(join(dir, 'm.pth'), torchFile(new Map(), 'Float', code))
    expect(await refusal(dir)).toContain('wants to run the Python code os.system')
  })

  it.skipIf(!hasShared)('gives the logits and surprisals that float64 gives', async () => {
    const dir = sharedModel('rwkv7-pth-tiny')
    const { input_ids, logits, total_nll } = JSON.parse(readFileSync(join(dir, 'expected.json'), 'utf8')) as {
      readonly input_ids: readonly number[]
      readonly logits: readonly number[]
      readonly total_nll: number
    }
    const model = await open(dir)
    for (const cut of [input_ids.length, 7]) {
      const context = model.createContext()
      let nats = 0
      for (let at = 0; at < input_ids.length; at += cut) {
        for (const each of await feed(model, context, input_ids.slice(at, at + cut)))
          if (!Number.isNaN(each)) nats += each
      }
      const found = await model.logits(context)
      expect(Math.max(...logits.map((value, i) => Math.abs(value - found[i]!)))).toBeLessThan(2e-4)
      expect(Math.abs(nats - total_nll)).toBeLessThan(1e-3)
    }
  })
})

describe('what may be named', () => {
  it('is said where nothing of it is there', async () => {
    const dir = temporaryFolder()
    expect(await refusal(dir)).toContain('an RWKV-7 .pth file or a .gguf file')
    expect(await refusal(join(dir, 'missing'))).toContain('is not a model package')
    writeFileSync(join(dir, 'a.pth'), torchFile(rwkvTensors))
    writeFileSync(join(dir, 'b.pth'), torchFile(rwkvTensors))
    expect(await refusal(dir)).toContain('several models (a.pth, b.pth); name the file')
    writeFileSync(join(dir, 'c.txt'), 'x')
    expect(await refusal(join(dir, 'c.txt'))).toContain('neither in .pth nor in .gguf')
    writeFileSync(join(dir, 'c.pth'), safetensors(rwkvTensors))
    expect(await refusal(join(dir, 'c.pth'))).toContain('no file of torch.save but safetensors')
    writeFileSync(join(dir, 'c.gguf'), safetensors(rwkvTensors))
    expect(await refusal(join(dir, 'c.gguf'))).toContain('no GGUF file but safetensors')
    mkdirSync(join(dir, 'd.pth'))
    expect(await refusal(join(dir, 'd.pth'))).toContain('cannot read config.json')
  })

  it('is told from quantised packages of others by name', async () => {
    for (const [method, name] of [
      ['gptq', 'GPTQ'],
      ['awq', 'AWQ'],
      ['fp8', 'FP8'],
      ['bitsandbytes', 'bitsandbytes'],
      ['mine', '"mine"'],
    ]) {
      const quantization_config = { quant_method: method, bits: 4 }
      const dir = writePackage({ ...gpt2ConfigOf(gptSizes), quantization_config }, safetensors(gptTensors))
      expect(await refusal(dir)).toContain(`quantised by ${name} `)
      const text = writePackage({ model_type: 'other', text_config: { quantization_config } }, safetensors(gptTensors))
      expect(await refusal(text)).toContain(`quantised by ${name} `)
    }
  })
})

describe('config.json as Python writes it', () => {
  it('may hold Infinity and NaN, which a quantised copy keeps', async () => {
    const config = JSON.stringify({ ...gpt2ConfigOf(gptSizes), about: 'Infinity "NaN" \\' })
    const bare = `${config.slice(0, -1)}, "limit": [0.0, Infinity], "low": -Infinity, "none": NaN}`
    const dir = writePackage(bare, safetensors(gptTensors))
    const { config: read } = await readPackage(dir)
    expect(read).toMatchObject({ limit: [0, Infinity], low: -Infinity, none: Number.NaN, about: 'Infinity "NaN" \\' })
    const plain = await chainOf(writePackage(config, safetensors(gptTensors)))
    expect((await chainOf(dir)).chain).toBe(plain.chain)
    const finite = writePackage(bare.replace('[0.0, Infinity]', '[0.0, NaN]'), safetensors(gptTensors))
    expect((await chainOf(finite)).fingerprint).not.toBe((await chainOf(dir)).fingerprint)
    const out = join(temporaryFolder(), 'q8')
    await quantizePackage({ dir, out, to: 'q8', group: 32 })
    expect((await readPackage(out)).config).toMatchObject({ limit: [0, Infinity], low: -Infinity, none: Number.NaN })
  })

  it('is refused where it is no JSON otherwise', async () => {
    const dir = writePackage('{"model_type": Infinityy}', safetensors(gptTensors))
    expect(await refusal(dir)).toContain('is not JSON')
  })
})

describe('generation_config.json', () => {
  const opened = async (generation: unknown, config: object = {}) => {
    const dir = writePackage({ ...gpt2ConfigOf(gptSizes), ...config }, safetensors(gptTensors))
    if (generation !== undefined) writeFileSync(join(dir, 'generation_config.json'), JSON.stringify(generation))
    const { model, endTokens, sampling } = await openPackage(dir)
    model.close()
    return { endTokens, sampling }
  }

  it('says which tokens end a text, and how its publisher samples', async () => {
    expect(await opened(undefined)).toEqual({ endTokens: null, sampling: null })
    expect(await opened({ eos_token_id: [9, 7, 9] }, { eos_token_id: 3 })).toEqual({
      endTokens: [7, 9],
      sampling: null,
    })
    expect(
      await opened({ eos_token_id: 5, do_sample: true, temperature: 0.6, top_p: 0.9, top_k: 20, min_p: 0.1 }),
    ).toEqual({
      endTokens: [5],
      sampling: { doSample: true, temperature: 0.6, topP: 0.9, topK: 20, minP: 0.1 },
    })
    expect(await opened({ temperature: null, repetition_penalty: 1.1 })).toEqual({
      endTokens: null,
      sampling: { repetitionPenalty: 1.1 },
    })
  })

  it('is refused where it cannot be used', async () => {
    const { message } = await errorOf(() => opened({ eos_token_id: ['</s>'] }))
    expect(message).toContain('generation_config.json cannot be used: eos_token_id')
    expect((await errorOf(() => opened({ top_p: 3 }))).message).toContain('top_p')
  })
})

describe('numbers of 64 bits', () => {
  it('are rounded to f32 once, in the engine and where they are quantised', async () => {
    const names = [...rwkvTensors]
    const data = Buffer.concat(names.map(([, tensor]) => Buffer.from(Float64Array.from(tensor.data).buffer)))
    let at = 0
    const header = Object.fromEntries(
      names.map(([name, { shape, data: values }]) => {
        const data_offsets = [at, at + values.length * 8]
        at += values.length * 8
        return [name, { dtype: 'F64', shape, data_offsets }]
      }),
    )
    const wide = writePackage({ model_type: 'rwkv7' }, rawSafetensors(JSON.stringify(header), data))
    const narrow = writePackage({ model_type: 'rwkv7' }, safetensors(rwkvTensors))
    expect((await chainOf(wide)).chain).toBe((await chainOf(narrow)).chain)
    const [a, b] = [join(temporaryFolder(), 'a'), join(temporaryFolder(), 'b')]
    await quantizePackage({ dir: wide, out: a, to: 'q8', group: 32 })
    await quantizePackage({ dir: narrow, out: b, to: 'q8', group: 32 })
    expect((await chainOf(a)).chain).toBe((await chainOf(b)).chain)
  })

  it('names of flash-linear-attention are read from shards as well', async () => {
    const fla = toFla(rwkvTensors)
    const dir = temporaryFolder()
    writeFileSync(join(dir, 'config.json'), JSON.stringify({ model_type: 'rwkv7', norm_eps: 64e-5 / rwkvSizes.N }))
    const map: Record<string, string> = {}
    for (const turn of [0, 1, 2]) {
      const own = part(fla, (at) => at % 3 === turn)
      writeFileSync(join(dir, `model-${turn}.safetensors`), safetensors(own))
      for (const name of own.keys()) map[name] = `model-${turn}.safetensors`
    }
    writeFileSync(join(dir, 'model.safetensors.index.json'), JSON.stringify({ weight_map: map }))
    expect((await chainOf(dir)).chain).toMatch(/^[0-9a-f]{32}$/)
  })
})
