/**
 * What a long text costs, and what is left of it: the weights of models/recall in Continuo with an external memory, in
 * Continuo's plain decoder, in llama.cpp with attention to all, and in llama.cpp with its context shift (the first
 * tokens stay, the older half of the others is dropped, the rest moves down).
 *
 *   node bench/peers/remember.ts [--lengths 1000,8000,32000,100000] [--full 32000] [--model ../../models/recall] [--threads 2]
 *
 * The plain sides open one GGUF file of the same numbers. A text states facts all along; behind it each is asked for,
 * from the same state. Then the sides take turns: 500 tokens are read, 32 written. --full: the longest text for sides
 * that attend to all.
 */
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { factsFrom, isRight, longText, question, told } from '../../src/cli/demo/facts.ts'
import { count, table } from '../../src/cli/output.ts'
import { openModel } from '../../src/models/open.ts'
import { parseArgs } from '../options.ts'
import { median } from '../support.ts'
import { type GgufTensor, ggufBytes, ggufHeader, padded } from './gguf.ts'
import { type Binding, type Context, loadLlama } from './llama-binding.ts'
import { hasOneThread, runWithOneThread } from './pool.ts'

const ROOT = join(import.meta.dirname, '..', '..')
const { values } = parseArgs({
  options: {
    model: { type: 'string', default: join(ROOT, 'models', 'recall') },
    lengths: { type: 'string', default: '1000,8000,32000,100000' },
    full: { type: 'string', default: '32000' },
    threads: { type: 'string', default: '2' },
  },
})
if (!hasOneThread()) process.exit(runWithOneThread())

const threads = Number(values.threads)
const lengths = values.lengths.split(',').map(Number)
/** Room for what is asked and measured behind a text. */
const MORE = 8000
const FULL = Number(values.full) + MORE
/** The positions that the weights were trained on: the context that is shifted. */
const POSITIONS = 1024
/** First tokens that a shift keeps: the sinks of memory.json. */
const KEPT = 4
const BATCH = 512
const READ = 500
const WRITTEN = 32
const ROUNDS = 5
const ANSWER = 56
const NEWLINE = 10
const FACTS = 50

interface Side {
  readonly name: string
  readonly limit: number
  fresh(): void
  read(ids: readonly number[]): Promise<void>
  /** Decodes so many tokens. */
  write(tokens: number): Promise<void>
  /** The greedy answer to the last line's end; the state is as it was. */
  ask(ids: readonly number[]): Promise<string>
  close(): Promise<void>
}

const idsOf = (text: string): number[] => [...Buffer.from(text)]
const textOf = (ids: readonly number[]): string => Buffer.from(ids.filter((id) => id < 256)).toString()

// ---- the same weights as a GGUF file

interface Entry {
  readonly dtype: string
  readonly shape: readonly number[]
  readonly data_offsets: readonly [number, number]
}

/** Of config.json: what the file's keys say, too. */
interface Config {
  readonly hidden_size: number
  readonly num_hidden_layers: number
  readonly num_attention_heads: number
  readonly num_key_value_heads: number
  readonly intermediate_size: number
  readonly vocab_size: number
  readonly rms_norm_eps: number
  readonly rope_theta: number
}

const NAMES: Readonly<Record<string, string>> = {
  ...{ 'self_attn.q_proj': 'attn_q', 'self_attn.k_proj': 'attn_k', 'self_attn.v_proj': 'attn_v' },
  ...{ 'self_attn.o_proj': 'attn_output', 'mlp.gate_proj': 'ffn_gate', 'mlp.up_proj': 'ffn_up' },
  ...{ 'mlp.down_proj': 'ffn_down', input_layernorm: 'attn_norm', post_attention_layernorm: 'ffn_norm' },
}
const ENDS: Readonly<Record<string, string>> = {
  'model.embed_tokens.weight': 'token_embd.weight',
  'model.norm.weight': 'output_norm.weight',
  'lm_head.weight': 'output.weight',
}
const ggufName = (name: string): string =>
  ENDS[name] ??
  name.replace(
    /^model\.layers\.(\d+)\.(.+)\.weight$/,
    (_, l: string, part: string) => `blk.${l}.${NAMES[part]!}.weight`,
  )

/**
 * llama.cpp turns neighbouring channels of a head, the folder's format channels d/2 apart: rows of queries and keys
 * change places.
 */
const interleaved = (bytes: Uint8Array, rows: number, width: number): Uint8Array => {
  const row = bytes.length / rows
  const out = new Uint8Array(bytes.length)
  for (let r = 0; r < rows; r += 1) {
    const [head, at] = [Math.floor(r / width), r % width]
    const from = head * width + (at % 2) * (width / 2) + Math.floor(at / 2)
    out.set(bytes.subarray(from * row, (from + 1) * row), r * row)
  }
  return out
}
const widened = (bf16: Uint8Array): Uint8Array => {
  const out = new Uint8Array(bf16.length * 2)
  for (let i = 0; i < bf16.length / 2; i += 1) out.set(bf16.subarray(2 * i, 2 * i + 2), 4 * i + 2)
  return out
}

