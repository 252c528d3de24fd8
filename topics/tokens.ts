import { z } from 'zod'
import { cause, count, KEPT, sessionId, type TopicContract } from './common.ts'

/** A run of generated tokens. Every token of a request is in exactly one event; `index` counts them from 0. */
export const generated = z.strictObject({
  type: z.literal('generated'),
  version: z.literal(1),
  session: sessionId,
  requestId: z.string(),
  /** Index of `ids[0]` within the request. */
  index: count,
  ids: z.array(count),
  /** The text that these tokens complete: whole characters only. */
  text: z.string(),
  /** ln p of each id under the model at temperature 1. */
  logprobs: z.array(z.number()),
  /**
   * Where the request asked: of each token the likeliest ones in its place, the likeliest first, on a tie the lower id
   * first.
   */
  topLogprobs: z.array(z.array(z.strictObject({ id: count, logprob: z.number() }))).optional(),
  /** The tokens were fed at pulses `fromPulse` … `toPulse − 1`. */
  fromPulse: count,
  toPulse: count,
  /**
   * `null` while the request goes on. `length`: all requested tokens were generated; `stop`: a stop string was
   * generated; `eos`: the model drew an end token (which is neither in `ids` nor fed); `grammar`: the request's grammar
   * has ended, and nothing may follow; `blocked`: it has not, and no token of the model may follow; `context`: the
   * context has no position left; `stopped`: the session was set aside, and the dead letter of the request says why;
   * `cancelled`: a `cancel` ended it. But for `length` and `stop`, `ids` may be empty; with `cancelled` it is.
   */
  finish: z.enum(['length', 'stop', 'eos', 'grammar', 'blocked', 'context', 'stopped', 'cancelled']).nullable(),
  cause,
})
/** An event of the tokens topic: up to 16 generated tokens of one request. */
export type Generated = z.infer<typeof generated>

export const tokens: TopicContract = {
  name: 'tokens',
  purpose: 'Output: generated tokens, each exactly once, in order within a session.',
  key: 'session id, UTF-8',
  value: generated,
  settings: KEPT,
  examples: [
    {
      type: 'generated',
      version: 1,
      session: 'log-7',
      requestId: 'r1',
      index: 0,
      ids: [116, 104, 101],
      text: 'the',
      logprobs: [-1.25, -0.5, -0.0625],
      fromPulse: 812,
      toPulse: 815,
      finish: 'length',
      cause: { topic: 'continuo.chunks', partition: 0, offset: 12, id: null },
    },
  ],
}
