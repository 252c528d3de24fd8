/** The package that is to be quantised: read, checked, held open, so that all of it is of one version. */
import { type FileHandle, open } from 'node:fs/promises'
import type { Graph } from '../../engine/graph.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'
import { parseJson } from '../../json.ts'
import type { Family } from '../family.ts'
import { identityOf, readPackage } from '../files/package.ts'

export type Config = Readonly<Record<string, unknown>>

export interface Source {
  /** The folder with what stands beside the weights. */
  readonly dir: string
  readonly config: Config
  readonly graph: Graph
  readonly family: Family
  readonly tensors: readonly TensorEntry[]
  /** `__metadata__` of the first file of weights; empty without one. */
  readonly metadata: Readonly<Record<string, unknown>>
  /** Bytes of all files of weights. */
  readonly bytes: number
  /** Fills `out` with the bytes of the tensor's file from `position` on. */
  read(out: Uint8Array, tensor: TensorEntry, position: number): Promise<void>
  /** Throws INVALID when a file of weights is no longer what it was at the beginning. */
  checkUnchanged(): Promise<void>
  close(): Promise<void>
}

const invalid = (message: string, cause?: unknown): ContinuoError => new ContinuoError('INVALID', message, { cause })

const refuseQuantised = (dir: string, { quantization_config: found }: Config): void => {
  if (found === undefined || found === null) return
  const { quant_method, format, group_size } = Object(found) as Config
  const what = quant_method === 'continuo' ? `${format}, group ${group_size}` : `by ${JSON.stringify(quant_method)}`
  throw invalid(
    `${dir} is quantised already (${what}), expected a package of F32, F16, BF16 or F64 weights. Quantise the package it was made from.`,
  )
}

const readFrom = async (file: FileHandle, out: Uint8Array, position: number, path: string): Promise<void> => {
  for (let done = 0; done < out.length; ) {
    const { bytesRead } = await file.read(out, done, out.length - done, position + done)
    if (bytesRead === 0) throw changed(path)
    done += bytesRead
  }
}

const changed = (path: string): ContinuoError =>
  invalid(`${path} changed while it was read; nothing was written. Quantise it again when nobody writes to it.`)

/** `__metadata__` of a safetensors file. */
const metadataOf = async (file: FileHandle, path: string): Promise<Config> => {
  const length = new Uint8Array(8)
  await readFrom(file, length, 0, path)
  const text = new Uint8Array(Number(new DataView(length.buffer).getBigUint64(0, true)))
  await readFrom(file, text, 8, path)
  const header = parseJson(new TextDecoder().decode(text), `The header of ${path}`) as { __metadata__?: Config }
  return header.__metadata__ ?? {}
}

/** Throws INVALID for a path that names no package of a known family, for a GGUF file and for a quantised package. */
export const openSource = async (path: string): Promise<Source> => {
  const found = await readPackage(path, refuseQuantised)
  const { dir, config, family, files, format, fileTensors: tensors } = found
  if (format === 'gguf') {
    throw invalid(
      `${path} is a GGUF file, expected a package of F32, F16, BF16 or F64 weights. Quantise the package it was made from, or use the file as it is.`,
    )
  }
  const { graph } = family.build(config, found.tensors)
  const handles: FileHandle[] = []
  const close = async (): Promise<void> => {
    await Promise.all(handles.map((file) => file.close()))
  }
  try {
    for (const file of files) handles.push(await open(file))
    const before = await Promise.all(handles.map((file) => file.stat({ bigint: true })))
    const checkUnchanged = async (): Promise<void> => {
      for (const [at, file] of handles.entries()) {
        if (identityOf(before[at]!) !== identityOf(await file.stat({ bigint: true }))) throw changed(files[at]!)
      }
    }
    await found.checkUnchanged()
    return {
      dir,
      config,
      graph,
      family,
      tensors,
      metadata: format === 'safetensors' ? await metadataOf(handles[0]!, files[0]!) : {},
      bytes: before.reduce((sum, { size }) => sum + Number(size), 0),
      read: (out, { file }, position) => readFrom(handles[file]!, out, position, files[file]!),
      checkUnchanged,
      close,
    }
  } catch (error) {
    await close()
    throw error
  }
}
