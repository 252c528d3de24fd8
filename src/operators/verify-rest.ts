/** verify of a log at rest: what was found means something only where nobody wrote meanwhile. */
import type { TopicNames } from '../../topics/index.ts'
import type { EventLog } from '../streams/log.ts'
import { type Verification, type VerifyOptions, verifyLog } from './verify.ts'

/** Every commit of a worker moves the state topic. Equal texts: no commit came in between. */
const stateBounds = async (log: EventLog, names: TopicNames, partitions: number): Promise<string> => {
  const all = Array.from({ length: partitions }, (_, partition) => log.bounds(names.state, partition))
  return (await Promise.all(all)).map(({ begin, end }) => `${begin} ${end}`).join()
}

export interface VerifiedAtRest extends Verification {
  /** A worker wrote while the log was read. Then there are no findings: what was seen by halves says nothing. */
  readonly moved: boolean
}

/** As `verifyLog`; `partitions`: those that the log was written with. */
export const verifyAtRest = async (options: VerifyOptions, partitions: number): Promise<VerifiedAtRest> => {
  const { log, names } = options
  const before = await stateBounds(log, names, partitions)
  const result = await verifyLog(options)
  const moved = (await stateBounds(log, names, partitions)) !== before
  return { ...result, moved, findings: moved ? [] : result.findings }
}
