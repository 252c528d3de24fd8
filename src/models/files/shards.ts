/**
 * The list of a sharded model's files, as Hugging Face publishes it: `{ weight_map: { tensor: file } }` in
 * `model.safetensors.index.json` or `pytorch_model.bin.index.json`.
 */
import { join } from 'node:path'
import { z } from 'zod'
import type { TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'
import { MOST_INDEX_BYTES, readJsonFile } from '../../json.ts'

/** Files of one model; the largest that are published have some 200. */
const MOST_FILES = 512

export interface Shards {
  readonly path: string
  /** Names of the files, each once, in order. */
  readonly names: readonly string[]
  readonly fileOf: ReadonlyMap<string, string>
}

const schema = z.looseObject({ weight_map: z.record(z.string(), z.string()) })

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)

/** Throws INVALID for an index that cannot be used; ENOENT passes as it is. */
export const readShards = async (dir: string, name: string): Promise<Shards> => {
  const path = join(dir, name)
  const { json } = await readJsonFile(path, MOST_INDEX_BYTES)
  const found = schema.safeParse(json)
  if (!found.success) throw invalid(`${path} has no weight_map that names a file for every tensor.`)
  const fileOf = new Map(Object.entries(found.data.weight_map))
  const names = [...new Set(fileOf.values())].sort()
  for (const file of names) {
    if (file === '' || file === '.' || file === '..' || /[/\\\0]/.test(file))
      throw invalid(
        `${path} names the file ${JSON.stringify(file)}, expected the name of a file in the same folder, without a path.`,
      )
  }
  if (names.length === 0 || names.length > MOST_FILES)
    throw invalid(`${path} names ${names.length} files, expected 1 to ${MOST_FILES}.`)
  return { path, names, fileOf }
}

/** Throws INVALID where the files hold other tensors than the list says. */
export const checkShards = ({ path, names, fileOf }: Shards, tensors: readonly TensorEntry[]): void => {
  const found = new Set<string>()
  for (const { name, file } of tensors) {
    const told = fileOf.get(name)
    if (told !== names[file]) {
      const other = told === undefined ? 'does not name it' : `says it is in ${told}`
      throw invalid(
        `${names[file]} holds the tensor "${name}", but ${path} ${other}. The files belong to different models, or a download is incomplete.`,
      )
    }
    found.add(name)
  }
  for (const [name, file] of fileOf) {
    if (!found.has(name))
      throw invalid(
        `${path} says that ${file} holds the tensor "${name}", but it does not. The files belong to different models, or a download is incomplete.`,
      )
  }
}
