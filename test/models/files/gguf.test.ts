import { createHash } from 'node:crypto'
import { readFileSync, writeFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { buildGraph } from '../../../src/engine/builder.ts'
import { ref } from '../../../src/engine/builder-types.ts'
import { openGraph } from '../../../src/engine/engine.ts'
import { inspectFiles } from '../../../src/engine/inspect.ts'
import { readPackage } from '../../../src/models/files/package.ts'
import { openPackage } from '../../../src/models/open.ts'
import { quantizePackage } from '../../../src/models/quantize/quantize.ts'
import { errorOf, feed, open } from '../../engine/helpers.ts'
import { randomRwkv7, safetensors, type Tensors, temporaryFolder, toFla, writePackage } from '../../engine/packages.ts'
import { hasShared, sharedModel } from '../../engine/paths.ts'
import { type DecoderConfig, randomDecoder } from '../decoders.ts'
import { gpt2ConfigOf, randomGpt2 } from '../gpt2/gpt2.ts'
import { ggufFile, plainF32, q8Blocks } from './containers.ts'
import { decoderGguf, gptGguf, gptSizes, rwkvGguf, rwkvSizes } from './gguf-files.ts'

interface Described {
  readonly type: string
  readonly shape: readonly number[]
  readonly sha256_f32le: string
}
interface Expected {
  readonly files: Readonly<
    Record<
      string,
      {
        readonly input_ids: readonly number[]
        readonly logits: readonly number[]
        readonly total_nll: number
        readonly llama_cpp?: { readonly logits: readonly number[] }
        readonly tensors: Readonly<Record<string, Described>>
      }
    >
  >
}
const shared = sharedModel('gguf-tiny')
const expected = (): Expected => JSON.parse(readFileSync(join(shared, 'expected.json'), 'utf8')) as Expected

const write = (file: Uint8Array, name = 'model.gguf'): string => {
  const path = join(temporaryFolder(), name)
  writeFileSync(path, file)
  return path
}
const refusal = async (path: string): Promise<string> => {
  const { code, message } = await errorOf(() => openPackage(path))
  expect(code).toBe('INVALID')
  return message
}

/** Every row of a table as the engine looks it up. */
const rowsOf = async (path: string, tensor: string, [rows = 1, width = 1]: readonly number[]): Promise<Uint8Array> => {
  const g = buildGraph()
  const table = g.lookup('table', [rows, width], ref(tensor))
  const row = g.dynamic('row', [], 'i32')
  g.block('run', [row], () => ({ out: g.embed('out', row, table) }))
  const model = await openGraph(g.finish(), path, { threads: 1, keepPacked: false })
  const executor = model.createExecutor()
  const out: Buffer[] = []
  for (let at = 0; at < rows; at += 1) {
    executor.insert('row', [at])
    await executor.step('run')
    out.push(Buffer.from(Float32Array.from(executor.fetch('out').data as Float32Array).buffer))
  }
  model.close()
  return Buffer.concat(out)
}

describe.skipIf(!hasShared)('the shared GGUF files', () => {
  it('have every number of every block format bit for bit', async () => {
    for (const [file, { tensors }] of Object.entries(expected().files)) {
      const path = join(shared, file)
      const found = new Map(inspectFiles([path]).tensors.map((tensor) => [tensor.name, tensor]))
      for (const [name, { type, shape, sha256_f32le }] of Object.entries(tensors)) {
        expect(found.get(name)).toMatchObject({ dtype: type, shape })
        const wide = await rowsOf(path, name, shape.length === 1 ? [1, shape[0]!] : shape)
        expect([name, createHash('sha256').update(wide).digest('hex')]).toEqual([name, sha256_f32le])
      }
    }
  })

  it('have metadata of every kind', () => {
    const { metadata } = inspectFiles([join(shared, 'blocks.gguf')])
    expect([...metadata!]).toEqual([
      ['general.architecture', 'blocks'],
      ['test.u8', 200],
      ['test.i8', -100],
      ['test.u16', 60000],
      ['test.i16', -30000],
      ['test.i64', -1099511627776],
      ['test.u64', 9007199254740993n],
      ['test.f64', 0.1],
      ['test.bool', true],
      [
        'test.nested',
        [
          [1, -2],
          ['a', 'ß'],
        ],
      ],
    ])
  })

  it('compute what float64 computes on their numbers, however the ids are cut', async () => {
    const { input_ids, logits, total_nll } = expected().files['rwkv7-f16.gguf']!
    const model = await open(join(shared, 'rwkv7-f16.gguf'))
    for (const cut of [input_ids.length, 5]) {
      const context = model.createContext()
      let nats = 0
      for (let at = 0; at < input_ids.length; at += cut)
        for (const each of await feed(model, context, input_ids.slice(at, at + cut)))
          if (!Number.isNaN(each)) nats += each
      const found = await model.logits(context)
      expect(Math.max(...logits.map((value, i) => Math.abs(value - found[i]!)))).toBeLessThan(5e-4)
      expect(Math.abs(nats - total_nll)).toBeLessThan(1e-2)
    }
  })
})

const ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5]
const run = async (path: string) => {
  const model = await open(path)
  const context = model.createContext()
  const nats = await feed(model, context, ids)
  return { chain: context.chain, logits: await model.logits(context), nats, fingerprint: model.fingerprint, model }
}

