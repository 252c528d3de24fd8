/**
 * docs/events.md: the topics that other programs write and read, with the fields of every event, from the AsyncAPI
 * document.
 */
import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { asyncApi } from '../../topics/asyncapi.ts'
import { anchorOf } from '../site/pages.ts'
import { code, fenced, page, prose, table } from './markdown.ts'

/** What of JSON Schema (draft 7) the topics use. */
interface Schema {
  readonly type?: string | readonly string[]
  readonly const?: unknown
  readonly enum?: readonly unknown[]
  readonly anyOf?: readonly Schema[]
  readonly oneOf?: readonly Schema[]
  readonly properties?: Readonly<Record<string, Schema>>
  readonly required?: readonly string[]
  readonly additionalProperties?: boolean | Schema
  readonly items?: Schema | readonly Schema[]
  readonly minItems?: number
  readonly maxItems?: number
  readonly minLength?: number
  readonly maxLength?: number
  readonly minimum?: number
  readonly maximum?: number
  readonly exclusiveMinimum?: number
  readonly contentEncoding?: string
  readonly pattern?: string
  readonly default?: unknown
}

const PREFIX = 'continuo'
/** Longer descriptions of an object stand in rows of their own. */
const INLINE = 4

const json = (value: unknown): string => code(JSON.stringify(value))

/** "1 to 64 characters", "at most 256", "from 0"; whole numbers end at 2^53 − 1 where nothing else is said. */
const range = (least: number | undefined, most: number | undefined, unit = ''): string => {
  const low = least === undefined || (least === 0 && unit !== '') ? undefined : least
  const high = most === Number.MAX_SAFE_INTEGER ? undefined : most
  if (low === undefined && high === undefined) return ''
  if (low === high) return `, ${low}${unit}`
  if (low === undefined) return `, at most ${high}${unit}`
  return high === undefined ? `, ${low}${unit} or more` : `, ${low} to ${high}${unit}`
}

const formsOf = (schema: Schema): readonly Schema[] => {
  const forms = schema.anyOf ?? schema.oneOf
  return forms === undefined ? [schema] : forms.flatMap(formsOf)
}

const textOf = ({ contentEncoding, pattern, minLength, maxLength }: Schema): string => {
  if (contentEncoding !== undefined) return `${contentEncoding}, as a string`
  const digits = /^\^\[0-9a-f\]\{(\d+)\}\$$/.exec(pattern ?? '')
  if (digits !== null) return `string of ${digits[1]} hexadecimal digits, in lower case`
  return `string${range(minLength, maxLength, ' characters')}${pattern === undefined ? '' : `, ${code(pattern)}`}`
}

const numberOf = ({ type, minimum, maximum, exclusiveMinimum }: Schema): string => {
  const above = exclusiveMinimum === undefined ? '' : `, above ${exclusiveMinimum}`
  return `${type === 'integer' ? 'whole number' : 'number'}${above}${range(minimum, maximum)}`
}

const arrayOf = ({ items, minItems, maxItems }: Schema): string => {
  if (Array.isArray(items)) return `array of ${items.map(kindOf).join(', then ')}`
  return `array of: ${kindOf((items ?? {}) as Schema)}${range(minItems, maxItems, ' entries')}`
}

const objectOf = ({ properties, additionalProperties }: Schema): string => {
  if (properties === undefined)
    return typeof additionalProperties === 'object' ? `object with values: ${kindOf(additionalProperties)}` : 'object'
  const names = Object.entries(properties)
  return `object: ${names.map(([name, schema]) => `${code(name)} (${kindOf(schema)})`).join(', ')}`
}

/** What a value may be, in words. */
const kindOf = (schema: Schema): string => {
  if (schema.const !== undefined) return json(schema.const)
  if (schema.enum !== undefined) return schema.enum.map(json).join(' or ')
  const forms = formsOf(schema)
  if (forms.length > 1) {
    const types = forms.map(({ properties }) => properties?.type?.const)
    if (types.every((type) => type !== undefined))
      return `object whose ${code('type')} is ${types.map(json).join(' or ')}`
    return [...new Set(forms.map(kindOf))].join('; or ')
  }
  const { type } = schema
  if (Array.isArray(type)) return type.map((one) => kindOf({ ...schema, type: one })).join(' or ')
  if (type === 'string') return textOf(schema)
  if (type === 'integer' || type === 'number') return numberOf(schema)
  if (type === 'array') return arrayOf(schema)
  if (type === 'object') return objectOf(schema)
  return typeof type === 'string' ? type : 'any JSON'
}

/** An object that has more fields than a cell holds, or objects in it: its fields become rows. */
const isLarge = ({ properties = {} }: Schema): boolean =>
  Object.keys(properties).length > INLINE ||
  Object.values(properties).some(({ type }) => type === 'object' || type === 'array')

