/** Opens a model package (package.ts says what one is): its graph, its weights, its tokenizer. */
import { existsSync, statSync } from 'node:fs'
import { join } from 'node:path'
import { loadModel } from '../engine/engine.ts'
import type { GgufMetadata } from '../engine/native.ts'
import type { CacheDtype, OpenModelOptions } from '../engine/options.ts'
import type { Model } from '../engine/types.ts'
import { type LoadRequest, packedFiles, type TextIdentity } from '../engine/weights.ts'
import { ContinuoError } from '../errors.ts'
import { packExperts, storeOf } from '../experts/pack.ts'
import { packedFolder } from '../hub/cache.ts'
import { cacheDtypeOf, withCacheDtype } from './cache-dtype.ts'
import { MEMORY_FILE, type Memories, readMemory } from './families/memory-json.ts'
import { withNgramMemory } from './families/ngram-memory.ts'
import type { Family } from './family.ts'
import { expertTensors, hasExperts, readStore, withExpertStore } from './files/expert-store.ts'
import { findExperts } from './files/experts-source.ts'
import type { SamplingDefaults } from './files/generation.ts'
import { type Package, readPackage } from './files/package.ts'
import { type PackageText, readText } from './files/package-text.ts'
import type { Tokenizer } from './tokenizer/index.ts'

/** A model with what its package says of texts and sampling. */
export interface ModelPackage {
  /** The model; `model.close()` gives its weights back. */
  readonly model: Model
  /** null: the package has no text form (no file of a tokenizer and other than 256 tokens); it takes token ids only. */
  readonly tokenizer: Tokenizer | null
  /** Tokens that end a text, as the package says; null: it does not say. */
  readonly endTokens: readonly number[] | null
  /** How its publisher samples; null: the package does not say. Nothing applies it unasked. */
  readonly sampling: SamplingDefaults | null
  /** Of a GGUF file: its chat template is in it. */
  readonly metadata: GgufMetadata | null
  /**
   * Keeps packed weights in Continuo's cache, where the model had to pack them: once, some seconds after it was opened,
   * or when this is called. Never rejects: where they cannot be kept, the next start packs them again.
   */
  keepPacked(): Promise<void>
}

/** `window` where it was asked for. Throws INVALID for a model that has no last position. */
const overflowOf = (
  { overflow }: OpenModelOptions,
  modelType: string,
  { windows, remembers }: Family,
): 'window' | undefined => {
  if (overflow === undefined || overflow === 'refuse') return undefined
  if (overflow !== 'window') {
    throw new ContinuoError('INVALID', `overflow is ${JSON.stringify(overflow)}, expected "refuse" or "window".`)
  }
  if (windows) return 'window'
  const why =
    windows === undefined
      ? 'has no last position to go past. Leave it out.'
      : remembers
        ? 'cannot go past its last position. Leave it out; a memory.json beside its config.json gives it contexts without an end (continuo memory init DIR).'
        : 'cannot go past its last position. Leave it out, and reset a session that is full.'
  throw new ContinuoError('INVALID', `overflow "window" was asked for, but a "${modelType}" model ${why}`)
}

/** What memory.json of the package asks for. Throws INVALID for a model that cannot have it. */
const memoryIn = async ({ dir, family, config, format }: Package, cacheDtype: CacheDtype): Promise<Memories> => {
  const { outer, ngram } = await readMemory(dir)
  // A context that is kept outside belongs to a model beside this file.
  if (outer === undefined || format === 'gguf') return { ngram }
  const where = join(dir, 'memory.json')
  if (!family.remembers)
    throw new ContinuoError(
      'INVALID',
      `${where} is there, but a "${config.model_type}" model keeps no external memory: only llama, qwen2 and qwen3 do. Take the file away.`,
    )
  if (cacheDtype !== 'f32')
    throw new ContinuoError(
      'INVALID',
      `cacheDtype "${cacheDtype}" was asked for, but ${where} says by kv_dtype how keys and values are kept. Leave one of them out.`,
    )
  return { outer, ngram }
}

/** What a package says of its model; nothing of the weights is read but their headers. */
export interface Described {
  readonly found: Package
  readonly request: LoadRequest
  readonly text: PackageText
}

