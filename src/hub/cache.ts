/**
 * Models by name, `owner/name` or `owner/name:file`: where `continuo pull` puts them, and where Hugging Face's own
 * tools have put them.
 *
 *   $CONTINUO_CACHE (else $XDG_CACHE_HOME/continuo, else ~/.cache/continuo)
 *     models/owner/name/            the files of the package under their own names
 *       .pull.json                  where each came from: commit, ETag, bytes
 *       .FILE.ETAG.part             what has come so far of a file
 *     compiled/                     what V8 made of Continuo's own modules (Node's compile cache)
 *     packed/                       packed weights (src/engine/packed.ts), $CONTINUO_PACKED_BYTES at most
 *   $HF_HUB_CACHE (else $HF_HOME/hub, else ~/.cache/huggingface/hub)
 *     models--owner--name/          only read: refs/main names the commit, snapshots/COMMIT/ has its files
 */
import { readdir, readFile, stat } from 'node:fs/promises'
import { homedir } from 'node:os'
import { join } from 'node:path'
import { ContinuoError } from '../errors.ts'

export interface ModelName {
  readonly owner: string
  readonly name: string
  /** A file of it, its path with / between folders; null: the package. */
  readonly file: string | null
}

const PART = '[A-Za-z0-9](?:[A-Za-z0-9._-]{0,94}[A-Za-z0-9])?'
const NAME = new RegExp(`^(${PART})/(${PART})(?::(.+))?$`)

/** Whether a file of a hub may lie below a folder of ours under its own path. */
export const isPlainPath = (path: string): boolean =>
  path.length <= 512 &&
  path.split('/').every((part) => /^[^\\/:*?"<>|\p{Cc}]{1,255}$/u.test(part) && !/^\.+$/.test(part)) &&
  path.split('/').length <= 8

/** null: no such name. */
export const parseName = (text: string): ModelName | null => {
  const [, owner, name, file = null] = NAME.exec(text) ?? []
  if (owner === undefined || name === undefined || [owner, name].some((part) => /\.\.|--/.test(part))) return null
  return file !== null && !isPlainPath(file) ? null : { owner, name, file }
}

type Env = Readonly<Record<string, string | undefined>>

const ownCache = (env: Env): string =>
  env.CONTINUO_CACHE || join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'continuo')

/** Where `continuo pull` puts the files of a model. */
export const modelFolder = ({ owner, name }: ModelName, env: Env = process.env): string =>
  join(ownCache(env), 'models', owner, name)

const PACKED_BYTES = 2 ** 34

/** Where the command keeps its compiled modules: a start reads them instead of compiling. */
export const compiledFolder = (env: Env = process.env): string => join(ownCache(env), 'compiled')

/** Where packed weights are kept, and how many bytes of them at most. Throws INVALID for a bound that is no number. */
export const packedFolder = (env: Env = process.env): { readonly path: string; readonly maxBytes: number } => {
  const said = env.CONTINUO_PACKED_BYTES
  const maxBytes = said === undefined || said === '' ? PACKED_BYTES : Number(said)
  if (!Number.isSafeInteger(maxBytes) || maxBytes < 0)
    throw new ContinuoError(
      'INVALID',
      `CONTINUO_PACKED_BYTES is ${JSON.stringify(said)}, expected a whole number of bytes; 0 keeps no packed weights.`,
    )
  return { path: join(ownCache(env), 'packed'), maxBytes }
}

const hubCache = (env: Env): string =>
  env.HF_HUB_CACHE || join(env.HF_HOME || join(env.XDG_CACHE_HOME || join(homedir(), '.cache'), 'huggingface'), 'hub')

const exists = (path: string): Promise<boolean> =>
  stat(path).then(
    () => true,
    () => false,
  )

/**
 * The snapshot of Hugging Face's cache that refs/main names, or the only one there; null: it has none. Throws INVALID
 * where several are there and none is named.
 */
const snapshotOf = async ({ owner, name }: ModelName, env: Env): Promise<string | null> => {
  const folder = join(hubCache(env), `models--${owner}--${name}`)
  const snapshots = join(folder, 'snapshots')
  const main = await readFile(join(folder, 'refs', 'main'), 'utf8').catch(() => '')
  const commit = main.trim()
  if (/^[0-9a-f]{40}$/.test(commit) && (await exists(join(snapshots, commit)))) return join(snapshots, commit)
  const there = await readdir(snapshots).catch(() => [])
  if (there.length > 1)
    throw new ContinuoError(
      'INVALID',
      `${owner}/${name} has ${there.length} snapshots in ${snapshots}, and refs/main beside it names none of them. Name the folder of one: ${there
        .toSorted()
        .slice(0, 4)
        .map((one) => join(snapshots, one))
        .join(', ')}${there.length > 4 ? ', …' : ''}.`,
    )
  return there.length === 1 ? join(snapshots, there[0]!) : null
}

/**
 * The path of a model: `text` itself where there is such a path or where it is no name; else a model of that name in
 * our cache, then in Hugging Face's. Throws INVALID for a name that neither has. Nothing is asked of any other machine.
 */
export const findModel = async (text: string, env: Env = process.env): Promise<string> => {
  const name = parseName(text)
  if (name === null || (await exists(text))) return text
  const own = modelFolder(name, env)
  // A folder that only has parts of downloads is no package yet.
  const begun = (await readdir(own).catch(() => [])).some((entry) => !entry.startsWith('.'))
  for (const find of [async () => (begun ? own : null), () => snapshotOf(name, env)]) {
    const folder = await find()
    if (folder === null) continue
    const path = name.file === null ? folder : join(folder, name.file)
    if (await exists(path)) return path
  }
  throw new ContinuoError(
    'INVALID',
    `${text} is not a model package: there is no such path, and as a name it has nothing in ${own} and no snapshot in ${join(hubCache(env), `models--${name.owner}--${name.name}`)}. Correct the path, or download a model of that name: continuo pull ${text}`,
  )
}
