/** The settings of a worker, in one place: each is a flag of `continuo run`. */

import type { InputRules } from '../../../topics/input.ts'
import { PART_BYTES } from '../../../topics/snapshots.ts'
import type { BlockCacheOptions } from '../../state/block-cache.ts'
import type { SourceLimits } from '../../streams/source.ts'
import { SESSION_SHARE } from '../pipeline/places.ts'
import type { InputFormat } from '../pipeline/validate.ts'
import { CAPTURE_BYTES } from '../snapshots/capture.ts'

/** How a worker does its work. `workerDefaults` has the values that must be given. */
export interface WorkerSettings {
  /** The consumer group that owns the state. */
  readonly group: string
  /** How input records are read: events as JSON, or plain text. */
  readonly format: InputFormat
  /** How its records become events; default: by their keys, as events that are known in full. */
  readonly input?: InputRules | undefined
  /** Time between the beginnings of two commits, ms. */
  readonly commitInterval: number
  /** Pulses after which a session's state is saved. */
  readonly snapshotEvery: number
  /** Records of the partition after which an idle session is saved; default `SNAPSHOT_RECORDS`. */
  readonly snapshotRecords?: number | undefined
  /** Contexts of a partition at once; sessions beyond them take turns. */
  readonly maxContexts: number
  /**
   * How long an event keeps its context while other sessions wait for one, ms; default 2,000, and 100 where they are of
   * another share.
   */
  readonly roomTurn?: number | undefined
  /** Bytes of a snapshot in one record at most; default and most: `PART_BYTES`. */
  readonly partBytes?: number | undefined
  /** Bytes of blocks that are copied at a time for a snapshot; default `CAPTURE_BYTES`. */
  readonly captureBytes?: number | undefined
  /** Dead bytes of state that are not worth compacting. */
  readonly compactFloor: number
  /** Memory of all contexts of the process, bytes; those not in use go to files beyond it. Default: no bound. */
  readonly maxResidentBytes?: number | undefined
  /** Bytes of those files; contexts go to the log beyond it. Default: no bound. */
  readonly maxSpillBytes?: number | undefined
  /** Events of a session that wait in memory; those beyond wait in the log. Default `SESSION_SHARE`. */
  readonly sessionShare?: number | undefined
  /** How far the input is read beyond what is finished; default `SOURCE_LIMITS`. */
  readonly limits?: SourceLimits | undefined
  /** How long an adaptation may compute before it is ended, having learnt nothing, ms; default `ADAPT_TIME`. */
  readonly adaptTime?: number | undefined
  /** Where the folder for those files is made; default: the system's folder for temporary files. */
  readonly spillDir?: string | undefined
  /** Of a model whose memory lies outside: where archived blocks are, for all sessions of the worker. */
  readonly blocks?: Omit<BlockCacheOptions, 'warn'> | undefined
}

/** What `continuo run` takes where no flag says otherwise; docs/operations.md says what each trades. */
export const workerDefaults = {
  group: 'continuo',
  format: 'json',
  commitInterval: 100,
  snapshotEvery: 16_384,
  maxContexts: 512,
  compactFloor: 4 * 1024 * 1024,
} as const satisfies WorkerSettings

export const SNAPSHOT_RECORDS = 65_536
/** Ten minutes. */
export const ADAPT_TIME = 600_000

/** The settings with their defaults, for the parts of a worker. */
export const withDefaults = <T extends WorkerSettings>(settings: T) => ({
  ...settings,
  snapshotRecords: settings.snapshotRecords ?? SNAPSHOT_RECORDS,
  partBytes: settings.partBytes ?? PART_BYTES,
  sessionShare: settings.sessionShare ?? SESSION_SHARE,
  captureBytes: settings.captureBytes ?? CAPTURE_BYTES,
  adaptTime: settings.adaptTime ?? ADAPT_TIME,
})
