/** What all language models of layers share: the configuration's reading, the embedding, the last norm, the head. */
import type { z } from 'zod'
import { buildGraph, type GraphBuilder } from '../../engine/builder.ts'
import type { Counter, Value } from '../../engine/builder-types.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { ContinuoError } from '../../errors.ts'
import { type FamilyModel, quantizationOf, type TensorSet, tensorSet } from '../family.ts'
import { type LayerKinds, layerKinds } from './layers.ts'

export const refuseConfig = (what: string): never => {
  throw new ContinuoError('INVALID', `config.json ${what}.`)
}

/** Reads config.json by a schema. Throws INVALID, naming the family and the key. */
export const readBySchema = <T>(schema: z.ZodType<T>, parsed: unknown, family: string): T => {
  const result = schema.safeParse(parsed)
  if (result.success) return result.data
  const issue = result.error.issues[0]
  return refuseConfig(`is not ${family} configuration: ${issue?.path.join('.')} ${issue?.message}`)
}

/** Sizes: V tokens, C channels, P positions (null: without a last one). */
export interface Outline {
  readonly V: number
  readonly C: number
  readonly P: number | null
  readonly eps: number
  /** What config.json says of the number of layers, and under which key. */
  readonly layers: number
  readonly layersKey: string
  readonly names: {
    readonly embedding: string
    /** In front of the names of a layer, with {l}. */
    readonly layer: string
    readonly norm: string
    readonly head: string
  }
  readonly tied: boolean
  /** The last norm multiplies by 1 + weight. */
  readonly map?: 'one_plus'
  /** What embeddings, and logits, are multiplied by. */
  readonly embeddingFactor?: number
  readonly logitsFactor?: number
}

/** What a layer's body works with. */
export interface Build {
  readonly g: GraphBuilder
  readonly set: TensorSet
  readonly kinds: LayerKinds
  /** The positions that attention has entered: asked for by the layers that attend. */
  readonly positions: () => Counter
}

/** `layer` declares what layers need and returns what the loop over them appends: x is the value named 'x', which it writes anew. */
export const languageModel = (
  parsed: unknown,
  tensors: readonly TensorEntry[],
  outline: Outline,
  layer: (build: Build) => (x: Value) => void,
  ignore: (set: TensorSet) => void = () => {},
): FamilyModel => {
  const { V, C, P, eps, names, map, embeddingFactor = 1, logitsFactor = 1 } = outline
  const set = tensorSet(tensors, quantizationOf(parsed))
  ignore(set)
  const L = set.layers(names.layer.slice(0, names.layer.indexOf('{l}')), outline.layersKey, outline.layers)
  const g = buildGraph()
  const kinds = layerKinds(g, set, names.layer, L)
  const embedding = g.lookup('embedding', [V, C], set.take(names.embedding, [V, C]))
  let counter: Counter | undefined
  const positions = (): Counter => {
    counter ??= g.counter('pastLen', P === null ? {} : { max: P })
    return counter
  }
  const body = layer({ g, set, kinds, positions })
  const norm = g.vector('norm', C, { ...set.take(names.norm, [C]), ...(map ? { map } : {}) })
  // Some packages say nothing of a tied head and just have none; others hold it once more.
  const tied = outline.tied || !set.has(names.head)
  if (tied) set.ignore(names.head)
  const head = g.matrix('head', [V, C], set.takeMatrix(tied ? names.embedding : names.head, [V, C]))
  const last = g.table('hidden.last', [C])

  const token = g.dynamic('token', [], 'i32')
  g.block('step', [token], () => {
    if (counter) g.cacheIncrement(counter)
    const read = g.embed(embeddingFactor === 1 ? 'x' : 'x.read', token, embedding)
    const x = embeddingFactor === 1 ? read : g.scale('x', read, embeddingFactor)
    g.loop(kinds.l, {}, () => body(x))
    const hidden = g.rmsnorm('hidden', x, norm, { eps })
    return { hidden, previous: g.cacheShift('hidden.previous', last(), hidden) }
  })
  const input = g.dynamic('predict.hidden', [C], 'f32')
  g.block('predict', [input], () => {
    const logits = g.matmul('logits', input, head)
    return { logits: logitsFactor === 1 ? logits : g.scale('logits.s', logits, logitsFactor) }
  })
  set.finish()
  return { graph: g.finish(), vocabSize: V }
}
