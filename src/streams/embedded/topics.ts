import { ContinuoError } from '../../errors.ts'
import type { TopicInfo, TopicSpec } from '../log.ts'
import type { Database } from './database.ts'
import { isTopicName } from './url.ts'

export interface Topic extends TopicInfo {
  readonly id: number
  /** `max.message.bytes`: the largest record, in bytes as Kafka counts them. */
  readonly maxRecordBytes: number
}

export interface Topics {
  create(specs: readonly TopicSpec[]): Promise<void>
  list(names: readonly string[]): Promise<TopicInfo[]>
  /** Inside a transaction. The names of the topics below the prefix. */
  ours(): readonly string[]
  /** Inside a transaction. Throws INVALID for a topic that does not exist. */
  find(name: string): Topic
  /** As `find`; throws INVALID for a partition that does not exist. */
  findPartition(name: string, partition: number): Topic
}

/** Kafka's default for `max.message.bytes`, less what only its brokers count. */
const MAX_MESSAGE_BYTES = '1048576'

const invalid = (message: string): ContinuoError => new ContinuoError('INVALID', message)

const maxRecordBytes = (name: string, config: Readonly<Record<string, string>>): number => {
  const text = config['max.message.bytes'] ?? MAX_MESSAGE_BYTES
  const bytes = Number(text)
  if (Number.isSafeInteger(bytes) && bytes > 0) return bytes
  throw invalid(`max.message.bytes of topic ${name} is a positive number of bytes, "${text}" is not.`)
}

const checkSpec = (spec: TopicSpec): void => {
  if (!isTopicName(spec.name))
    throw invalid(`A topic's name is 1 to 249 of a-z, A-Z, 0-9, ".", "_" and "-"; "${spec.name}" is not.`)
  if (!Number.isSafeInteger(spec.partitions) || spec.partitions < 1)
    throw invalid(`Topic ${spec.name} needs at least 1 partition, ${spec.partitions} were asked for.`)
  maxRecordBytes(spec.name, spec.config)
}

interface TopicRow {
  readonly id: number
  readonly name: string
  readonly partitions: number
  readonly config: string
}

const infoOf = (row: TopicRow): TopicInfo => ({
  name: row.name,
  partitions: row.partitions,
  config: JSON.parse(row.config),
})

export const openTopics = (db: Database, prefix: string): Topics => {
  const byName = db.prepare<TopicRow>('SELECT id, name, partitions, config FROM topics WHERE name = ?')
  const allTopics = db.prepare<TopicRow>('SELECT id, name, partitions, config FROM topics ORDER BY name')
  const insertTopic = db.prepare<{ id: number }>(
    'INSERT INTO topics (name, partitions, config) VALUES (?, ?, ?) RETURNING id',
  )
  const insertPartition = db.prepare('INSERT INTO partitions (topic, partition, "begin", "end") VALUES (?, ?, 0, 0)')
  // A topic never changes nor goes away once it exists.
  const known = new Map<string, Topic>()

  const find = (name: string): Topic => {
    const cached = known.get(name)
    if (cached !== undefined) return cached
    const row = byName.get(name)
    if (row === undefined)
      throw invalid(`Topic ${name} does not exist in ${db.path}. Create it first (continuo topics apply).`)
    const info = infoOf(row)
    const topic = { ...info, id: row.id, maxRecordBytes: maxRecordBytes(name, info.config) }
    known.set(name, topic)
    return topic
  }

  const create = (spec: TopicSpec): void => {
    const row = byName.get(spec.name)
    if (row !== undefined) {
      if (row.partitions === spec.partitions) return
      throw invalid(
        `Topic ${spec.name} exists with ${row.partitions} partitions, ${spec.partitions} were asked for. Ask for ${row.partitions}, or use another prefix.`,
      )
    }
    const { id } = insertTopic.get(spec.name, spec.partitions, JSON.stringify(spec.config))!
    for (let partition = 0; partition < spec.partitions; partition++) insertPartition.run(id, partition)
  }

  const isOurs = ({ name }: { readonly name: string }): boolean => name.startsWith(`${prefix}.`)

  return {
    find,
    ours: () =>
      allTopics
        .all()
        .filter(isOurs)
        .map(({ name }) => name),
    findPartition: (name, partition) => {
      const topic = find(name)
      if (Number.isInteger(partition) && partition >= 0 && partition < topic.partitions) return topic
      throw invalid(
        `Topic ${name} has the partitions 0 to ${topic.partitions - 1}; there is no partition ${partition}.`,
      )
    },
    create: async (specs) => {
      for (const spec of specs) checkSpec(spec)
      await db.write('creating topics', () => {
        for (const spec of specs) create(spec)
      })
    },
    list: (names) =>
      db.read('listing topics', () =>
        allTopics
          .all()
          .filter((row) => isOurs(row) || names.includes(row.name))
          .map(infoOf),
      ),
  }
}
