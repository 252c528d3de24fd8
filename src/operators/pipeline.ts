/**
 * The whole program:
 *
 *   subscribe → validate → readAhead → bySession(tokenize → infer) → emit → commit
 *
 * Outside `bySession` things happen in the order of the partition, inside it in the order of each session. Backpressure
 * runs the other way: commit lets sessions wait (the table's `room`), sessions hold their records, and the source delivers no more
 * than the watermark has room for.
 */
import { from, type Observable } from 'rxjs'
import type { StoredRecord } from '../streams/log.ts'
import { bySession } from './by-session.ts'
import { type Commit, type CommitDeps, commit } from './commit.ts'
import { emit } from './emit.ts'
import { sessionsOf } from './fork.ts'
import { type InferDeps, infer } from './infer.ts'
import { readAhead } from './requests.ts'
import { type ValidateOptions, validate } from './validate.ts'

export interface PipelineDeps extends CommitDeps {
  readonly records: AsyncIterable<StoredRecord>
  readonly validation: ValidateOptions
  readonly inference: InferDeps
}

const subscribe = (records: AsyncIterable<StoredRecord>): Observable<StoredRecord> => from(records)

export const pipeline = (deps: PipelineDeps): Observable<Commit> =>
  subscribe(deps.records).pipe(
    validate(deps.validation),
    readAhead(deps.inference.requests),
    bySession(sessionsOf, infer(deps.inference)),
    emit(deps.names, deps.validation.input?.cloudEvents === true),
    commit(deps),
  )
