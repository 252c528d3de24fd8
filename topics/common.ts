import { z } from 'zod'

/**
 * A session id is the record's key: 1 to 512 characters (UTF-16 units), as UTF-8. The empty key is reserved for the
 * partition cursor.
 */
export const sessionId = z.string().min(1).max(512)

/** Whole numbers that JSON carries exactly. */
export const count = z.int().min(0)

/** 32 lower-case hex digits: the 128-bit chain. */
export const chain = z.string().regex(/^[0-9a-f]{32}$/)

export const sha256 = z.string().regex(/^[0-9a-f]{64}$/)

/** The input record that caused an output. */
export const cause = z.strictObject({
  topic: z.string(),
  partition: count,
  offset: count,
  /** The chunk's own `id`, if it carried one. */
  id: z.string().nullable(),
})
export type Cause = z.infer<typeof cause>

/** The content of a topic file: the contract between writers and readers of the topic. */
export interface TopicContract {
  /** Name without prefix. */
  readonly name: 'chunks' | 'tokens' | 'observations' | 'state' | 'snapshots' | 'blobs' | 'deadletters' | 'alerts'
  /** What is in it, for people. */
  readonly purpose: string
  /** What the key of a record is, for people. */
  readonly key: string
  /** JSON schema of the value, where the value is JSON. */
  readonly value: z.ZodType | null
  /** Topic settings in Kafka's names. */
  readonly settings: Readonly<Record<string, string>>
  /** Made where a worker is asked for what is in it; a log may be without it. */
  readonly isOptional?: true
  /** Values that the schema takes. */
  readonly examples: readonly unknown[]
}

/**
 * Settings of a topic that is kept until it is trimmed: no record that a resume or a verification needs is deleted by
 * age or size.
 */
export const KEPT = {
  'cleanup.policy': 'delete',
  'retention.ms': '-1',
  'retention.bytes': '-1',
  'max.message.bytes': '1048576',
} as const

/** Characters of the key of an event's `once`, and of its attempt, at most. */
export const MOST_ONCE = { key: 64, attempt: 256 }

/** Characters of the regular expression that begins a record of several lines. */
export const MAX_JOIN = 256

/**
 * What ended a request before its own end: a `cancel` event, a `delete` event of its session, or the worker, whose time
 * for an adaptation was over.
 */
export const endedBy = z.enum(['cancel', 'delete', 'time'])
export type EndedBy = z.infer<typeof endedBy>
