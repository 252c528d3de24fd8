/** Constants for the host: as their files have them, or the numbers that operations compute with. */
import { closeSync, openSync, readSync } from 'node:fs'
import { ContinuoError, messageOf } from '../errors.ts'
import type { Fetched, FetchOptions, Numbers } from './executor-types.ts'
import { type BoundDeclaration, type ConstantDeclaration, type Graph, indexExtent, tensorsOf } from './graph.ts'
import { storedDtypes } from './layout.ts'
import type { TensorEntry } from './native.ts'

/** What fetching a constant needs of the engine. */
export interface ConstantCalls {
  readonly graph: Graph
  /** The numbers of a member, counted from 0, row-major. */
  widened(declaration: number, member: number): Float32Array<ArrayBuffer>
  /** The model's files, and what their headers say now. */
  files(): { readonly paths: readonly string[]; readonly tensors: readonly TensorEntry[] }
}

/** The most bytes of a constant that are handed out in one array. */
const MOST_BYTES = 2 ** 31
/** One read takes less than 2 GiB. */
const READ_BYTES = 2 ** 28

const tooLarge = (name: string, bytes: number): never => {
  throw new ContinuoError(
    'INVALID',
    `"${name}" takes ${bytes} bytes, expected at most ${MOST_BYTES} to be fetched. Read it from its file in parts.`,
  )
}

const arrayOf = (dtype: string, bytes: Uint8Array<ArrayBuffer>): Numbers => {
  const stored = Object.values(storedDtypes).find(({ name }) => name === dtype)
  return stored === undefined ? bytes : new stored.array(bytes.buffer)
}

/** Tensors of one dtype and shape as one array; more than one: [tensors, their shape]. */
const fetchStored = (calls: ConstantCalls, name: string, names: readonly string[]): Fetched => {
  const { paths, tensors } = calls.files()
  const refused = (what: string, cause?: unknown): never => {
    throw new ContinuoError(
      'REFUSED',
      `"${name}" cannot be fetched as stored: ${what} The weights were changed since the model was opened; model.verifyWeights() says whether the others still are the model's.`,
      { cause },
    )
  }
  const found = names.map(
    (each) => tensors.find((tensor) => tensor.name === each) ?? refused(`the files lack tensor "${each}".`),
  )
  const { dtype, shape } = found[0]!
  const odd = found.find((tensor) => tensor.dtype !== dtype || tensor.shape.join() !== shape.join())
  if (odd) refused(`tensor "${odd.name}" has another dtype or shape than "${names[0]}".`)
  const total = found.reduce((sum, { bytes }) => sum + bytes, 0)
  if (total > MOST_BYTES) tooLarge(name, total)
  const bytes = new Uint8Array(total)
  let at = 0
  for (const tensor of found) {
    const end = at + tensor.bytes
    try {
      const file = openSync(paths[tensor.file]!, 'r')
      try {
        for (let from = tensor.offset; at < end; ) {
          const read = readSync(file, bytes, at, Math.min(READ_BYTES, end - at), from)
          if (read === 0) refused(`the file ends inside tensor "${tensor.name}".`)
          at += read
          from += read
        }
      } finally {
        closeSync(file)
      }
    } catch (error) {
      if (error instanceof ContinuoError) throw error
      refused(`${messageOf(error)}.`, error)
    }
  }
  return { dtype, shape: names.length === 1 ? shape : [names.length, ...shape], data: arrayOf(dtype, bytes) }
}

/** `member`: the number that a pick would have, of a family. */
export const fetchConstant = (
  calls: ConstantCalls,
  constant: BoundDeclaration,
  member: number | undefined,
  { widened = false }: FetchOptions,
): Fetched => {
  const { graph } = calls
  const {
    name,
    over,
    from = 0,
    shape,
    ref,
    pattern,
    scales,
  }: BoundDeclaration & Pick<ConstantDeclaration, 'scales'> = constant
  const count = over === undefined ? 1 : indexExtent(graph, over) - from
  if (over === undefined && member !== undefined)
    throw new ContinuoError('MISUSE', `"${name}" is no family: fetch it without a member.`)
  if (over !== undefined && member === undefined) {
    const [first, last] = [from, from + count - 1].map((each) => `"${name}(${each})"`)
    throw new ContinuoError('MISUSE', `"${name}" is a family: fetch one of its members, ${first} to ${last}.`)
  }
  const at = member === undefined ? 0 : member - from
  if (at < 0 || at >= count) {
    throw new ContinuoError('INVALID', `"${name}(${member})" is not there, expected ${from} to ${from + count - 1}.`)
  }
  const label = member === undefined ? name : `${name}(${member})`
  if (widened) {
    const bytes = shape.reduce((product, extent) => product * extent, Float32Array.BYTES_PER_ELEMENT)
    if (bytes > MOST_BYTES) tooLarge(label, bytes)
    return { dtype: storedDtypes.f32.name, shape, data: calls.widened(graph.declarations.indexOf(constant), at) }
  }
  /** The tensors of this member, of those that a source names for all. */
  const own = (source: string): readonly string[] => {
    const names = tensorsOf(graph, { ...constant, ...(ref === undefined ? { pattern: source } : { ref: source }) })
    const each = names.length / count
    return names.slice(at * each, (at + 1) * each)
  }
  return {
    ...fetchStored(calls, label, own((ref ?? pattern)!)),
    ...(scales !== undefined && { scales: fetchStored(calls, `${label}, its scales`, own(scales)) }),
  }
}