/** Sizes of which blocks of 32 make whole rows. */
const BASE: DecoderConfig = {
  model_type: 'llama',
  vocab_size: 50,
  hidden_size: 64,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  num_key_value_heads: 2,
  head_dim: 16,
  intermediate_size: 96,
  max_position_embeddings: 64,
  rms_norm_eps: 1e-5,
  rope_theta: 10_000,
  tie_word_embeddings: false,
}
const EXPERTS = { num_experts_per_tok: 2, num_experts: 4, moe_intermediate_size: 32, norm_topk_prob: true }

describe('a GGUF file of a decoder', () => {
  it.each<[string, DecoderConfig]>([
    ['llama', BASE],
    ['llama with a tied head', { ...BASE, tie_word_embeddings: true, num_key_value_heads: 4 }],
    ['qwen2', { ...BASE, model_type: 'qwen2' }],
    ['qwen3', { ...BASE, model_type: 'qwen3' }],
    ['qwen3_moe', { ...BASE, model_type: 'qwen3_moe', ...EXPERTS }],
    ['mixtral', { ...BASE, model_type: 'mixtral', num_local_experts: 4, num_experts_per_tok: 2 }],
  ])('%s gives the bits of the folder', async (_, config) => {
    const tensors = randomDecoder(9, config)
    const [a, b] = [
      await run(write(decoderGguf(config, tensors))),
      await run(writePackage(config, safetensors(tensors))),
    ]
    expect(a.logits).toEqual(b.logits)
    expect(a.chain).toBe(b.chain)
    expect(a.model.layoutFingerprint).toBe(b.model.layoutFingerprint)
  })

  it('of Llama divides the angles by the factors that it has as a tensor', async () => {
    const tensors = randomDecoder(9, BASE)
    const factors = new Float32Array(8)
    const scaled = write(decoderGguf(BASE, tensors, plainF32, factors.fill(4)))
    const linear = { ...BASE, rope_scaling: { rope_type: 'linear', factor: 4 } }
    expect((await run(scaled)).chain).toBe((await run(writePackage(linear, safetensors(tensors)))).chain)
    const few = write(decoderGguf(BASE, tensors, plainF32, new Float32Array(5).fill(1)))
    expect(await refusal(few)).toContain('5 factors, expected 8')
    expect(await refusal(write(decoderGguf(BASE, tensors, plainF32, factors.fill(0))))).toContain('factors')
  })

  it('with blocks computes the same bits at any cut and number of threads, near the same model in f32', async () => {
    for (const config of [BASE, { ...BASE, model_type: 'qwen3_moe', ...EXPERTS }]) {
      const tensors = randomDecoder(9, config)
      const path = write(decoderGguf(config, tensors, q8Blocks))
      const wide = await run(write(decoderGguf(config, tensors)))
      const narrow = await run(path)
      const difference = Math.max(...wide.logits.map((value, i) => Math.abs(value - narrow.logits[i]!)))
      expect(difference).toBeGreaterThan(0)
      expect(difference).toBeLessThan(0.5)
      const model = await open(path, { threads: 2 })
      const context = model.createContext()
      for (const id of ids) await feed(model, context, [id])
      expect(context.chain).toBe(narrow.chain)
    }
  })

  it.skipIf(!hasShared)('is near what float64 gives on the numbers that it stands for', async () => {
    const distance = (a: readonly number[], b: ArrayLike<number>): number =>
      Math.sqrt(a.reduce((sum, value, i) => sum + (value - b[i]!) ** 2, 0) / a.length)
    for (const [file, most] of [
      ['llama-q8_0.gguf', 0.15],
      ['llama-q4_k.gguf', 0.3],
    ] as const) {
      const { input_ids, logits, total_nll, llama_cpp } = expected().files[file]!
      const model = await open(join(shared, file))
      const chains = new Set<string>()
      for (const cut of [input_ids.length, 5]) {
        const context = model.createContext()
        let nats = 0
        for (let at = 0; at < input_ids.length; at += cut) {
          for (const each of await feed(model, context, input_ids.slice(at, at + cut)))
            if (!Number.isNaN(each)) nats += each
        }
        const found = await model.logits(context)
        expect(Math.max(...logits.map((value, i) => Math.abs(value - found[i]!)))).toBeLessThan(most)
        // Activations of 8 bits cost both alike.
        expect(distance(logits, found)).toBeLessThan(1.2 * distance(logits, llama_cpp!.logits))
        expect(Math.abs(nats - total_nll) / input_ids.length).toBeLessThan(most / 4)
        chains.add(context.chain)
      }
      expect(chains.size).toBe(1)
    }
  })
})

