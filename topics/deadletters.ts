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
  /** `12-31`: the value is a whole record batch with these offsets, which could not be decoded, as the log has it. */
  batch: 'continuo-batch',
  /**
   * `json`: key and headers were too large for a key and headers of the letter. The parts put together are JSON
   * `{ key, headers: [[name, content]], value }`, bytes in base64.
   */
  envelope: 'continuo-envelope',
  /**
   * `computation/512`, on the event at which its session was set aside: the cause (topics/state.ts), and how many of
   * its tokens were fed.
   */
  stopped: 'continuo-stopped',
  /** On an event of another attempt: the offset of the first event with the key of its `once`. */
  first: 'continuo-first',
} as const

export const deadletters: TopicContract = {
  name: 'deadletters',
  purpose: 'Events that could not be used: original key, bytes and headers, and why.',
  key: 'as it was',
  value: null,
  settings: KEPT,
  examples: [],
}
