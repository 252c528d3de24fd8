/**
 * restore: the way back to a committed head. A session's context is rebuilt on its first event: the snapshot its head
 * names, then the events between snapshot and head once more, with outputs suppressed. The replay must end at the very
 * head that was committed (cursor, pulse, chain, sums); if it does not, nothing is resumed.
 *
 * A snapshot that is gone or damaged is done without where the session's events are still there: then all of them are
 * read again. Where they are not, the session is lost (`SessionLost`), and nothing else with it.
 */
import type { BlobName } from '../../blobs/store.ts'
import type { Context } from '../../engine/context.ts'
import { ContinuoError, codeOf, messageOf } from '../../errors.ts'
import { failpoint } from '../../failpoint.ts'
import type { StateSource } from '../../memory.ts'
import {
  checkFits,
  faultOfHead,
  type Head,
  headDifference,
  type SnapshotRef,
  sameHead,
  samePlace,
} from '../../state/head.ts'
import { createHistory, historyIn, withoutHistory } from '../../state/history.ts'
import { AdaptingStopped, learntFrom } from '../advance/adapted.ts'
import { advance } from '../advance/advance.ts'
import { NOBODY, parentOf, sessionFor } from '../advance/fork.ts'
import { clockOf, type SessionState } from '../advance/session-state.ts'
import { SessionLost } from '../advance/set-aside.ts'
import { type KnownBlocks, lifeOf } from '../blobs/blobs.ts'
import { compactionHint } from '../pipeline/compacted-input.ts'
import { tokenizeEvent } from '../pipeline/tokenize.ts'
import type { Contexts } from '../sessions/context-store.ts'
import type { Tokenized, Valid } from '../types.ts'
import { parentBefore } from './ancestors.ts'
import { BlockLost, type Keep } from './manifests.ts'
import { obeying, type ReplayDeps, sessionEvents } from './replay.ts'
import { readSnapshot } from './snapshots.ts'
import { storedState } from './stored-state.ts'

export interface RestoreDeps extends ReplayDeps {
  /** Committed heads: the parent of a fork is taken from there while it stands where it was forked. */
  readonly heads?: Pick<ReadonlyMap<string, Head>, 'get'>
  /** Where blocks that may sleep lie; default: none may. */
  readonly kept?: Keep
  /** Called for a block that is missing or damaged. */
  readonly distrust?: (blob: BlobName) => void
  /** The snapshot that the committed head of a session names by now: it may be written again elsewhere at any time. */
  readonly newest?: (session: string) => SnapshotRef | null
  /** Called when a snapshot is of no use and the events take its place. */
  readonly warn?: (message: string) => void
}

/**
 * `unsaved`: the snapshot that its head names is of no use, so another should take its place. `blocks`: those of the
 * snapshot that it was rebuilt from. `beside`: tokens that adaptations computed in the replay; missing where there were
 * none.
 */
export type Restored = SessionState & {
  readonly unsaved?: true
  readonly blocks?: KnownBlocks
  readonly beside?: number
}

/** A session was computed again, and the result is another than the committed one. */
export class Disagreement extends SessionLost {}

const disagree = (target: Head, reached: Head, hint: string): Disagreement =>
  new Disagreement(
    `Session "${target.session}" was replayed to offset ${reached.cursor.offset}, token ${reached.cursor.token}, and does not agree with its committed head: ${headDifference(target, reached)}. The events, the snapshot or the head were altered, or events were removed.${hint}`,
  )

