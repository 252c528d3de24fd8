/**
 * What was asked of a response: the members of the request that the response repeats, and the items of its input. They
 * stand in the log beside the `generate` event (operators/asked.ts), so every gateway returns the same.
 */
import { promisify } from 'node:util'
import { deflateRaw, inflateRaw } from 'node:zlib'
import { z } from 'zod'
import { textIn } from '../../client/records.ts'
import { ASKED_HEADER } from '../../operators/pipeline/asked.ts'
import type { StoredRecord } from '../../streams/log.ts'
import type { Topics } from '../answer/ask.ts'
import { Refusal } from '../refusal.ts'
import { bodyOf, INPUT, type Located } from './id.ts'

/** Bytes of it that stand beside an event: a record takes 1 MiB with everything in it. */
const MOST_BYTES = 600_000
/** Bytes that are unpacked: what a gateway takes of one request, many times over. */
const MOST_UNPACKED = 64 << 20

const text = z.string().nullable().catch(null)
const figure = z.number()
/** Members of a response by the protocol, with what they are where nothing was asked, or nothing is known of it. */
const about = z.object({
  previous_response_id: text,
  instructions: text,
  tools: z.array(z.looseObject({ type: z.literal('function'), name: z.string() })).catch([]),
  tool_choice: z.union([z.string(), z.looseObject({ type: z.string() })]).catch('auto'),
  truncation: z.enum(['auto', 'disabled']).catch('disabled'),
  parallel_tool_calls: z.boolean().catch(true),
  text: z.looseObject({ format: z.looseObject({ type: z.string() }) }).catch({ format: { type: 'text' } }),
  top_p: figure.catch(1),
  presence_penalty: figure.catch(0),
  frequency_penalty: figure.catch(0),
  top_logprobs: z.int().catch(0),
  temperature: figure.catch(1),
  reasoning: z.null().catch(null),
  max_output_tokens: z.int().nullable().catch(null),
  max_tool_calls: z.int().nullable().catch(null),
  store: z.boolean().catch(true),
  background: z.boolean().catch(false),
  service_tier: z.literal('default').catch('default'),
  metadata: z.record(z.string(), z.string()).catch({}),
  safety_identifier: text,
  prompt_cache_key: text,
})
export type About = z.output<typeof about>

/** An item of a conversation as the protocol gives it back. */
export type Item = { readonly type: string; readonly id?: string | undefined } & Readonly<Record<string, unknown>>

export interface Asked {
  readonly about: About
  readonly input: readonly Item[]
}
/** Of a response that is older than what keeps it. */
const NOTHING: Asked = { about: about.parse({}), input: [] }

const kept = z.object({
  version: z.literal(1),
  about,
  input: z.array(z.looseObject({ type: z.string(), id: z.string().optional() })),
})

interface RawPart {
  readonly type: string
  readonly [member: string]: unknown
}
interface RawItem extends Record<string, unknown> {
  readonly type?: string | null
  readonly id?: string | null
  readonly role?: string
  readonly status?: string | null
  readonly content?: string | readonly RawPart[] | null
}

const partOf = (part: RawPart) =>
  part.type === 'output_text' ? { ...part, annotations: part.annotations ?? [], logprobs: part.logprobs ?? [] } : part
const partsOf = ({ role, content }: RawItem): readonly RawPart[] =>
  typeof content === 'string'
    ? [partOf({ type: role === 'assistant' ? 'output_text' : 'input_text', text: content })]
    : (content ?? []).map(partOf)

/** An item that the schema took, with the members that it has when it is given back. */
const itemOf = (raw: RawItem): Item => {
  const { id, status, type, ...rest } = raw
  const own = id == null ? {} : { id }
  const stands = { ...own, status: status ?? 'completed' }
  if (type === 'function_call' || type === 'function_call_output') return { ...stands, type, ...rest }
  if (type === 'compaction') return { ...own, type, ...rest }
  if (type === 'reasoning') {
    const { content, encrypted_content: _, summary = [], ...more } = rest
    return { ...stands, type, summary, ...(content != null && { content }), ...more }
  }
  return { ...stands, type: 'message', role: raw.role, content: partsOf(raw) }
}

