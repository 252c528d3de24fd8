/**
 * Packs the experts of a model into a store, `DIR/experts/layer-LLL.experts`, and checks one (docs/experts.md). A layer
 * at a time is in memory. The same source gives the same bytes.
 */
import { createHash, randomBytes } from 'node:crypto'
import { existsSync } from 'node:fs'
import { mkdir, readdir, readFile, rename, rm, writeFile } from 'node:fs/promises'
import { availableParallelism } from 'node:os'
import { join } from 'node:path'
import { ContinuoError } from '../errors.ts'
import { syncFolder, whyNotWritten } from '../files.ts'
import { hasEnded, processName } from '../process-name.ts'
import { checkLayer, exchange, type LayerReport, packLayer } from './native.ts'
import type { ExpertSizes, ExpertsSource, MatrixPlace } from './source.ts'

export interface PackedLayer extends LayerReport {
  readonly file: string
}

export interface PackRequest {
  readonly source: ExpertsSource
  readonly threads?: number
  /** After each layer. */
  readonly onLayer?: (layer: PackedLayer) => void
  /** Stops between two layers, leaves the old store, and throws the signal's reason. */
  readonly signal?: AbortSignal
}

export interface PackedExperts {
  /** The folder of the store. */
  readonly store: string
  readonly sizes: ExpertSizes
  readonly layers: readonly PackedLayer[]
  /** sha256 over the source digests of the layers: 64 hexadecimal digits. */
  readonly digest: string
  /** Of all files. */
  readonly bytes: number
  /** Codes and scales in records without padding, over the weights. */
  readonly bitsPerWeight: number
}

/** The folder of a package's store. */
export const storeOf = (dir: string): string => join(dir, 'experts')
const FILE = /^layer-\d{3,}\.experts$/

export const fileOf = (layer: number): string => `layer-${String(layer).padStart(3, '0')}.experts`
const threadsOf = (threads = availableParallelism()): number => Math.max(1, Math.min(16, threads))

/** Of a store: sha256 over the digests of its layers, 64 hexadecimal digits. */
export const digestOf = (layers: readonly { readonly digest: string }[]): string => {
  const hash = createHash('sha256')
  for (const { digest } of layers) hash.update(digest, 'hex')
  return hash.digest('hex')
}

const numbersOf = (matrices: readonly MatrixPlace[]): Float64Array =>
  Float64Array.from(
    matrices.flatMap(({ codes, scales }) => [
      codes.file,
      codes.offset,
      codes.bytes,
      scales?.offset ?? codes.offset,
      scales?.bytes ?? 0,
    ]),
  )

const ownerOf = (folder: string): string => folder.replace(/tmp$/, 'owner')

/**
 * What packs that were killed left. The file that names the owner of a folder is there before the folder, and goes
 * after it; those of processes that run are theirs.
 */
const removeLeftOvers = async (dir: string): Promise<void> => {
  const left = (await readdir(dir)).filter((name) => /^experts\.[0-9a-f]{8}\.(tmp|owner)$/.test(name))
  for (const name of new Set(left.map((each) => each.replace(/owner$/, 'tmp')))) {
    const folder = join(dir, name)
    const owner = await readFile(ownerOf(folder), 'utf8').catch(() => null)
    if (owner !== null && !hasEnded(owner)) continue
    await rm(folder, { recursive: true, force: true })
    await rm(ownerOf(folder), { force: true })
  }
}

/** Puts the folder in the place of the store. Where there is one, a kill leaves either the old or the new one. */
const takePlace = async (folder: string, store: string): Promise<void> => {
  if (existsSync(store)) {
    if (exchange(folder, store)) return await rm(folder, { recursive: true, force: true })
    // File systems that cannot exchange: a kill between these two leaves the old store under another name.
    await rename(store, `${folder}.old`)
    await rename(folder, store)
    return await rm(`${folder}.old`, { recursive: true, force: true })
  }
  await rename(folder, store)
}

const packInto = async (
  folder: string,
  source: ExpertsSource,
  request: PackRequest,
): Promise<readonly PackedLayer[]> => {
  const { coding, channels, inner, group, torus } = source.sizes
  const [columns, rows] = torus ?? [0, 0]
  const common = { coding, channels, inner, group, columns, rows, files: source.files }
  const out: PackedLayer[] = []
  for (const layer of source.layers) {
    request.signal?.throwIfAborted()
    const file = fileOf(layer)
    const report = await packLayer({
      ...common,
      path: join(folder, file),
      layer,
      places: numbersOf(source.placesOf(layer)),
      threads: threadsOf(request.threads),
    })
    out.push({ ...report, file })
    request.onLayer?.(out.at(-1)!)
  }
  return out
}

