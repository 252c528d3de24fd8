/** Packages that are broken, or meant to break us: always a ContinuoError that says what is wrong, never a crash. */
import { mkdirSync, truncateSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import fc from 'fast-check'
import { describe, expect, it } from 'vitest'
import { codeOf } from '../../src/errors.ts'
import { openModel } from '../../src/models/open.ts'
import { errorOf } from './helpers.ts'
import {
  randomRwkv7,
  rawSafetensors,
  safetensors,
  type Tensor,
  temporaryFolder,
  toFla,
  writePackage,
} from './packages.ts'

const config = { model_type: 'rwkv7' }
const sizes = { L: 2, H: 2, N: 4, F: 12, V: 9, D: { w: 2, a: 3, v: 2, g: 5 } }
const good = (): Map<string, Tensor> => randomRwkv7(5, sizes)

const refusal = async (dir: string) => errorOf(() => openModel(dir, { threads: 1 }))
const says = (part: string) => ({ code: 'INVALID', message: expect.stringContaining(part) })
const with_ = (change: (tensors: Map<string, Tensor>) => void, tensors = good(), its: unknown = config): string => {
  change(tensors)
  return writePackage(its, safetensors(tensors))
}

describe('a package that is not one', () => {
  it('no folder, no config, no JSON, no model_type, another family', async () => {
    const empty = temporaryFolder()
    expect(await refusal(join(empty, 'nowhere'))).toMatchObject(says('config.json'))
    expect(await refusal(empty)).toMatchObject(says('config.json'))
    expect(await refusal(writePackage('{nope', new Uint8Array()))).toMatchObject(says('is not JSON'))
    expect(await refusal(writePackage({}, new Uint8Array()))).toMatchObject(says('model_type, expected one of: '))
    expect(await refusal(writePackage('[]', new Uint8Array()))).toMatchObject(says('model_type'))
    expect(await refusal(writePackage({ model_type: 'gpt5' }, new Uint8Array()))).toMatchObject(
      says('"gpt5" model, expected one of: '),
    )
  })

  it('no model.safetensors, a folder in its place, an empty one', async () => {
    const folder = temporaryFolder()
    writeFileSync(join(folder, 'config.json'), JSON.stringify(config))
    expect(await refusal(folder)).toMatchObject(says('cannot read model.safetensors'))
    mkdirSync(join(folder, 'model.safetensors'))
    expect(await refusal(folder)).toMatchObject(says('not a regular file'))
    expect(await refusal(writePackage(config, new Uint8Array()))).toMatchObject(says('0 bytes'))
  })

  it('a tokenizer.json that is none', async () => {
    const dir = writePackage(config, safetensors(good()))
    writeFileSync(join(dir, 'tokenizer.json'), '{}')
    expect(await refusal(dir)).toMatchObject(says('tokenizer.json'))
  })
})

describe('tensors that do not make the model', () => {
  it('the good package opens', async () => {
    const model = await openModel(writePackage(config, safetensors(good())), { threads: 1 })
    expect(model.vocabSize).toBe(9)
    model.close()
  })

  it.each([
    'emb.weight',
    'head.weight',
    'ln_out.bias',
    'blocks.0.ln0.weight',
    'blocks.1.att.w1',
    'blocks.1.att.v0',
    'blocks.0.att.r_k',
    'blocks.1.ffn.value.weight',
  ])('without %s: its name is in the message', async (name) => {
    expect(await refusal(with_((tensors) => tensors.delete(name)))).toMatchObject(says(`"${name}" is missing`))
  })

  it('a wrong shape: tensor, expected, arrived', async () => {
    const reshape = (name: string, shape: readonly number[]) =>
      with_((tensors) => tensors.set(name, { shape, data: new Float32Array(shape.reduce((a, b) => a * b, 1)) }))
    expect(await refusal(reshape('blocks.1.att.key.weight', [8, 7]))).toMatchObject(
      says('"blocks.1.att.key.weight" has shape [8, 7], expected [8, 8]'),
    )
    expect(await refusal(reshape('blocks.1.att.w2', [8, 2]))).toMatchObject(
      says('"blocks.1.att.w2" has shape [8, 2], expected [2, 8]'),
    )
    expect(await refusal(reshape('ln_out.weight', [7]))).toMatchObject(
      says('"ln_out.weight" has shape [7], expected [8]'),
    )
    expect(await refusal(reshape('blocks.0.att.r_k', [3, 4]))).toMatchObject(says('"blocks.0.att.r_k"'))
    expect(await refusal(reshape('emb.weight', [72]))).toMatchObject(says('"emb.weight" has shape [72]'))
    expect(await refusal(reshape('emb.weight', [0, 8]))).toMatchObject(says('"emb.weight" has shape [0, 8]'))
  })

  it('config.json and tensors of different models', async () => {
    const base = safetensors(good())
    for (const [key, value] of Object.entries({
      vocab_size: 10,
      hidden_size: 16,
      num_hidden_layers: 3,
      head_dim: 8,
      num_heads: 1,
      intermediate_size: 99,
      gate_low_rank_dim: 9,
    })) {
      expect(await refusal(writePackage({ ...config, [key]: value }, base))).toMatchObject(
        says(`config.json says ${key} is ${value}`),
      )
    }
    expect(await refusal(writePackage({ ...config, hidden_size: 'big' }, base))).toMatchObject(says('hidden_size'))
    expect(await refusal(writePackage({ ...config, attn: { layers: [1] } }, base))).toMatchObject(says('attn'))
    expect(await refusal(writePackage({ ...config, hidden_act: 'gelu' }, base))).toMatchObject(says('hidden_act'))
  })

  it('a tensor nobody uses is refused by name; the unused value residual of layer 0 is not', async () => {
    const extra = { shape: [1], data: Float32Array.of(1) }
    expect(await refusal(with_((tensors) => tensors.set('blocks.1.att.surprise', extra)))).toMatchObject(
      says('"blocks.1.att.surprise"'),
    )
    expect(await refusal(with_((tensors) => tensors.set('blocks.0.att.v3', extra)))).toMatchObject(
      says('"blocks.0.att.v3"'),
    )
    const harmless = with_((tensors) => {
      for (const name of ['v0', 'v1', 'v2']) tensors.set(`blocks.0.att.${name}`, extra)
    })
    ;(await openModel(harmless, { threads: 1 })).close()
  })

  it('a block index that skips ahead asks for the missing layer', async () => {
    const skipping = with_((tensors) => tensors.set('blocks.3.ln1.weight', { shape: [8], data: new Float32Array(8) }))
    expect(await refusal(skipping)).toMatchObject(says('"blocks.2.'))
  })

  it.each([
    Number.NaN,
    Number.POSITIVE_INFINITY,
    Number.NEGATIVE_INFINITY,
  ])('%s among the weights is refused with tensor and place', async (value) => {
    for (const name of ['emb.weight', 'blocks.1.att.output.weight', 'blocks.0.att.w0', 'blocks.1.att.a2']) {
      const dir = with_((tensors) => {
        tensors.get(name)!.data[5] = value
      })
      expect(await refusal(dir)).toMatchObject(says(`"${name}" holds`))
      expect((await refusal(dir)).message).toContain('element 5')
    }
  })

  it('weights of another dtype are refused', async () => {
    const data = new Uint8Array(9 * 8 * 8)
    const tensors = { 'emb.weight': { dtype: 'F64', shape: [9, 8], data_offsets: [0, data.length] } }
    expect(await refusal(writePackage(config, rawSafetensors(JSON.stringify(tensors), data)))).toMatchObject(
      says('missing'),
    )
  })

  it('fla packages: the head may be tied to the embedding, x_x may hold all six mixes', async () => {
    const untied = toFla(good())
    expect(await refusal(with_((tensors) => tensors.delete('lm_head.weight'), toFla(good())))).toMatchObject(
      says('"lm_head.weight" is missing'),
    )
    untied.set('lm_head.weight', untied.get('model.embeddings.weight')!)
    const tied = new Map(untied)
    tied.delete('lm_head.weight')
    for (const l of [0, 1]) {
      const at = `model.layers.${l}.attn`
      const rows = [...'rwkvag'].map((c) => tied.get(`${at}.x_${c}`)!.data)
      for (const c of 'rwkvag') tied.delete(`${at}.x_${c}`)
      tied.set(`${at}.x_x`, { shape: [6, 8], data: Float32Array.from(rows.flatMap((row) => [...row])) })
    }
    const chains: string[] = []
    for (const [tensors, its] of [
      [untied, config],
      [tied, { ...config, tie_word_embeddings: true }],
    ] as const) {
      const model = await openModel(writePackage(its, safetensors(tensors)), { threads: 1 })
      const context = model.createContext()
      const [result] = await model.process([{ context, tokens: Int32Array.of(1, 2, 3, 4), nats: true }])
      chains.push(`${context.chain} ${result!.nats.join()}`)
      model.close()
    }
    expect(chains[0]).toBe(chains[1])
  })
})

describe('hostile files', () => {
  it('a truncated file is refused at every length', async () => {
    const file = safetensors(good())
    const dir = writePackage(config, file)
    for (const length of [1, 7, 8, 9, 100, 5000, file.length - 1]) {
      truncateSync(join(dir, 'model.safetensors'), length)
      writeFileSync(join(dir, 'model.safetensors'), file.subarray(0, length))
      expect((await refusal(dir)).code).toBe('INVALID')
    }
  })

  it('a header that lies about its length, nests without end or names a tensor twice', async () => {
    const file = safetensors(good())
    for (const length of [0n, 2n ** 63n, 2n ** 64n - 1n, 100_000_001n, BigInt(file.length)]) {
      const lying = file.slice()
      new DataView(lying.buffer).setBigUint64(0, length, true)
      expect((await refusal(writePackage(config, lying))).code).toBe('INVALID')
    }
    expect(await refusal(writePackage(config, rawSafetensors('['.repeat(1_000_000))))).toMatchObject(says('deeper'))
    const entry = '{"dtype":"F32","shape":[0],"data_offsets":[0,0]}'
    expect(await refusal(writePackage(config, rawSafetensors(`{"a":${entry},"a":${entry}}`)))).toMatchObject(
      says('twice'),
    )
    expect(
      await refusal(writePackage(config, rawSafetensors(`{"__proto__":${entry},"constructor":${entry}}`))),
    ).toMatchObject(says('emb.weight'))
  })

  it('mutations of a good file open or are refused in words; nothing else happens', { timeout: 60_000 }, async () => {
    const file = safetensors(good())
    const header = Number(new DataView(file.buffer).getBigUint64(0, true))
    const mutation = fc.record({ at: fc.nat(8 + header + 64), byte: fc.nat(255) })
    const dir = writePackage(config, file)
    await fc.assert(
      fc.asyncProperty(
        fc.array(mutation, { minLength: 1, maxLength: 6 }),
        fc.option(fc.nat(file.length)),
        async (mutations, cut) => {
          const hurt = file.slice()
          for (const { at, byte } of mutations) hurt[at] = byte
          writeFileSync(join(dir, 'model.safetensors'), cut === null ? hurt : hurt.subarray(0, cut))
          try {
            ;(await openModel(dir, { threads: 1 })).close()
          } catch (error) {
            expect(codeOf(error)).toBe('INVALID')
          }
        },
      ),
      { numRuns: 400 },
    )
  })
})
