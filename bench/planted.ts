/**
 * A log that begins with any number of idle sessions, each with a head and a snapshot of a real state, written as an
 * import writes them: thousands a second instead of the hundreds that a worker would have to read.
 */
import type { Model } from '../src/engine/types.ts'
import { writeSnapshot } from '../src/operators/snapshots/snapshots.ts'
import { openState } from '../src/operators/worker/partition-state.ts'
import { type Head, type SnapshotRef, seal } from '../src/state/head.ts'
import { encodeSnapshot } from '../src/state/snapshot.ts'
import type { EventLog, OutRecord, PartitionWriter } from '../src/streams/log.ts'
import { topicNames } from '../topics/index.ts'

/** Snapshots written at a time, and heads of one commit. */
const TOGETHER = 8
const HEADS = 400
/** Tokens that each session has read. */
const TOKENS = 54

export interface Planting {
  readonly log: EventLog
  readonly model: Model
  readonly group: string
  readonly partitions: number
  readonly sessions: number
  /** Whether each session has a snapshot of its own. Without one, no session can be asked for a token. */
  readonly snapshots: boolean
}

export const sessionName = (n: number): string => `session-${String(n).padStart(7, '0')}`

/** Joins appends that come while another one is under way, or in the same turn, into one transaction. */
const gathered = (writer: PartitionWriter): PartitionWriter => {
  let last: Promise<void> | null = null
  let waiting: { records: readonly OutRecord[]; done: PromiseWithResolvers<readonly number[]> }[] = []
  const flush = async (): Promise<void> => {
    const all = waiting
    waiting = []
    try {
      const offsets = await writer.append(all.flatMap(({ records }) => records))
      let at = 0
      for (const { records, done } of all) {
        done.resolve(offsets.slice(at, at + records.length))
        at += records.length
      }
    } catch (error) {
      for (const { done } of all) done.reject(error)
    }
  }
  return {
    ...writer,
    append(records) {
      const done = Promise.withResolvers<readonly number[]>()
      // One after the other: a writer has one call at a time.
      if (waiting.push({ records, done }) === 1) {
        const turn = new Promise<void>((resolve) => setImmediate(resolve))
        last = Promise.all([last, turn]).then(flush)
      }
      return done.promise
    },
  }
}

/** A state that has read a few words, and the head of a session that stands there. */
const templateOf = async (model: Model, topic: string) => {
  const context = model.createContext()
  const tokens = Int32Array.from({ length: TOKENS }, (_, n) => (n * 31) % model.vocabSize)
  await model.submit({ context, tokens, nats: false })
  const pulse = tokens.length
  const head: Head = {
    type: 'head',
    version: 1,
    session: '',
    model: model.fingerprint,
    layout: model.layoutFingerprint,
    status: 'open',
    settings: { surprisal: false },
    cursor: {
      topic,
      partition: 0,
      offset: -1,
      token: 0,
      complete: true,
      held: '',
      chunk: null,
      hash: '0'.repeat(64),
      rng: pulse,
      pulse,
    },
    conductor: { globalStep: pulse, phase: 'stream', origin: 0 },
    chain: context.chain,
    born: -1,
    totals: { tokens: pulse, predictions: pulse - 1, nats: 123.456789, generated: 0 },
    span: { fromPulse: pulse, tokens: 0, predictions: 0, bytes: 0, nats: 0, surprisal: [] },
    generation: null,
    snapshot: null,
  }
  const state = context.serialize()
  context.close()
  return { head, state }
}

/** Writes the sessions into a log whose topics exist and are empty. Their names are `sessionName(0)` and on. */
export const plant = async (given: Planting): Promise<void> => {
  const { log, model, group, partitions, sessions, snapshots } = given
  const names = topicNames(log.prefix)
  const { head: template, state } = await templateOf(model, names.chunks)
  const byPartition = Array.from({ length: partitions }, (): string[] => [])
  for (let n = 0; n < sessions; n += 1) {
    const session = sessionName(n)
    byPartition[await log.partitionOf(names.chunks, Buffer.from(session))]!.push(session)
  }
  for (const [partition, ids] of byPartition.entries()) {
    const writer = await log.claim(group, names.chunks, partition)
    const reading = { log, names, group, model, format: 'json' as const, warn: console.error }
    const { cursor } = await openState(writer, reading, partition, 0)
    const place = { topic: names.state, partition }
    const joined = gathered(writer)
    const withSnapshot = async (session: string): Promise<Head> => {
      const head: Head = {
        ...template,
        session,
        cursor: { ...template.cursor, partition, offset: cursor.offset - 1 },
      }
      if (!snapshots) return head
      const file = await encodeSnapshot(head, state, model.layout)
      const writing = await writeSnapshot(names.snapshots, session, head.cursor.pulse, [file])
      let ref: SnapshotRef | null = null
      while (ref === null) ref = await writing.step(joined)
      return { ...head, snapshot: ref }
    }
    for (let from = 0; from < ids.length; from += HEADS) {
      const heads: Head[] = []
      const some = ids.slice(from, from + HEADS)
      for (let at = 0; at < some.length; at += TOGETHER)
        heads.push(...(await Promise.all(some.slice(at, at + TOGETHER).map(withSnapshot))))
      const records = [...heads, cursor].map((each) => ({ topic: names.state, ...seal(each, place) }))
      await writer.commit(records, cursor.offset)
    }
    await writer.close()
  }
}
