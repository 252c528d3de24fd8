/**
 * Fingerprints (sha256) of what a model computes and of its state layout. Equal fingerprints: checkpoints are
 * exchangeable.
 */
import { createHash } from 'node:crypto'
import { ContinuoError } from '../errors.ts'
import { MOST_NESTED } from '../json.ts'
import type { Graph } from './graph.ts'
import { layoutText } from './layout.ts'
import { awaitNative, type TensorEntry } from './native.ts'

/**
 * JSON with the members of every object in order of their names: one text for one value. What JSON has no form for
 * (bigints, Infinity, NaN) stands bare. Throws INVALID for a value nested deeper than JSON from outside may be.
 */
export const canonicalJson = (value: unknown, depth = 0): string => {
  if (depth > MOST_NESTED + 8)
    throw new ContinuoError('INVALID', `A value nested deeper than ${MOST_NESTED} levels cannot be fingerprinted.`)
  // A vocabulary has 10⁵ of them.
  if (Array.isArray(value) && value.every((item) => typeof item === 'string')) return JSON.stringify(value)
  if (Array.isArray(value)) return `[${value.map((item) => canonicalJson(item, depth + 1)).join(',')}]`
  if (value !== null && typeof value === 'object') {
    const members = Object.entries(value)
      .filter(([, member]) => member !== undefined)
      .sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0))
      .map(([name, member]) => `${JSON.stringify(name)}:${canonicalJson(member, depth + 1)}`)
    return `{${members.join(',')}}`
  }
  if (typeof value === 'bigint' || (typeof value === 'number' && !Number.isFinite(value))) return String(value)
  return JSON.stringify(value)
}

/** In order of their names, in which they are hashed. */
const sortedTensors = (tensors: readonly TensorEntry[]): readonly TensorEntry[] =>
  tensors.toSorted((a, b) => (a.name < b.name ? -1 : a.name > b.name ? 1 : 0))

/** What a model's fingerprint is taken over before the bytes of its tensors. */
export interface Named {
  readonly overflow?: 'window' | undefined
  readonly cacheDtype?: 'f16' | 'bf16' | undefined
  readonly outerMemory?: unknown
  readonly ngram?: unknown
  readonly memoryTensors?: string | undefined
  readonly tokenizer?: string | undefined
  readonly endTokens?: readonly number[] | undefined
  readonly expertIdentity?: { readonly digest: string; readonly coding: number } | undefined
}

/** The text that `modelFingerprint` begins with. */
export const fingerprintText = (config: unknown, tensors: readonly TensorEntry[], named: Named = {}): string => {
  const { overflow, cacheDtype, outerMemory, ngram, memoryTensors, tokenizer, endTokens, expertIdentity } = named
  const text = canonicalJson({
    config,
    overflow,
    cacheDtype,
    memory: outerMemory,
    ngram,
    memoryTensors,
    tokenizer,
    endTokens,
    experts: expertIdentity,
    tensors: sortedTensors(tensors).map(({ name, dtype, shape }) => ({ name, dtype, shape })),
  })
  return `${text}\0`
}

/**
 * sha256 over, in this order: the canonical JSON of { config, tensors: [{ name, dtype, shape }] } with tensors sorted
 * by name, a zero byte, and the bytes of every tensor in that same order. How a file orders or aligns its tensors does
 * not matter. A model opened with another `overflow` than its package has by itself is another one, and so is one that
 * keeps keys and values narrower than f32, keeps its context outside, reads text otherwise, or ends it with other
 * tokens than its tokenizer's one: then the object has the members `overflow`, `cacheDtype`, `memory` and
 * `memoryTensors` (the same sha256 over memory.safetensors), `ngram`, `tokenizer` and `endTokens`, too. Where the
 * experts of a mixture lie in a store, `experts` has the store's digest and coding, and their tensors are no part of
 * the list. The bytes are read and hashed on a thread of libuv's pool.
 */
export const modelFingerprint = (
  config: unknown,
  tensors: readonly TensorEntry[],
  paths: readonly string[],
  named: Named = {},
): Promise<string> => {
  const ranges = Float64Array.from(sortedTensors(tensors).flatMap(({ file, offset, bytes }) => [file, offset, bytes]))
  const text = fingerprintText(config, tensors, named)
  return awaitNative((addon) => addon.hashFiles(text, paths, ranges))
}

/**
 * sha256 over the canonical JSON of `layoutText`: [[name, axes, dtype], …] of the persistents, in order of declaration.
 */
export const layoutFingerprint = (graph: Graph): string =>
  createHash('sha256')
    .update(canonicalJson(layoutText(graph)))
    .digest('hex')
