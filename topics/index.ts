/** The contract with other programs: one file for each topic. */
import { z } from 'zod'
import { alerts } from './alerts.ts'
import { blobs } from './blobs.ts'
import { chunks } from './chunks.ts'
import type { TopicContract } from './common.ts'
import { deadletters } from './deadletters.ts'
import { observations } from './observations.ts'
import { snapshots } from './snapshots.ts'
import { state } from './state.ts'
import { tokens } from './tokens.ts'

/** Every topic of a log, with schema, key, settings and examples. */
export const TOPICS: readonly TopicContract[] = [
  chunks,
  tokens,
  observations,
  state,
  snapshots,
  blobs,
  deadletters,
  alerts,
]

/** Full names of the topics, by their name in the contract. */
export type TopicNames = Readonly<Record<TopicContract['name'], string>>

/** The full topic names of a prefix. `input` replaces the name of the chunks topic where an existing topic is read. */
export const topicNames = (prefix: string, input?: string): TopicNames => ({
  chunks: input ?? `${prefix}.chunks`,
  tokens: `${prefix}.tokens`,
  observations: `${prefix}.observations`,
  state: `${prefix}.state`,
  snapshots: `${prefix}.snapshots`,
  blobs: `${prefix}.blobs`,
  deadletters: `${prefix}.deadletters`,
  alerts: `${prefix}.alerts`,
})

/** The name of the schema of a topic's values: it changes with the `version` in them, and with nothing else. */
export const schemaId = (topic: TopicContract['name']): string => `urn:continuo:schema:${topic}:v1`

/** JSON Schema of a topic's values in the log, whole in itself; null where the value is not JSON. */
export const jsonSchema = (
  topic: TopicContract,
  target: 'draft-2020-12' | 'draft-7' = 'draft-2020-12',
): Readonly<Record<string, unknown>> | null =>
  topic.value === null ? null : { $id: schemaId(topic.name), ...z.toJSONSchema(topic.value, { io: 'input', target }) }
