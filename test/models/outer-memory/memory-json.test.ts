/**
 * Every memory.json that cannot be, with its sentence: by itself, for its model, and beside tensors that do not fit it.
 */
import { describe, expect, test } from 'vitest'
import type { OpenModelOptions } from '../../../src/engine/options.ts'
import {
  defaultMemory,
  type MemoryModel,
  memoryFor,
  mostSlots,
  readMemoryJson,
} from '../../../src/models/families/memory-json.ts'
import { describePackage } from '../../../src/models/open.ts'
import { errorOf, open } from '../../engine/helpers.ts'
import { safetensors, temporaryFolder } from '../../engine/packages.ts'
import type { Tensor } from '../../engine/safetensors.ts'
import { goodPackages, writeFiles } from '../../fuzz/packages.ts'
import { filesOf, SETTINGS } from './outer-memory-settings.ts'

const MODEL: MemoryModel = {
  ...{ layers: 2, positions: 512, vocabulary: 256 },
  idOf: (token) => (token === '<WHERE>' ? 7 : undefined),
}
const GOOD = {
  ...{ format: 'continuo-memory/1', block_size: 16, window: 64, sinks: 4 },
  anchors: { tokens: 2, entries: 2 },
  tombstones: {},
  retrieval: { every: 32 },
}
const GRAPH = {
  ...{ max_virtual: 5, new_distance: 0.5, drift_min: 0.05, split_variance: 0.2, split_min: 5, split_iterations: 3 },
  ...{ merge_distance: 0.4, fan: 3, max_hops: 9, walker_width: 7 },
}
const QFORMER = { layers: 1, heads: 2, width: 8, queries: 2 }

const settled = (memory: unknown) => memoryFor(readMemoryJson(memory), MODEL)
const withMembers = (members: object): Record<string, unknown> => {
  const merged: Record<string, unknown> = { ...GOOD }
  for (const [name, value] of Object.entries(members)) {
    const part = (GOOD as Record<string, unknown>)[name]
    merged[name] = typeof part === 'object' ? { ...part, ...value } : value
  }
  return merged
}