/** Loads the snapshot that the head names; null where it names none. Throws `SessionLost` where it is of no use. */
const loadSnapshot = async (deps: RestoreDeps, partition: number, target: Head): Promise<Restored | null> => {
  const { log, names, model, kept, distrust, newest } = deps
  if (target.snapshot === null) return null
  try {
    const file = await readSnapshot(log, names.snapshots, partition, target)
    const { head: inside, state, blocks: stored } = await storedState(log, file, model.layout, kept)
    const [head, history] = [withoutHistory(inside), historyIn(inside, model.vocabSize)]
    checkFits(head, model)
    const fault = faultOfHead(head, model)
    if (fault !== null) throw new SessionLost(`The snapshot of session "${target.session}" cannot be used: ${fault}.`)
    if (head.session !== target.session || head.cursor.pulse !== target.snapshot.pulse) {
      throw new SessionLost(
        `The head of session "${target.session}" names a snapshot at pulse ${target.snapshot.pulse}; it holds session "${head.session}" at pulse ${head.cursor.pulse}.`,
      )
    }
    failpoint('restore.snapshot')
    const blocks = stored === null ? undefined : { life: lifeOf(head), ...stored }
    return { head, context: await filled(model, state, head), history, ...(blocks && { blocks }) }
  } catch (error) {
    const code = codeOf(error)
    const now = newest?.(target.session) ?? null
    // What was read may have been trimmed while it was read, once the same state stood elsewhere.
    if (code === 'REFUSED' && now !== null && now.pulse === target.snapshot.pulse && now.first > target.snapshot.first)
      return loadSnapshot(deps, partition, { ...target, snapshot: now })
    if (error instanceof BlockLost) distrust?.(error.blob)
    // INVALID: the engine does not take the state.
    if (code !== 'REFUSED' && code !== 'INVALID') throw error
    throw error instanceof SessionLost ? error : new SessionLost(messageOf(error), { cause: error })
  }
}

/** A context with this state; none is left over when the state is refused. */
const filled = async (model: Contexts, state: Uint8Array | StateSource | null, head: Head): Promise<Context> => {
  const context = model.createContext()
  try {
    await context.load(state, clockOf(head))
    return context
  } catch (error) {
    context.close()
    throw error
  }
}

/** With the first state at the head's clock and chain: all that a session needs which was closed or set aside. */
export const blankSession = async (model: Contexts, head: Head): Promise<SessionState> => ({
  head,
  context: await filled(model, null, head),
  history: createHistory(),
})

/** The parent of a session that begins with the event at `offset`, as it was then. */
const parentAt = async (
  deps: RestoreDeps,
  partition: number,
  from: NonNullable<Head['from']>,
  offset: number,
  signal: AbortSignal | undefined,
): Promise<SessionState> => {
  const head = deps.heads?.get(from.session)
  const stands =
    head?.status === 'open' &&
    head.cursor.complete &&
    head.cursor.offset < offset &&
    head.conductor.globalStep === from.pulse &&
    head.chain === from.chain
  if (!stands) return parentBefore(deps, partition, from, offset, signal)
  return restoreSession(deps, partition, head, signal)
}

/** The session as it meets an event, where the event is accepted; `from` is of the session's committed head. */
const meet = async (
  deps: RestoreDeps,
  partition: number,
  event: Valid,
  session: SessionState | null,
  from: Head['from'],
  signal: AbortSignal | undefined,
): Promise<{ readonly work: Tokenized; readonly session: SessionState; readonly fresh: boolean } | null> => {
  const { model, engine } = deps
  // Its head was born with its last fork, so only its first event can be one.
  const isFork = session === null && from !== undefined && parentOf(event) === from.session
  const parent = isFork ? await parentAt(deps, partition, from, event.record.offset, signal) : undefined
  try {
    const others = parent === undefined ? NOBODY : { newest: () => parent.head, partitions: 1 }
    const work = tokenizeEvent(event, session?.head, engine.tokenizer, model, others)
    return work.kind === 'rejected' ? null : { work, ...(await sessionFor(work, session ?? undefined, model, parent)) }
  } finally {
    parent?.context.close()
  }
}

const stoppedAt = ({ session }: Head): ContinuoError =>
  new ContinuoError('UNAVAILABLE', `The task stopped while session "${session}" was being rebuilt.`)

