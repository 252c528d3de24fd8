/**
 * How well scores, or alarms, find the lines that were to be found. Equal scores are in no order: each measure is its
 * mean over all orders of them.
 */
import { median } from '../../src/cli/bench/statistics.ts'

export { median }

export const mean = (values: readonly number[]): number => values.reduce((a, b) => a + b, 0) / values.length

interface Group {
  readonly size: number
  readonly hits: number
}

/** Lines of equal score together, highest first. */
const groupsOf = (scores: readonly number[], labels: readonly boolean[]): readonly Group[] => {
  const byScore = new Map<number, { size: number; hits: number }>()
  for (const [i, score] of scores.entries()) {
    const group = byScore.get(score) ?? { size: 0, hits: 0 }
    group.size += 1
    group.hits += Number(labels[i])
    byScore.set(score, group)
  }
  return [...byScore.entries()].sort(([a], [b]) => b - a).map(([, group]) => group)
}

/**
 * The chance that a line with the label scores higher than one without (Mann and Whitney's U over all pairs); NaN where
 * one of the kinds is missing.
 */
export const auc = (scores: readonly number[], labels: readonly boolean[]): number => {
  let [won, hitsAbove, size] = [0, 0, 0]
  for (const group of groupsOf(scores, labels)) {
    const misses = group.size - group.hits
    won += misses * (hitsAbove + group.hits / 2)
    hitsAbove += group.hits
    size += group.size
  }
  return won / (hitsAbove * (size - hitsAbove))
}

/** Share of all lines with the label that are among the `count` highest. */
export const found = (scores: readonly number[], labels: readonly boolean[], count: number): number => {
  let [left, hits, all] = [count, 0, 0]
  for (const group of groupsOf(scores, labels)) {
    const taken = Math.min(left, group.size)
    hits += (taken * group.hits) / group.size
    left -= taken
    all += group.hits
  }
  return hits / all
}

/** Of each line the place in the order by score, as a share of all lines: 0 is the highest. */
export const placesOf = (scores: readonly number[]): readonly number[] => {
  const order = [...scores.keys()].sort((a, b) => scores[b]! - scores[a]!)
  const places = scores.map(() => 0)
  for (let at = 0, end = 0; at < order.length; at = end) {
    do end += 1
    while (end < order.length && scores[order[end]!] === scores[order[at]!])
    for (let i = at; i < end; i += 1) places[order[i]!] = (at + (end - at - 1) / 2) / scores.length
  }
  return places
}

export interface Finding {
  readonly precision: number
  readonly recall: number
  readonly f1: number
}

/** Alarms beside labels. No alarm at all has a precision of 0. */
export const findingOf = (alarms: readonly boolean[], labels: readonly boolean[]): Finding => {
  const right = alarms.filter((alarm, i) => alarm && labels[i]).length
  const precision = right / Math.max(1, alarms.filter(Boolean).length)
  const recall = right / Math.max(1, labels.filter(Boolean).length)
  return { precision, recall, f1: right === 0 ? 0 : (2 * precision * recall) / (precision + recall) }
}