const between = (least: number | string, most: number | string) => [
  ...(least === '' ? [] : [`Too small: expected number to be ${least}`]),
  ...(most === '' ? [] : [`Too big: expected number to be ${most}`]),
]
/** A member and numbers below and above its bounds. */
const BOUNDS: readonly (readonly [string, number | null, number | null, readonly string[]])[] = [
  ['block_size', 3, 4097, between('>=4', '<=4096')],
  ['window', 7, 2 ** 24 + 1, between('>=8', `<=${2 ** 24}`)],
  ['sinks', -1, 4097, between('>=0', '<=4096')],
  ['anchors.tokens', -1, 4097, between('>=0', '<=4096')],
  ['anchors.entries', -1, 4097, between('>=0', '<=4096')],
  ['segmentation.gamma', -1, 1e39, between('>=0', '<=3.4e+38')],
  ['segmentation.rate', 0, 1.5, between('>0', '<=1')],
  ['segmentation.warmup', -1, 2 ** 24 + 1, between('>=0', `<=${2 ** 24}`)],
  ['segmentation.min_blocks', -1, 2 ** 24 + 1, between('>=0', `<=${2 ** 24}`)],
  ['tombstones.count', -1, 4097, between('>=0', '<=4096')],
  ['tombstones.threshold', -0.5, 1e39, between('>=0', '<=3.4e+38')],
  ['tombstones.rate', 0, 1.5, between('>0', '<=1')],
  ['tombstones.cooldown', -1, 2 ** 31 + 1, between('>=0', `<=${2 ** 31}`)],
  ['retrieval.every', -16, 2 ** 24 + 16, between('>=0', `<=${2 ** 24}`)],
  ['retrieval.blocks', 0, 4097, between('>=1', '<=4096')],
  ['retrieval.rate', 0, 1.5, between('>0', '<=1')],
  ['summarize_keep', -1, 2 ** 24 + 1, between('>=0', `<=${2 ** 24}`)],
  ['tokens.summarize', -1, null, between('>=0', '')],
  ['tokens.retrieve', -1, null, between('>=0', '')],
  ['trimmer.width', 0, 65_537, between('>=1', '<=65536')],
  ['projector.width', 0, 65_537, between('>=1', '<=65536')],
  ['qformer.layers', 0, 257, between('>=1', '<=256')],
  ['qformer.heads', 0, 257, between('>=1', '<=256')],
  ['qformer.width', 0, 65_537, between('>=1', '<=65536')],
  ['qformer.queries', 0, 4097, between('>=1', '<=4096')],
  ['graph.max_virtual', 0, 4097, between('>=1', '<=4096')],
  ['graph.new_distance', 0, 1e39, between('>0', '<=3.4e+38')],
  ['graph.drift_min', 0, 1.5, between('>0', '<=1')],
  ['graph.split_variance', 0, 1e39, between('>0', '<=3.4e+38')],
  ['graph.split_min', 1, 2 ** 24 + 1, between('>=2', `<=${2 ** 24}`)],
  ['graph.split_iterations', 0, 1025, between('>=1', '<=1024')],
  ['graph.merge_distance', -1, 1e39, between('>=0', '<=3.4e+38')],
  ['graph.fan', 0, 65_537, between('>=1', '<=65536')],
  ['graph.max_hops', 0, 65_537, between('>=1', '<=65536')],
  ['graph.walker_width', 0, 65_537, between('>=1', '<=65536')],
]
const MODULES: Readonly<Record<string, object>> = { graph: GRAPH, qformer: QFORMER }
const outside = BOUNDS.flatMap(([member, below, above, sentences]) =>
  [below, above]
    .filter((value) => value !== null)
    .map((value, i): readonly [string, object, string] => {
      const [part, name] = member.split('.') as [string, string?]
      const members = name === undefined ? { [part]: value } : { [part]: { ...MODULES[part], [name]: value } }
      return [`${member} ${value}`, members, `${member}: ${sentences[i]}, got ${value}.`]
    }),
)