const writeGguf = (folder: string, path: string, positions: number): void => {
  const config = JSON.parse(readFileSync(join(folder, 'config.json'), 'utf8')) as Config
  const file = readFileSync(join(folder, 'model.safetensors'))
  const end = 8 + Number(file.readBigUInt64LE(0))
  const { __metadata__: _, ...entries } = JSON.parse(file.subarray(8, end).toString()) as Record<string, Entry>
  const width = config.hidden_size / config.num_attention_heads
  const parts = Object.entries(entries).map(
    ([
      name,
      {
        shape,
        dtype,
        data_offsets: [from, to],
      },
    ]) => {
      if (dtype !== 'BF16')
        throw new Error(`${name} is ${dtype}; this bench takes a folder in BF16, as train/recall/export.py writes it.`)
      const bytes = file.subarray(end + from, end + to)
      const turned = /[qk]_proj/.test(name) ? interleaved(bytes, shape[0]!, width) : bytes
      const plain = shape.length === 1
      const tensor: GgufTensor = { name: ggufName(name), extents: shape.toReversed(), type: plain ? 'f32' : 'bf16' }
      return { tensor, bytes: plain ? widened(turned) : turned }
    },
  )
  const u32 = (key: keyof Config) => ({ u32: config[key] })
  const header = ggufHeader(
    {
      'general.architecture': 'llama',
      'general.file_type': { u32: 32 },
      'llama.context_length': { u32: positions },
      'llama.embedding_length': u32('hidden_size'),
      'llama.block_count': u32('num_hidden_layers'),
      'llama.feed_forward_length': u32('intermediate_size'),
      'llama.vocab_size': u32('vocab_size'),
      'llama.attention.head_count': u32('num_attention_heads'),
      'llama.attention.head_count_kv': u32('num_key_value_heads'),
      'llama.attention.layer_norm_rms_epsilon': { f32: config.rms_norm_eps },
      'llama.rope.dimension_count': { u32: width },
      'llama.rope.freq_base': { f32: config.rope_theta },
      'tokenizer.ggml.model': 'none',
    },
    parts.map(({ tensor }) => tensor),
  )
  const bodies = parts.map(({ tensor, bytes }) =>
    Buffer.concat([bytes, Buffer.alloc(padded(ggufBytes(tensor)) - bytes.length)]),
  )
  writeFileSync(path, Buffer.concat([header, ...bodies]))
}

// ---- sides

const greedy = { temperature: 0, topK: 0, topP: 1, seed: 0n }

const continuo = async (name: string, path: string, limit: number): Promise<Side> => {
  const model = await openModel(path, { threads, keepPacked: false })
  let context = model.createContext()
  const feed = async (tokens: readonly number[]): Promise<void> => {
    await model.submit({ context, tokens: Int32Array.from(tokens), nats: false })
  }
  return {
    name,
    limit,
    fresh() {
      context.close()
      context = model.createContext()
    },
    async read(ids) {
      for (let at = 0; at < ids.length; at += READ) await feed(ids.slice(at, at + READ))
    },
    async write(tokens) {
      await model.submit({ context, tokens: new Int32Array(0), nats: false, generate: { ...greedy, count: tokens } })
    },
    async ask(ids) {
      const asking = model.forkContext(context)
      const item = { context: asking, tokens: Int32Array.from(ids), nats: false }
      const { generated } = await model.submit({ ...item, generate: { ...greedy, count: ANSWER } })
      asking.close()
      return textOf([...generated])
    },
    async close() {
      context.close()
      model.close()
    },
  }
}

type Llama = InstanceType<Binding['AddonModel']>

