/**
 * The whole program:
 *
 *   subscribe → validate → readAhead → bySession(tokenize → infer) → emit → commit
 *
 * Outside `bySession` things happen in the order of the partition, inside it in the order of each session. Backpressure
 * runs the other way: commit lets sessions wait (the table's `room`), a session holds its share of records and has the
 * others wait in the log (places.ts), and the source reads no further than its limits.
 */
import { from, identity, type MonoTypeOperatorFunction, map, type Observable, Subject, tap } from 'rxjs'
import type { StoredRecord } from '../../streams/log.ts'
import { sessionsOf } from '../advance/fork.ts'
import { finishedBy, type Rejected, type Valid } from '../types.ts'
import type { Tracing } from '../worker/tracing.ts'
import { bySession, type Places } from './by-session.ts'
import { type Commit, type CommitDeps, commit } from './commit.ts'
import { emit } from './emit.ts'
import { type InferDeps, infer } from './infer.ts'
import { readAhead } from './requests.ts'
import { type ValidateOptions, validateRecord } from './validate.ts'

export interface PipelineDeps extends CommitDeps {
  readonly records: AsyncIterable<StoredRecord>
  readonly validation: ValidateOptions
  readonly inference: InferDeps
  readonly places: Places<Valid | Rejected, string | null>
  /** Who is told where the records are; undefined: nobody. */
  readonly tracing?: Tracing | undefined
}

const subscribe = (records: AsyncIterable<StoredRecord>): Observable<StoredRecord> => from(records)

const told = <T>(tell: ((value: T) => void) | undefined): MonoTypeOperatorFunction<T> =>
  tell === undefined ? identity : tap(tell)

/** The same projection, with a word when an event has its turn. */
const begun = (project: ReturnType<typeof infer>, tracing: Tracing | undefined): typeof project =>
  tracing === undefined
    ? project
    : (item) => {
        tracing.begun(item.record)
        return project(item)
      }

export const pipeline = (deps: PipelineDeps): Observable<Commit> => {
  const finished = new Subject<readonly number[]>()
  return subscribe(deps.records).pipe(
    told(deps.tracing?.received),
    map((record) => validateRecord(record, deps.validation)),
    readAhead(deps.inference.requests),
    bySession(sessionsOf, begun(infer(deps.inference), deps.tracing), { ...deps.places, finished }),
    told(deps.tracing?.stepped),
    emit(deps.names, deps.validation.input?.cloudEvents === true),
    commit(deps),
    tap(({ steps }) => finished.next(steps.flatMap(finishedBy))),
    told(deps.tracing?.committed),
  )
}
