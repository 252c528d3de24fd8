/**
 * Sessions, their events and streams, and what probes ask: what is asked, and what is answered (session-routes.ts,
 * sessions-view.ts, server.ts).
 */
import { z } from 'zod'
import { chain } from '../../../topics/common.ts'
import { observation } from '../../../topics/observations.ts'
import { generated } from '../../../topics/tokens.ts'
import { eventRequest, eventsRequest, forkRequest, pageQuery, streamQuery } from '../session-routes.ts'
import type { SessionView } from '../sessions-view.ts'
import { count, errorBody, type Operation, type Section, WAITING, WAITING_ONCE } from './operation.ts'

const session = z.strictObject({
  session: z.string(),
  partition: count,
  status: z.enum(['open', 'closed', 'stopped']),
  reason: z.string().exactOptional().describe('Why it was set aside; only with the status "stopped".'),
  from: z.strictObject({ session: z.string(), pulse: count }).exactOptional().describe('What it was forked from.'),
  pulse: count.describe('Tokens fed since the session began.'),
  origin: count.describe('The pulse at which the current context began.'),
  chain,
  model: z.string(),
  tokens: count.describe('Tokens read.'),
  generated: count,
  nats: z.number(),
  predictions: count,
  bitsPerToken: z.number().nullable(),
  offset: z.int().min(-1).describe('The input record that it reads, or the last one that it finished.'),
  complete: z.boolean(),
  generating: z.boolean(),
  archived: count,
  snapshot: z.strictObject({ pulse: count, bytes: count }).nullable(),
}) satisfies z.ZodType<SessionView>
const page = z.strictObject({
  total: count,
  sessions: z.array(session),
  next: z.string().nullable().describe('The "after" of the next page; null: this is the last one.'),
  failures: z.array(z.string()).describe('Partitions that cannot be read, and why.'),
})
const position = z.string().regex(/^\d+:(-1|\d+)$/)
const accepted = z.strictObject({
  session: z.string(),
  partition: count,
  offsets: z.array(count).describe('Of the events, in the input topic.'),
  requestIds: z.array(z.string()).optional().describe('Of the events "generate".'),
  starting_after: position.describe('A stream of tokens that starts here misses nothing of what these events cause.'),
  tokens: z.string().describe('The path of that stream.'),
})
const deleted = z.strictObject({ session: z.string(), deleted: z.literal(true) })

/** Of the first event of a stream, before any record. */
const start = z.strictObject({ partition: count, offset: z.int().min(-1) })
const letter = z.strictObject({
  ...{ partition: count, offset: count, timestamp: z.number() },
  ...{ session: z.string().nullable(), reason: z.string().nullable() },
  ...{ headers: z.record(z.string(), z.string()), valueBase64: z.base64().nullable() },
})
const followed = (record: z.ZodType) => z.union([record, start, errorBody])
const streams = { tokens: followed(generated), observations: followed(observation), deadletters: followed(letter) }

const follow = (id: string, kind: keyof typeof streams, what: string): Operation => ({
  ...{ id, method: 'get', path: `/v1/sessions/{id}/${kind}`, tag: 'Sessions' },
  ...{ summary: `Streams the session's ${what}.`, query: streamQuery, headers: ['LastEventId'] },
  description:
    'The id of an event is the position of its record. The first event, "position", comes before any record. A stream that fails ends with an event "failure".',
  answers: { 200: { description: 'Records, as they are committed.', events: streams[kind] } },
  errors: [410, 503],
})

const alive = z.strictObject({ alive: z.literal(true) })
const ready = z.strictObject({ ready: z.boolean(), reason: z.string().optional() })

export const sessions: Section = {
  schemas: {
    ...{ Session: session, SessionPage: page, DeletedSession: deleted },
    ...{ Event: eventRequest, Events: eventsRequest, AcceptedEvents: accepted, Fork: forkRequest },
    ...{ Generated: generated, Observation: observation, DeadLetter: letter },
    ...{ TokenEvent: streams.tokens, ObservationEvent: streams.observations, DeadLetterEvent: streams.deadletters },
    ...{ Alive: alive, Ready: ready },
  },
  operations: [
    {
      ...{ id: 'listSessions', method: 'get', path: '/v1/sessions', tag: 'Sessions', query: pageQuery },
      summary: 'Lists where sessions stand, in the order of their ids.',
      answers: { 200: { description: 'A page of sessions.', json: page } },
    },
    {
      ...{ id: 'getSession', method: 'get', path: '/v1/sessions/{id}', tag: 'Sessions' },
      summary: 'Says where a session stands.',
      answers: { 200: { description: 'The session.', json: session } },
      errors: [404, 503],
    },
    {
      ...{ id: 'deleteSession', method: 'delete', path: '/v1/sessions/{id}', tag: 'Sessions' },
      summary: 'Deletes a session, and answers once it is gone.',
      answers: { 200: { description: 'It is deleted.', json: deleted } },
      errors: WAITING,
    },
    {
      ...{ id: 'sendEvents', method: 'post', path: '/v1/sessions/{id}/chunks', tag: 'Sessions' },
      summary: 'Puts events of a session into the log, all of them or none.',
      ...{ headers: ['IdempotencyKey'], body: eventsRequest },
      answers: { 202: { description: 'The events are in the log.', json: accepted, headers: ['Replayed'] } },
      errors: WAITING_ONCE,
    },
    {
      ...{ id: 'forkSession', method: 'post', path: '/v1/sessions/{id}/fork', tag: 'Sessions' },
      summary: 'Begins a session with all that this one has read.',
      ...{ headers: ['IdempotencyKey'], body: forkRequest, bodyIsOptional: true },
      answers: { 201: { description: 'The fork, once it exists.', json: session, headers: ['Replayed'] } },
      errors: WAITING_ONCE,
    },
    follow('streamTokens', 'tokens', 'generated tokens'),
    follow('streamObservations', 'observations', 'observations'),
    follow('streamDeadLetters', 'deadletters', 'events that could not be used'),
    {
      ...{ id: 'getAlive', method: 'get', path: '/healthz', tag: 'Gateway', access: 'open' },
      summary: 'Answers while the process does.',
      answers: { 200: { description: 'The process answers.', json: alive } },
    },
    {
      ...{ id: 'getReady', method: 'get', path: '/readyz', tag: 'Gateway', access: 'open' },
      summary: 'Says whether the log answers, the sessions are read, and a worker of this process is ready.',
      answers: {
        200: { description: 'It is ready.', json: ready },
        503: { description: 'It is not, and "reason" says why.', json: ready },
      },
    },
    {
      ...{ id: 'getMetrics', method: 'get', path: '/metrics', tag: 'Gateway', access: 'unlimited' },
      summary: 'Gives the metrics of the gateway as Prometheus reads them.',
      answers: { 200: { description: 'The metrics.', media: 'text/plain' } },
    },
    {
      ...{ id: 'getOpenApi', method: 'get', path: '/openapi.json', tag: 'Gateway', access: 'open' },
      summary: 'Gives this document.',
      answers: { 200: { description: 'An OpenAPI document.', json: z.looseObject({}) } },
    },
  ],
}
