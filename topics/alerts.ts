import { z } from 'zod'
import { cause, count, KEPT, sessionId, type TopicContract } from './common.ts'
import { lineExample, lineNovelty } from './novelty.ts'

/**
 * A line that stands out among the last thousand of its session, by the share that the worker was told (docs/watch.md).
 */
export const alert = z.strictObject({
  type: z.literal('alert'),
  version: z.literal(1),
  session: sessionId,
  /** The event with which the line ended. */
  cause,
  /** Behind the end of the line. */
  pulse: count,
  /** Which of its scores stand out. */
  standsOut: z.array(z.enum(['structure', 'values', 'rate', 'silence'])).min(1),
  line: lineNovelty,
})
/** An event of the alerts topic. */
export type Alert = z.infer<typeof alert>

export const alerts: TopicContract = {
  name: 'alerts',
  purpose: 'Output: lines that stand out, where the worker was asked for them; each is a CloudEvent.',
  key: 'session id, UTF-8',
  value: alert,
  settings: KEPT,
  isOptional: true,
  examples: [
    {
      type: 'alert',
      version: 1,
      session: 'harbour',
      cause: { topic: 'continuo.chunks', partition: 0, offset: 10, id: null },
      pulse: 39674,
      standsOut: ['structure'],
      line: lineExample,
    },
  ],
}
