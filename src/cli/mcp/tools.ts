/**
 * The tools of `continuo mcp`: what each takes and does. Their answers are those of the gateway's routes
 * (docs/serve.md).
 */
import { setTimeout as delay } from 'node:timers/promises'
import { z } from 'zod'
import { DEAD_LETTER_HEADERS } from '../../../topics/deadletters.ts'
import { headersOf } from '../../client/records.ts'
import { ContinuoError } from '../../errors.ts'
import { resultOf, type Verify } from '../../gateway/console/verify.ts'
import type { InnerRequest } from '../../gateway/inner.ts'
import type { Gateway } from '../../gateway/server.ts'
import { checkSession } from '../../gateway/service.ts'
import { type Place, readObservations } from './observations.ts'

/** What the tools work on. */
export interface Desk extends Place {
  readonly gateway: Pick<Gateway, 'ask'>
  /** The model, as clients call it. */
  readonly model: string
  readonly verify: Verify
  /** Tokens of one answer. */
  readonly maxTokens: number
}

export interface Tool<T extends z.ZodType = z.ZodType> {
  readonly name: string
  readonly title: string
  readonly description: string
  readonly input: T
  /** It only looks; it removes something. */
  readonly hints: { readonly readOnlyHint: boolean; readonly destructiveHint?: boolean }
  /** Rejects with a sentence for what cannot be done. */
  run(desk: Desk, given: z.output<T>, signal: AbortSignal): Promise<object>
}

const tool = <T extends z.ZodType>(made: Tool<T>): Tool => made as unknown as Tool

const session = z.string('A session is named by a text.').min(1).max(512).describe('The id of the session.')

/** What a route answers. Throws its refusal as a sentence. */
const told = async (
  { gateway }: Desk,
  request: Omit<InnerRequest, 'signal'>,
  signal: AbortSignal,
): Promise<Readonly<Record<string, unknown>>> => {
  const { status, body } = await gateway.ask({ ...request, signal })
  if (status < 400) return body as Readonly<Record<string, unknown>>
  const { error } = body as { readonly error?: { readonly message?: string } }
  throw new ContinuoError('INVALID', error?.message ?? `The gateway answered with status ${status}.`)
}

/** Throws a sentence for an id that cannot stand in a path. */
const pathOf = (id: string, more = ''): string =>
  `/v1/sessions/${encodeURIComponent(checkSession(id, 'session'))}${more}`

/** How long an appended text is waited for, and how often is looked, ms. */
const READ_TIME = 10_000
const LOOK = 50

interface View {
  readonly offset: number
  readonly complete: boolean
}

/** The session once it has read its input up to `offset`; null: it has not, within `READ_TIME`. */
const readUpTo = async (desk: Desk, id: string, offset: number, signal: AbortSignal): Promise<View | null> => {
  const path = pathOf(id)
  for (const until = performance.now() + READ_TIME; performance.now() < until; await delay(LOOK, null, { signal })) {
    const { status, body } = await desk.gateway.ask({ method: 'GET', path, signal })
    const view = body as View
    if (status === 200 && (view.offset > offset || (view.offset === offset && view.complete))) return view
  }
  return null
}

/**
 * Why the worker refused one of these events; null: it refused none so far. `from`: the end of the dead letters before
 * they were sent.
 */
const refusalOf = async (
  { log, names }: Desk,
  partition: number,
  offsets: readonly number[],
  from: number,
): Promise<string | null> => {
  const { end } = await log.bounds(names.deadletters, partition)
  if (from >= end) return null
  for await (const { records } of log.read(names.deadletters, partition, from, { until: end, undecodable: true }))
    for (const record of records) {
      const headers = headersOf(record)
      if (offsets.includes(Number(headers[DEAD_LETTER_HEADERS.offset])))
        return headers[DEAD_LETTER_HEADERS.reason] ?? 'The event was refused without a reason.'
    }
  return null
}

const append = async (
  desk: Desk,
  { session: id, text, novelty }: { readonly session: string; readonly text: string; readonly novelty: boolean },
  signal: AbortSignal,
): Promise<object> => {
  const { log, names, gateway } = desk
  const key = Buffer.from(id)
  const home = await log.partitionOf(names.chunks, key)
  const { end: letters } = await log.bounds(names.deadletters, home)
  if (novelty && (await gateway.ask({ method: 'GET', path: pathOf(id), signal })).status === 200)
    throw new ContinuoError(
      'INVALID',
      `Session "${id}" has begun, and "novelty" is said at the beginning of a session. Leave it out, or name another session.`,
    )
  const body = [...(novelty ? [{ type: 'open', novelty: true }] : []), { type: 'text', text }]
  const sent = await told(desk, { method: 'POST', path: pathOf(id, '/chunks'), body }, signal)
  const { partition, offsets } = sent as unknown as { readonly partition: number; readonly offsets: number[] }
  const state = await readUpTo(desk, id, offsets.at(-1)!, signal)
  const refused = await refusalOf(desk, partition, offsets, letters)
  if (refused !== null) throw new ContinuoError('INVALID', `The worker refused the text: ${refused}`)
  return { session: id, partition, offsets, read: state !== null, ...(state !== null && { state }) }
}

/** A verification computes, and may open the model once more: there is one at a time. */
let verifying = false

