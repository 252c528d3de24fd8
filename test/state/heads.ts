/** A head that obeys every rule, for tests of what carries heads. */
import type { Head } from '../../topics/state.ts'

export const model = { fingerprint: 'a'.repeat(64), layoutFingerprint: 'b'.repeat(64) }

export const head = (pulse = 12): Head => ({
  type: 'head',
  version: 1,
  session: 'log-7',
  model: model.fingerprint,
  layout: model.layoutFingerprint,
  status: 'open',
  settings: { surprisal: false },
  cursor: {
    topic: 'continuo.chunks',
    partition: 0,
    offset: 3,
    token: 12,
    complete: true,
    held: '',
    chunk: null,
    hash: 'c'.repeat(64),
    rng: pulse,
    pulse,
  },
  conductor: { globalStep: pulse, phase: 'stream', origin: 0 },
  chain: '0123456789abcdef0123456789abcdef',
  born: 3,
  totals: { tokens: 12, predictions: 11, nats: 17.25, generated: 0 },
  span: { fromPulse: 12, tokens: 0, predictions: 0, bytes: 0, nats: 0, surprisal: [] },
  generation: null,
  snapshot: null,
})