const RULES: readonly (readonly [what: string, members: object, sentence: string])[] = [
  [
    'another format',
    { format: 'continuo-memory/2' },
    'format: Invalid input: expected "continuo-memory/1", got "continuo-memory/2".',
  ],
  [
    'an unknown member',
    { blocksize: 16 },
    'Unrecognized key: "blocksize", expected format, block_size, window, sinks, kv_dtype, cold_dtype, anchors, segmentation, tombstones, retrieval, summarize_keep, tokens, trimmer, qformer, projector, graph, ngram at most.',
  ],
  ...['anchors', 'segmentation', 'tombstones', 'retrieval', 'tokens'].map(
    (part) => [`an unknown member of ${part}`, { [part]: { size: 1 } }, `${part}: Unrecognized key: "size".`] as const,
  ),
  ['an unknown member of graph', { graph: { ...GRAPH, depth: 1 } }, 'graph: Unrecognized key: "depth".'],
  [
    'a size that is no whole number',
    { block_size: 16.5 },
    'block_size: Invalid input: expected int, received number, got 16.5.',
  ],
  ['a size in quotes', { sinks: '4' }, 'sinks: Invalid input: expected number, received string, got "4".'],
  [
    'a window of no whole blocks',
    { window: 100 },
    'window is 100, expected a multiple of block_size 16, at least two of them.',
  ],
  [
    'a window of one block',
    { window: 16 },
    'window is 16, expected a multiple of block_size 16, at least two of them.',
  ],
  ['keys in f8', { kv_dtype: 'f8' }, 'kv_dtype: Invalid option: expected one of "f32"|"f16"|"bf16", got "f8".'],
  [
    'archived blocks in bf16',
    { cold_dtype: 'bf16' },
    'cold_dtype: Invalid option: expected one of "f8"|"f16"|"f32", got "bf16".',
  ],
  [
    'more sinks and anchors than a block has',
    { sinks: 15 },
    'sinks and anchors.tokens are 17 together, expected at most block_size 16.',
  ],
  [
    'no token for the trimmer to leave',
    { sinks: 14, trimmer: { width: 4 } },
    'sinks and anchors.tokens are 16 together, expected fewer than block_size 16 with a trimmer, which would have nothing to choose in the first block.',
  ],
  [
    'a policy of anchors that is none',
    { anchors: { policy: 'best' } },
    'anchors.policy: Invalid option: expected one of "segment"|"trimmer", got "best".',
  ],
  [
    'anchors of a trimmer that is not there',
    { anchors: { policy: 'trimmer' } },
    'anchors.policy is "trimmer", expected a member "trimmer" that says how wide it is, or the policy "segment".',
  ],
  [
    'a period of no whole blocks',
    { retrieval: { every: 24 } },
    'retrieval.every is 24, expected a multiple of block_size 16, or 0.',
  ],
  [
    'a policy of retrieval that is none',
    { retrieval: { policy: 'best' } },
    'retrieval.policy: Invalid option: expected one of "recent"|"similar"|"graph", got "best".',
  ],
  [
    'a policy "graph" without one',
    { retrieval: { policy: 'graph' } },
    'retrieval.policy is "graph", expected a member "graph" with its numbers.',
  ],
  [
    'a similarity that is none',
    { retrieval: { similarity: 'l2' } },
    'retrieval.similarity: Invalid option: expected one of "dot"|"cosine", got "l2".',
  ],
  [
    'cosines of keys beside a Q-Former',
    { retrieval: { similarity: 'cosine' }, qformer: QFORMER, projector: { width: 4 } },
    'retrieval.similarity is "cosine", which is for an index of keys; with a qformer leave it out.',
  ],
  [
    'a wait of two beats',
    { retrieval: { inject_after: 2 } },
    'retrieval.inject_after: Invalid option: expected one of 0|1, got 2.',
  ],
  [
    'a Q-Former without a projector',
    { qformer: QFORMER },
    'qformer and projector come together: what one sums up the other asks for.',
  ],
  [
    'a projector without a Q-Former',
    { projector: { width: 4 } },
    'qformer and projector come together: what one sums up the other asks for.',
  ],
  [
    'heads that do not divide the width',
    { qformer: { ...QFORMER, heads: 3 }, projector: { width: 4 } },
    'qformer.width is 8, expected a multiple of its heads 3.',
  ],
  [
    'a graph that lacks a number',
    { graph: { ...GRAPH, fan: undefined } },
    'graph.fan: Invalid input: expected number, received undefined.',
  ],
  ...(['tombstones', 'retrieval'] as const).flatMap((part): (readonly [string, object, string])[] => [
    [
      `no layers of ${part}`,
      { [part]: { layers: [] } },
      `${part}.layers: Too small: expected array to have >=1 items.`,
    ],
    [
      `a layer of ${part} that is not there`,
      { [part]: { layers: [0, 2] } },
      `${part}.layers is [0, 2], expected ascending numbers of layers from 0 to 1.`,
    ],
    [
      `layers of ${part} that fall`,
      { [part]: { layers: [1, 0] } },
      `${part}.layers is [1, 0], expected ascending numbers of layers from 0 to 1.`,
    ],
    [
      `a layer of ${part} twice`,
      { [part]: { layers: [1, 1] } },
      `${part}.layers is [1, 1], expected ascending numbers of layers from 0 to 1.`,
    ],
  ]),
  [
    'an id outside the vocabulary',
    { tokens: { retrieve: 256 } },
    'tokens.retrieve is 256, expected an id below the 256 of the vocabulary.',
  ],
  [
    'a token that the tokenizer does not add',
    { tokens: { summarize: '<WHAT>' } },
    'tokens.summarize is "<WHAT>", expected the content of an added token of tokenizer.json, an id, or null.',
  ],
  [
    'one id for both tokens',
    { tokens: { summarize: 7, retrieve: '<WHERE>' } },
    'both tokens have the id 7, expected two.',
  ],
  [
    'more slots than the model has positions',
    { window: 512 },
    'the longest list has 600 slots (sinks 4 + anchors 2 · 2 + tombstones 32 + blocks 3 · 16 + window 512), expected at most max_position_embeddings 512 of config.json.',
  ],
]