const verified = async (
  { verify }: Desk,
  { session: id }: { readonly session?: string | undefined },
  signal: AbortSignal,
): Promise<object> => {
  if (verifying) throw new ContinuoError('INVALID', 'A verification is under way; wait for its end.')
  verifying = true
  const began = performance.now()
  try {
    const found = await verify(() => signal.throwIfAborted(), id)
    if (id !== undefined && found.sessions === 0 && !found.moved)
      throw new ContinuoError('INVALID', `There is no session "${id}" in this log.`)
    return resultOf(found, (performance.now() - began) / 1000)
  } finally {
    verifying = false
  }
}

export const TOOLS: readonly Tool[] = [
  tool({
    name: 'list_sessions',
    title: 'List sessions',
    description:
      'Where every session stands, in the order of ids, a page at a time: "next" is the "after" of the next page.',
    input: z.strictObject({
      limit: z.int().min(1).max(1000).default(100),
      after: z.string().max(512).optional().describe('The last session of the page before.'),
      status: z.enum(['open', 'closed', 'stopped']).optional(),
    }),
    hints: { readOnlyHint: true },
    run(desk, { limit, after, status }, signal) {
      const query = new URLSearchParams({ limit: String(limit), ...(after && { after }), ...(status && { status }) })
      return told(desk, { method: 'GET', path: `/v1/sessions?${query}` }, signal)
    },
  }),
  tool({
    name: 'read_session',
    title: 'Read the state of a session',
    description:
      'Where a session stands: its status, how many tokens it has read and generated, bits per token, its chain (a digest of all that it computed), its snapshot.',
    input: z.strictObject({ session }),
    hints: { readOnlyHint: true },
    run: (desk, { session: id }, signal) => told(desk, { method: 'GET', path: pathOf(id) }, signal),
  }),
  tool({
    name: 'append_text',
    title: 'Append text to a session',
    description:
      'Adds text to what a session has read; a session needs no creation. Waits up to ten seconds until a worker has read it: "read" says whether it has.',
    input: z.strictObject({
      session,
      text: z.string().min(1),
      novelty: z
        .boolean()
        .default(false)
        .describe('For a new session: its lines are judged by how new they are, see read_observations.'),
    }),
    hints: { readOnlyHint: false, destructiveHint: false },
    run: append,
  }),
  tool({
    name: 'generate',
    title: 'Generate text',
    description:
      'Continues a session, or a prompt alone. With both the prompt is read first. Without a session it is one of its own, which is closed after the answer.',
    input: z
      .strictObject({
        session: session.optional(),
        prompt: z.string().default(''),
        max_tokens: z.int().min(1).default(256),
        temperature: z.number().min(0).max(100).default(1),
        seed: z.int().min(0).optional().describe('The same seed in the same state gives the same text.'),
        stop: z.array(z.string().min(1).max(256)).max(16).default([]),
      })
      .refine(({ session: id, prompt }) => id !== undefined || prompt !== '', {
        error: 'A session or a prompt is needed: there is nothing to continue',
      }),
    hints: { readOnlyHint: false, destructiveHint: false },
    async run(desk, { session: id, ...given }, signal) {
      if (given.max_tokens > desk.maxTokens)
        throw new ContinuoError('INVALID', `At most ${desk.maxTokens} tokens of one answer are given here.`)
      const headers = id === undefined ? {} : { 'x-session': encodeURIComponent(checkSession(id, 'session')) }
      const body = { model: desk.model, ...given }
      const { choices, usage } = await told(desk, { method: 'POST', path: '/v1/completions', body, headers }, signal)
      const [choice] = choices as readonly { readonly text: string; readonly finish_reason: string }[]
      return { ...(id !== undefined && { session: id }), text: choice!.text, finish: choice!.finish_reason, usage }
    },
  }),
  tool({
    name: 'fork_session',
    title: 'Fork a session',
    description: 'Begins a session with all that another one has read; both go on by themselves.',
    input: z.strictObject({
      session,
      name: session.optional().describe('The id of the fork; without it one is made.'),
    }),
    hints: { readOnlyHint: false, destructiveHint: false },
    run: (desk, { session: id, name }, signal) =>
      told(
        desk,
        { method: 'POST', path: pathOf(id, '/fork'), body: name === undefined ? {} : { session: name } },
        signal,
      ),
  }),
  tool({
    name: 'delete_session',
    title: 'Delete a session',
    description: 'Deletes a session for ever. Its records of before stay in the log.',
    input: z.strictObject({ session }),
    hints: { readOnlyHint: false, destructiveHint: true },
    run: (desk, { session: id }, signal) => told(desk, { method: 'DELETE', path: pathOf(id) }, signal),
  }),
  tool({
    name: 'read_observations',
    title: 'Read the lines that stand out',
    description:
      'Lines that stand out in sessions whose lines are judged (append_text with "novelty", feed --novelty): kinds of lines that were not there before, values that do not fit, repetition, silence. "next" is the "after" of the next call.',
    input: z.strictObject({
      session: session.optional(),
      top: z
        .number()
        .min(0.0001)
        .max(0.5)
        .default(0.005)
        .describe('A line stands out that is among this share of the last thousand.'),
      limit: z.int().min(1).max(200).default(50),
      after: z
        .array(z.string().regex(/^\d{1,9}:(-1|\d{1,15})$/, 'expected positions as "next" of an answer has them'))
        .max(10_000)
        .default([]),
    }),
    hints: { readOnlyHint: true },
    run: (desk, given, signal) => readObservations(desk, given, signal),
  }),
  tool({
    name: 'verify',
    title: 'Verify the log',
    description:
      'Recomputes one session or the whole log from its events and compares every generated token and every state. Needs a log at rest, and may take long. Changes nothing.',
    input: z.strictObject({ session: session.optional() }),
    hints: { readOnlyHint: true },
    run: verified,
  }),
]
