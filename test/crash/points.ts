/** Which failpoints a worker can pass. */
import { FAILPOINTS, type Failpoint } from '../../src/failpoint.ts'

const ofBlobs = (name: Failpoint): boolean => name.startsWith('blobs.')
const ofAdaptations = (name: Failpoint): boolean => name.startsWith('adapt.')

/** Those of a worker whose snapshots are whole, and whose model does not adapt. */
export const PLAIN_POINTS: readonly Failpoint[] = FAILPOINTS.filter((name) => !ofBlobs(name) && !ofAdaptations(name))

/** Those that only a worker passes whose snapshots are in blocks, which lie in the log. */
export const TOPIC_POINTS: readonly Failpoint[] = FAILPOINTS.filter(ofBlobs)

/** The same, where a folder or S3 has the blocks. */
export const BLOB_POINTS: readonly Failpoint[] = TOPIC_POINTS.filter((name) => name !== 'blobs.moved')

/** In the phases of an adaptation: before it, while the engine learns, and behind it. */
export const ADAPT_POINTS: readonly Failpoint[] = FAILPOINTS.filter(ofAdaptations)
