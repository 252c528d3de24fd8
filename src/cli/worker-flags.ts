/** The flags of commands that run a worker or stand before its log, and the settings that they are. */
import { PART_BYTES } from '../../topics/snapshots.ts'
import { STEP_TARGET } from '../engine/options.ts'
import { SESSION_SHARE } from '../operators/pipeline/places.ts'
import { ROOM_TURN } from '../operators/sessions/live-sessions.ts'
import { ADAPT_TIME, SNAPSHOT_RECORDS, type WorkerSettings, workerDefaults } from '../operators/worker/settings.ts'
import { SOURCE_LIMITS } from '../streams/source.ts'
import {
  blobFlags,
  blockFlags,
  formatFlag,
  generatingFlags,
  groupFlag,
  inputTopicFlag,
  logFlags,
  modelFlag,
  partitionsFlag,
  sealFlags,
} from './common.ts'
import { formerly, optional, optionalWhole, real, text, type Values, whole } from './flags.ts'
import { inputFlags, rulesOf } from './input-flags.ts'

/** Which log, with what state, and which model. */
export const placeFlags = {
  ...logFlags,
  ...sealFlags,
  ...blobFlags,
  model: modelFlag,
  'input-topic': inputTopicFlag,
}

export const workerFlags = {
  group: groupFlag,
  'input-format': formatFlag,
  ...inputFlags,
  partitions: partitionsFlag,
  ...generatingFlags,
  'step-target': real(
    'X',
    'while any session generates, a step of the engine takes at most about X times what it takes without sessions that read',
    STEP_TARGET.usual,
    STEP_TARGET,
  ),
  'commit-interval': whole('MS', 'time between two commits', workerDefaults.commitInterval, { min: 0 }),
  'snapshot-every': whole(
    'PULSES',
    "a session's state is saved after so many; a pulse is one token read or written",
    workerDefaults.snapshotEvery,
    { min: 1 },
  ),
  'snapshot-records': whole(
    'N',
    'and, when idle, after so many records of its partition, unless its past is short and the input keeps it',
    SNAPSHOT_RECORDS,
    {
      min: 1,
    },
  ),
  'session-share': whole(
    'N',
    'events of a session that wait for their turn in memory; those beyond wait in the log, and are read again',
    SESSION_SHARE,
    { min: 1 },
  ),
  places: whole('N', 'events of a partition that wait so at most; then no more is read', SOURCE_LIMITS.places, {
    min: 1,
  }),
  'read-ahead': whole(
    'BYTES',
    'of a partition that are read before the first of them is finished; a restart reads them again',
    SOURCE_LIMITS.readAhead,
    { min: 1 },
  ),
  'max-contexts': whole('N', 'sessions of a partition whose state is in memory at once', workerDefaults.maxContexts, {
    min: 1,
  }),
  'context-turn': whole(
    'MS',
    'that an event keeps its context while other sessions wait for one; at most 100 where they are of another share',
    ROOM_TURN,
    { min: 0 },
  ),
  'adapt-time': whole('MS', 'that an adaptation may compute; then it is ended, having learnt nothing', ADAPT_TIME, {
    min: 1,
    max: 2_147_483_647,
  }),
  'max-resident-bytes': optionalWhole('BYTES', 'memory of all contexts at most; idle ones beyond it go to files', {
    min: 1,
  }),
  'max-spill-bytes': optionalWhole('BYTES', 'those files at most; contexts beyond it go to the log', { min: 1 }),
  'spill-dir': formerly('page-dir', optional('DIR', 'where those files lie (default: a fresh temporary folder)')),
  ...blockFlags,
  'part-bytes': whole('BYTES', 'a snapshot is written in records of at most', PART_BYTES, {
    min: 1024,
    max: PART_BYTES,
  }),
  'compact-floor': formerly(
    'forward-floor',
    whole(
      'BYTES',
      'outdated state is removed from the log only where there is more of it than this',
      workerDefaults.compactFloor,
      {
        min: 8,
      },
    ),
  ),
  'session-timeout': whole('MS', 'a silent worker loses its partitions after', 10_000, { min: 100 }),
}

/** Where a worker tells its metrics. */
export const metricsFlags = {
  'metrics-port': optionalWhole('P', 'serve /metrics, /healthz and /readyz; 0 takes a free port', {
    min: 0,
    max: 65_535,
  }),
  'metrics-host': text('HOST', 'address to serve them at', '127.0.0.1'),
}

/** Every flag that is a setting of the worker, in one place. */
export const settingsOf = (
  flags: Values<typeof workerFlags>,
  given: ReadonlySet<string>,
  blocks: WorkerSettings['blocks'],
): WorkerSettings => ({
  group: flags.group,
  format: flags['input-format'],
  input: rulesOf(flags, given),
  commitInterval: flags['commit-interval'],
  snapshotEvery: flags['snapshot-every'],
  snapshotRecords: flags['snapshot-records'],
  maxContexts: flags['max-contexts'],
  roomTurn: flags['context-turn'],
  adaptTime: flags['adapt-time'],
  sessionShare: flags['session-share'],
  limits: { ...SOURCE_LIMITS, places: flags.places, readAhead: flags['read-ahead'] },
  partBytes: flags['part-bytes'],
  compactFloor: flags['compact-floor'],
  maxResidentBytes: flags['max-resident-bytes'],
  maxSpillBytes: flags['max-spill-bytes'],
  spillDir: flags['spill-dir'],
  blocks,
})
