/**
 * What the console's page asks besides the sessions (console/routes.ts). Its streams are for that page alone and change
 * with it, so they have no schema.
 */
import { z } from 'zod'
import { letterPlace } from '../console/routes.ts'
import type { VerifyState } from '../console/types.ts'
import { count, type Operation, type Section } from './operation.ts'

const text = z.string().nullable()
const letters = z.strictObject({
  letters: z.array(
    z.strictObject({
      ...{ partition: count, offset: count, at: z.number(), session: text, reason: text },
      from: z.strictObject({ partition: count, offset: count }),
      ...{ part: text, text: z.string(), bytes: count },
    }),
  ),
})
const verifying = z.strictObject({
  state: z.enum(['idle', 'running', 'done', 'failed']),
  at: z.number().nullable(),
  progress: z.strictObject({ partition: count, offset: count, end: count }).nullable(),
  result: z
    .strictObject({
      ...{ ok: z.boolean(), moved: z.boolean(), seconds: z.number(), sessions: count, events: count, tokens: count },
      ...{ heads: count, snapshots: count, findings: count, shown: z.array(z.string()) },
    })
    .nullable(),
  error: text,
}) satisfies z.ZodType<VerifyState>
const placed = z.strictObject({ partition: count, offset: count })

const stream = (id: string, path: string, summary: string, errors: readonly number[]): Operation => ({
  ...{ id, method: 'get', path, tag: 'Console', summary, errors },
  answers: { 200: { description: 'Events for the page.', media: 'text/event-stream' } },
})

export const page: Section = {
  schemas: { Letters: letters, LetterPlace: letterPlace, ReplayedLetter: placed, VerifyState: verifying },
  operations: [
    stream('streamConsole', '/v1/console/events', 'Streams what the page shows of the log.', [503]),
    stream(
      'streamConsoleSession',
      '/v1/console/sessions/{id}/events',
      'Streams what the page shows of a session.',
      [503],
    ),
    {
      ...{ id: 'listDeadLetters', method: 'get', path: '/v1/console/deadletters', tag: 'Console' },
      summary: 'Lists the newest events that could not be used.',
      answers: { 200: { description: 'At most 50 of them.', json: letters } },
      errors: [503],
    },
    {
      ...{ id: 'replayDeadLetter', method: 'post', path: '/v1/console/deadletters/replay', tag: 'Console' },
      summary: 'Puts an event that could not be used into the input again.',
      ...{ body: letterPlace, nullIsAbsent: true },
      answers: { 202: { description: 'Where it is now.', json: placed } },
      errors: [409, 503],
    },
    {
      ...{ id: 'verify', method: 'post', path: '/v1/console/verify', tag: 'Console' },
      summary: 'Begins to recompute the log and to compare.',
      answers: { 202: { description: 'How far it is.', json: verifying } },
      errors: [409, 503],
    },
  ],
}
