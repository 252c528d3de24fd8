/** Opens a model package: a folder with config.json, model.safetensors and, unless a token is a byte, a file of its tokenizer. */
import type { BigIntStats } from 'node:fs'
import { stat } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { inspectTensors, loadModel } from '../engine/engine.ts'
import type { Model, OpenModelOptions } from '../engine/types.ts'
import { ContinuoError, messageOf } from '../errors.ts'
import { MOST_CONFIG_BYTES, readJsonFile } from '../json.ts'
import type { Family } from './family.ts'
import { families } from './index.ts'
import { readTokenizer } from './package-text.ts'
import type { Tokenizer } from './tokenizer/index.ts'

export interface ModelPackage {
  readonly model: Model
  /** null: the package has no text form (no file of a tokenizer and other than 256 tokens); it takes token ids only. */
  readonly tokenizer: Tokenizer | null
}

type Config = { readonly model_type: string; readonly [key: string]: unknown }

/** The content of config.json. Throws INVALID for a folder that is no model package. */
export const readConfig = async (dir: string): Promise<Config> => {
  const path = join(dir, 'config.json')
  let parsed: unknown
  try {
    parsed = (await readJsonFile(path, MOST_CONFIG_BYTES)).json
  } catch (cause) {
    if (cause instanceof ContinuoError) throw cause
    throw new ContinuoError(
      'INVALID',
      `${dir} is not a model package: cannot read config.json (${messageOf(cause)}). Expected a folder with config.json and model.safetensors.`,
      { cause },
    )
  }
  const config = z.looseObject({ model_type: z.string() }).safeParse(parsed)
  if (!config.success)
    throw new ContinuoError(
      'INVALID',
      `${path} has no model_type, expected one of: ${[...families.keys()].join(', ')}.`,
    )
  return config.data
}

/** config.json and the family it names. Throws INVALID for a folder that is no package of a known family. */
export const readPackage = async (dir: string): Promise<{ readonly config: Config; readonly family: Family }> => {
  const config = await readConfig(dir)
  const family = families.get(config.model_type)
  if (family) return { config, family }
  throw new ContinuoError(
    'INVALID',
    `${dir} holds a "${config.model_type}" model, expected one of: ${[...families.keys()].join(', ')}.`,
  )
}

/** Identity of one version of a file. */
export const identityOf = ({ dev, ino, size, mtimeNs }: BigIntStats): string => [dev, ino, size, mtimeNs].join(' ')

/** The same, empty where there is no file. */
const identityAt = async (path: string): Promise<string> => {
  try {
    return identityOf(await stat(path, { bigint: true }))
  } catch {
    return ''
  }
}

/** `window` where it was asked for. Throws INVALID for a model that has no last position. */
const overflowOf = ({ overflow }: OpenModelOptions, modelType: string, { windows }: Family): 'window' | undefined => {
  if (overflow === undefined || overflow === 'refuse') return undefined
  if (overflow !== 'window') {
    throw new ContinuoError('INVALID', `overflow is ${JSON.stringify(overflow)}, expected "refuse" or "window".`)
  }
  if (windows) return 'window'
  const why =
    windows === undefined
      ? 'has no last position to go past. Leave it out.'
      : 'cannot go past its last position. Leave it out, and reset a session that is full.'
  throw new ContinuoError('INVALID', `overflow "window" was asked for, but a "${modelType}" model ${why}`)
}

/** Opens the model and its tokenizer. Throws INVALID for a package that cannot be used, naming what is wrong with it. */
export const openPackage = async (dir: string, options: OpenModelOptions = {}): Promise<ModelPackage> => {
  const { config, family } = await readPackage(dir)
  const modelType = config.model_type
  const path = join(dir, 'model.safetensors')
  const before = await identityAt(path)
  const tensors = inspectTensors(path)
  const overflow = overflowOf(options, modelType, family)
  const { graph, vocabSize, levels = [], decoder, memory } = family.build(config, tensors, overflow)
  // Before the weights: it is quick, and what is wrong with it needs no model.
  const { warn = (message) => process.emitWarning(message) } = options
  const { tokenizer, fingerprint, endTokens } = await readTokenizer(dir, vocabSize, config, warn)
  const model = await loadModel(
    {
      dir,
      modelType,
      vocabSize,
      levels,
      memory,
      config,
      graph,
      path,
      tensors,
      decoder,
      overflow,
      tokenizer: fingerprint,
      endTokens,
    },
    options,
  )
  // Header, weights and fingerprint are read one after the other and must be of one file.
  if ((await identityAt(path)) !== before) {
    model.close()
    throw new ContinuoError(
      'INVALID',
      `${path} was exchanged while it was being loaded; open the model again. Replace a model by renaming a new file over the old one.`,
    )
  }
  return { model, tokenizer }
}

export const openModel = async (dir: string, options: OpenModelOptions = {}): Promise<Model> =>
  (await openPackage(dir, options)).model
