/**
 * The whole program:
 *
 *   subscribe → validate → tokenize → bySession → infer → emit → commit
 *
 * Left of `bySession` things happen in the order of the partition, right of it in the order of each session. Backpressure
 * runs the other way: commit lets sessions wait (`backlog`), sessions hold their records, and the source delivers no more
 * than the watermark has room for.
 */
import { from, type Observable } from 'rxjs'
import type { StoredRecord } from '../streams/log.ts'
import { bySession } from './by-session.ts'
import { type Commit, type CommitDeps, commit } from './commit.ts'
import { emit } from './emit.ts'
import { infer } from './infer.ts'
import { type Tokenizer, tokenize } from './tokenize.ts'
import { type ValidateOptions, validate } from './validate.ts'

export interface PipelineDeps extends CommitDeps {
  readonly records: AsyncIterable<StoredRecord>
  readonly validation: ValidateOptions
  readonly tokenizer: Tokenizer | null
}

const subscribe = (records: AsyncIterable<StoredRecord>): Observable<StoredRecord> => from(records)

export const pipeline = (deps: PipelineDeps): Observable<Commit> =>
  subscribe(deps.records).pipe(
    validate(deps.validation),
    tokenize(deps.tokenizer, (session) => deps.sessions.heads.get(session)),
    bySession((item) => item.session, infer(deps.sessions)),
    emit(deps.names),
    commit(deps),
  )