describe('a GGUF file', () => {
  it('of RWKV-7 gives the bits of the same weights under the names that the family knows', async () => {
    const tensors = randomRwkv7(5, rwkvSizes)
    const path = write(rwkvGguf(tensors, plainF32))
    const fla = writePackage({ model_type: 'rwkv7', norm_eps: 1e-5 }, safetensors(toFla(tensors)))
    const [a, b] = [await run(path), await run(fla)]
    expect(a.logits).toEqual(b.logits)
    expect(a.chain).toBe(b.chain)
    expect(a.model.layoutFingerprint).toBe(b.model.layoutFingerprint)
    expect(a.fingerprint).not.toBe(b.fingerprint)
    expect((await readPackage(path)).endTokens).toEqual([5, 7])
  })

  it('of GPT-2 gives the bits of the folder of Hugging Face, alone in its folder or named', async () => {
    const tensors = randomGpt2(6, gptSizes)
    const path = write(gptGguf(tensors))
    const [a, b] = [await run(path), await run(writePackage(gpt2ConfigOf(gptSizes), safetensors(tensors)))]
    expect(a.logits).toEqual(b.logits)
    expect(a.chain).toBe(b.chain)
    expect((await run(join(path, '..'))).fingerprint).toBe(a.fingerprint)
  })

  it('has another fingerprint with other metadata', async () => {
    const tensors = randomGpt2(6, gptSizes)
    const [a, b] = [write(gptGguf(tensors)), write(gptGguf(tensors, { 'general.name': 'other' }))]
    expect((await run(a)).fingerprint).not.toBe((await run(b)).fingerprint)
    expect((await run(a)).chain).toBe((await run(b)).chain)
  })

  it('may hold a vocabulary of 262,144 tokens', { tags: 'slow' }, async () => {
    const tokens = Array.from({ length: 262_144 }, (_, at) => `token ${at} ß`)
    const path = write(
      gptGguf(randomGpt2(6, gptSizes), {
        'tokenizer.ggml.tokens': tokens,
        'tokenizer.ggml.scores': { f32s: tokens.map((_, at) => -at) },
        'tokenizer.ggml.token_type': { i32s: tokens.map(() => 1) },
      }),
    )
    const { metadata } = await readPackage(path)
    expect(metadata!.get('tokenizer.ggml.tokens')).toEqual(tokens)
    expect((metadata!.get('tokenizer.ggml.scores') as number[])[262_143]).toBe(-262_143)
  })

  it('with blocks of whole numbers is near the same model in f32', async () => {
    const tensors = randomRwkv7(5, rwkvSizes)
    const [wide, narrow] = [
      await run(write(rwkvGguf(tensors, plainF32))),
      await run(write(rwkvGguf(tensors, q8Blocks))),
    ]
    const difference = Math.max(...wide.logits.map((value, i) => Math.abs(value - narrow.logits[i]!)))
    expect(difference).toBeGreaterThan(0)
    expect(difference).toBeLessThan(0.5)
  })

  it('in parts is one model, named by its first', async () => {
    const tensors = randomGpt2(6, gptSizes)
    const dir = temporaryFolder()
    const own = (keep: (at: number) => boolean): Tensors => new Map([...tensors].filter((_, at) => keep(at)))
    const names = [1, 2].map((part) => join(dir, `m-0000${part}-of-00002.gguf`))
    writeFileSync(names[0]!, gptGguf(own((at) => at % 2 === 0)))
    writeFileSync(names[1]!, gptGguf(own((at) => at % 2 === 1)))
    expect((await run(names[0]!)).chain).toBe((await run(write(gptGguf(tensors)))).chain)
    expect((await run(dir)).fingerprint).toBe((await run(names[0]!)).fingerprint)
    expect(await refusal(names[1]!)).toContain('is part 2 of 2; name the first part')
  })

  it('is refused by name where Continuo does not read it', async () => {
    const one = new Map([['a', { shape: [1], type: 0, data: new Uint8Array(4) }]])
    expect(await refusal(write(ggufFile({ 'general.architecture': 'llava' }, one)))).toContain(
      'holds a "llava" model, expected one of the architectures',
    )
    expect(await refusal(write(ggufFile({}, one)))).toContain('has nothing under "general.architecture"')
    expect(await refusal(write(ggufFile({ 'general.architecture': 'gpt2' }, one)))).toContain(
      'has nothing under "gpt2.context_length"',
    )
    expect(await refusal(write(ggufFile({}, one, 1)))).toContain('version 1')
    expect(await refusal(write(ggufFile({}, one, 0x03000000)))).toContain('byte-swapped')
    const iq = new Map([['a', { shape: [256], type: 16, data: new Uint8Array(66) }]])
    expect(await refusal(write(ggufFile({}, iq)))).toContain('stored as IQ2_XXS')
    const tensors = randomGpt2(6, gptSizes)
    const extra = new Map([...tensors, ['h.0.attn.c_attn.more', tensors.get('h.0.ln_1.weight')!]])
    expect(await refusal(write(gptGguf(extra)))).toContain('is not part of this model family')
    tensors.delete('h.1.mlp.c_fc.weight')
    expect(await refusal(write(gptGguf(tensors)))).toContain('"h.1.mlp.c_fc.weight" is missing from the model\'s files')
    const path = write(gptGguf(randomGpt2(6, gptSizes)))
    const { message } = await errorOf(() => quantizePackage({ dir: path, out: `${path}-q8`, to: 'q8', group: 32 }))
    expect(message).toContain('is a GGUF file, expected a package')
  })
})
