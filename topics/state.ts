import { z } from 'zod'
import { chain, count, KEPT, sessionId, sha256, type TopicContract } from './common.ts'

/** Where the stream of one session stands. */
export const streamCursor = z.strictObject({
  topic: z.string(),
  partition: count,
  /** The input record the session stands in, or the last one it finished; −1 before any (an imported session). */
  offset: z.int().min(-1),
  /** Tokens of that record already fed, read and generated together. */
  token: count,
  /** The record is finished. */
  complete: z.boolean(),
  /** Text the tokenizer holds back after the last finished record. */
  held: z.string(),
  /** The chunk's own id. */
  chunk: z.string().nullable(),
  /** sha256 of that record's value: another record at this offset is another stream. */
  hash: sha256,
  /** Philox counter of the next draw. */
  rng: count,
  pulse: count,
})
export type StreamCursor = z.infer<typeof streamCursor>

export const conductor = z.strictObject({
  /** Tokens fed since the session began. */
  globalStep: count,
  phase: z.enum(['build', 'test', 'stream']),
  /** Pulse at which the current context began. */
  origin: count,
})
export type ConductorState = z.infer<typeof conductor>

/** A generation in progress. */
export const generation = z.strictObject({
  /** Tokens generated so far. */
  index: count,
  /** Bytes of an unfinished character, base64. */
  unfinished: z.base64(),
  /** The last bytes generated, base64: what a stop string could still grow from. */
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
  })
  // Heads of versions in which a token was a byte do not say.
  .transform((found) => ({ ...found, bytes: found.bytes ?? found.predictions }))

export const snapshotRef = z.strictObject({
  pulse: count,
  /** Offsets of the first and last part in the snapshots topic. */
  first: count,
  last: count,
  parts: z.int().min(1),
  bytes: z.int().min(1),
  sha256,
})
export type SnapshotRef = z.infer<typeof snapshotRef>

/**
 * Why a session was set aside. `computation`: its state stopped being finite; that follows from its events, and a replay comes to it
 * again. `storage`: its stored state cannot be had any more; that follows from nothing else, so this record is what replays obey.
 */
export const stopped = z.strictObject({
  cause: z.enum(['computation', 'storage']),
  /** As the dead letter of the event says it. */
  reason: z.string().max(1000),
  /** Offset of the record at which it was set aside. */
  offset: count,
})
export type Stopped = z.infer<typeof stopped>

export const head = z.strictObject({
  type: z.literal('head'),
  version: z.literal(1),
  session: sessionId,
  /** Fingerprints of the model and of its state layout. */
  model: sha256,
  layout: sha256,
  /** `stopped`: set aside; everything but a `boundary` with `reset` or a `close` becomes a dead letter. */
  status: z.enum(['open', 'closed', 'stopped']),
  /** With the status `stopped`, and of a session that was closed after it. */
  stopped: stopped.optional(),
  settings: z.strictObject({ surprisal: z.boolean() }),
  cursor: streamCursor,
  conductor,
  chain,
  /** Offset of the session's first record: where a replay without a snapshot begins. −1: imported, its past lies elsewhere. */
  born: z.int().min(-1),
  totals: z.strictObject({ tokens: count, predictions: count, nats: z.number(), generated: count }),
  /** The observation in progress: spans the record's tokens since the last `observed` event. */
  span,
  generation: generation.nullable(),
  snapshot: snapshotRef.nullable(),
})
export type Head = z.infer<typeof head>

/** Where the whole partition stands; its key is empty. */
export const partitionCursor = z.strictObject({
  type: z.literal('cursor'),
  version: z.literal(1),
  /** The consumer group that owns this state; another group needs another prefix. */
  group: z.string(),
  topic: z.string(),
  /** Kafka's id of that topic, where it has one: offsets mean nothing in another topic of the same name. */
  topicId: z.string().optional(),
  partition: count,
  /** Every input record below is finished. */
  offset: count,
  /** Finished ranges [from, to) beyond `offset`, ascending: sessions do not wait for each other. */
  done: z.array(z.tuple([count, count])),
  model: sha256,
  layout: sha256,
  /** How records of the input are read; versions that did not write it read either. */
  format: z.enum(['json', 'text']).optional(),
})
export type PartitionCursor = z.infer<typeof partitionCursor>

export const stateRecord = z.discriminatedUnion('type', [head, partitionCursor])
export type StateRecord = z.infer<typeof stateRecord>

const zeros = '0'.repeat(64)

export const state: TopicContract = {
  name: 'state',
  purpose: 'Heads of sessions and the cursor of the partition, written in the transaction that carries their outputs.',
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
  ],
}