/**
 * Carries the session on from `base`, or from its first event, until it stands where `target` does, and compares the
 * two.
 */
const replayed = async (
  deps: RestoreDeps,
  partition: number,
  target: Head,
  base: Restored | null,
  signal: AbortSignal | undefined,
): Promise<Restored> => {
  let session: SessionState | null = base
  let beside = 0
  const engine = obeying(deps.engine, deps.cancelled)
  const from = base === null ? target.born : base.head.cursor.offset + (base.head.cursor.complete ? 1 : 0)
  try {
    if (session === null || !samePlace(session.head, target)) {
      const own = (id: string): boolean => id === target.session
      const events = sessionEvents(deps, partition, own, from, target.cursor.offset + 1, signal)
      replay: for await (const event of events) {
        const { cursor } = session?.head ?? {}
        if (
          cursor !== undefined &&
          (cursor.offset > event.record.offset || (cursor.offset === event.record.offset && cursor.complete))
        ) {
          continue
        }
        const met = await meet(deps, partition, event, session, target.from, signal)
        if (met === null) continue
        session = met.session
        for await (const step of advance(session, met.work, met.fresh, engine)) {
          failpoint('restore.replay')
          beside += learntFrom(step)
          if (signal?.aborted) break replay
          if (samePlace(step.head!, target)) break replay
        }
      }
    }
    if (signal?.aborted) throw stoppedAt(target)
    if (session === null) {
      throw new ContinuoError(
        'REFUSED',
        `Session "${target.session}" has a head at offset ${target.cursor.offset} and no events from offset ${target.born} on. The input topic was replaced or trimmed; bring it back, or use another --group and prefix.${await compactionHint(deps.log, deps.names.chunks)}`,
      )
    }
    if (!sameHead(target, session.head))
      throw disagree(target, session.head, await compactionHint(deps.log, deps.names.chunks))
    failpoint('restore.done')
    return {
      ...session,
      head: target,
      ...(base?.blocks && { blocks: base.blocks }),
      ...(beside > 0 && { beside }),
    }
  } catch (error) {
    session?.context.close()
    if (error instanceof AdaptingStopped) throw stoppedAt(target)
    if (codeOf(error) === 'POSITION') {
      throw new SessionLost(
        `Session "${target.session}" must be replayed from offset ${from} of ${deps.names.chunks}, partition ${partition}, and those events are gone: ${messageOf(error)} Keep input until every session that reads it was saved (--snapshot-every, --snapshot-records).${await compactionHint(deps.log, deps.names.chunks)}`,
        { cause: error },
      )
    }
    throw error
  }
}

/**
 * Throws UNAVAILABLE when the signal fires first: a stop does not wait for the past. Throws `SessionLost` where neither
 * the snapshot nor the events lead to the head, REFUSED where the input is another than the one that the head speaks
 * of.
 */
export const restoreSession = async (
  deps: RestoreDeps,
  partition: number,
  target: Head,
  signal?: AbortSignal,
): Promise<Restored> => {
  if (target.status !== 'open') return blankSession(deps.model, target)
  /** Why the snapshot is of no use. */
  let lost: SessionLost
  try {
    const base = await loadSnapshot(deps, partition, target)
    if (base !== null || target.born >= 0) return await replayed(deps, partition, target, base, signal)
    lost = new SessionLost(`Session "${target.session}" came from another log, and its head names no snapshot.`)
  } catch (error) {
    const isLost = error instanceof SessionLost && target.snapshot !== null
    if (!isLost) throw error
    lost = error
  }
  if (target.born < 0) throw lost
  deps.warn?.(`${lost.message} Session "${target.session}" is computed again from its first event.`)
  try {
    return { ...(await replayed(deps, partition, target, null, signal)), unsaved: true }
  } catch (error) {
    throw error instanceof SessionLost && !(error instanceof Disagreement) ? lost : error
  }
}
