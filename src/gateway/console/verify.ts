/** verify as a job of the gateway: one at a time, of a log at rest. */
import type { TopicNames } from '../../../topics/index.ts'
import { hasUnread } from '../../client/records.ts'
import { ContinuoError, messageOf } from '../../errors.ts'
import type { VerifiedAtRest } from '../../operators/verify/rest.ts'
import type { VerifyOptions } from '../../operators/verify/verify.ts'
import type { EventLog } from '../../streams/log.ts'
import { Refusal } from '../refusal.ts'
import type { VerifyState } from './types.ts'

/** Findings that are shown one by one. */
const MOST_SHOWN = 20

/** Recomputes the whole log, or one session of it; the caller has a model for it. */
export type Verify = (onProgress: NonNullable<VerifyOptions['onProgress']>, session?: string) => Promise<VerifiedAtRest>

export interface Verifier {
  readonly state: VerifyState
  /**
   * Begins; the state says how it goes. Rejects with a Refusal (409) where one is under way or the log is not at rest.
   */
  begin(): Promise<void>
}

const IDLE: VerifyState = { state: 'idle', at: null, progress: null, result: null, error: null }

/** What is told of a verification. */
export const resultOf = (found: VerifiedAtRest, seconds: number): NonNullable<VerifyState['result']> => ({
  ok: found.findings.length === 0 && !found.moved,
  moved: found.moved,
  seconds,
  sessions: found.sessions,
  events: found.events,
  tokens: found.tokensCompared,
  heads: found.headsCompared,
  snapshots: found.snapshotsCompared,
  findings: found.findings.length,
  shown: found.findings
    .slice(0, MOST_SHOWN)
    .map(
      ({ kind, partition, session, message }) =>
        `${kind}, partition ${partition}${session === null ? '' : `, "${session}"`}: ${message}`,
    ),
})

/** Where a verification runs. */
export interface VerifyPlace {
  readonly log: EventLog
  readonly names: TopicNames
  readonly partitions: number
  /** No further batch of the log is read after it fires. */
  readonly closing: AbortSignal
  /** Whoever closes the log and the model waits for this work. */
  inBackground(work: Promise<void>): void
}

/** `offsetOf`: where everything below is finished in a partition, as committed; null: nothing was read of it yet. */
export const createVerifier = (
  { log, names, partitions, closing, inBackground }: VerifyPlace,
  offsetOf: (partition: number) => number | null,
  verify: Verify,
  done: (state: VerifyState) => void,
): Verifier => {
  let state = IDLE
  /** The first partition with input that is not finished; null: the log is at rest. */
  const busy = async (): Promise<number | null> => {
    for (let partition = 0; partition < partitions; partition += 1) {
      const { begin } = await log.bounds(names.chunks, partition)
      if (await hasUnread(log, names.chunks, partition, Math.max(begin, offsetOf(partition) ?? begin))) return partition
    }
    return null
  }
  const run = async (at: number): Promise<void> => {
    const began = performance.now()
    try {
      const found = await verify((progress) => {
        if (closing.aborted) throw new ContinuoError('UNAVAILABLE', 'The gateway is closing.')
        state = { ...state, progress }
      })
      state = { ...IDLE, state: 'done', at, result: resultOf(found, (performance.now() - began) / 1000) }
    } catch (error) {
      state = { ...IDLE, state: 'failed', at, error: messageOf(error) }
    }
    done(state)
  }
  return {
    get state() {
      return state
    },
    async begin() {
      if (state.state === 'running') throw new Refusal(409, 'A verification is under way; wait for its end.')
      const before = state
      state = { ...IDLE, state: 'running', at: Date.now() }
      try {
        const partition = await busy()
        if (partition !== null)
          throw new Refusal(
            409,
            `Partition ${partition} has events that are not read yet, and verify needs a log at rest. Wait until everything is read.`,
            { code: 'not_at_rest' },
          )
      } catch (error) {
        state = before
        throw error
      }
      inBackground(run(state.at!))
    },
  }
}
