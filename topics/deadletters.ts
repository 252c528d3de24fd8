import { KEPT, type TopicContract } from './common.ts'

/** Headers of a dead letter, after those of the original record. */
export const DEAD_LETTER_HEADERS = {
  reason: 'continuo-reason',
  topic: 'continuo-topic',
  partition: 'continuo-partition',
  offset: 'continuo-offset',
  timestamp: 'continuo-timestamp',
  /** `1/3`: a record too large for one letter comes in parts, in order. */
  part: 'continuo-part',
  /** `12-31`: the letter holds a whole record batch as the log has it, which cannot be decoded, and these were its offsets. */
  batch: 'continuo-batch',
  /**
   * `json`: key and headers were too large to stand beside the value. The parts put together are JSON
   * `{ key, headers: [[name, content]], value }`, bytes in base64.
   */
  envelope: 'continuo-envelope',
  /** The event at which its session was set aside: `computation/512`, the cause (topics/state.ts) and the tokens of it that were fed. */
  stopped: 'continuo-stopped',
} as const

export const deadletters: TopicContract = {
  name: 'deadletters',
  purpose: 'Events that could not be used: original key, bytes and headers, and why.',
  key: 'as it was',
  value: null,
  settings: KEPT,
  examples: [],
}
