/**
 * Packed weights on disk (native/weights/packed_file.h): the weights as the kernels read them, so that a start packs
 * nothing and hashes nothing. A file says by four sha256 what it is of:
 *
 *   key           what the graph makes of the weights, and the version of the layout
 *   seal          the files that it was packed from: sizes, times in whole seconds, and where each tensor lies and how it begins
 *   head          the text that the model's fingerprint begins with
 *   fingerprint   of the model
 *
 * Where key and seal are right, the file has the weights of these files; where head is right too, the model has its
 * fingerprint. Nothing of the weights' own files is read then but the beginnings of tensors. Where the seal is not
 * right, because they were copied or touched, they are hashed, and the file serves if that gives its fingerprint. The
 * bytes of the file itself have checksums, and the engine checks them all before it computes anything. Whoever can
 * write the file can give the model other weights: it belongs where the model belongs.
 */
import { closeSync, openSync, readSync, statSync } from 'node:fs'
import { mkdir, readdir, stat, unlink, utimes } from 'node:fs/promises'
import { join } from 'node:path'
import { sha256 } from '../hash.ts'
import { canonicalJson } from './fingerprint.ts'
import { type Graph, isBound } from './graph.ts'
import { callNative, type PackedName, type TensorEntry } from './native.ts'

/** Raised when the engine lays out weights differently. */
const LAYOUT_VERSION = 2

/** What decides the bytes of packed weights, but for the weights. */
export const packedKey = (graph: Graph): string =>
  sha256(
    canonicalJson({ version: LAYOUT_VERSION, indices: graph.indices, constants: graph.declarations.filter(isBound) }),
  )

const BEGINNING = 4096
/** Of so many tensors the beginnings are looked at; of more, of every second, third, … one. */
const MOST_BEGINNINGS = 1024
/** A file that changed less than so long ago may change again within the same tick of its file system's clock, ms. */
const SETTLED = 2000

export interface Sealed {
  readonly seal: string
  /** A file that changed a moment ago; null: the seal can be relied on. */
  readonly unsettled: string | null
}

/** Throws what node:fs throws where a file cannot be read. */
export const sealOf = (paths: readonly string[], tensors: readonly TensorEntry[]): Sealed => {
  const files = paths.map((path) => statSync(path))
  const step = Math.max(1, Math.ceil(tensors.length / MOST_BEGINNINGS))
  const open = paths.map((path) => openSync(path, 'r'))
  const piece = Buffer.alloc(BEGINNING)
  try {
    const begins = tensors.map(({ name, dtype, shape, file, offset, bytes }, i) => {
      const read = i % step > 0 ? 0 : readSync(open[file]!, piece, 0, Math.min(BEGINNING, bytes), offset)
      return [name, dtype, shape, file, offset, bytes, sha256(piece.subarray(0, read))]
    })
    const now = Date.now()
    const at = files.findIndex(({ mtimeMs }) => now - mtimeMs < SETTLED)
    return {
      seal: sha256(canonicalJson([files.map(({ size, mtimeMs }) => [size, Math.floor(mtimeMs / 1000)]), begins])),
      unsettled: at < 0 ? null : paths[at]!,
    }
  } finally {
    for (const fd of open) closeSync(fd)
  }
}

/** Where packed weights are kept that nobody asked to keep. */
export interface PackedFolder {
  readonly path: string
  /** Of all files together; those that were not used for longest go first. */
  readonly maxBytes: number
}

/** The file that packed weights lie in that were asked for: beside the model. */
export const packedBeside = (paths: readonly string[]): string => `${paths[0]}.packed`

/** The file in the folder. */
export const packedIn = (folder: PackedFolder, key: string, seal: string): string =>
  join(folder.path, `${sha256(key + seal).slice(0, 32)}.packed`)

export interface FoundPacked {
  readonly path: string
  readonly name: PackedName
  /** Whether its seal is right. Else only its fingerprint can tell whether it is of these weights. */
  readonly sealed: boolean
}

/**
 * The first of the paths that has packed weights of this key: one with this seal before one with another. null: there
 * is none.
 */
export const findPacked = (paths: readonly string[], key: string, seal: string): FoundPacked | null => {
  const found = paths.flatMap((path) => {
    const name = callNative((addon) => addon.packedName(path))
    return name === null || name.key !== key ? [] : [{ path, name, sealed: name.seal === seal }]
  })
  return found.find(({ sealed }) => sealed) ?? found[0] ?? null
}

/** Notes that a file was used: those of the folder go in the order of their last use. */
export const touchPacked = async (path: string): Promise<void> => {
  const now = new Date()
  // A file that cannot be touched goes earlier, which is no fault.
  await utimes(path, now, now).catch(() => undefined)
}

/**
 * Deletes files of the folder, those that were not used for longest first, until so many bytes fit under its bound;
 * false where they exceed the bound alone.
 */
export const makeRoom = async ({ path, maxBytes }: PackedFolder, bytes: number): Promise<boolean> => {
  if (bytes > maxBytes) return false
  await mkdir(path, { recursive: true })
  const names = (await readdir(path)).filter((name) => /\.packed(\.part)?$/.test(name))
  const files = await Promise.all(
    names.map(async (name) => {
      const file = join(path, name)
      // Another process may have taken it away.
      const found = await stat(file).catch(() => null)
      return { file, size: found?.size ?? 0, used: found?.mtimeMs ?? 0 }
    }),
  )
  let room = maxBytes - bytes - files.reduce((sum, { size }) => sum + size, 0)
  for (const { file, size } of files.toSorted((a, b) => a.used - b.used)) {
    if (room >= 0) break
    // Who has it mapped keeps it.
    await unlink(file).catch(() => undefined)
    room += size
  }
  return true
}
