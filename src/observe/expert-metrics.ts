/**
 * Metrics of a model whose experts lie in a store: how often they are in memory, what is read and why, what look-ahead
 * is worth.
 */
import { Counter, Gauge, type Registry } from 'prom-client'
import type { ExpertStatistics, Model } from '../engine/types.ts'

/** Registers nothing for a model without a store. */
export const createExpertMetrics = (registry: Registry, { experts }: Partial<Pick<Model, 'experts'>>): void => {
  if (experts == null) return
  const registers = [registry]
  const totals = (
    name: string,
    help: string,
    labelNames: readonly string[],
    values: (seen: ExpertStatistics) => readonly (readonly [labels: Readonly<Record<string, string>>, value: number])[],
  ): void => {
    new Counter({
      ...{ name, help, registers, labelNames: [...labelNames] },
      collect() {
        this.reset()
        for (const [labels, value] of values(experts.statistics)) this.inc({ ...labels }, value)
      },
    })
  }
  totals(
    'continuo_expert_uses_total',
    'Experts that rows of a step were routed to, by where they were by then',
    ['place'],
    ({ uses, hits }) => [
      [{ place: 'memory' }, hits],
      [{ place: 'disk' }, uses - hits],
    ],
  )
  totals(
    'continuo_expert_read_bytes_total',
    'Bytes of experts read, by what they were asked for',
    ['reason'],
    (seen) => [
      [{ reason: 'demand' }, seen.demandBytes],
      [{ reason: 'ahead' }, seen.aheadBytes],
      [{ reason: 'warm' }, seen.warmBytes],
      [{ reason: 'delta' }, seen.deltaBytes],
    ],
  )
  totals('continuo_expert_wait_seconds_total', 'Time in which computing waited for experts', [], (seen) => [
    [{}, seen.waitSeconds],
  ])
  totals('continuo_expert_read_seconds_total', 'Time in which at least one read was on its way', [], (seen) => [
    [{}, seen.readSeconds],
  ])
  totals(
    'continuo_expert_predictions_total',
    'Experts that look-ahead expected k layers later, by what came of it',
    ['k', 'outcome'],
    ({ ahead }) =>
      ahead.flatMap(({ predictions, right, alreadyResident, inTime, useless }, i) => {
        const k = String(i + 1)
        return [
          [{ k, outcome: 'all' }, predictions],
          [{ k, outcome: 'right' }, right],
          [{ k, outcome: 'resident' }, alreadyResident],
          [{ k, outcome: 'in_time' }, inTime],
          [{ k, outcome: 'useless' }, useless],
        ] as const
      }),
  )
  totals('continuo_expert_faults_total', 'Reads of experts that went wrong, by kind', ['kind'], (seen) => [
    [{ kind: 'retry' }, seen.retries],
    [{ kind: 'checksum' }, seen.failedChecks],
    [{ kind: 'delta' }, seen.deltasRefused],
    [{ kind: 'failed' }, seen.failedReads],
  ])
  totals('continuo_expert_evictions_total', 'Experts that left memory for others', [], (seen) => [[{}, seen.evictions]])
  const gauge = (name: string, help: string, value: (seen: ExpertStatistics) => number): void => {
    new Gauge({
      ...{ name, help, registers },
      collect() {
        this.set(value(experts.statistics))
      },
    })
  }
  gauge('continuo_expert_resident_bytes', 'Experts in memory', (seen) => seen.residentBytes)
  gauge('continuo_expert_bound_bytes', 'Their bound', (seen) => seen.bound)
}
