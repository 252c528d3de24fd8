/** Opens a model package: a folder with config.json, model.safetensors and, unless it is byte-level, tokenizer.json. */
import { type BigIntStats, existsSync } from 'node:fs'
import { readFile, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { inspectTensors, loadModel } from '../engine/engine.ts'
import type { Model, OpenModelOptions } from '../engine/types.ts'
import { ContinuoError, messageOf } from '../errors.ts'
import type { Family } from './family.ts'
import { families } from './index.ts'
import { byteTokenizer, type Tokenizer } from './tokenizer.ts'

export interface ModelPackage {
  readonly model: Model
  /** null: the package has no text form (no tokenizer.json and other than 256 tokens); it takes token ids only. */
  readonly tokenizer: Tokenizer | null
}

type Config = { readonly model_type: string; readonly [key: string]: unknown }

/** The content of config.json. Throws INVALID for a folder that is no model package. */
export const readConfig = async (dir: string): Promise<Config> => {
  const path = join(dir, 'config.json')
  let text: string
  try {
    text = await readFile(path, 'utf8')
  } catch (cause) {
    throw new ContinuoError(
      'INVALID',
      `${dir} is not a model package: cannot read config.json (${messageOf(cause)}). Expected a folder with config.json and model.safetensors.`,
      { cause },
    )
  }
  let parsed: unknown
  try {
    parsed = JSON.parse(text)
  } catch (cause) {
    throw new ContinuoError('INVALID', `${path} is not JSON: ${messageOf(cause)}.`, { cause })
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

/** What tells one version of a file from another. */
export const identityOf = ({ dev, ino, size, mtimeNs }: BigIntStats): string => [dev, ino, size, mtimeNs].join(' ')

/** The same, empty where there is no file. */
const identityAt = async (path: string): Promise<string> => {
  try {
    return identityOf(await stat(path, { bigint: true }))
  } catch {
    return ''
  }
}

/** Opens the model and its tokenizer. Throws INVALID for a package that cannot be used, naming what is wrong with it. */
export const openPackage = async (dir: string, options: OpenModelOptions = {}): Promise<ModelPackage> => {
  const { config, family } = await readPackage(dir)
  const modelType = config.model_type
  if (existsSync(join(dir, 'tokenizer.json'))) {
    throw new ContinuoError(
      'INVALID',
      `${dir} carries tokenizer.json, expected a byte-level package: 256 tokens and no tokenizer.json.`,
    )
  }
  const path = join(dir, 'model.safetensors')
  const before = await identityAt(path)
  const tensors = inspectTensors(path)
  const { graph, vocabSize, levels = [] } = family.build(config, tensors)
  const model = await loadModel({ dir, modelType, vocabSize, levels, config, graph, path, tensors }, options)
  // Header, weights and fingerprint are read one after the other and must be of one file.
  if ((await identityAt(path)) !== before) {
    model.close()
    throw new ContinuoError(
      'INVALID',
      `${path} was exchanged while it was being loaded; open the model again. Replace a model by renaming a new file over the old one.`,
    )
  }
  return { model, tokenizer: vocabSize === 256 ? byteTokenizer() : null }
}

export const openModel = async (dir: string, options: OpenModelOptions = {}): Promise<Model> =>
  (await openPackage(dir, options)).model
