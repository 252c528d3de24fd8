/** infer: an event of a session becomes steps. What waits for the engine at one time is one native batch. */
import { from, type Observable } from 'rxjs'
import type { Sessions } from './sessions.ts'
import type { Rejected, Step, Tokenized } from './types.ts'

export const infer =
  (sessions: Sessions) =>
  (item: Tokenized | Rejected): Observable<Step> =>
    from(sessions.steps(item))
