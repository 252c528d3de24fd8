/** How the records of an input become events: what a worker is told once, and what the partition cursor keeps. */
import { z } from 'zod'
import { generate } from './chunks.ts'
import { count } from './common.ts'

/**
 * Where the partition of a session comes from. `murmur2`: Kafka's Java clients and kafkajs; `crc32`: librdkafka, and
 * what is built on it (kcat, Confluent's Python, Go and .NET clients); `any`: from something that Continuo does not
 * check.
 */
export const PARTITIONERS = ['murmur2', 'crc32', 'any'] as const
/** How clients choose the partition of a key. */
export type Partitioner = (typeof PARTITIONERS)[number]

const name = z.string().min(1).max(512)

/**
 * Where the session of a record comes from, if not from its key: the value of a header, the partition, or one name for
 * all.
 */
export const sessionFrom = z.discriminatedUnion('is', [
  z.strictObject({ is: z.literal('header'), name }),
  z.strictObject({ is: z.literal('partition') }),
  z.strictObject({ is: z.literal('constant'), name }),
])
export type SessionFrom = z.infer<typeof sessionFrom>

/** The fields of a request that a rule makes: those of a `generate` event without its type and names. */
export const ruledRequest = generate.omit({ type: true, id: true, requestId: true })

/** Of plain text: which records also ask to continue. */
export const generateRule = z.strictObject({
  /** After so many records of a session since its last request. */
  every: z.int().min(1).max(1_000_000_000).optional(),
  /** After a record whose text ends with this. */
  after: z.string().min(1).max(256).optional(),
  /** After a record that carries this header: it holds the request's own fields as JSON. */
  header: name.optional(),
  /** What `every` and `after` ask for. */
  request: ruledRequest.optional(),
})
export type GenerateRule = z.infer<typeof generateRule>

/** What a worker is told of its input beside the format; each member is missing where it has its first value. */
export const inputRules = z.strictObject({
  /** Missing: `murmur2`. */
  partitioner: z.enum(PARTITIONERS).optional(),
  /** Missing: the record's key. */
  session: sessionFrom.optional(),
  /** Fields of events that nobody knows are left out; missing: such an event is refused. */
  unknownFields: z.literal('ignore').optional(),
  /** Records may be CloudEvents, and outputs are. */
  cloudEvents: z.literal(true).optional(),
  generate: generateRule.optional(),
  /** Of plain text: sessions tell of their lines what is new about them, and the end of a record ends a line. */
  novelty: z.literal(true).optional(),
  /** A line that is among this share of the last thousand of its session is an alert. */
  alerts: z.number().gt(0).max(0.5).optional(),
})
/** What a worker is told of its input beside the format. */
export type InputRules = z.infer<typeof inputRules>

/**
 * The input rules that a partition's cursor stores. `since`: in records from this offset on, a session that is new to
 * the partition is refused where the partitioner names another partition for its id.
 */
export const keptRules = inputRules.extend({ since: count })
export type KeptRules = z.infer<typeof keptRules>
