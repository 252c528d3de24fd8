/** Downloads a model from a hub: which of its files make the package, and each of them checked. */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import { z } from 'zod'
import { ContinuoError } from '../errors.ts'
import { writeDurably } from '../files.ts'
import { schemaFault } from '../issues.ts'
import { MOST_TOKENIZER_BYTES } from '../json.ts'
import { isPlainPath, type ModelName, modelFolder } from './cache.ts'
import { type Fetched, fetchFile } from './download.ts'
import { getJson, type Hub } from './request.ts'

/** The public hub; nothing is asked of it but by `continuo pull` without --hub. */
export const PUBLIC_HUB = 'https://huggingface.co'

export interface PullRequest {
  readonly model: ModelName
  /** A branch, tag or commit. */
  readonly revision: string
  /** Where the files go; default: the cache. */
  readonly folder?: string | undefined
  readonly onFile?: ((file: string, number: number, of: number) => void) | undefined
  readonly onProgress?: ((file: string, done: number, bytes: number) => void) | undefined
  readonly onFetched?: ((file: string, fetched: Fetched) => void) | undefined
}

export interface Pulled {
  readonly commit: string
  /** What --model takes: the folder, or the one file that was asked for where that is a model. */
  readonly path: string
  readonly files: readonly ({ readonly file: string } & Fetched)[]
}

const RECORD = '.pull.json'
/** Bytes after which it is written, and at the end, however that comes. */
const RECORD_EVERY = 1 << 24
const MOST_LISTING = 1 << 26
const MOST_FILES = 100_000
/** Files of one package; the largest published ones have some 300. */
const MOST_CHOSEN = 4096

const listing = z.looseObject({
  sha: z.string().regex(/^[0-9a-f]{40}$/),
  siblings: z.array(z.looseObject({ rfilename: z.string() })).max(MOST_FILES),
})
const record = z.looseObject({ files: z.record(z.string(), z.looseObject({ etag: z.string() })) })

/** Of a file beside weights, in bytes; none that is larger would be read. */
const MOST_BESIDE = MOST_TOKENIZER_BYTES
/** What stands beside weights and is read, if it is there. */
const BESIDE =
  /^(config|generation_config|tokenizer|tokenizer_config|special_tokens_map|added_tokens|vocab)\.json$|^merges\.txt$|^chat_template\.jinja$|^rwkv_vocab_.*\.txt$/
const SPLIT = /-\d{5}-of-\d{5}(?=\.)/

const shown = (files: readonly string[]): string =>
  files.length === 0
    ? 'none'
    : `${files.slice(0, 20).join(', ')}${files.length > 20 ? `, and ${files.length - 20} more` : ''}`

/** Files of one model that lie in several: its parts are one choice. */
const choices = (files: readonly string[]): readonly (readonly string[])[] =>
  [...Map.groupBy(files, (file) => file.replace(SPLIT, '')).values()].map((parts) => parts.toSorted())

/** The weights of a package: safetensors before pytorch_model.bin before the one GGUF or RWKV file. */
const weightsOf = (files: readonly string[], what: string): readonly string[] => {
  const of = (pattern: RegExp): string[] => files.filter((file) => pattern.test(file))
  for (const kind of [
    of(/^model(-\d{5}-of-\d{5})?\.safetensors(\.index\.json)?$/),
    of(/^pytorch_model(-\d{5}-of-\d{5})?\.bin(\.index\.json)?$/),
  ]) {
    const [whole, index] = [
      kind.find((file) => !SPLIT.test(file) && !file.endsWith('.json')),
      kind.find((file) => file.endsWith('.json')),
    ]
    if (whole !== undefined) return [whole]
    if (index !== undefined) return kind
  }
  const others = choices(of(/^[^/]+\.(gguf|pth)$/))
  if (others.length === 1) return others[0]!
  if (others.length > 1)
    throw new ContinuoError(
      'INVALID',
      `${what} has several models: ${shown(others.map(([first]) => first!))}. Name one: continuo pull ${what}:${others[0]![0]}`,
    )
  throw new ContinuoError(
    'INVALID',
    `${what} has no weights that Continuo reads (model.safetensors, pytorch_model.bin, .gguf, .pth). Its files: ${shown(files)}.`,
  )
}

