/** Heads that no worker wrote, for tests of one operator alone. */
import { begin } from '../../src/state/conductor.ts'
import type { Head } from '../../src/state/head.ts'

/** Of a session that stands behind the record at `offset` and has read nothing. */
export const bareHead = (
  given: Pick<Head, 'session' | 'model' | 'layout' | 'status'>,
  topic: string,
  offset: number,
): Head => ({
  type: 'head',
  version: 1,
  ...given,
  settings: { surprisal: false },
  cursor: {
    topic,
    partition: 0,
    offset,
    token: 0,
    complete: true,
    chunk: null,
    hash: 'c'.repeat(64),
    held: '',
    rng: 0,
    pulse: 0,
  },
  conductor: begin(),
  chain: '0'.repeat(32),
  born: 0,
  totals: { tokens: 0, predictions: 0, nats: 0, generated: 0 },
  span: { fromPulse: 0, tokens: 0, predictions: 0, bytes: 0, nats: 0, surprisal: [] },
  generation: null,
  snapshot: null,
})
