import { asyncApi } from '../../../topics/asyncapi.ts'
import type { TopicContract } from '../../../topics/common.ts'
import { jsonSchema, TOPICS } from '../../../topics/index.ts'
import { ensureTopics, namesOf } from '../../client/topics.ts'
import { compactionWarning } from '../../operators/pipeline/compacted-input.ts'
import type { EventLog } from '../../streams/log.ts'
import { command, type ExitCode } from '../command.ts'
import { partitionsFlag, TLS_FLAGS, tlsFlags, withExistingLog, withLog } from '../common.ts'
import { nearest, on, optional, refuseIdle, usage } from '../flags.ts'
import { count, plural, print, printJson, say, table } from '../output.ts'

const ACTIONS = ['apply', 'list', 'schema'] as const
type Action = (typeof ACTIONS)[number]

const actionOf = (text: string): Action => {
  const known = ACTIONS.find((action) => action === text)
  if (known !== undefined) return known
  const meant = nearest(text, ACTIONS)
  throw usage(
    `continuo topics takes apply, list or schema, not "${text}".${meant === null ? '' : ` Did you mean ${meant}?`}`,
  )
}

const contractOf = (name: string): TopicContract => {
  const known = TOPICS.find((topic) => topic.name === name)
  if (known !== undefined) return known
  throw usage(`The topics are ${TOPICS.map((topic) => topic.name).join(', ')}; "${name}" is none of them.`)
}

/** JSON in both forms: a schema is for machines, and people read it indented. */
const schema = (name: string | undefined, json: boolean): ExitCode => {
  const chosen = name === undefined ? TOPICS : [contractOf(name)]
  const described = chosen.map((topic) => ({
    topic: topic.name,
    purpose: topic.purpose,
    key: topic.key,
    settings: topic.settings,
    schema: jsonSchema(topic),
    examples: topic.examples,
  }))
  if (json) for (const each of described) printJson(each)
  else print(JSON.stringify(name === undefined ? described : described[0], null, 2))
  return 0
}

const list = async (log: EventLog, input: string | undefined, json: boolean): Promise<ExitCode> => {
  const infos = (await log.topics(input === undefined ? [] : [input])).toSorted((a, b) => (a.name < b.name ? -1 : 1))
  const rows: string[][] = []
  for (const { name, partitions, config } of infos) {
    let begin = 0
    let end = 0
    for (let partition = 0; partition < partitions; partition += 1) {
      const bounds = await log.bounds(name, partition)
      begin += bounds.begin
      end += bounds.end
    }
    if (json) printJson({ name, partitions, span: end - begin, config })
    else {
      const settings = Object.entries(config).map(([key, value]) => `${key}=${value}`)
      rows.push([name, String(partitions), count(end - begin), settings.join(' ')])
    }
  }
  if (json) return 0
  print(
    rows.length === 0
      ? `No topics below ${log.prefix} in ${log.url}.`
      : table(['topic', '>partitions', '>offsets', 'settings'], rows),
  )
  return 0
}

export const topics = command({
  name: 'topics',
  about:
    'apply creates the topics that are missing, with the settings Continuo needs; list shows what is there; schema prints the JSON Schema of their values, or an AsyncAPI document of all.',
  args: [
    { name: 'ACTION', help: 'apply, list or schema', required: true },
    { name: 'TOPIC', help: 'with schema: only this one', required: false },
  ],
  flags: {
    log: optional('URL', 'the log, for apply and list'),
    ...tlsFlags,
    'input-topic': optional('TOPIC', 'create this topic, or list it, instead of PREFIX.chunks'),
    partitions: partitionsFlag,
    alerts: on('with apply: the topic of alerts too, which `continuo run --alerts` writes'),
    asyncapi: on('with schema: all topics as one AsyncAPI 3.0 document'),
    prefix: optional('NAME', 'with --asyncapi: the first part of the names in it (default: continuo)'),
  },
  notes: 'All topics have one partition count: partition i of the outputs belongs to partition i of the input.',
  examples: [
    'topics apply --log kafka://127.0.0.1:9092/continuo --partitions 8',
    'topics schema chunks',
    'topics schema --asyncapi --prefix shop',
  ],
  async run(flags, [name, topic], given) {
    const action = actionOf(name!)
    if (topic !== undefined && action !== 'schema')
      throw usage(`continuo topics ${action} takes flags only; "${topic}" is too much.`)
    if (action !== 'apply') refuseIdle(given, ['partitions', 'alerts'], 'continuo topics apply')
    if (action !== 'schema') refuseIdle(given, ['asyncapi'], 'continuo topics schema')
    if (!flags.asyncapi) refuseIdle(given, ['prefix'], '--asyncapi')
    if (action === 'schema') {
      refuseIdle(given, ['log', ...TLS_FLAGS], 'continuo topics apply and list')
      if (!flags.asyncapi) {
        refuseIdle(given, ['input-topic'], 'continuo topics apply and list')
        return schema(topic, flags.json)
      }
      if (topic !== undefined) throw usage(`An AsyncAPI document has all topics; "${topic}" is too much.`)
      const document = asyncApi(flags.prefix ?? 'continuo', flags['input-topic'])
      print(flags.json ? JSON.stringify(document) : JSON.stringify(document, null, 2))
      return 0
    }
    if (flags.log === undefined) throw usage(`continuo topics ${action} needs --log URL.`)
    const at = { ...flags, log: flags.log }
    if (action === 'list') return withExistingLog(at, (log) => list(log, flags['input-topic'], flags.json))
    return withLog(at, async (log): Promise<ExitCode> => {
      const names = namesOf(log, flags['input-topic'])
      const { partitions, created } = await ensureTopics(log, names, flags.partitions, { alerts: flags.alerts })
      const warning = await compactionWarning(log, names.chunks)
      if (warning !== null) say(warning)
      if (flags.json) printJson({ log: log.url, partitions, created })
      else {
        const what = created.length === 0 ? 'All topics exist' : `Created ${created.join(', ')}`
        print(`${what}: ${plural(partitions, 'partition')} each, in ${log.url}.`)
      }
      return 0
    })
  },
})
