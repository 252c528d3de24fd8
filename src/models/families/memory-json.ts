/**
 * memory.json beside a decoder's config.json: how its context is kept outside of its attention
 * (docs/infinite-context.md). The file may leave members out, which then have their defaults; it may have no others.
 */
import { existsSync } from 'node:fs'
import { join } from 'node:path'
import { z } from 'zod'
import { ContinuoError } from '../../errors.ts'
import { type SchemaFault, schemaFault } from '../../issues.ts'
import { MOST_CONFIG_BYTES, MOST_TOKENIZER_BYTES, readJsonFile } from '../../json.ts'
import { asksForNgram, type NgramMemory, ngramMember, readNgramMemory } from './ngram-memory.ts'

const count = (least: number, most: number) => z.int().min(least).max(most)
const width = count(1, 65_536)
/** The engine computes in f32. */
const LARGEST = 3.4e38
const number = z.number().min(0).max(LARGEST)
const positive = z.number().positive().max(LARGEST)
const rate = z.number().gt(0).max(1)
const layers = z.array(z.int().min(0)).min(1).nullable()
/** An id, the content of an added token, or none. */
const token = z.union([z.int().min(0), z.string().min(1), z.null()])

const DEFAULT_TOKENS = { summarize: '<SUMMARIZE>', retrieve: '<RETRIEVE>' } as const

const schema = z.strictObject({
  format: z.literal('continuo-memory/1'),
  block_size: count(4, 4096).default(128),
  window: count(8, 2 ** 24).default(2048),
  sinks: count(0, 4096).default(5),
  kv_dtype: z.enum(['f32', 'f16', 'bf16']).default('f16'),
  cold_dtype: z.enum(['f8', 'f16', 'f32']).default('f8'),
  anchors: z
    .strictObject({
      tokens: count(0, 4096).default(16),
      entries: count(0, 4096).default(16),
      policy: z.enum(['segment', 'trimmer']).default('segment'),
    })
    .prefault({}),
  segmentation: z
    .strictObject({
      gamma: number.default(1.5),
      rate: rate.default(0.05),
      warmup: count(0, 2 ** 24).default(8),
      min_blocks: count(0, 2 ** 24).default(2),
    })
    .prefault({}),
  tombstones: z
    .strictObject({
      count: count(0, 4096).default(32),
      threshold: number.nullable().default(1),
      rate: rate.default(0.05),
      cooldown: count(0, 2 ** 31).default(128),
      layers: layers.default(null),
    })
    .prefault({}),
  retrieval: z
    .strictObject({
      every: count(0, 2 ** 24).default(512),
      blocks: count(1, 4096).default(3),
      policy: z.enum(['recent', 'similar', 'graph']).default('similar'),
      similarity: z.enum(['dot', 'cosine']).default('dot'),
      layers: layers.default(null),
      rate: rate.default(0.05),
      inject_after: z.literal([0, 1]).default(0),
    })
    .prefault({}),
  summarize_keep: count(0, 2 ** 24).default(1),
  tokens: z.strictObject({ summarize: token.optional(), retrieve: token.optional() }).prefault({}),
  trimmer: z.strictObject({ width }).nullable().default(null),
  qformer: z
    .strictObject({ layers: count(1, 256), heads: count(1, 256), width, queries: count(1, 4096) })
    .nullable()
    .default(null),
  projector: z.strictObject({ width }).nullable().default(null),
  graph: z
    .strictObject({
      max_virtual: count(1, 4096),
      new_distance: positive,
      drift_min: rate,
      split_variance: positive,
      split_min: count(2, 2 ** 24),
      split_iterations: count(1, 1024),
      merge_distance: number,
      fan: count(1, 65_536),
      max_hops: count(1, 65_536),
      walker_width: width,
    })
    .nullable()
    .default(null),
  /** A memory that learns the text of each session, behind the model (docs/ngram.md). */
  ngram: ngramMember.optional(),
})

/** memory.json with every member there. */
export type MemoryJson = z.infer<typeof schema>

/** memory.json of a model: layers are numbers, tokens are ids or null. */
export interface MemorySettings extends Omit<MemoryJson, 'tombstones' | 'retrieval' | 'tokens' | 'ngram'> {
  readonly tombstones: Omit<MemoryJson['tombstones'], 'layers'> & { readonly layers: readonly number[] }
  readonly retrieval: Omit<MemoryJson['retrieval'], 'layers'> & { readonly layers: readonly number[] }
  readonly tokens: { readonly summarize: number | null; readonly retrieve: number | null }
}

const refuse = (what: string): never => {
  throw new ContinuoError('INVALID', `memory.json: ${what}`)
}

/** What zod says of a member, with what was found. */
const sentenceOf = ({ path, message }: SchemaFault, parsed: unknown): string => {
  if (path.length === 0) return `${message}, expected ${Object.keys(schema.shape).join(', ')} at most.`
  const found = path.reduce<unknown>((at, key) => Object(at)[key], parsed)
  const got = typeof found === 'object' || found === undefined ? '' : `, got ${JSON.stringify(found)}`
  return `${path.join('.')}: ${message}${got}.`
}

