/** `verify` of a log that must be at rest: if a worker wrote while the log was read, there are no findings. */
import type { TopicNames } from '../../../topics/index.ts'
import { codeOf } from '../../errors.ts'
import { checkFits } from '../../state/head.ts'
import type { EventLog } from '../../streams/log.ts'
import { newestCursor } from '../worker/newest-cursor.ts'
import { type Verification, type VerifyOptions, verifyLog } from './verify.ts'

/** Every commit of a worker moves the state topic. Equal texts: no commit came in between. */
const stateBounds = async (log: EventLog, names: TopicNames, partitions: number): Promise<string> => {
  const all = Array.from({ length: partitions }, (_, partition) => log.bounds(names.state, partition))
  return (await Promise.all(all)).map(({ begin, end }) => `${begin} ${end}`).join()
}

/**
 * With another model everything differs: that is one thing to say, and nothing to verify. Throws REFUSED, as a run
 * would.
 */
const refuseOther = async ({ log, names, model }: VerifyOptions, partitions: number): Promise<void> => {
  for (let partition = 0; partition < partitions; partition += 1) {
    const cursor = await newestCursor(log, names, partition).catch((error: unknown) => {
      // What a worker trims meanwhile is said further on.
      if (codeOf(error) !== 'POSITION') throw error
    })
    if (cursor) checkFits(cursor, model)
  }
}

export interface VerifiedAtRest extends Verification {
  /** A worker wrote while the log was read. Then there are no findings: what was seen by halves says nothing. */
  readonly moved: boolean
}

/** As `verifyLog`; `partitions`: those that the log was written with. Throws REFUSED where another model wrote it. */
export const verifyAtRest = async (options: VerifyOptions, partitions: number): Promise<VerifiedAtRest> => {
  const { log, names } = options
  await refuseOther(options, partitions)
  const before = await stateBounds(log, names, partitions)
  const result = await verifyLog(options)
  const moved = (await stateBounds(log, names, partitions)) !== before
  return { ...result, moved, findings: moved ? [] : result.findings }
}
