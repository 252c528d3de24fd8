/**
 * The topics of a log, as its clients need them: created where they are missing, with one number of partitions for all.
 */
import { TOPICS, type TopicNames, topicNames } from '../../topics/index.ts'
import { ContinuoError } from '../errors.ts'
import type { EventLog, TopicInfo, TopicSpec } from '../streams/log.ts'
import { countChanged, type PartitionCount } from '../streams/partition-count.ts'

export const namesOf = (log: EventLog, input?: string): TopicNames => topicNames(log.prefix, input)

const byRole = (found: readonly TopicInfo[], names: TopicNames) => ({
  input: found.find(({ name }) => name === names.chunks),
  state: found.find(({ name }) => name === names.state),
})

/**
 * Both numbers of partitions, where those of input and state differ; null where they are equal or a topic is missing.
 */
export const changedCount = (found: readonly TopicInfo[], names: TopicNames): PartitionCount | null => {
  const { input, state } = byRole(found, names)
  if (input === undefined || state === undefined || input.partitions === state.partitions) return null
  const witness = `the state in ${names.state}`
  return { input: names.chunks, now: input.partitions, before: state.partitions, witness }
}

/**
 * Partitions that the log was written with, for clients that only read; `changed` where the input has another number by
 * now. Throws INVALID when the log has no input topic.
 */
export const partitionsIn = async (
  log: EventLog,
  names: TopicNames,
): Promise<{ readonly partitions: number; readonly changed: PartitionCount | null }> => {
  const topics = await log.topics([names.chunks])
  const { input, state } = byRole(topics, names)
  const changed = changedCount(topics, names)
  if (input !== undefined)
    return { partitions: Math.min(input.partitions, state?.partitions ?? input.partitions), changed }
  throw new ContinuoError(
    'INVALID',
    `The log ${log.url} has no topic ${names.chunks}${log.kind === 'kafka' ? ', or this user has no permission to see it' : ''}. Check --log and its prefix, or create the topics: continuo topics apply --log ${log.url}`,
  )
}

/** `alerts`: the topic of alerts, too. */
const specOf = (names: TopicNames, partitions: number, alerts: boolean): TopicSpec[] =>
  TOPICS.filter(({ isOptional }) => alerts || !isOptional).map(({ name, settings }) => ({
    name: names[name],
    partitions,
    config: settings,
  }))

/**
 * Creates the topics that are missing, all with the input topic's partition count. `partitions` is what the user asked
 * for; another number than an existing topic has is INVALID. `alerts`: the topic of alerts is one of them. Returns the
 * names it created.
 */
export const ensureTopics = async (
  log: EventLog,
  names: TopicNames,
  partitions?: number,
  { alerts = false }: { readonly alerts?: boolean } = {},
): Promise<{ readonly partitions: number; readonly created: readonly string[] }> => {
  const existing = await log.topics([names.chunks])
  const changed = changedCount(existing, names)
  if (changed !== null) throw countChanged(changed)
  const input = existing.find(({ name }) => name === names.chunks)
  const wanted = specOf(names, partitions ?? input?.partitions ?? 1, alerts)
  for (const { name, partitions: asked } of wanted) {
    const found = existing.find((topic) => topic.name === name)
    if (found === undefined || found.partitions === asked) continue
    throw new ContinuoError(
      'INVALID',
      `Topic ${name} has ${found.partitions} partition${found.partitions === 1 ? '' : 's'}, expected ${asked}: the number cannot change, because keys belong to partitions. ${
        partitions === undefined
          ? `Partition i of each topic belongs to partition i of ${names.chunks}. Use another prefix, or delete ${name}, if what it holds is not needed: it will be created anew.`
          : 'Ask for the number it has, or use another prefix.'
      }`,
    )
  }
  await log.createTopics(wanted)
  const created = wanted.map(({ name }) => name).filter((name) => !existing.some((topic) => topic.name === name))
  return { partitions: wanted[0]!.partitions, created }
}

/**
 * The same for a client that writes events and needs no right on other topics than the input: looks only at the input
 * where that is there. Throws REFUSED when its number of partitions changed. Returns the names it created.
 */
export const ensureInput = async (log: EventLog, names: TopicNames): Promise<readonly string[]> => {
  const found = await log.topics([names.chunks])
  const changed = changedCount(found, names)
  if (changed !== null) throw countChanged(changed)
  if (found.some(({ name }) => name === names.chunks)) return []
  return (await ensureTopics(log, names)).created
}