type Told = Pick<OpenModelOptions, 'overflow' | 'cacheDtype' | 'withoutMemory' | 'experts'>

/** What a package says of its weights. */
const describeWeights = async (
  path: string,
  options: Told,
  warn: (message: string) => void,
): Promise<Pick<Described, 'found' | 'request'>> => {
  const found = await readPackage(path)
  const { config, dir, family } = found
  const modelType = config.model_type
  const overflow = overflowOf(options, modelType, family)
  const cacheDtype = cacheDtypeOf(options.cacheDtype, config)
  const { outer, ngram }: Memories = options.withoutMemory ? {} : await memoryIn(found, cacheDtype)
  const lookAhead = options.experts?.lookAhead ?? true
  const built = family.build(config, found.tensors, { overflow, memory: outer?.settle, lookAhead })
  const { vocabSize, levels = [], memory } = built
  for (const note of found.notes) warn(note)
  const learning = ngram === undefined ? built.graph : withNgramMemory(built.graph, ngram, modelType, vocabSize)
  const whole = withCacheDtype(learning, cacheDtype, modelType)
  const store =
    found.format === 'gguf' || options.experts?.from === 'weights' || !hasExperts(whole) ? null : readStore(dir, whole)
  const graph = store === null ? whole : withExpertStore(whole, lookAhead)
  const request: LoadRequest = {
    ...{ dir, modelType, vocabSize, levels, memory, graph },
    config: found.identity,
    paths: found.files,
    tensors: found.fileTensors,
    // Such a decoder has its caches as f32.
    decoder: cacheDtype === 'f32' ? built.decoder : undefined,
    overflow,
    cacheDtype: cacheDtype === 'f32' ? undefined : cacheDtype,
    outerMemory: graph.memory,
    ngram,
    memoryFile: outer?.modules ?? (ngram?.learned ? join(dir, MEMORY_FILE) : undefined),
    packedFolder: packedFolder(),
    experts:
      store ?? (built.experts && { folder: storeOf(dir), layers: built.experts.layers, digest: built.experts.digest }),
    ...(store !== null && {
      expertIdentity: { digest: store.digest, coding: store.coding },
      leftOut: expertTensors(whole),
    }),
  }
  return { found, request }
}

/** What its fingerprint has of a package's text. */
export const identityOfText = ({ fingerprint, endTokens, tokenizer }: PackageText): TextIdentity => ({
  tokenizer: fingerprint,
  endTokens,
  vocabulary: tokenizer ?? undefined,
})

/**
 * Throws INVALID for a package that cannot be used, naming what is wrong with it. `warn` is told what its reader should
 * know.
 */
export const describePackage = async (
  path: string,
  options: Told,
  warn: (message: string) => void,
): Promise<Described> => {
  const described = await describeWeights(path, options, warn)
  return { ...described, text: await readText(described.found, described.request.vocabSize, warn) }
}

/** The largest source of experts that is packed when the model is opened. */
const PACKED_UNASKED = 2 ** 30

/** Packs the experts of a model that has no store yet. Throws REFUSED where they are too large to be packed unasked. */
const needStore = async (
  { dir }: Package,
  { experts }: LoadRequest,
  warn: (message: string) => void,
): Promise<void> => {
  if (experts === undefined || existsSync(experts.folder)) return
  const source = await findExperts(dir)
  const bytes = source.files.reduce((sum, file) => sum + (statSync(file, { throwIfNoEntry: false })?.size ?? 0), 0)
  if (bytes === 0 || bytes > PACKED_UNASKED)
    throw new ContinuoError(
      'REFUSED',
      `There is no store of experts ${experts.folder}, and ${bytes === 0 ? `${source.files[0]} to pack it from is not there either` : `its source has ${bytes} bytes, more than are packed unasked`}. Pack it: continuo experts pack ${dir}.`,
    )
  const { store } = await packExperts({ source })
  warn(`Packed the experts of ${dir} into ${store}, for this time and the next ones.`)
}

/**
 * Token 0 through a scratch context twice, the second time past all that is in memory: a store that cannot be read, or
 * gives other numbers than it gave before, is found out before anything is served. Throws REFUSED.
 */
