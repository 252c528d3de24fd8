/**
 * How far a model's predictions are from another's: a measure without the luck that surprisals of a short text have.
 */
import type { Model } from '../../../src/engine/types.ts'

/** ln p of each token. */
const logProbabilities = (logits: Float32Array): Float64Array => {
  const most = logits.reduce((a, b) => Math.max(a, b), -Infinity)
  const sum = logits.reduce((all, value) => all + Math.exp(value - most), 0)
  return Float64Array.from(logits, (value) => value - most - Math.log(sum))
}

/** ln p behind each token of a text that is read from a first state: [tokens][vocabulary]. */
export const predictionsOf = async (model: Model, tokens: Int32Array): Promise<readonly Float64Array[]> => {
  const context = model.createContext()
  const out: Float64Array[] = []
  for (const token of tokens) {
    await model.process([{ context, tokens: Int32Array.of(token), nats: false }])
    out.push(logProbabilities(await model.logits(context)))
  }
  context.close()
  return out
}

/** Mean of Σ p (ln p − ln q) over the positions, in nats. */
export const divergence = (from: readonly Float64Array[], to: readonly Float64Array[]): number => {
  const each = from.map((p, i) => p.reduce((sum, value, v) => sum + Math.exp(value) * (value - to[i]![v]!), 0))
  return each.reduce((sum, value) => sum + value, 0) / each.length
}
