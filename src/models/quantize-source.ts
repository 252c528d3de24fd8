/** The package that is to be quantised: read, checked, held open, so that all of it is of one version. */
import { type FileHandle, open, stat } from 'node:fs/promises'
import { join } from 'node:path'
import { inspectTensors } from '../engine/engine.ts'
import type { Graph } from '../engine/graph.ts'
import type { TensorEntry } from '../engine/native.ts'
import { ContinuoError, messageOf } from '../errors.ts'
import { parseJson } from '../json.ts'
import type { Family } from './family.ts'
import { identityOf, readPackage } from './open.ts'

export type Config = Readonly<Record<string, unknown>>

export interface Source {
  readonly config: Config
  readonly graph: Graph
  readonly family: Family
  readonly tensors: readonly TensorEntry[]
  /** `__metadata__` of model.safetensors; empty without one. */
  readonly metadata: Readonly<Record<string, unknown>>
  /** Bytes of model.safetensors. */
  readonly bytes: number
  /** Fills `out` with the bytes of model.safetensors from `position` on. */
  read(out: Uint8Array, position: number): Promise<void>
  /** Throws INVALID when model.safetensors is no longer what it was at the beginning. */
  checkUnchanged(): Promise<void>
  close(): Promise<void>
}

const invalid = (message: string, cause?: unknown): ContinuoError => new ContinuoError('INVALID', message, { cause })

const refuseQuantised = (dir: string, { quantization_config: found }: Config): void => {
  if (found === undefined || found === null) return
  const { quant_method, format, group_size } = Object(found) as Config
  const what = quant_method === 'continuo' ? `${format}, group ${group_size}` : `by ${JSON.stringify(quant_method)}`
  throw invalid(
    `${dir} is quantised already (${what}), expected a package of F32, F16 or BF16 weights. Quantise the package it was made from.`,
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

/** Throws INVALID for a folder that is no package of a known family, or a quantised one. */
export const openSource = async (dir: string): Promise<Source> => {
  const { config, family } = await readPackage(dir)
  refuseQuantised(dir, config)
  const path = join(dir, 'model.safetensors')
  const before = await stat(path, { bigint: true }).catch((cause) => {
    throw invalid(
      `${dir} is not a model package: cannot read model.safetensors (${messageOf(cause)}). Expected a folder with config.json and model.safetensors.`,
      cause,
    )
  })
  const tensors = inspectTensors(path)
  const { graph } = family.build(config, tensors)
  const file = await open(path)
  try {
    const checkUnchanged = async (): Promise<void> => {
      if (identityOf(before) !== identityOf(await file.stat({ bigint: true }))) throw changed(path)
    }
    await checkUnchanged()
    const read: Source['read'] = (out, position) => readFrom(file, out, position, path)
    const length = new Uint8Array(8)
    await read(length, 0)
    const text = new Uint8Array(Number(new DataView(length.buffer).getBigUint64(0, true)))
    await read(text, 8)
    const { __metadata__: metadata = {} } = parseJson(
      new TextDecoder().decode(text),
      'The header of model.safetensors',
    ) as { __metadata__?: Config }
    return {
      config,
      graph,
      family,
      tensors,
      metadata,
      bytes: Number(before.size),
      read,
      checkUnchanged,
      close: () => file.close(),
    }
  } catch (error) {
    await file.close()
    throw error
  }
}
