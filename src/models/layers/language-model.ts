/**
 * What all language models made of layers share: the embedding, learned positions where there are any, the loop over
 * the layers, the last norm, and the output projection.
 */
import { buildGraph, type GraphBuilder } from '../../engine/builder.ts'
import type { Counter, Value } from '../../engine/builder-types.ts'
import type { TensorEntry } from '../../engine/native.ts'
import { type FamilyModel, quantizationOf, type TensorSet, tensorSet } from '../family.ts'
import { type LayerKind, type LayerKinds, layerKinds } from './kinds.ts'
import { type Norm, type NormPlan, normBy } from './linear.ts'

/** Sizes: V tokens, C channels, P positions (null: without a last one). */
export interface Outline {
  readonly V: number
  readonly C: number
  readonly P: number | null
  /** Of the last norm, and of those before the parts of a layer. */
  readonly norm: NormPlan
  /** What config.json says of the number of layers, and under which key. */
  readonly layers: number
  readonly layersKey: string
  /** Names of tensors, without `.weight`. */
  readonly names: {
    readonly embedding: string
    /** A learned vector of each position, which is added to the token's. */
    readonly positions?: string
    /** In front of the names of a layer, with {l}. */
    readonly layer: string
    readonly norm: string
    readonly head: string
  }
  /**
   * Whether the output projection is the embedding. In a package that has none of its own it is the embedding in any
   * case.
   */
  readonly tied: boolean
  /** What embeddings, and logits, are multiplied by. */
  readonly embeddingFactor?: number
  readonly logitsFactor?: number
  /** logits = cap · tanh(logits / cap); null: they are not capped. */
  readonly logitsCap?: number | null
  /** Names of tensors that may be in the package and that nothing here uses. */
  readonly unused?: RegExp
}

/** Names as most packages have them, behind `root`. */
export const namesBehind = (root: string): Outline['names'] => ({
  embedding: `${root}embed_tokens`,
  layer: `${root}layers.{l}.`,
  norm: `${root}norm`,
  head: 'lm_head',
})

/** What a layer's body works with. */
export interface Build {
  readonly g: GraphBuilder
  readonly kinds: LayerKinds
  /** The norm of C channels that the tensors `name` of these layers hold. */
  readonly norm: (layers: LayerKind, name: string) => Norm
  /** Counts the positions of a context; asked for by the layers that attend. */
  readonly positions: () => Counter
  /** Every token raises this counter, too. */
  readonly counted: (counter: Counter) => void
}

/** The tensor of the output projection. A tied one may be in the file once more. */
const headOf = (set: TensorSet, { tied, names }: Outline): string => {
  const own = `${names.head}.weight`
  if (!tied && set.has(own)) return own
  set.ignore(own)
  return `${names.embedding}.weight`
}

/**
 * `layer` declares what layers need and returns what the loop over them appends: x is the value named 'x', which it
 * writes anew.
 */
export const languageModel = (
  parsed: unknown,
  tensors: readonly TensorEntry[],
  outline: Outline,
  layer: (build: Build) => (x: Value) => void,
): FamilyModel => {
  const { V, C, P, names, embeddingFactor = 1, logitsFactor = 1, logitsCap: cap = null, unused } = outline
  const set = tensorSet(tensors, quantizationOf(parsed))
  for (const { name } of tensors) if (unused?.test(name)) set.ignore(name)
  const L = set.layers(names.layer.slice(0, names.layer.indexOf('{l}')), outline.layersKey, outline.layers)
  const g = buildGraph()
  const kinds = layerKinds(g, set, names.layer, L)
  const lookup = (as: string, name: string, rows: number) =>
    g.lookup(as, [rows, C], set.take(`${name}.weight`, [rows, C]))
  const embedding = lookup('embedding', names.embedding, V)
  const places = names.positions === undefined ? null : lookup('positions', names.positions, P!)
  let counter: Counter | undefined
  const positions = (): Counter => {
    counter ??= g.counter('pastLen', P === null ? {} : { max: P })
    return counter
  }
  const others: Counter[] = []
  const counted = (each: Counter): void => void others.push(each)
  const norm: Build['norm'] = (layers, name) =>
    normBy(g, outline.norm, name, (tensor, change) => {
      const member = layers.vector(tensor, [C], change)
      return () => member(layers.index)
    })
  const body = layer({ g, kinds, norm, positions, counted })
  const last = normBy(g, outline.norm, names.norm, (tensor, change) => {
    const vector = g.vector(tensor.replace(names.norm, 'hidden.norm'), C, { ...set.take(tensor, [C]), ...change })
    return () => vector
  })
  const head = g.matrix('head', [V, C], set.takeMatrix(headOf(set, outline), [V, C]))
  const kept = g.table('hidden.last', [C])

  const token = g.dynamic('token', [], 'i32')
  const read = (): Value => {
    const position = places && g.cacheCount('position', positions())
    for (const each of counter ? [counter, ...others] : others) g.cacheIncrement(each)
    if (position) return g.add('x', g.embed('x.token', token, embedding), g.embed('x.position', position, places))
    if (embeddingFactor === 1) return g.embed('x', token, embedding)
    return g.scale('x', g.embed('x.token', token, embedding), embeddingFactor)
  }
  g.block('step', [token], () => {
    const x = read()
    g.loop(kinds.l, {}, () => body(x))
    const hidden = last('hidden', x)
    return { hidden, previous: g.cacheShift('hidden.previous', kept(), hidden) }
  })
  const input = g.dynamic('predict.hidden', [C], 'f32')
  g.block('predict', [input], () => {
    const product = g.matmul('logits', input, head)
    const logits = logitsFactor === 1 ? product : g.scale('logits.s', product, logitsFactor)
    if (cap === null) return { logits }
    return { logits: g.scale('logits.c', g.tanh('logits.t', g.scale('logits.z', logits, 1 / cap)), cap) }
  })
  set.finish()
  return { graph: g.finish(), vocabSize: V }
}