/** positions: of the context. Where they are used up, the older half of what may go is dropped. */
const llama = async (
  binding: Binding,
  model: Llama,
  {
    name,
    positions,
    limit,
    flashAttention,
  }: { readonly name: string; readonly positions: number; readonly limit: number; readonly flashAttention: boolean },
): Promise<Side> => {
  const context: Context = new binding.AddonContext(model, {
    contextSize: positions,
    batchSize: BATCH,
    sequences: 1,
    flashAttention,
    threads,
  })
  if (!(await context.init())) throw new Error('llama.cpp makes no context; its own message stands above.')
  const sampler = new binding.AddonSampler(model)
  sampler.applyConfig({})
  let position = 0
  const room = (tokens: number): void => {
    if (position + tokens <= positions) return
    const gone = Math.floor((position - KEPT) / 2)
    context.removeTokenCellsFromSequence(0, KEPT, KEPT + gone)
    context.shiftSequenceTokenCells(0, KEPT + gone, position, -gone)
    position -= gone
  }
  const feed = async (ids: readonly number[]): Promise<number> => {
    room(ids.length)
    context.initBatch(ids.length)
    const [output] = context.addToBatch(0, position, Uint32Array.from(ids), Uint32Array.of(ids.length - 1))
    await context.decodeBatch()
    position += ids.length
    return output!
  }
  const best = async (output: number): Promise<number> => {
    const [, , , pairs] = await context.sampleToken(output, sampler, false, false, true)
    let [token, logit] = [0, Number.NEGATIVE_INFINITY]
    for (let i = 0; i < pairs.length; i += 2) if (pairs[i + 1]! > logit) [token, logit] = [pairs[i]!, pairs[i + 1]!]
    return token
  }
  return {
    name,
    limit,
    fresh() {
      context.disposeSequence(0)
      position = 0
    },
    async read(ids) {
      for (let at = 0; at < ids.length; at += READ) await feed(ids.slice(at, at + READ))
    },
    async write(tokens) {
      for (let n = 0; n < tokens; n += 1) await feed([97 + (n % 26)])
    },
    async ask(ids) {
      room(ids.length + ANSWER)
      const before = position
      let token = await best(await feed(ids))
      const answer: number[] = []
      while (answer.length < ANSWER && !(token === NEWLINE && answer.length > 0)) {
        answer.push(token)
        token = await best(await feed([token]))
      }
      context.removeTokenCellsFromSequence(0, before, position)
      position = before
      return textOf(answer)
    },
    async close() {
      sampler.dispose()
      await context.dispose()
    },
  }
}

const seconds = async (run: () => Promise<void>): Promise<number> => {
  const started = performance.now()
  await run()
  return (performance.now() - started) / 1000
}

const hay = readFileSync(join(ROOT, 'docs', 'demo', 'harbour-log.txt'), 'utf8')
const dir = mkdtempSync(join(tmpdir(), 'remember-'))
try {
  const gguf = join(dir, 'recall.gguf')
  writeGguf(values.model, gguf, FULL)
  const { binding, release, variant } = await loadLlama()
  const model = new binding.AddonModel(gguf, { gpuLayers: 0, useMmap: true })
  if (!(await model.init())) throw new Error(`llama.cpp does not load ${gguf}; its own message stands above.`)
  console.log(`llama.cpp ${release} (${variant}), ${threads} threads`)
  /** With flash attention or without, whichever reads faster here. */
  const faster = async (name: string, positions: number, limit: number): Promise<Side> => {
    const options = { name, positions, limit }
    const both = [
      await llama(binding, model, { ...options, flashAttention: false }),
      await llama(binding, model, { ...options, flashAttention: true }),
    ] as const
    const took: number[] = []
    for (const side of both) {
      const ids = idsOf(hay.slice(0, 6000))
      await side.read(ids)
      side.fresh()
      took.push(await seconds(() => side.read(ids)))
      side.fresh()
    }
    const flash = took[1]! < took[0]!
    await both[flash ? 0 : 1].close()
    console.log(`${name}: ${flash ? 'with' : 'without'} flash attention, the faster of the two here.`)
    return both[flash ? 1 : 0]
  }
  const sides = [
    await continuo('Continuo, external memory', values.model, Number.POSITIVE_INFINITY),
    await continuo('Continuo, all', gguf, Number(values.full)),
    await faster('llama.cpp, all', FULL, Number(values.full)),
    await faster('llama.cpp, shifted', POSITIONS, Number.POSITIVE_INFINITY),
  ]
  const rows: string[][] = []
  for (const length of lengths) {
    const facts = factsFrom(length, Math.min(FACTS, Math.floor(length / 250)))
    const ids = idsOf(told(longText(hay, length, 5).slice(0, length), facts, length * 0.02, length * 0.98))
    const here = sides.filter(({ limit }) => length <= limit)
    const right = new Map<Side, number>()
    const rates = new Map(here.map((side) => [side, { read: [] as number[], write: [] as number[] }]))
    for (const side of here) {
      side.fresh()
      await side.read(ids)
      let n = 0
      for (const fact of facts) if (isRight((await side.ask(idsOf(question(fact)))).split('\n')[0]!, fact)) n += 1
      right.set(side, n)
    }
    for (let round = 0; round < ROUNDS; round += 1)
      for (const side of here) {
        const more = idsOf(hay.slice(round * READ, (round + 1) * READ))
        rates.get(side)!.read.push(more.length / (await seconds(() => side.read(more))))
        rates.get(side)!.write.push(WRITTEN / (await seconds(() => side.write(WRITTEN))))
      }
    for (const side of here) {
      const { read, write } = rates.get(side)!
      rows.push([
        count(length),
        side.name,
        count(median(read)),
        count(median(write)),
        `${right.get(side)!} of ${facts.length}`,
      ])
    }
  }
  console.log(table(['>tokens', 'side', '>read/s', '>written/s', '>answers right'], rows))
  for (const side of sides) await side.close()
  await model.dispose()
} finally {
  rmSync(dir, { recursive: true, force: true })
}
