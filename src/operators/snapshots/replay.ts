/** Reads a part of the input again, for sessions that are computed again. */
import type { TopicNames } from '../../../topics/index.ts'
import type { Cancelled } from '../../../topics/state.ts'
import type { ModelInfo } from '../../engine/types.ts'
import type { EventLog } from '../../streams/log.ts'
import type { Inference } from '../advance/session-state.ts'
import { sessionText } from '../pipeline/input.ts'
import { type ValidateOptions, validateRecord } from '../pipeline/validate.ts'
import type { Contexts } from '../sessions/context-store.ts'
import type { Valid } from '../types.ts'

export interface ReplayDeps {
  readonly log: EventLog
  readonly names: TopicNames
  readonly model: ModelInfo & Contexts
  readonly engine: Inference
  readonly validate: ValidateOptions
  /** Cancels that took effect in the partition, by the offset of the request. */
  readonly cancelled: ReadonlyMap<number, Cancelled>
}

/** The engine for what is computed again: a request that was cancelled ends where it did. */
export const obeying = (engine: Inference, cancelled: ReplayDeps['cancelled']): Inference => ({
  ...engine,
  endedBy(offset, index) {
    const ended = cancelled.get(offset)
    return ended?.index === index ? (ended.endedBy ?? 'cancel') : null
  },
})

/** Bytes asked for at a time: for a few records not a whole megabyte of those behind them, which Kafka would send. */
const MAX_BYTES = 1 << 20
const RECORD_BYTES = 4096

/** The events of some sessions in [from, until), validated; those left out that no session would accept. */
export async function* sessionEvents(
  { log, names, validate }: ReplayDeps,
  partition: number,
  isWanted: (session: string) => boolean,
  from: number,
  until: number,
  signal?: AbortSignal,
): AsyncGenerator<Valid> {
  const maxBytes = Math.min(MAX_BYTES, RECORD_BYTES * Math.max(1, until - from))
  for await (const batch of log.read(names.chunks, partition, from, {
    until,
    maxBytes,
    undecodable: true,
    ...(signal && { signal }),
  })) {
    for (const record of batch.records) {
      if (!isWanted(sessionText(record, validate.input))) continue
      const valid = validateRecord(record, validate)
      if (valid.kind === 'valid') yield valid
    }
  }
}