interface RawTool extends Record<string, unknown> {
  readonly name: string
}
const toolOf = ({ name, description, parameters, strict }: RawTool) => ({
  ...{ type: 'function', name, description: description ?? null },
  ...{ parameters: parameters ?? null, strict: strict ?? null },
})
interface RawFormat extends Record<string, unknown> {
  readonly type: string
}
const formatOf = (format: RawFormat) =>
  format.type === 'json_schema'
    ? { ...format, description: format.description ?? null, strict: format.strict ?? false }
    : format

/** What the body of a request asks, which its schema took. `found`: items that it names by their ids. */
export const askedIn = (body: unknown, found: ReadonlyMap<string, Item>): Asked => {
  const raw = body as Readonly<Record<string, unknown>> & {
    readonly input?: string | readonly RawItem[]
    readonly tools?: readonly RawTool[] | null
    readonly text?: { readonly format?: RawFormat | null } | null
  }
  const { input = [], text: form } = raw
  const given = Object.fromEntries(Object.entries(raw).filter(([, value]) => value !== null))
  const items = typeof input === 'string' ? [{ role: 'user', content: input }] : input
  return {
    about: about.parse({
      ...given,
      tools: (raw.tools ?? []).map(toolOf),
      text: { format: formatOf(form?.format ?? { type: 'text' }) },
    }),
    input: items.map((item) => (item.type === 'item_reference' ? found.get(item.id!) : undefined) ?? itemOf(item)),
  }
}

const pack = promisify(deflateRaw)
const unpack = promisify(inflateRaw)

/** Rejects with a Refusal (413) for what is too long to stand beside an event. */
export const packed = async ({ about: asked, input }: Asked): Promise<Uint8Array> => {
  const bytes = (await pack(JSON.stringify({ version: 1, about: asked, input }))) as Buffer
  if (bytes.length <= MOST_BYTES) return bytes
  throw new Refusal(
    413,
    `What is asked has ${bytes.length} bytes when it is packed, and ${MOST_BYTES} can be kept beside an answer. Feed a long text to a session as events first, and ask there.`,
    { code: 'request_too_large', param: 'input' },
  )
}

/** `null`: it is none of ours. */
export const unpacked = async (bytes: Uint8Array): Promise<Asked | null> => {
  try {
    const json = (await unpack(bytes, { maxOutputLength: MOST_UNPACKED })) as Buffer
    return kept.parse(JSON.parse(json.toString()))
  } catch {
    return null
  }
}

/** What was asked, and where its `generate` event is; null: it is not there. */
export interface AskedAt extends Asked {
  readonly offset: number | null
}

/** Reads it from the log. */
export const askedOf = async (at: Located, { log, names }: Topics): Promise<AskedAt> => {
  const nothing = { ...NOTHING, offset: null }
  if (at.chunksFrom === null) return nothing
  const { begin, end } = await log.bounds(names.chunks, at.partition)
  if (at.chunksFrom < begin || at.chunksFrom >= end) return nothing
  const key = Buffer.from(at.session)
  const asks = ({ key: of, value }: StoredRecord): boolean => {
    if (of === null || !key.equals(of)) return false
    try {
      return (JSON.parse(textIn(value)) as { readonly requestId?: unknown } | null)?.requestId === at.id
    } catch {
      return false
    }
  }
  for await (const { records } of log.read(names.chunks, at.partition, at.chunksFrom, {
    until: end,
    undecodable: true,
  }))
    for (const record of records) {
      const beside = record.headers.find(([name]) => name === ASKED_HEADER)
      if (beside === undefined || !asks(record)) continue
      return { ...((await unpacked(beside[1])) ?? NOTHING), offset: record.offset }
    }
  return nothing
}

/** The items of the input, each with an id. */
export const inputOf = (at: Located, { input }: Asked): readonly Item[] =>
  input.map((item, index) => ({ ...item, id: item.id ?? `${INPUT}${bodyOf(at)}_${index}` }))
