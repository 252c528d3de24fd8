/**
 * restore: the way back to a committed head. A session's context is rebuilt on its first event: the snapshot its head names,
 * then the events between snapshot and head once more, with outputs suppressed. The replay must end at the very head that
 * was committed (cursor, pulse, chain, sums); if it does not, nothing is resumed.
 */
import type { TopicNames } from '../../topics/index.ts'
import type { Context, Model } from '../engine/types.ts'
import { ContinuoError } from '../errors.ts'
import { failpoint } from '../observe/failpoint.ts'
import { checkFits, type Head, headDifference, sameHead, samePlace } from '../state/head.ts'
import { decodeSnapshot } from '../state/snapshot.ts'
import type { EventLog } from '../streams/log.ts'
import { advance, type Engine, newborn, type Session } from './advance.ts'
import { readSnapshot } from './snapshots.ts'
import { tokenizeEvent } from './tokenize.ts'
import type { Valid } from './types.ts'
import { type ValidateOptions, validateRecord } from './validate.ts'

export interface RestoreDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly model: Model
  readonly engine: Engine
  readonly validate: ValidateOptions
}

/** Bytes asked for at a time: for a few records not a whole megabyte of those behind them, which Kafka would send. */
const MAX_BYTES = 1 << 20
const RECORD_BYTES = 4096

/** A session's own events in [from, until), validated; rejected ones left out, as they were the first time. */
export async function* sessionEvents(
  { log, names, validate }: RestoreDeps,
  partition: number,
  session: string,
  from: number,
  until: number,
  signal?: AbortSignal,
): AsyncGenerator<Valid> {
  const key = Buffer.from(session)
  const maxBytes = Math.min(MAX_BYTES, RECORD_BYTES * Math.max(1, until - from))
  for await (const batch of log.read(names.chunks, partition, from, { until, maxBytes, ...(signal && { signal }) })) {
    for (const record of batch.records) {
      if (record.key === null || !key.equals(record.key)) continue
      const valid = validateRecord(record, validate)
      if (valid.kind === 'valid') yield valid
    }
  }
}

const disagree = (target: Head, reached: Head): ContinuoError =>
  new ContinuoError(
    'REFUSED',
    `Session "${target.session}" was replayed to offset ${reached.cursor.offset}, token ${reached.cursor.token}, and does not agree with its committed head: ${headDifference(target, reached)}. The events, the snapshot or the head were altered. Cannot resume; nothing was changed.`,
  )

/** Loads the snapshot that the head names; null where it names none. */
const loadSnapshot = async (
  { log, names, model }: RestoreDeps,
  partition: number,
  target: Head,
): Promise<Session | null> => {
  if (target.snapshot === null) return null
  const file = await readSnapshot(log, names.snapshots, partition, target)
  const { head, state } = decodeSnapshot(file, model.layout)
  checkFits(head, model)
  if (head.session !== target.session || head.cursor.pulse !== target.snapshot.pulse) {
    throw new ContinuoError(
      'REFUSED',
      `The head of session "${target.session}" names a snapshot at pulse ${target.snapshot.pulse}; it holds session "${head.session}" at pulse ${head.cursor.pulse}. Nothing was changed; restore the log from a copy.`,
    )
  }
  failpoint('restore.snapshot')
  return { head, context: filled(model, state, head) }
}

/** A context with this state; none is left over when the state is refused. */
const filled = (model: Model, state: Uint8Array | null, head: Head): Context => {
  const context = model.createContext()
  try {
    context.restore(state ?? context.serialize(), headOf(head))
    return context
  } catch (error) {
    context.close()
    throw error
  }
}

const headOf = (head: Head) => ({
  pulse: BigInt(head.conductor.globalStep),
  origin: BigInt(head.conductor.origin),
  chain: head.chain,
})

/** A closed session can only be opened anew: it needs its clock and chain, not its memory. */
const closedSession = (model: Model, head: Head): Session => ({ head, context: filled(model, null, head) })

/** Throws UNAVAILABLE when the signal fires first: a stop does not wait for the past. */
export const restoreSession = async (
  deps: RestoreDeps,
  partition: number,
  target: Head,
  signal?: AbortSignal,
): Promise<Session> => {
  const { model, engine } = deps
  if (target.status === 'closed') return closedSession(model, target)
  const base = await loadSnapshot(deps, partition, target)
  let session = base
  const from = base === null ? target.born : base.head.cursor.offset + (base.head.cursor.complete ? 1 : 0)
  try {
    if (session === null || !samePlace(session.head, target)) {
      const events = sessionEvents(deps, partition, target.session, from, target.cursor.offset + 1, signal)
      replay: for await (const event of events) {
        const { cursor } = session?.head ?? {}
        if (
          cursor !== undefined &&
          (cursor.offset > event.record.offset || (cursor.offset === event.record.offset && cursor.complete))
        ) {
          continue
        }
        const work = tokenizeEvent(event, session?.head, engine.tokenizer, model)
        if (work.kind === 'rejected') continue
        let fresh = false
        if (session === null) {
          const context = model.createContext()
          session = { head: newborn(work, model, context.chain), context }
          fresh = true
        }
        for await (const step of advance(session, work, fresh, engine)) {
          failpoint('restore.replay')
          if (signal?.aborted) break replay
          if (samePlace(step.head!, target)) break replay
        }
      }
    }
    if (signal?.aborted) {
      throw new ContinuoError('UNAVAILABLE', `The task stopped while session "${target.session}" was being rebuilt.`)
    }
    if (session === null) {
      throw new ContinuoError(
        'REFUSED',
        `Session "${target.session}" has a head at offset ${target.cursor.offset} and no events from offset ${target.born} on. The input topic was replaced or trimmed; bring it back, or use another --group and prefix.`,
      )
    }
    if (!sameHead(target, session.head)) throw disagree(target, session.head)
    failpoint('restore.done')
    return { head: target, context: session.context }
  } catch (error) {
    session?.context.close()
    if (error instanceof ContinuoError && error.code === 'POSITION') {
      throw new ContinuoError(
        'REFUSED',
        `Session "${target.session}" must be replayed from offset ${from} of ${deps.names.chunks}, partition ${partition}, and those events are gone: ${error.message} Keep input until every session that reads it was saved (--snapshot-every, --snapshot-records).`,
        { cause: error },
      )
    }
    throw error
  }
}
