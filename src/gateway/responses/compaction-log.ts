/**
 * Compactions as the log has them. An item of the type `compaction` is opaque to clients: it names a session that has
 * read the conversation, and the record of the log that has its messages, so all of the conversation can be had again.
 */

import { randomBytes } from 'node:crypto'
import { z } from 'zod'
import { idEvents } from '../../client/chunks.ts'
import type { Message } from '../../models/chat/index.ts'
import { ASKED_HEADER } from '../../operators/pipeline/asked.ts'
import type { Topics } from '../answer/ask.ts'
import type { Prompt } from '../answer/job.ts'
import { type CompactionItem, type InputItem, inputItem, messagesOf } from '../openai/messages.ts'
import { Refusal } from '../refusal.ts'
import { type Asked, unpacked } from './asked.ts'

/**
 * `read`: the session has read the messages, each to its end; else it is a fork behind an answer, and they come next.
 * `stopped`: see `Standing`.
 */
const KINDS = ['read', 'behind', 'behind, stopped'] as const
type Kind = (typeof KINDS)[number]

const count = z.int().min(0)
const fields = z.tuple([
  ...[z.string().regex(/^[0-9a-f]{16}$/), count, count, count, count.max(KINDS.length - 1), z.string().min(1)],
] as const)

/** Where a compaction is. */
export interface Compacted {
  readonly partition: number
  /** Of the record in the input topic that has its messages. */
  readonly offset: number
  /** Seconds since the epoch. */
  readonly created: number
  readonly kind: Kind
  readonly session: string
}

export const contentOf = ({ partition, offset, created, kind, session }: Compacted): string =>
  Buffer.from(
    JSON.stringify([randomBytes(8).toString('hex'), partition, offset, created, KINDS.indexOf(kind), session]),
  ).toString('base64url')

const parsedIn = (content: string): Compacted | null => {
  try {
    const parsed = fields.safeParse(JSON.parse(Buffer.from(content, 'base64url').toString()))
    if (!parsed.success) return null
    const [, partition, offset, created, kind, session] = parsed.data
    return { partition, offset, created, kind: KINDS[kind]!, session }
  } catch {
    return null
  }
}

/** What a conversation goes on from: a session, and its messages. */
export interface Basis extends Compacted {
  readonly messages: readonly Message[]
  readonly asked: Asked
}

/** The messages of what was asked when it was compacted: instructions are the first. */
const messagesIn = async ({ about, input }: Asked): Promise<readonly Message[]> => [
  ...(about.instructions === null ? [] : [{ role: 'system' as const, content: about.instructions }]),
  ...(await messagesOf(z.array(inputItem).parse(input), () => Promise.reject(new Error('No item is named here.')))),
]

/** Reads it from the log. Rejects with a Refusal (404) for what this log does not have. */
export const basisOf = async (
  { encrypted_content: content }: CompactionItem,
  { log, names }: Topics,
  param: string,
): Promise<Basis> => {
  const missing = new Refusal(404, 'The log has no compaction of this content. Send the messages themselves.', {
    ...{ code: 'compaction_not_found', param },
  })
  const at = parsedIn(content)
  if (at === null) throw missing
  const key = Buffer.from(at.session)
  if (at.partition !== (await log.partitionOf(names.chunks, key))) throw missing
  const { begin, end } = await log.bounds(names.chunks, at.partition)
  if (at.offset < begin || at.offset >= end) throw missing
  const read = log.read(names.chunks, at.partition, at.offset, { until: at.offset + 1, undecodable: true })
  for await (const { records } of read)
    for (const { offset, key: of, headers } of records) {
      const beside = headers.find(([name]) => name === ASKED_HEADER)
      if (offset !== at.offset || of === null || !key.equals(of) || beside === undefined) continue
      const asked = await unpacked(beside[1])
      if (asked === null) throw missing
      return { ...at, asked, messages: await messagesIn(asked) }
    }
  throw missing
}

/**
 * The items of an input without the compaction that may stand first, and that. Throws a Refusal (400) for one that
 * stands elsewhere.
 */
export const withoutCompaction = (
  items: readonly (InputItem | CompactionItem)[],
): { readonly compaction: CompactionItem | null; readonly items: readonly InputItem[] } => {
  const [first] = items
  const compaction = first?.type === 'compaction' ? first : null
  const others: InputItem[] = []
  for (const [at, item] of items.entries()) {
    if (item.type !== 'compaction') others.push(item)
    else if (at > 0)
      throw new Refusal(
        400,
        'A compaction stands for all that was before it: expected one, as the first item of the input.',
        { param: `input.${at}` },
      )
  }
  return { compaction, items: others }
}

/** The parts of a form of conversation that are asked here. */
interface Form {
  begin(messages: readonly Message[]): Int32Array
  goOn(messages: readonly Message[], stopped: boolean): Int32Array
  alone(messages: readonly Message[]): Int32Array
}

const beginsWith = (ids: Int32Array, head: Int32Array): boolean =>
  ids.length >= head.length && head.every((id, at) => ids[at] === id)

/**
 * What is fed to go on: a fork of the session, and what it has not read. Where the whole does not begin with what the
 * session has read (instructions come before it, or the tools of the request, or the template writes the messages
 * otherwise when others follow), the whole is read again by a new session: the model reads the same in any case.
 * `promptOf` tells how ids are fed.
 */
export const goingOn = (
  form: Form,
  { kind, session, messages }: Basis,
  system: readonly Message[],
  next: readonly Message[],
  promptOf: (ids: Int32Array) => Prompt,
): Prompt => {
  const forked = (ids: Int32Array): Prompt => {
    const prompt = promptOf(ids)
    return { ...prompt, events: [{ type: 'open', from: { session } }, ...prompt.events] }
  }
  if (kind !== 'read') return forked(form.goOn([...system, ...messages, ...next], kind === 'behind, stopped'))
  const whole = form.begin([...system, ...messages, ...next])
  const head = form.alone(messages)
  return beginsWith(whole, head) ? forked(whole.subarray(head.length)) : promptOf(whole)
}

/** The same for a session that reads messages and answers nothing. */
export const readingOn = (form: Form, basis: Basis | null, messages: readonly Message[]) => {
  const whole = form.alone(messages)
  const head = basis === null ? null : form.alone(basis.messages)
  if (basis === null || head === null || !beginsWith(whole, head))
    return { events: idEvents(whole), tokens: whole.length }
  const rest = whole.subarray(head.length)
  return {
    events: [{ type: 'open' as const, from: { session: basis.session } }, ...idEvents(rest)],
    tokens: rest.length,
  }
}
