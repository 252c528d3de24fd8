/** Statistics for all benches: quantiles, and the text of a figure with its spread. */

export const quantile = (values: readonly number[], q: number): number => {
  const sorted = [...values].sort((a, b) => a - b)
  return sorted[Math.min(sorted.length - 1, Math.floor(q * sorted.length))] ?? Number.NaN
}
export const median = (values: readonly number[]): number => quantile(values, 0.5)

export interface Spread {
  readonly median: number
  readonly min: number
  readonly max: number
}

export const spread = (values: readonly number[]): Spread => ({
  median: median(values),
  min: values.reduce((a, b) => Math.min(a, b), Number.POSITIVE_INFINITY),
  max: values.reduce((a, b) => Math.max(a, b), Number.NEGATIVE_INFINITY),
})