/**
 * The file's content with its defaults. Throws INVALID for members that it cannot have, and for numbers that do not fit
 * together.
 */
export const readMemoryJson = (parsed: unknown): MemoryJson => {
  const result = schema.safeParse(parsed)
  if (!result.success) {
    return refuse(sentenceOf(schemaFault(result.error), parsed))
  }
  const memory = result.data
  const { block_size: B, window: M, sinks: S, anchors, retrieval } = memory
  if (M % B !== 0 || M < 2 * B) refuse(`window is ${M}, expected a multiple of block_size ${B}, at least two of them.`)
  if (S + anchors.tokens > B)
    refuse(`sinks and anchors.tokens are ${S + anchors.tokens} together, expected at most block_size ${B}.`)
  if (retrieval.every % B !== 0)
    refuse(`retrieval.every is ${retrieval.every}, expected a multiple of block_size ${B}, or 0.`)
  if (anchors.policy === 'trimmer' && memory.trimmer === null)
    refuse(
      'anchors.policy is "trimmer", expected a member "trimmer" that says how wide it is, or the policy "segment".',
    )
  if (memory.trimmer !== null && S + anchors.tokens === B)
    refuse(
      `sinks and anchors.tokens are ${B} together, expected fewer than block_size ${B} with a trimmer, which would have nothing to choose in the first block.`,
    )
  if ((memory.qformer === null) !== (memory.projector === null))
    refuse('qformer and projector come together: what one sums up the other asks for.')
  if (memory.qformer !== null && memory.qformer.width % memory.qformer.heads !== 0)
    refuse(`qformer.width is ${memory.qformer.width}, expected a multiple of its heads ${memory.qformer.heads}.`)
  if (memory.qformer !== null && retrieval.similarity === 'cosine' && retrieval.policy === 'similar')
    refuse('retrieval.similarity is "cosine", which is for an index of keys; with a qformer leave it out.')
  if (retrieval.policy === 'graph' && memory.graph === null)
    refuse('retrieval.policy is "graph", expected a member "graph" with its numbers.')
  return memory
}

/** Whether the settings ask for tensors: memory.safetensors beside the file has them. */
const hasModules = ({ trimmer, qformer, graph }: Pick<MemoryJson, 'trimmer' | 'qformer' | 'graph'>): boolean =>
  trimmer !== null || qformer !== null || graph !== null

/** The longest list of slots. */
export const mostSlots = (settings: MemorySettings | MemoryJson): number => {
  const { block_size, window, sinks, anchors, tombstones, retrieval } = settings
  return sinks + anchors.tokens * anchors.entries + tombstones.count + retrieval.blocks * block_size + window
}

/** Sizes of the model that settings must fit. */
export interface MemoryModel {
  readonly layers: number
  /** max_position_embeddings. */
  readonly positions: number
  readonly vocabulary: number
  /** The id of an added token; undefined: the vocabulary has no such token. */
  readonly idOf: (token: string) => number | undefined
}

/** Settles memory.json for a model of these sizes. */
export type MemoryOption = (model: Omit<MemoryModel, 'idOf'>) => MemorySettings

/** Throws INVALID where the settings do not fit the model. */
export const memoryFor = (
  { ngram: _, ...memory }: MemoryJson,
  { layers: L, positions, vocabulary, idOf }: MemoryModel,
): MemorySettings => {
  const layersOf = (where: string, told: readonly number[] | null): readonly number[] => {
    if (told === null) return [Math.floor(L / 2)]
    const at = told.findIndex((layer, i) => layer >= L || (i > 0 && layer <= told[i - 1]!))
    if (at >= 0) refuse(`${where} is [${told.join(', ')}], expected ascending numbers of layers from 0 to ${L - 1}.`)
    return told
  }
  const id = (name: 'summarize' | 'retrieve'): number | null => {
    const told = memory.tokens[name]
    if (told === null) return null
    if (typeof told === 'number') {
      if (told >= vocabulary)
        refuse(`tokens.${name} is ${told}, expected an id below the ${vocabulary} of the vocabulary.`)
      return told
    }
    const found = idOf(told ?? DEFAULT_TOKENS[name])
    if (found === undefined && told !== undefined)
      refuse(`tokens.${name} is "${told}", expected the content of an added token of tokenizer.json, an id, or null.`)
    return found ?? null
  }
  const settings: MemorySettings = {
    ...memory,
    tombstones: { ...memory.tombstones, layers: layersOf('tombstones.layers', memory.tombstones.layers) },
    retrieval: { ...memory.retrieval, layers: layersOf('retrieval.layers', memory.retrieval.layers) },
    tokens: { summarize: id('summarize'), retrieve: id('retrieve') },
  }
  const { summarize, retrieve } = settings.tokens
  if (summarize !== null && summarize === retrieve) refuse(`both tokens have the id ${summarize}, expected two.`)
  const slots = mostSlots(settings)
  if (slots > positions) {
    const { sinks, anchors, tombstones, retrieval, block_size, window } = settings
    refuse(
      `the longest list has ${slots} slots (sinks ${sinks} + anchors ${anchors.tokens} · ${anchors.entries} + tombstones ${tombstones.count} + blocks ${retrieval.blocks} · ${block_size} + window ${window}), expected at most max_position_embeddings ${positions} of config.json.`,
    )
  }
  return settings
}