const refuseDigest = (dir: string, found: string, expected: string | null): void => {
  if (expected === null || found === expected) return
  throw new ContinuoError(
    'REFUSED',
    `The experts of ${dir} have the digest ${found}, and its config.json names ${expected}: they belong to another model. Take the files of one model.`,
  )
}

const refuseOther = (path: string, found: LayerReport, layer: number, sizes: ExpertSizes): void => {
  const text = ({ coding, experts, channels, inner, group }: Omit<ExpertSizes, 'torus'>): string =>
    `${experts} experts of ${channels} channels and ${inner} inner ones in ${coding}${group > 0 ? `, groups of ${group}` : ''}`
  if (found.layer === layer && text(found) === text(sizes)) return
  throw new ContinuoError(
    'REFUSED',
    `${path} is of layer ${found.layer} with ${text(found)}; the model has ${text(sizes)} in layer ${layer}. Pack the experts again: continuo experts pack.`,
  )
}

/**
 * Throws INVALID for a package without experts or with damaged ones, REFUSED where they have another digest than
 * config.json says, UNAVAILABLE where the store cannot be written; then a store that was there is as it was.
 */
export const packExperts = async (request: PackRequest): Promise<PackedExperts> => {
  const { source } = request
  const store = storeOf(source.dir)
  const { channels, inner } = source.sizes
  const folder = `${store}.${randomBytes(4).toString('hex')}.tmp`
  try {
    await removeLeftOvers(source.dir)
    await writeFile(ownerOf(folder), processName() ?? '')
    await mkdir(folder)
    const layers = await packInto(folder, source, request)
    const digest = digestOf(layers)
    refuseDigest(source.dir, digest, source.digest)
    await syncFolder(folder)
    await takePlace(folder, store)
    await rm(ownerOf(folder))
    await syncFolder(source.dir)
    return {
      store,
      sizes: source.sizes,
      layers,
      digest,
      bytes: layers.reduce((sum, { fileBytes }) => sum + fileBytes, 0),
      bitsPerWeight: (8 * layers[0]!.payloadBytes) / (3 * channels * inner),
    }
  } catch (error) {
    for (const path of [folder, ownerOf(folder)])
      await rm(path, { recursive: true, force: true }).catch(() => undefined)
    if ((error as NodeJS.ErrnoException).syscall === undefined) throw error
    throw new ContinuoError('UNAVAILABLE', `${store} could not be written: ${whyNotWritten(error)}.`, { cause: error })
  }
}

export interface CheckedExperts {
  readonly store: string
  readonly layers: readonly PackedLayer[]
  readonly digest: string
}

/**
 * Reads every byte of a store. Throws REFUSED with the first fault: a damaged file, a missing layer, another digest
 * than config.json has.
 */
export const checkExperts = async ({ source, threads, onLayer, signal }: PackRequest): Promise<CheckedExperts> => {
  const { dir } = source
  const store = storeOf(dir)
  const there = await readdir(store).catch(() => null)
  const pack = `continuo experts pack ${dir}`
  if (there === null) throw new ContinuoError('REFUSED', `There is no store of experts ${store}. Make it: ${pack}.`)
  const expected = new Set(source.layers.map(fileOf))
  const other = there.find((name) => !expected.has(name) && FILE.test(name))
  if (other !== undefined)
    throw new ContinuoError('REFUSED', `${join(store, other)} is of a layer without experts. Pack them again: ${pack}.`)
  const layers: PackedLayer[] = []
  for (const layer of source.layers) {
    signal?.throwIfAborted()
    const file = fileOf(layer)
    if (!there.includes(file))
      throw new ContinuoError('REFUSED', `${join(store, file)} is missing. Pack the experts again: ${pack}.`)
    const report = await checkLayer(join(store, file), threadsOf(threads))
    refuseOther(join(store, file), report, layer, source.sizes)
    layers.push({ ...report, file })
    onLayer?.(layers.at(-1)!)
  }
  const digest = digestOf(layers)
  refuseDigest(dir, digest, source.digest)
  return { store, layers, digest }
}
