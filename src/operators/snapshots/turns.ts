/**
 * A partition's writer takes one call at a time. Here calls wait for each other: those of the committer in their order,
 * and bulk behind them (bulk: the parts of blobs). A commit waits for one call with such parts at most.
 */
import { codeOf } from '../../errors.ts'
import type { OutRecord, PartitionWriter } from '../../streams/log.ts'

export interface TurnWriter extends PartitionWriter {
  /** As `append`, whenever nobody else has a call to make. */
  bulk(records: readonly OutRecord[]): Promise<readonly number[]>
}

/**
 * The writer is to be used through the result only. After a call that broke the writer the later ones reject with the
 * same error.
 */
export const inTurns = (writer: PartitionWriter): TurnWriter => {
  const first: (() => void)[] = []
  const behind: (() => void)[] = []
  let busy = false
  let failure: { readonly error: unknown } | null = null

  const turn = async <T>(queue: (() => void)[], work: () => Promise<T>): Promise<T> => {
    // The one before hands its turn over, so nobody comes between.
    if (busy) await new Promise<void>((resolve) => queue.push(resolve))
    busy = true
    try {
      return await work()
    } finally {
      const next = first.shift() ?? behind.shift()
      if (next === undefined) busy = false
      else next()
    }
  }

  const written = <T>(queue: (() => void)[], work: () => Promise<T>): Promise<T> =>
    turn(queue, async () => {
      if (failure !== null) throw failure.error
      try {
        return await work()
      } catch (error) {
        // INVALID: the record was at fault, and the writer goes on.
        if (codeOf(error) !== 'INVALID') failure = { error }
        throw error
      }
    })

  return {
    partition: writer.partition,
    epoch: writer.epoch,
    commit: (records, inputOffset) => written(first, () => writer.commit(records, inputOffset)),
    append: (records) => written(first, () => writer.append(records)),
    bulk: (records) => written(behind, () => writer.append(records)),
    confirm: () => turn(first, () => writer.confirm()),
    close: () => writer.close(),
  }
}