/** Bytes of one archived block (native/runtime/memory/payload.h). */
export const payloadBytes = (
  { block_size: B, cold_dtype }: MemorySettings,
  { layers, keyHeads, channels }: { readonly layers: number; readonly keyHeads: number; readonly channels: number },
): number => {
  const exponents = cold_dtype === 'f8' ? 2 * layers * keyHeads : 0
  const each = { f8: 1, f16: 2, f32: 4 }[cold_dtype]
  return Math.ceil((28 + exponents) / 64) * 64 + 2 * layers * B * keyHeads * channels * each
}

/**
 * memory.json for a model of these sizes: the defaults, halved until their list fits the model's positions; tokens that
 * the vocabulary lacks are null. Throws INVALID for a model with too few positions.
 */
export const defaultMemory = (model: MemoryModel): MemoryJson => {
  const { tokens, ...defaults } = schema.parse({ format: 'continuo-memory/1' })
  const { anchors, tombstones, retrieval } = defaults
  const known = (name: string): string | null => (model.idOf(name) === undefined ? null : name)
  for (let halved = 1; defaults.block_size / halved >= 4; halved *= 2) {
    const of = (number: number): number => Math.ceil(number / halved)
    const block = of(defaults.block_size)
    const sinks = Math.min(defaults.sinks, block - 1)
    const memory: MemoryJson = {
      ...defaults,
      block_size: block,
      window: of(defaults.window),
      sinks,
      anchors: { ...anchors, tokens: Math.min(of(anchors.tokens), block - sinks) },
      tombstones: { ...tombstones, count: of(tombstones.count), cooldown: of(tombstones.cooldown) },
      retrieval: { ...retrieval, every: of(retrieval.every) },
      tokens: { summarize: known(DEFAULT_TOKENS.summarize), retrieve: known(DEFAULT_TOKENS.retrieve) },
    }
    if (mostSlots(memory) <= model.positions) return memory
  }
  return refuse(
    `the model has ${model.positions} positions (max_position_embeddings), too few for the smallest of the lists that this command makes. Write a memory.json by hand.`,
  )
}

const addedTokens = z.looseObject({
  added_tokens: z.array(z.looseObject({ id: z.int(), content: z.string() })).default([]),
})

/** The ids of the added tokens of tokenizer.json, by content; none without that file. */
export const addedIn = async (dir: string): Promise<MemoryModel['idOf']> => {
  const path = join(dir, 'tokenizer.json')
  const found = existsSync(path)
    ? addedTokens.safeParse((await readJsonFile(path, MOST_TOKENIZER_BYTES)).json)
    : undefined
  const ids = new Map((found?.data?.added_tokens ?? []).map(({ id, content }) => [content, id]))
  return (token) => ids.get(token)
}

/** What stands beside a decoder's weights: how its context is kept outside, and with which modules. */
export interface OuterMemory {
  readonly settle: MemoryOption
  /** The file of the learned modules; null: the settings need none. */
  readonly modules: string | null
}

/** Beside memory.json: the tensors that it asks for. */
export const MEMORY_FILE = 'memory.safetensors'

/** What memory.json of a folder asks for: a context kept outside, an ngram memory, or both. */
export interface Memories {
  readonly outer?: OuterMemory | undefined
  readonly ngram?: NgramMemory | undefined
}

/** What memory.json of a folder asks for; neither: the folder has none. Throws INVALID for one that cannot be. */
export const readMemory = async (dir: string): Promise<Memories> => {
  const path = join(dir, 'memory.json')
  if (!existsSync(path)) return {}
  const { json } = await readJsonFile(path, MOST_CONFIG_BYTES)
  const modules = join(dir, MEMORY_FILE)
  const learned = (ngram: NgramMemory): NgramMemory => {
    if (ngram.learned && !existsSync(modules))
      refuse(`it says "learned": true, but ${modules} is not there. Put it there, or take "learned" away.`)
    return ngram
  }
  if (asksForNgram(json)) return { ngram: learned(readNgramMemory(json)) }
  const memory = readMemoryJson(json)
  if (hasModules(memory) && !existsSync(modules))
    refuse(
      `a trimmer, a qformer and a graph have tensors, but ${modules} is not there. Put it there, or set them to null.`,
    )
  const idOf = await addedIn(dir)
  return {
    outer: {
      settle: (model) => memoryFor(memory, { ...model, idOf }),
      modules: hasModules(memory) ? modules : null,
    },
    ...(memory.ngram !== undefined && { ngram: learned({ kind: 'ngram', ...memory.ngram }) }),
  }
}
