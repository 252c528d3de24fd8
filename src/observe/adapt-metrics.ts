/**
 * Metrics of adaptations: a front end divides the time that it has by the time of an evaluation, and asks for so many.
 */
import { Counter, Histogram, type Registry } from 'prom-client'
import type { AdaptationTime } from '../operators/sessions/context-store.ts'

/** From a window of a few tokens of a small model to thousands of evaluations of a large one. */
const SECONDS = [0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 25, 60, 150, 600]
const OF_EVALUATION = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5]

export interface AdaptMetrics {
  /** The engine has adapted a session. */
  adapted(told: AdaptationTime): void
}

export const createAdaptMetrics = (registry: Registry): AdaptMetrics => {
  const registers = [registry]
  const seconds = new Histogram({
    name: 'continuo_adapt_seconds',
    help: 'Time that the engine took for an adaptation, replays included; one waits for another',
    buckets: SECONDS,
    registers,
  })
  const each = new Histogram({
    name: 'continuo_adapt_evaluation_seconds',
    help: 'The same over the evaluations that it used',
    buckets: OF_EVALUATION,
    registers,
  })
  const evaluations = new Counter({
    name: 'continuo_adapt_evaluations_total',
    help: 'Evaluations that adaptations used, replays included',
    registers,
  })
  return {
    adapted({ seconds: took, evaluations: used }) {
      seconds.observe(took)
      each.observe(took / used)
      evaluations.inc(used)
    },
  }
}