describe('a memory.json', () => {
  test('with what it must have is settled, and takes the defaults for the rest', () => {
    expect(settled(GOOD)).toMatchObject({
      tombstones: { layers: [1], count: 32 },
      retrieval: { layers: [1], blocks: 3, policy: 'similar' },
      // The vocabulary has no such tokens.
      tokens: { summarize: null, retrieve: null },
    })
    expect(settled(withMembers({ tokens: { retrieve: '<WHERE>' } })).tokens).toEqual({ summarize: null, retrieve: 7 })
    // 512 positions and not one more.
    expect(mostSlots(settled(withMembers({ window: 416, tombstones: { count: 40 } })))).toBe(512)
  })

  test('that is a list is refused', async () => {
    expect(await errorOf(() => settled([]))).toEqual({
      code: 'INVALID',
      message: expect.stringMatching(
        /^memory\.json: Invalid input: expected object, received array, expected format, block_size, /,
      ),
    })
  })

  test.each([...RULES, ...outside])('with %s is refused', async (_, members, sentence) => {
    expect(await errorOf(() => settled(withMembers(members)))).toEqual({
      code: 'INVALID',
      message: `memory.json: ${sentence}`,
    })
  })

  test('of defaults fits every model that has positions for the smallest list', async () => {
    const smallest = defaultMemory({ ...MODEL, positions: 96 })
    expect(smallest).toMatchObject({ block_size: 4, window: 64, sinks: 3, anchors: { tokens: 1 } })
    expect(mostSlots(smallest)).toBe(96)
    for (const positions of [96, 128, 200, 500, 512, 1000, 4096, 131_072]) {
      const memory = defaultMemory({ ...MODEL, positions })
      expect(mostSlots(memoryFor(readMemoryJson(memory), { ...MODEL, positions }))).toBeLessThanOrEqual(positions)
    }
    expect(await errorOf(() => defaultMemory({ ...MODEL, positions: 95 }))).toMatchObject({
      code: 'INVALID',
      message: expect.stringContaining('the model has 95 positions (max_position_embeddings), too few'),
    })
  })
})

test("the graph's memory always says who chooses anchors", async () => {
  const anchorsOf = async (files: Readonly<Record<string, Uint8Array>>) => {
    const dir = temporaryFolder()
    writeFiles(dir, files)
    return (await describePackage(dir, {}, () => {})).request.graph.memory!.anchors
  }
  for (const setting of SETTINGS) expect(await anchorsOf(filesOf(setting).files)).toEqual(setting.memory.anchors)
  const { files } = filesOf(SETTINGS[0]!)
  const bare = { format: 'continuo-memory/1', block_size: 8, window: 24, retrieval: { every: 32, blocks: 2 } }
  const unsaid = { ...bare, anchors: { tokens: 2, entries: 3 }, tombstones: { count: 4 } }
  expect(await anchorsOf({ ...files, 'memory.json': Buffer.from(JSON.stringify(unsaid)) })).toEqual({
    ...{ tokens: 2, entries: 3, policy: 'segment' },
  })
})

const LEARNED = SETTINGS.find(({ name }) => name === 'topics of a Q-Former, and a walker, a beat later')!
const refusal = async (files: Readonly<Record<string, Uint8Array>>, options: OpenModelOptions = {}) => {
  const dir = temporaryFolder()
  writeFiles(dir, files)
  const { code, message } = await errorOf(() => open(dir, { threads: 1, keepPacked: false, ...options }))
  return { code, message: message.replaceAll(dir, 'DIR') }
}

