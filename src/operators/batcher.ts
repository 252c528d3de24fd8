/**
 * The meeting point of all sessions of a worker: whatever is ready while the engine is busy becomes its next batch, so the
 * weights are read once for all of them. There is no waiting for company; an idle engine starts at once.
 */
import { type Model, PartialFailure, type WorkItem, type WorkResult } from '../engine/types.ts'
import { ContinuoError, codeOf } from '../errors.ts'

export interface Batcher {
  process(item: WorkItem): Promise<WorkResult>
  /** Batches and items so far, for metrics. */
  readonly stats: { readonly batches: number; readonly items: number; readonly tokens: number }
}

interface Waiting {
  readonly item: WorkItem
  readonly resolve: (result: WorkResult) => void
  readonly reject: (error: unknown) => void
}

/** More would make everyone wait for the longest. */
const MAX_ITEMS = 64

export const createBatcher = (model: Pick<Model, 'process'>): Batcher => {
  let waiting: Waiting[] = []
  let busy = false
  const stats = { batches: 0, items: 0, tokens: 0 }

  const done = ({ item, resolve }: Waiting, result: WorkResult): void => {
    stats.tokens += item.tokens.length + result.generated.length
    resolve(result)
  }

  const settle = async (batch: readonly Waiting[]): Promise<void> => {
    stats.batches += 1
    stats.items += batch.length
    try {
      const results = await model.process(batch.map(({ item }) => item))
      for (const [index, each] of batch.entries()) done(each, results[index]!)
    } catch (error) {
      if (error instanceof PartialFailure) {
        for (const [index, each] of batch.entries()) {
          const outcome = error.outcomes[index]!
          if (outcome instanceof ContinuoError) each.reject(outcome)
          else done(each, outcome)
        }
        return
      }
      // The engine refuses a batch as a whole before it writes anything; whoever is innocent gets another try alone.
      const untouched = codeOf(error) === 'INVALID' || codeOf(error) === 'MISUSE'
      if (untouched && batch.length > 1) for (const each of batch) await settle([each])
      else for (const { reject } of batch) reject(error)
    }
  }

  const pump = async (): Promise<void> => {
    busy = true
    while (waiting.length > 0) {
      const batch = waiting.slice(0, MAX_ITEMS)
      waiting = waiting.slice(MAX_ITEMS)
      await settle(batch)
      // The sessions just answered hand in their next slices before the next batch is cut.
      await new Promise(setImmediate)
    }
    busy = false
  }

  return {
    process: (item) =>
      new Promise((resolve, reject) => {
        waiting.push({ item, resolve, reject })
        if (!busy) {
          busy = true
          // One turn later, so that sessions that become ready together start together.
          setImmediate(() => void pump())
        }
      }),
    stats,
  }
}
