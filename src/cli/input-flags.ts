/** The flags that say how the records of an input become events, beside its format, and the rules that they are. */
import { generateRule, type InputRules, inputRules, PARTITIONERS, type SessionFrom } from '../../topics/input.ts'
import { schemaFault } from '../issues.ts'
import { faultOfRules } from '../operators/pipeline/input.ts'
import {
  choice,
  type Flag,
  on,
  optional,
  optionalReal,
  optionalWhole,
  refuseIdle,
  usage,
  type Values,
} from './flags.ts'

const FROM = 'key|partition|header:NAME|constant:NAME'

const sessionOf = (text: string, name: string): SessionFrom | undefined => {
  if (text === 'key') return undefined
  if (text === 'partition') return { is: text }
  const [, is, what] = /^(header|constant):(.{1,512})$/su.exec(text) ?? []
  if (is === 'header' || is === 'constant') return { is, name: what! }
  throw usage(`--${name} takes one of ${FROM}; "${text}" is none.`)
}

const sessionFlag: Flag<SessionFrom | undefined> = {
  kind: 'value',
  hint: FROM,
  help: 'where the session of a record comes from',
  fallback: 'key',
  read: (given, name) => (given.length === 0 ? undefined : sessionOf(given.at(-1)!, name)),
}

/** For a client that sends events before a worker has begun, and for the worker. */
export const partitionerHelp =
  "how the clients of the input choose a key's partition: murmur2 (Java, kafkajs), crc32 (librdkafka: kcat, Confluent's clients), any (not checked)"

export const inputFlags = {
  'key-partitioner': choice(PARTITIONERS, partitionerHelp, 'murmur2'),
  'session-from': sessionFlag,
  'unknown-fields': choice(['refuse', 'ignore'], 'of events: fields that this version does not know', 'refuse'),
  cloudevents: on('read records that are CloudEvents as such, and write outputs as CloudEvents (binary mode)'),
  alerts: optionalReal(
    'SHARE',
    'of sessions that tell of their lines: write an alert, to PREFIX.alerts, for each line that is among this share of the last thousand',
    { min: 0.0001, max: 0.5 },
  ),
  novelty: on('of plain text: tell of each line how new it is; the end of a record ends a line'),
  'generate-every': optionalWhole('N', 'of plain text: continue after every N records of a session', { min: 1 }),
  'generate-after': optional('TEXT', 'of plain text: continue after a record that ends with TEXT'),
  'generate-header': optional(
    'NAME',
    'of plain text: continue after a record with this header, which holds the request',
  ),
  'generate-request': optional('JSON', 'what --generate-every and --generate-after ask for: {"maxTokens":20}'),
}

const BY_RULE = ['generate-every', 'generate-after']
const OF_TEXT = ['novelty', ...BY_RULE, 'generate-header', 'generate-request']

const jsonOf = (text: string): unknown => {
  try {
    return JSON.parse(text)
  } catch {
    throw usage(`--generate-request takes JSON, as {"maxTokens":20}; "${text}" is none.`)
  }
}

/** Throws a usage error for rules that a topic of so many partitions cannot follow. */
export const checkRules = (rules: InputRules, partitions: number): void => {
  const fault = faultOfRules(rules, partitions)
  if (fault !== null) throw usage(fault)
}

/** The rules of the flags. Throws a usage error for flags that do not go together. */
export const rulesOf = (
  flags: Values<typeof inputFlags> & { readonly 'input-format': 'json' | 'text' },
  given: ReadonlySet<string>,
): InputRules => {
  const { 'session-from': session, 'key-partitioner': partitioner } = flags
  if (flags['input-format'] !== 'text') refuseIdle(given, OF_TEXT, '--input-format text')
  if (flags['input-format'] === 'text') refuseIdle(given, ['unknown-fields'], '--input-format json')
  if (session !== undefined && session.is !== 'header')
    refuseIdle(given, ['key-partitioner'], '--session-from key or header:NAME')
  const every = flags['generate-every']
  const after = flags['generate-after']
  const header = flags['generate-header']
  const request = flags['generate-request']
  const isRuled = every !== undefined || after !== undefined
  if (!isRuled && request !== undefined)
    throw usage('--generate-request goes with --generate-every or --generate-after; here it would do nothing.')
  if (isRuled && request === undefined)
    throw usage(
      `--${every === undefined ? 'generate-after' : 'generate-every'} needs --generate-request JSON: what to ask for, as {"maxTokens":20}.`,
    )
  const rule = {
    ...(every !== undefined && { every }),
    ...(after !== undefined && { after }),
    ...(header !== undefined && { header }),
    ...(request !== undefined && { request: jsonOf(request) }),
  }
  const parsed = generateRule.safeParse(rule)
  if (!parsed.success) {
    const issue = schemaFault(parsed.error)
    const [member, ...path] = issue.path
    throw usage(`--generate-${String(member)} cannot be used: ${[...path.map(String), issue.message].join(': ')}.`)
  }
  return inputRules.parse({
    ...(partitioner !== 'murmur2' && { partitioner }),
    ...(session !== undefined && { session }),
    ...(flags['unknown-fields'] === 'ignore' && { unknownFields: 'ignore' }),
    ...(flags.cloudevents && { cloudEvents: true }),
    ...(Object.keys(rule).length > 0 && { generate: parsed.data }),
    ...(flags.novelty && { novelty: true }),
    ...(flags.alerts !== undefined && { alerts: flags.alerts }),
  })
}