const chosenOf = (files: readonly string[], { owner, name, file }: ModelName): readonly string[] => {
  const what = `${owner}/${name}`
  const beside = files.filter((path) => BESIDE.test(path))
  if (file === null) return [...beside, ...weightsOf(files, what)]
  if (!files.includes(file))
    throw new ContinuoError('INVALID', `${what} has no file ${file}. Its files: ${shown(files)}.`)
  const parts = SPLIT.test(file) ? choices(files).find((choice) => choice.includes(file))! : [file]
  // A GGUF file has all of its package inside; an RWKV file needs the vocabulary beside it.
  return file.endsWith('.pth') ? [...beside.filter((path) => /^rwkv_vocab_/.test(path)), ...parts] : parts
}

/** ETags of the files that are there, as the last call left them. */
const knownIn = async (folder: string): Promise<Record<string, { readonly etag: string }>> => {
  try {
    return record.parse(JSON.parse(await readFile(join(folder, RECORD), 'utf8'))).files
  } catch {
    // Without it every file is compared with what comes.
    return {}
  }
}

/**
 * Downloads what makes the package, or the one file that was named and what goes with it. Files that are there already
 * with the same ETag are left. Throws INVALID where the hub has no such model, or files that make none; and as
 * `fetchFile` does.
 */
export const pullModel = async (
  hub: Hub,
  { model, revision, folder = modelFolder(model), onFile, onProgress, onFetched }: PullRequest,
): Promise<Pulled> => {
  const { owner, name } = model
  const at = `/api/models/${owner}/${name}/revision/${encodeURIComponent(revision)}`
  const parsed = listing.safeParse(await getJson(hub, at, MOST_LISTING))
  if (!parsed.success)
    throw new ContinuoError(
      'INVALID',
      `${hub.url}${at}: no list of files (${schemaFault(parsed.error).message}). Check --hub.`,
    )
  const { sha: commit, siblings } = parsed.data
  const chosen = chosenOf(siblings.map(({ rfilename }) => rfilename).filter(isPlainPath), model)
  if (chosen.length > MOST_CHOSEN)
    throw new ContinuoError(
      'INVALID',
      `${owner}/${name} has ${chosen.length} files that make the package, expected at most ${MOST_CHOSEN}. Check --hub.`,
    )
  const known = await knownIn(folder)
  const files: ({ readonly file: string } & Fetched)[] = []
  /** Bytes that came since the record was written. */
  let since = 0
  let written = true
  const keep = async (): Promise<void> => {
    if (written) return
    const content = { version: 1, hub: hub.url, model: `${owner}/${name}`, revision, commit, files: known }
    await writeDurably(join(folder, RECORD), Buffer.from(`${JSON.stringify(content, null, 2)}\n`))
    since = 0
    written = true
  }
  try {
    for (const [number, file] of chosen.entries()) {
      onFile?.(file, number + 1, chosen.length)
      const path = `/${owner}/${name}/resolve/${commit}/${file.split('/').map(encodeURIComponent).join('/')}`
      const fetched = await fetchFile(hub, {
        path,
        to: join(folder, file),
        known: Object.hasOwn(known, file) ? known[file]!.etag : undefined,
        most: BESIDE.test(file) ? MOST_BESIDE : undefined,
        onProgress: (done, bytes) => onProgress?.(file, done, bytes),
      })
      const { etag, bytes, downloaded } = fetched
      files.push({ file, etag, bytes, downloaded })
      known[file] = { etag }
      written = false
      since += downloaded ? bytes : 0
      // It names all files: written for each of many small ones it would take more than they do. What a crash takes of
      // it comes again.
      if (since >= RECORD_EVERY) await keep()
      onFetched?.(file, fetched)
    }
  } finally {
    await keep()
  }
  const one = model.file !== null && /\.(gguf|pth)$/.test(model.file)
  return {
    commit,
    path: one
      ? join(folder, chosen.find((file) => file.replace(SPLIT, '') === model.file!.replace(SPLIT, ''))!)
      : folder,
    files,
  }
}