const checkExpertHealth = async (model: Model): Promise<void> => {
  const chainOf = async (): Promise<string> => {
    const context = model.createContext()
    try {
      await model.process([{ context, tokens: Int32Array.of(0), nats: false }])
      return context.chain
    } finally {
      context.close()
    }
  }
  const first = await chainOf()
  model.experts!.forget()
  const second = await chainOf()
  if (first === second) return
  throw new ContinuoError(
    'REFUSED',
    `The experts in ${model.experts!.folder} gave other numbers when they were read again (chains ${first} and ${second}). The disk or the memory of this machine is not to be trusted: check the store with continuo experts check, and the machine.`,
  )
}

/** A package that guesses tokens for the model. Throws INVALID for one that reads text otherwise. */
const describeDraft = async (
  path: string,
  of: string,
  vocabSize: number,
  tokenizer: string | undefined,
): Promise<Described> => {
  const draft = await describePackage(path, {}, () => {})
  const own = draft.request.vocabSize
  if (own !== vocabSize || draft.text.fingerprint !== tokenizer)
    throw new ContinuoError(
      'INVALID',
      `The draft model ${path} ${own === vocabSize ? 'has another tokenizer' : `has ${own} tokens and its own tokenizer`}, expected the tokenizer of ${of} with its ${vocabSize} tokens: what one of them draws must be a token of the other. Name a smaller model of the same family, or leave the draft model out.`,
    )
  return draft
}

/**
 * Opens the model and its tokenizer. Throws INVALID for a package that cannot be used, naming what is wrong with it.
 */
export const openPackage = async (path: string, options: OpenModelOptions = {}): Promise<ModelPackage> => {
  // Before the weights: it is quick, and what is wrong with it needs no model.
  const { warn = (message) => process.emitWarning(message) } = options
  const { onPhase = () => {} } = options
  const timed = async <T>(phase: string, work: () => Promise<T>): Promise<T> => {
    const began = performance.now()
    const result = await work()
    onPhase(phase, performance.now() - began)
    return result
  }
  const { found, request } = await timed('config', () => describeWeights(path, options, warn))
  if (request.experts !== undefined) await timed('experts', () => needStore(found, request, warn))
  let text: PackageText
  let reading: Promise<TextIdentity> | undefined
  // The engine loads the weights on its own threads meanwhile.
  const read = (): Promise<TextIdentity> => {
    reading ??= timed('tokenizer', async () => {
      text = await readText(found, request.vocabSize, warn)
      return identityOfText(text)
    })
    return reading
  }
  const draft =
    options.draftModel === undefined
      ? null
      : await describeDraft(options.draftModel, path, request.vocabSize, (await read()).tokenizer)
  const model = await timed('weights', () => loadModel(request, options, read, draft?.request))
  try {
    // Headers, weights and fingerprint are read one after the other and must be of the same files.
    await found.checkUnchanged()
    await draft?.found.checkUnchanged()
    if (model.experts !== null) await timed('health', () => checkExpertHealth(model))
  } catch (error) {
    model.close()
    throw error
  }
  const { endTokens, sampling, metadata } = found
  return { model, tokenizer: text!.tokenizer, endTokens, sampling, metadata, keepPacked: keeping(model) }
}

/** After so long a model is not just looked at, and its first tokens are out, ms. */
const KEEP_AFTER = 5000

const keeping = (model: Model): (() => Promise<void>) => {
  let kept: Promise<void> | undefined
  const keep = (): Promise<void> => {
    clearTimeout(timer)
    // Its reader can do nothing about a full disk or a folder that is not theirs to write, and nothing is lost.
    kept ??= model.keepPacked().then(
      () => undefined,
      () => undefined,
    )
    return kept
  }
  const timer = setTimeout(keep, KEEP_AFTER).unref()
  return keep
}

/**
 * Where the packed weights of a model lie that were asked for, and those that were not; whether they are there or not.
 */
export const packedFilesOf = async (
  path: string,
  options: Told = {},
): Promise<{ readonly beside: string; readonly cached: string }> => {
  const { request } = await describeWeights(path, options, () => undefined)
  return packedFiles(request, packedFolder())
}

/** The model of a package without its tokenizer. Rejects as `openPackage` does. */
export const openModel = async (dir: string, options: OpenModelOptions = {}): Promise<Model> =>
  (await openPackage(dir, options)).model
