/**
 * Writes model packages: a safetensors file whose tensors come piece by piece and in any order, inside a folder that
 * appears whole or not at all.
 */
import { randomBytes } from 'node:crypto'
import { type FileHandle, mkdir, open, rename, rm } from 'node:fs/promises'
import { dirname, resolve } from 'node:path'
import { ContinuoError } from '../../errors.ts'
import { syncFolder } from '../../files.ts'

export interface TensorSpec {
  readonly name: string
  readonly dtype: string
  readonly shape: readonly number[]
  readonly bytes: number
}

export interface TensorFile {
  /** Bytes of the whole file. */
  readonly bytes: number
  /** Writes `piece` to the tensor's data, `at` bytes behind its beginning. */
  write(name: string, piece: Uint8Array, at: number): Promise<void>
}

const numberBytes = ({ shape, bytes }: TensorSpec): number =>
  bytes /
  Math.max(
    1,
    shape.reduce((product, extent) => product * extent, 1),
  )

/**
 * The header of a file with these tensors, and where in the file each begins. Tensors of wide numbers come first, and
 * among equals the names decide: thus every tensor begins at a multiple of its number's size, which readers that map
 * the file (safetensors' own among them) rely on.
 */
const layOut = (
  tensors: readonly TensorSpec[],
  metadata: Readonly<Record<string, unknown>>,
): { readonly header: Uint8Array; readonly begins: ReadonlyMap<string, number>; readonly bytes: number } => {
  const ordered = tensors.toSorted((a, b) => numberBytes(b) - numberBytes(a) || (a.name < b.name ? -1 : 1))
  let end = 0
  // Joined by hand: an object would put names that are whole numbers first.
  const members = ordered.map(({ name, dtype, shape, bytes }) => {
    const data_offsets = [end, end + bytes]
    end += bytes
    return `${JSON.stringify(name)}:${JSON.stringify({ dtype, shape, data_offsets })}`
  })
  const text = new TextEncoder().encode(`{${[`"__metadata__":${JSON.stringify(metadata)}`, ...members].join(',')}}`)
  const length = Math.ceil(text.length / 8) * 8
  const header = new Uint8Array(8 + length).fill(0x20, 8)
  new DataView(header.buffer).setBigUint64(0, BigInt(length), true)
  header.set(text, 8)
  const begins = new Map<string, number>()
  let at = header.length
  for (const { name, bytes } of ordered) {
    begins.set(name, at)
    at += bytes
  }
  return { header, begins, bytes: at }
}

const writeAll = async (file: FileHandle, piece: Uint8Array, position: number): Promise<void> => {
  for (let done = 0; done < piece.length; ) {
    const { bytesWritten } = await file.write(piece, done, piece.length - done, position + done)
    done += bytesWritten
  }
}

/** Opens `path` for `use` to fill; every byte of every tensor must be written. Synced at the end. */
export const writeTensors = async <T>(
  path: string,
  tensors: readonly TensorSpec[],
  metadata: Readonly<Record<string, unknown>>,
  use: (file: TensorFile) => Promise<T>,
): Promise<T> => {
  const { header, begins, bytes } = layOut(tensors, metadata)
  const file = await open(path, 'wx')
  try {
    await writeAll(file, header, 0)
    const result = await use({ bytes, write: (name, piece, at) => writeAll(file, piece, begins.get(name)! + at) })
    await file.sync()
    return result
  } finally {
    await file.close()
  }
}

const DENIED: ReadonlySet<string | undefined> = new Set(['EACCES', 'EPERM', 'EROFS'])

/**
 * `fill` writes synced files into a temporary folder beside `folder`, which then takes its name: after a kill or a
 * power cut there is all of it or nothing (and `folder.XXXXXXXX.tmp`, which no reader opens). `folder` may be there if
 * it is empty. Throws UNAVAILABLE or DENIED where the file system refuses; what else `fill` throws passes, and nothing
 * is left of the folder.
 */
export const writeFolder = async <T>(folder: string, fill: (temporary: string) => Promise<T>): Promise<T> => {
  const target = resolve(folder)
  // Not the process id: in a container it is the same after every start, and what a kill left would be in the way.
  const temporary = `${target}.${randomBytes(4).toString('hex')}.tmp`
  let made = false
  try {
    await mkdir(temporary)
    made = true
    const result = await fill(temporary)
    await syncFolder(temporary)
    await rename(temporary, target)
    await syncFolder(dirname(target))
    return result
  } catch (error) {
    if (made) await rm(temporary, { recursive: true, force: true }).catch(() => {})
    const { code, syscall, message } = error as NodeJS.ErrnoException
    if (syscall === undefined) throw error
    throw new ContinuoError(
      DENIED.has(code) ? 'DENIED' : 'UNAVAILABLE',
      `${folder} could not be written: ${message}.`,
      {
        cause: error,
      },
    )
  }
}
