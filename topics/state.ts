import { z } from 'zod'
import {
  cause,
  chain,
  count,
  endedBy,
  KEPT,
  MAX_JOIN,
  MOST_ONCE,
  sessionId,
  sha256,
  type TopicContract,
} from './common.ts'
import { keptRules } from './input.ts'
import { lineNovelty } from './novelty.ts'

/** The position of a session in its input stream. */
export const streamCursor = z.strictObject({
  topic: z.string(),
  partition: count,
  /**
   * The input record that the session is reading, or the last one that it finished; −1 before any (an imported
   * session).
   */
  offset: z.int().min(-1),
  /** Tokens of that record already fed, read and generated together. */
  token: count,
  /** Whether the record is finished. */
  complete: z.boolean(),
  /** Text that the tokenizer holds back after the last finished record. */
  held: z.string(),
  /** The chunk's own id. */
  chunk: z.string().nullable(),
  /** sha256 of that record's value. A record with another hash at this offset belongs to another stream. */
  hash: sha256,
  /** Philox counter of the next draw. */
  rng: count,
  pulse: count,
})
/** Where a session stands in its input. */
export type StreamCursor = z.infer<typeof streamCursor>

/** Schema of a session's clock and phase. */
export const conductor = z.strictObject({
  /** Tokens fed since the session began. */
  globalStep: count,
  phase: z.enum(['build', 'test', 'stream']),
  /** Pulse at which the current context began. */
  origin: count,
})
/** Clock, phase and the beginning of the current context of a session. */
export type ConductorState = z.infer<typeof conductor>

/** A generation in progress. */
export const generation = z.strictObject({
  /** Tokens generated so far. */
  index: count,
  /** Bytes of an unfinished character, base64. */
  unfinished: z.base64(),
  /** The last bytes generated, base64: a stop string may begin in them. */
  tail: z.base64(),
})
export type GenerationState = z.infer<typeof generation>

/** An observation in progress. */
export const span = z
  .strictObject({
    fromPulse: count,
    tokens: count,
    predictions: count,
    /** Bytes of the predicted tokens' text; a token of a model without text counts as one. */
    bytes: count.optional(),
    nats: z.number(),
    surprisal: z.array(z.number().nullable()),
    /** Missing where the session does not ask for `novelty`, or no line ended yet. */
    lines: z.array(lineNovelty).optional(),
    /**
     * Of the hidden vectors behind its tokens [channels]: their sum, f64, and the last one, f32, little-endian in
     * base64. Missing where the session does not ask for `embedding`, or no token was read yet.
     */
    hidden: z.strictObject({ sum: z.base64(), last: z.base64() }).optional(),
  })
  // Older versions, in which every token was a byte, wrote no `bytes`.
  .transform((found) => ({ ...found, bytes: found.bytes ?? found.predictions }))

/** Schema of a reference to a snapshot, as heads carry it. */
export const snapshotRef = z.strictObject({
  pulse: count,
  /** Offsets of the first and last part in the snapshots topic. */
  first: count,
  last: count,
  parts: z.int().min(1),
  bytes: z.int().min(1),
  sha256,
  /**
   * Blobs that the snapshot names, and their bytes; missing where it names none. `in`: missing where a folder or S3 has
   * them.
   */
  blobs: z.strictObject({ count: z.int().min(1), bytes: z.int().min(1), in: z.literal('topic').optional() }).optional(),
})
/** Where a head says that the snapshot of its session is. */
export type SnapshotRef = z.infer<typeof snapshotRef>

/**
 * Why a session was set aside. `computation`: its state stopped being finite. A replay of its events leads to the same.
 * `storage`: its stored state is lost or damaged. That does not follow from its events, so a replay takes it from this
 * record.
 */
export const stopped = z.strictObject({
  cause: z.enum(['computation', 'storage']),
  /** The reason in the event's dead letter. */
  reason: z.string().max(1000),
  /** Offset of the record at which it was set aside. */
  offset: count,
})
export type Stopped = z.infer<typeof stopped>

/** Keys of `once` that a head remembers at most: those that were taken last. */
export const MOST_CLAIMS = 64
/** A key of `once` that an attempt has taken. */
export const claim = z.strictObject({
  key: z.string().min(1).max(MOST_ONCE.key),
  attempt: z.string().min(1).max(MOST_ONCE.attempt),
  /** Of the attempt's first event. */
  offset: count,
})
export type Claim = z.infer<typeof claim>

