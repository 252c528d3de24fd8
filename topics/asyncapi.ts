/**
 * The topics as an AsyncAPI 3.0 document: the same schemas, with the names of a prefix and what Kafka needs to know.
 */
import type { TopicContract } from './common.ts'
import { jsonSchema, TOPICS, topicNames } from './index.ts'

/** Version of the document, which is that of the schemas in it. */
const VERSION = '1'
const KAFKA = '0.5.0'
/** What Continuo does with the topics that others write or read; the rest is its own state. */
const OPERATIONS: Partial<Record<TopicContract['name'], 'receive' | 'send'>> = {
  chunks: 'receive',
  tokens: 'send',
  observations: 'send',
  deadletters: 'send',
  alerts: 'send',
}

const ref = (path: string) => ({ $ref: `#/${path}` })

const messageOf = (topic: TopicContract) => {
  // Every tool of AsyncAPI must read this version of JSON Schema, and few read a later one.
  const schema = jsonSchema(topic, 'draft-7')
  return {
    name: topic.name,
    title: topic.purpose,
    contentType: schema === null ? 'application/octet-stream' : 'application/json',
    bindings: { kafka: { key: { type: 'string', description: topic.key }, bindingVersion: KAFKA } },
    // The schema stands here as it is: it refers to nothing outside of itself, so a registry takes it from here.
    ...(schema !== null && {
      payload: { schemaFormat: 'application/schema+json;version=draft-07', schema },
      examples: topic.examples.map((payload) => ({ payload })),
    }),
  }
}

/** `input` replaces the name of the chunks topic where an existing topic is read. */
export const asyncApi = (prefix: string, input?: string) => {
  const names = topicNames(prefix, input)
  const operations = Object.entries(OPERATIONS).map(([name, action]) => [
    `${action}-${name}`,
    {
      action,
      channel: ref(`channels/${name}`),
      messages: [ref(`channels/${name}/messages/${name}`)],
      summary: TOPICS.find((topic) => topic.name === name)!.purpose,
    },
  ])
  return {
    asyncapi: '3.0.0',
    id: `urn:continuo:topics:${prefix}`,
    info: {
      title: 'Continuo',
      version: VERSION,
      description:
        'Events for sessions of a language model in, generated tokens and observations out. What an operation does is said of Continuo: it receives chunks and sends the rest. The topics state, snapshots and blobs are its own.',
    },
    defaultContentType: 'application/json',
    channels: Object.fromEntries(
      TOPICS.map((topic) => [
        topic.name,
        {
          address: names[topic.name],
          description: topic.purpose,
          messages: { [topic.name]: ref(`components/messages/${topic.name}`) },
          bindings: {
            kafka: {
              topic: names[topic.name],
              topicConfiguration: {
                'cleanup.policy': [topic.settings['cleanup.policy']],
                'retention.ms': Number(topic.settings['retention.ms']),
                'retention.bytes': Number(topic.settings['retention.bytes']),
                'max.message.bytes': Number(topic.settings['max.message.bytes']),
              },
              bindingVersion: KAFKA,
            },
          },
        },
      ]),
    ),
    operations: Object.fromEntries(operations),
    components: { messages: Object.fromEntries(TOPICS.map((topic) => [topic.name, messageOf(topic)])) },
  }
}
