/** Which failpoints a worker can pass. */
import { FAILPOINTS, type Failpoint } from '../../src/failpoint.ts'

const ofBlobs = (name: Failpoint): boolean => name.startsWith('blobs.')

/** Those of a worker whose snapshots are whole. */
export const PLAIN_POINTS: readonly Failpoint[] = FAILPOINTS.filter((name) => !ofBlobs(name))

/** Those that only a worker passes whose snapshots are in blocks. */
export const BLOB_POINTS: readonly Failpoint[] = FAILPOINTS.filter(ofBlobs)
