/**
 * tokenize and infer: when its turn in its session has come, an event becomes tokens, and these become steps. What waits for the
 * engine at one time is one native batch.
 */
import { from, type Observable } from 'rxjs'
import type { Sessions } from './sessions.ts'
import type { Rejected, Step, Valid } from './types.ts'

export const infer =
  (sessions: Sessions) =>
  (item: Valid | Rejected): Observable<Step> =>
    from(sessions.steps(item))