describe('a memory.json beside', () => {
  const json = Buffer.from(JSON.stringify(GOOD))
  test.each([
    'gpt2',
    'rwkv7',
    'titans-mac',
    'mamba2',
    'gemma3_text',
    'qwen3_moe',
  ])('a %s, whose keys cannot be turned anew, is refused', async (name) => {
    const files = goodPackages().get(name)!
    const { model_type } = JSON.parse(Buffer.from(files['config.json']!).toString()) as { model_type: string }
    expect(await refusal({ ...files, 'memory.json': json })).toEqual({
      code: 'INVALID',
      message: `DIR/memory.json is there, but a "${model_type}" model keeps no external memory: only llama, qwen2 and qwen3 do. Take the file away.`,
    })
  })

  test('another dtype of the cache is refused: kv_dtype says it', async () => {
    const { files } = filesOf(SETTINGS[0]!)
    expect(await refusal(files, { cacheDtype: 'f16' })).toEqual({
      code: 'INVALID',
      message:
        'cacheDtype "f16" was asked for, but DIR/memory.json says by kv_dtype how keys and values are kept. Leave one of them out.',
    })
  })

  test('no memory.safetensors is refused where it has modules', async () => {
    const { 'memory.safetensors': _, ...files } = filesOf(LEARNED).files
    expect(await refusal(files)).toEqual({
      code: 'INVALID',
      message:
        'memory.json: a trimmer, a qformer and a graph have tensors, but DIR/memory.safetensors is not there. Put it there, or set them to null.',
    })
  })
})

describe('memory.safetensors', () => {
  const { files, modules } = filesOf(LEARNED)
  const shapeText = (shape: readonly number[]): string => `[${shape.join(', ')}]`
  const withModules = (tensors: ReadonlyMap<string, Tensor>) =>
    refusal({ ...files, 'memory.safetensors': safetensors(tensors) })
  const missing = (name: string, shape: readonly number[]) => ({
    code: 'INVALID',
    message: expect.stringContaining(
      `memory.safetensors: tensor "${name}" is missing, expected shape ${shapeText(shape)}.`,
    ),
  })

  test('without any one of its tensors, or with one of another shape, is refused by its name', {
    tags: 'slow',
  }, async () => {
    expect(modules.size).toBeGreaterThan(50)
    for (const [name, { shape, data }] of modules) {
      const without = new Map(modules)
      without.delete(name)
      expect(await withModules(without)).toEqual(missing(name, shape))
      const other = [...shape, 1]
      expect(await withModules(new Map([...modules, [name, { shape: other, data }]]))).toEqual({
        code: 'INVALID',
        message: expect.stringContaining(
          `memory.safetensors: tensor "${name}" is F32 of shape ${shapeText(other)}, expected F32, F16 or BF16 of shape ${shapeText(shape)}.`,
        ),
      })
    }
  })

  test('may lack the heads of tombstones, both of them', async () => {
    const dir = temporaryFolder()
    const heads = /^tombstone\./
    const without = new Map([...modules].filter(([name]) => !heads.test(name)))
    expect(without.size).toBe(modules.size - 2)
    writeFiles(dir, { ...files, 'memory.safetensors': safetensors(without) })
    expect((await open(dir, { threads: 1, keepPacked: false })).outerMemory).not.toBeNull()
  })

  test('with a number that is not finite is refused', async () => {
    const [name, { shape, data }] = [...modules][0]!
    const broken = data.slice()
    broken[0] = Number.NaN
    expect(await withModules(new Map([...modules, [name, { shape, data: broken }]]))).toEqual({
      code: 'INVALID',
      message: expect.stringContaining(`memory.safetensors: tensor "${name}" has a number that is not finite.`),
    })
  })

  test('that is no such file is refused', async () => {
    expect(await refusal({ ...files, 'memory.safetensors': Buffer.from('no tensors') })).toEqual({
      code: 'INVALID',
      message: expect.stringMatching(
        /^memory\.safetensors announces a header of \d+ bytes but 2 follow .*The file is damaged or not safetensors: fetch it again\.$/,
      ),
    })
  })
})