/** Schema of a session's record in the state topic. */
export const head = z.strictObject({
  type: z.literal('head'),
  version: z.literal(1),
  session: sessionId,
  /** Fingerprints of the model and of its state layout. */
  model: sha256,
  layout: sha256,
  /** `stopped`: set aside; everything but a `boundary` with `reset` or a `close` becomes a dead letter. */
  status: z.enum(['open', 'closed', 'stopped']),
  /** Present with the status `stopped`, and after the close of a session that was stopped. */
  stopped: stopped.optional(),
  /** `novelty`, `memory`, `perspectives`, `embedding`: missing where they are false. */
  settings: z.strictObject({
    surprisal: z.boolean(),
    novelty: z.literal(true).optional(),
    /** Of a session with `novelty` whose lines are joined. */
    join: z.string().min(1).max(MAX_JOIN).optional(),
    memory: z.literal(true).optional(),
    perspectives: z.literal(true).optional(),
    embedding: z.literal(true).optional(),
  }),
  cursor: streamCursor,
  conductor,
  chain,
  /**
   * Offset of the session's first record, where a replay without a snapshot begins. −1: imported, so its first events
   * are not in this log.
   */
  born: z.int().min(-1),
  /** Where the record at `born` forked the session from, as it was then; missing in a session that is no fork. */
  from: z.strictObject({ session: sessionId, pulse: count, chain }).optional(),
  /** Of a model with an external memory: how many blocks of the context are archived; missing where it is 0. */
  archived: count.optional(),
  /**
   * Where every so many records ask to continue: the records read since the last request; missing where there are none.
   */
  unanswered: count.optional(),
  /** What was done once, the last one last; missing where nothing was asked for so. */
  claims: z.array(claim).min(1).max(MOST_CLAIMS).optional(),
  /**
   * Lines judged in this context, and the first half of a sha256 over what was said of each; missing before the first.
   */
  novelty: z.strictObject({ lines: count, digest: chain }).optional(),
  totals: z.strictObject({ tokens: count, predictions: count, nats: z.number(), generated: count }),
  /** The observation in progress: spans the record's tokens since the last `observed` event. */
  span,
  generation: generation.nullable(),
  snapshot: snapshotRef.nullable(),
})
/** A session as of one commit: cursor, conductor, chain, sums and snapshot. */
export type Head = z.infer<typeof head>

/**
 * The head inside a snapshot. `recent`: the ids that its context was fed last, i32 little-endian in base64; missing
 * where there are none. `judged`: what is remembered of the lines that were read (src/novelty), base64; missing where
 * nothing is.
 */
export const snapshotHead = head.extend({ recent: z.base64().optional(), judged: z.base64().optional() })
export type SnapshotHead = z.infer<typeof snapshotHead>

/** The position of the whole partition. Its key is empty. */
export const partitionCursor = z.strictObject({
  type: z.literal('cursor'),
  version: z.literal(1),
  /** The consumer group that owns this state; another group needs another prefix. */
  group: z.string(),
  topic: z.string(),
  /** Kafka's id of that topic, where it has one: the offsets are not valid in another topic of the same name. */
  topicId: z.string().optional(),
  /** Under which name the blobs of this log lie in its blob store; missing before there were any. */
  logId: z
    .string()
    .regex(/^[0-9a-f]{32}$/)
    .optional(),
  partition: count,
  /** Every input record below this offset is finished. */
  offset: count,
  /** Finished ranges [from, to) beyond `offset`, ascending: sessions do not wait for each other. */
  done: z.array(z.tuple([count, count])),
  model: sha256,
  layout: sha256,
  /** How the records of the input are read. An older version wrote none; its cursor fits either format. */
  format: z.enum(['json', 'text']).optional(),
  /**
   * From which input record on the ids that sessions were fed are known, and penalties count them: 0, or where a
   * version took over that keeps them. An older version wrote none.
   */
  history: count.optional(),
  /**
   * Missing where an older version made the cursor, which took every session in every partition, or no worker has read
   * yet.
   */
  input: keptRules.optional(),
})
/** Where a partition stands: its watermark, and the finished records beyond it. */
export type PartitionCursor = z.infer<typeof partitionCursor>

/**
 * A `cancel` took effect: the request of this session in the input record at `offset` ended after `index` tokens. When
 * a cancel is read depends on time, so nothing else tells: whoever computes the request again obeys this record.
 */
export const cancelled = z.strictObject({
  type: z.literal('cancelled'),
  version: z.literal(1),
  session: sessionId,
  /** Missing: an `adapt` without one. */
  requestId: z.string().optional(),
  /** Of the request. */
  offset: count,
  /** Tokens that it had generated; 0 of an `adapt`. */
  index: count,
  /** Missing: a `cancel` event. */
  endedBy: endedBy.exclude(['cancel']).optional(),
  /** The `cancel` or `delete` event; where time ended it, the request itself. */
  cause,
})
/** Where a cancelled request ended. */
export type Cancelled = z.infer<typeof cancelled>

/**
 * A deleted session: no head of its key that stands before this record counts any more. The record itself is garbage
 * from the start.
 */
export const tombstone = z.strictObject({
  type: z.literal('deleted'),
  version: z.literal(1),
  session: sessionId,
  /** Of the `delete` event. */
  offset: count,
})
export type Tombstone = z.infer<typeof tombstone>

export const stateRecord = z.discriminatedUnion('type', [head, partitionCursor, cancelled, tombstone])
export type StateRecord = z.infer<typeof stateRecord>

const zeros = '0'.repeat(64)

export const state: TopicContract = {
  name: 'state',
  purpose:
    'Heads of sessions, cancels that took effect, and the cursor of the partition, written in the transaction that carries their outputs.',
  key: 'session id, UTF-8; empty for the partition cursor',
  value: stateRecord,
  settings: KEPT,
  examples: [
    {
      type: 'cursor',
      version: 1,
      group: 'continuo',
      topic: 'continuo.chunks',
      partition: 0,
      offset: 12,
      done: [[14, 17]],
      model: zeros,
      layout: zeros,
    },
    {
      type: 'cancelled',
      version: 1,
      session: 'log-7',
      requestId: 'r1',
      offset: 12,
      index: 32,
      cause: { topic: 'continuo.chunks', partition: 0, offset: 15, id: null },
    },
  ],
}
