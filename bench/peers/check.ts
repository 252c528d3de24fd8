/**
 * Checks that two sides compute the same model: feeds the same ids to both and compares all logits.
 *
 * Both sides have the same weights, but llama.cpp rounds the activations of a product in the format of its matrix: to
 * f16, to bf16, or to 8 bits in groups of 32; keys and values it keeps in f16. The engine rounds activations for q8
 * only. So the logits differ by these roundings, and a greedy token may differ where two logits are closer than that.
 * In its first tokens RWKV-7 magnifies roundings, because the norm of a head divides by a state that is still small; so
 * the prompts have some length. The logits of two different models are about as far apart as unrelated logits; the
 * report prints that distance too.
 */
import type { Format } from './formats.ts'
import { median } from './report.ts'
import type { Side } from './side.ts'

/**
 * Ids of a prompt. A single session reads its prompt in one piece; many sessions read theirs token by token, in one
 * batch.
 */
const PROMPT = 64
const STEPS = 48
/** The least number of distinct greedy tokens: tokens that hardly change would check little. */
const LEAST_DISTINCT = STEPS / 4

/**
 * The greatest difference (root mean square over the vocabulary) that rounding explains in 12 layers, as a fraction of
 * the logits' deviation.
 */
const tolerances: Readonly<Record<Format, number>> = {
  f32: 0.01,
  f16: 0.01,
  bf16: 0.05,
  q8: 0.08,
  q4: 0.1,
  q4k: 0.1,
  q6k: 0.1,
}

/**
 * What one layer rounds goes through all later ones, so differences grow with the depth, in proportion at most.
 * Measured, from 12 layers to 24 or 26: Llama in q4k 1.4 times; Qwen3.5 1.5 times in q8 and in q4k.
 */
export const toleranceOf = (format: Format, layers: number): number => tolerances[format] * Math.max(1, layers / 12)

const meanOf = (values: Float32Array): number => values.reduce((sum, value) => sum + value, 0) / values.length

const deviationOf = (values: Float32Array): number => {
  const mean = meanOf(values)
  return Math.sqrt(values.reduce((sum, value) => sum + (value - mean) ** 2, 0) / values.length)
}

/** Root mean square of a − b over the deviation of a. */
export const distance = (a: Float32Array, b: Float32Array): number =>
  Math.sqrt(a.reduce((sum, value, i) => sum + (value - b[i]!) ** 2, 0) / a.length) / deviationOf(a)

const greatestDifference = (a: Float32Array, b: Float32Array): number =>
  a.reduce((greatest, value, i) => Math.max(greatest, Math.abs(value - b[i]!)), 0)

/** The largest logit, the lowest id on a tie. */
const greedyOf = (logits: Float32Array): number =>
  logits.reduce((best, value, i) => (value > logits[best]! ? i : best), 0)

const probabilityOf = (logits: Float32Array, token: number): number => {
  const top = logits[greedyOf(logits)]!
  return Math.exp(logits[token]! - top) / logits.reduce((sum, value) => sum + Math.exp(value - top), 0)
}

export interface Verdict {
  readonly same: boolean
  readonly sentence: string
}

/** Ids that do not repeat within a prompt: multiples of a prime, each session from a start of its own. */
export const idsOf = (vocabulary: number, count: number, session = 0): Int32Array =>
  Int32Array.from({ length: count }, (_, i) => (session * 104_729 + (i + 1) * 7919) % vocabulary)

export const compare = async (
  ours: Side,
  theirs: Side,
  vocabulary: number,
  format: Format,
  sessions: number,
  layers = 12,
): Promise<Verdict> => {
  const distances: number[] = []
  let [logitGap, probabilityGap, equal, finite, unrelated] = [0, 0, 0, true, Number.POSITIVE_INFINITY]
  const look = (mine: Float32Array, other: Float32Array): void => {
    if (mine.length !== vocabulary || other.length !== vocabulary) {
      throw new Error(`Expected ${vocabulary} logits of either side, got ${mine.length} and ${other.length}.`)
    }
    finite &&= mine.every(Number.isFinite) && other.every(Number.isFinite)
    distances.push(distance(mine, other))
    logitGap = Math.max(logitGap, greatestDifference(mine, other))
    const token = greedyOf(mine)
    probabilityGap = Math.max(probabilityGap, Math.abs(probabilityOf(mine, token) / probabilityOf(other, token) - 1))
  }

  await Promise.all([ours.fresh(), theirs.fresh()])
  let ids = idsOf(vocabulary, PROMPT)
  let before: Float32Array | undefined
  const tokens = new Set<number>()
  for (let step = 0; step < STEPS; step += 1) {
    const mine = await ours.feed(ids)
    const other = await theirs.feed(ids)
    look(mine, other)
    if (before) unrelated = Math.min(unrelated, distance(mine, before))
    before = other
    const token = greedyOf(mine)
    if (token === greedyOf(other)) equal += 1
    tokens.add(token)
    ids = Int32Array.of(token)
  }

  const prompts = Array.from({ length: sessions }, (_, session) => idsOf(vocabulary, PROMPT, session))
  await ours.decodeMany(prompts, 0)
  await theirs.decodeMany(prompts, 0)
  const next = Int32Array.from(prompts, (prompt) => prompt[0]!)
  const all = await ours.feedMany(next)
  const others = await theirs.feedMany(next)
  all.forEach((mine, i) => {
    look(mine, others[i]!)
  })

  const tolerance = toleranceOf(format, layers)
  const worst = Math.max(...distances)
  const same = finite && worst <= tolerance && tokens.size >= LEAST_DISTINCT
  const verdict = same
    ? 'both sides compute the same model'
    : finite && worst <= tolerance
      ? 'the greedy tokens HARDLY CHANGE, so the steps show too little; other weights are needed (make-models.ts)'
      : 'the sides DO NOT compute the same model'
  const percent = (part: number): string => `${part < 1 ? (100 * part).toPrecision(2) : (100 * part).toFixed(0)} %`
  const facts =
    `over ${STEPS} greedy steps after ${PROMPT} ids and in ${sessions} sessions side by side the logits differ by ${percent(median(distances))} ` +
    `of their deviation, at most ${percent(worst)} (tolerance ${percent(tolerance)}; unrelated logits: ${percent(unrelated)}), a single logit by at most ` +
    `${logitGap.toPrecision(2)}, ` +
    `the probability of the top token by ${percent(probabilityGap)} of itself; ${equal} of ${STEPS} greedy tokens are equal, ${tokens.size} are distinct (at least ${LEAST_DISTINCT} wanted)` +
    (finite ? '' : '; some logits are not finite')
  return {
    same,
    sentence: `${verdict}: ${facts}.`,
  }
}
