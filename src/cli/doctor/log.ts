/** Checks of a log: reachable, and its topics as Continuo needs them. */
import type { TopicContract } from '../../../topics/common.ts'
import { TOPICS, type TopicNames } from '../../../topics/index.ts'
import { tryBlobStore } from '../../blobs/open.ts'
import { changedCount, namesOf } from '../../client/topics.ts'
import { codeOf, type ErrorCode, messageOf } from '../../errors.ts'
import { isCompacted } from '../../operators/pipeline/compacted-input.ts'
import { BROKER } from '../../places.ts'
import type { EventLog, OpenLogOptions, TopicInfo } from '../../streams/log.ts'
import { openLog } from '../../streams/open.ts'
import { tellChange } from '../../streams/partition-count.ts'
import { missingFile } from '../common.ts'
import { plural } from '../output.ts'
import { type Check, fail, ok, warn } from './check.ts'
import { checkGroup } from './group.ts'
import { checkProgress } from './progress.ts'
import { checkSessions } from './sessions.ts'

const reachRemedy = (url: string): string =>
  url.startsWith('kafka:')
    ? `Is the broker running, and are host, port and credentials right? ${BROKER} starts one on this machine.`
    : 'Check the path, its permissions and the disk; the folder must be on a local disk.'

const checkPartitions = (input: TopicInfo, others: readonly TopicInfo[], names: TopicNames): readonly Check[] => {
  const changed = changedCount([input, ...others], names)
  if (changed !== null) {
    const { what, remedy } = tellChange(changed)
    return [fail('partitions', what, remedy)]
  }
  return others
    .filter(({ partitions }) => partitions !== input.partitions)
    .map(({ name, partitions }) =>
      fail(
        'partitions',
        `${name} has ${partitions}, the input topic ${input.name} has ${input.partitions}`,
        'Partition i of each belongs together. Use another prefix, or create the topics anew with one count: continuo topics apply.',
      ),
    )
}

/**
 * The values in force, whether set for the topic or inherited from the broker (whose default keeps records for seven
 * days). Kafka counts a limit of −1 as none. How long events are kept is for their owner to decide; a session's state
 * is not.
 */
const checkSettings = (topic: TopicInfo, role: TopicContract['name']): readonly Check[] => {
  const isState = role === 'state' || role === 'snapshots' || role === 'blobs'
  const found: Check[] = []
  const set = (key: string, wanted: string, hard: boolean, why: string): void => {
    const value = topic.config[key]
    if (value === undefined || value === wanted) return
    const make = hard ? fail : warn
    found.push(
      make(
        'settings',
        `${topic.name}: ${key}=${value}; ${why}`,
        `kafka-configs.sh --alter --entity-type topics --entity-name ${topic.name} --add-config ${key}=${wanted}`,
      ),
    )
  }
  set(
    'cleanup.policy',
    'delete',
    role !== 'chunks' || isCompacted(topic),
    'compaction removes records that positions and references name',
  )
  const need = isState
    ? 'and a session whose state is gone cannot resume'
    : 'and a resume or a verification may need them'
  set('retention.ms', '-1', isState, `records vanish by age, ${need}`)
  set('retention.bytes', '-1', isState, `records vanish by size, ${need}`)
  const limit = Number(topic.config['max.message.bytes'] ?? 1_048_576)
  if (limit < 1_000_000) {
    found.push(
      fail(
        'settings',
        `${topic.name}: max.message.bytes=${limit}; events and snapshot parts take up to 1 MB`,
        `Set max.message.bytes=1048576 on ${topic.name}.`,
      ),
    )
  }
  return found
}

const checkTopics = async (log: EventLog, inputTopic: string | undefined, group: string): Promise<readonly Check[]> => {
  const names = namesOf(log, inputTopic)
  const infos = await log.topics(Object.values(names))
  const byName = new Map(infos.map((info) => [info.name, info]))
  const needed = TOPICS.filter(({ isOptional }) => !isOptional)
  const missing = needed.map(({ name }) => names[name]).filter((name) => !byName.has(name))
  const apply = `continuo topics apply --log ${log.url}`
  const input = byName.get(names.chunks)
  if (missing.length === needed.length) return [warn('topics', 'none yet', `continuo run creates them, or: ${apply}`)]
  if (input === undefined) return [fail('topics', `the input topic ${names.chunks} is missing`, apply)]
  const ours = TOPICS.flatMap(({ name: role }) => {
    const topic = byName.get(names[role])
    return topic === undefined ? [] : [{ role, topic }]
  })
  const faults = [
    ...(missing.length === 0 ? [] : [warn('topics', `missing: ${missing.join(', ')}`, apply)]),
    ...checkPartitions(
      input,
      ours.map(({ topic }) => topic),
      names,
    ),
    ...ours.flatMap(({ role, topic }) => checkSettings(topic, role)),
  ]
  const topics =
    faults.length > 0
      ? faults
      : [ok('topics', `${ours.length} topics of ${plural(input.partitions, 'partition')}, settings as needed`)]
  const { state, snapshots } = names
  const held =
    byName.has(state) && byName.has(snapshots)
      ? [...(await checkSessions(log, names)), ...(await checkProgress(log, names))]
      : []
  return [...topics, await checkGroup(log, group, input), ...held]
}

/** Reads every record of an embedded log, which checks it; Kafka's brokers check theirs. */
const checkRecords = async (log: EventLog, inputTopic: string | undefined): Promise<readonly Check[]> => {
  if (log.kind !== 'embedded') return []
  const found: Check[] = []
  let records = 0
  for (const { name, partitions } of await log.topics(Object.values(namesOf(log, inputTopic)))) {
    for (let partition = 0; partition < partitions; partition += 1) {
      try {
        const { begin, end } = await log.bounds(name, partition)
        for await (const batch of log.read(name, partition, begin, { until: end })) records += batch.records.length
      } catch (error) {
        found.push(fail('records', messageOf(error), 'Stop the workers and restore the log from a copy.'))
      }
    }
  }
  return found.length > 0 ? found : [ok('records', `${plural(records, 'record')} read, each as it was written`)]
}

/** The store is written and read, and what was written is removed. */
const checkBlobs = async ({ blobs }: EventLog): Promise<readonly Check[]> => {
  if (blobs === undefined) return []
  try {
    await tryBlobStore(blobs)
    return [ok('blobs', `${blobs.url} can be written and read`)]
  } catch (error) {
    return [fail('blobs', messageOf(error), 'Do as the sentence says.')]
  }
}

const REMEDIES: Partial<Record<ErrorCode, string>> = {
  INVALID: 'Write the URL as the sentence says.',
  DENIED: 'Do as the sentence says.',
}

export const checkLog = async (
  url: string,
  inputTopic: string | undefined,
  group: string,
  options: OpenLogOptions = {},
): Promise<readonly Check[]> => {
  let log: EventLog
  try {
    const missing = missingFile(url)
    if (missing !== null) {
      return [
        warn('log', `nothing at ${missing} yet`, `continuo run creates it, or: continuo topics apply --log ${url}`),
      ]
    }
    log = await openLog(url, options)
  } catch (error) {
    return [fail('log', messageOf(error), REMEDIES[codeOf(error)] ?? reachRemedy(url))]
  }
  try {
    await log.ping()
    return [
      ok('log', `${log.url} answers (${log.kind})`),
      ...(await checkBlobs(log)),
      ...(await checkTopics(log, inputTopic, group)),
      ...(await checkRecords(log, inputTopic)),
    ]
  } catch (error) {
    return [fail('log', messageOf(error), reachRemedy(url))]
  } finally {
    await log.close()
  }
}