const rowsOf = (schema: Schema, before = ''): readonly (readonly string[])[] =>
  Object.entries(schema.properties ?? {}).flatMap(([name, field]) => {
    const path = `${before}${name}`
    const must = schema.required?.includes(name) && field.default === undefined
    const end = must ? 'required' : field.default === undefined ? '' : json(field.default)
    const entries = field.type === 'array' && !Array.isArray(field.items) ? (field.items as Schema) : undefined
    if (field.properties !== undefined && isLarge(field))
      return [[code(path), 'object', end], ...rowsOf(field, `${path}.`)]
    if (entries?.properties !== undefined && isLarge(entries)) {
      const many = `array of objects${range(field.minItems, field.maxItems, ' entries')}`
      return [[code(path), many, end], ...rowsOf(entries, `${path}[].`)]
    }
    return [[code(path), kindOf(field), end]]
  })

const formats = readFileSync(join(import.meta.dirname, '..', '..', 'docs', 'formats.md'), 'utf8')
const headings = new Set([...formats.matchAll(/^#+ (.*)$/gm)].map(([, heading]) => anchorOf(heading!)))
const linkOf = (name: string): string => `[formats.md](formats.md#${name})`

/** The chapter of formats.md on a topic. */
const CHAPTERS: Readonly<Record<string, string>> = {
  chunks: 'input-events',
  tokens: 'output-events',
  observations: 'output-events',
  deadletters: 'dead-letters',
  alerts: 'alerts',
  state: 'state-records',
  snapshots: 'snapshots',
  blobs: 'the-topic-of-blobs',
}

const document = asyncApi(PREFIX)
type Name = keyof typeof CHAPTERS
interface Operation {
  readonly action: 'receive' | 'send'
  readonly channel: { readonly $ref: string }
}
/** What Continuo does with a topic, by its name; none for its own. */
const actions = new Map(
  Object.values<Operation>(document.operations).map(({ action, channel }) => [channel.$ref.split('/').at(-1)!, action]),
)
const WHO = {
  receive: 'Other programs write it, a worker reads it.',
  send: 'A worker writes it, other programs read it.',
}

const eventOf = (type: string, forms: readonly Schema[], examples: readonly unknown[]) => {
  const shown = examples.filter((example) => (example as { type?: unknown }).type === type)
  const own = headings.has(type) ? [`What each field means: ${linkOf(type)}.`] : []
  return [
    `### ${type}`,
    ...own,
    ...(forms.length > 1 ? [`One of ${forms.length} forms:`] : []),
    ...forms.map((form) => table(['field', 'value', 'default'], rowsOf(form))),
    ...(shown.length === 0
      ? []
      : [
          fenced(
            'json',
            shown.map((example) => JSON.stringify(example)),
          ),
        ]),
  ]
}

const topicOf = (name: Name) => {
  const { address, description, bindings } = document.channels[name]!
  const message = document.components.messages[name]!
  const settings = Object.entries(bindings.kafka.topicConfiguration)
  const action = actions.get(name)
  const schema = 'payload' in message ? (message.payload as { schema: Schema }).schema : null
  const examples =
    'examples' in message ? (message.examples as { payload: unknown }[]).map(({ payload }) => payload) : []
  const types =
    action === undefined || schema === null
      ? []
      : [...Map.groupBy(formsOf(schema), (form) => String(form.properties?.type?.const))]
  return [
    `## ${address}`,
    prose(description),
    table(
      ['', ''],
      [
        ['who', action === undefined ? "Continuo's own; no other program needs it." : WHO[action]],
        ['key', prose(message.bindings.kafka.key.description)],
        ['value', schema === null ? 'bytes' : 'JSON'],
        ['settings', settings.map(([key, value]) => code(`${key}=${value}`)).join(' ')],
        ['meaning', linkOf(CHAPTERS[name]!)],
      ],
    ),
    ...types.flatMap(([type, forms]) => eventOf(type, forms, examples)),
  ]
}

export const eventsPage = (): string =>
  page([
    '# Topics and events',
    'Made by `node tools/reference.ts` from the AsyncAPI document; an edit of this page is lost.',
    [
      `\`continuo topics schema --asyncapi\` prints that document, and \`continuo topics schema TOPIC\` the JSON Schema of one topic, with all that is left out here. ${code(PREFIX)} stands for the`,
      'prefix of the log. [formats.md](formats.md) says what the fields mean, [streams.md](streams.md) how clients of other languages write and read them.',
    ],
    'A field without a default that is not required may be absent. Fields of objects in an object are written `a.b`, those of the objects of an array `a[].b`.',
    ...Object.keys(document.channels).flatMap(topicOf),
  ])
